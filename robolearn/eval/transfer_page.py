"""The page of a transfer: policies trained under several dynamics, on arms whose dynamics nobody was shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from robolearn.eval.intervals import Success
from robolearn.eval.plots import COLOURS, STYLE, canvas, legend
from robolearn.eval.report import picture, render_page, write_page

Arms = Mapping[str, Success]
"""Name of a hidden arm → success of a policy on it."""
NAMES = ("--c1", "--c2", "--c3", "--c4", "--c5")


def draw_arms(title: str, rows: Mapping[str, Arms]) -> Figure:
    """Success on each arm with its 95% interval over episodes, one colour for what the policy was trained under."""
    arms = sorted({arm for found in rows.values() for arm in found})
    with mpl.rc_context(STYLE):
        figure, axes = canvas(title, "hidden arm", "success [%]", percent=True, lines=2)
        for k, (name, found) in enumerate(rows.items()):
            for i, arm in enumerate(arm for arm in arms if arm in found):
                at, one = arms.index(arm) + 0.16 * (k - 0.5 * (len(rows) - 1)), found[arm]
                axes.plot([at, at], [one.low, one.high], color=COLOURS[NAMES[k]], linewidth=1.8)
                axes.plot(at, one.rate, "o", color=COLOURS[NAMES[k]], markersize=4, label=None if i else name)
        axes.set_xticks(range(len(arms)), arms)
        axes.set_xlim(-0.5, len(arms) - 0.5)
        legend(axes, len(rows))
    return figure


def write_transfer_page(
    path: Path,
    task: str,
    kinds: Mapping[str, Mapping[str, Arms]],
    promised: Mapping[str, Mapping[str, float]],
    predictions: Sequence[tuple[str, ...]],
    command: str,
) -> Path:
    """Write the page at `path`.

    Args:
      kinds: sort of policy → what it was trained under → its success on each arm; of `NAMES` at most so many.
      promised: the same → success in the simulation that it was trained in.
      predictions: rows of simulator, Pearson's r, MMRV, and points by which success is off; may be none.
      command: that makes it again.
    """
    tables = []
    for kind, rows in kinds.items():
        arms = sorted({arm for found in rows.values() for arm in found})
        lines = [
            (name, f"{100 * promised[kind][name]:.1f}", *(_percent(found.get(arm)) for arm in arms))
            for name, found in rows.items()
        ]
        tables.append((kind, ("trained under", "promised", *arms), lines))
    html = render_page(
        "transfer.html",
        title=f"Transfer of {task} to hidden arms",
        tables=tables,
        pictures=[picture(draw_arms(kind, rows), f"p{i}") for i, (kind, rows) in enumerate(kinds.items())],
        predictions=predictions,
        commands=[command],
    )
    return write_page(path, html)


def _percent(one: Success | None) -> str:
    return "–" if one is None else f"{100 * one.rate:.1f} ({100 * one.low:.1f}–{100 * one.high:.1f})"
