"""The page of an identification: findings, how sure they are, and predictions of held-out motions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robolearn.eval.plots import COLOURS, MUTED, STYLE, canvas, legend
from robolearn.eval.report import picture, render_page, write_page

SHOWN_S = 6.0  # of a held-out motion
_NOMINAL, _FOUND = COLOURS["--c1"], COLOURS["--c2"]


@dataclass(frozen=True)
class HeldOut:
    """A held-out motion: (T, n) measured positions, and as two models predict them [rad], every `period` [s]."""

    period: float
    measured: NDArray[np.float64]
    nominal: NDArray[np.float64]
    identified: NDArray[np.float64]

    def errors(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(n,) root mean square errors of both models [mrad]."""
        both = (1e3 * (self.measured - each) for each in (self.nominal, self.identified))
        nominal, identified = (np.sqrt(np.mean(error**2, axis=0)) for error in both)
        return nominal, identified


def draw_errors(held: HeldOut) -> Figure:
    """Tracking error of both models, joint by joint, on a logarithmic axis."""
    nominal, identified = held.errors()
    with mpl.rc_context(STYLE):
        figure, axes = canvas("Error on the held-out motion", "joint", "root mean square [mrad]", lines=2)
        at = np.arange(1, len(nominal) + 1)
        axes.bar(at - 0.2, nominal, width=0.38, color=_NOMINAL, label="model as it is")
        axes.bar(at + 0.2, identified, width=0.38, color=_FOUND, label="identified")
        axes.set_yscale("log")
        legend(axes, 2)
    return figure


def draw_motion(held: HeldOut) -> Figure:
    """The errors of both models over time, in the joint that the nominal one predicts worst."""
    worst = int(np.argmax(held.errors()[0]))
    rows = slice(0, round(SHOWN_S / held.period))
    t = held.period * np.arange(len(held.measured))[rows]
    with mpl.rc_context(STYLE):
        figure, axes = canvas(f"Joint {worst + 1}: measured minus predicted", "time [s]", "error [mrad]", lines=2)
        for values, colour, label in (
            (held.nominal, _NOMINAL, "model as it is"), (held.identified, _FOUND, "identified"),
        ):  # fmt: skip
            axes.plot(t, 1e3 * (held.measured - values)[rows, worst], color=colour, linewidth=1.2, label=label)
        legend(axes, 2)
    return figure


def draw_intervals(name: str, unit: str, rows: Sequence[Mapping[str, Any]], modelled: float) -> Figure:
    """Values and 95% intervals of one parameter, joint by joint; grey where the motion says little."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(f"{name.replace('_', ' ')} [{unit}]", "joint", "", lines=1)
        axes.axhline(modelled, color=MUTED, linewidth=1.0, linestyle=":")
        for i, row in enumerate(rows):
            colour = _FOUND if row["identified"] else MUTED
            axes.plot([i + 1, i + 1], [row["low"], row["high"]], color=colour, linewidth=2.0)
            axes.plot(i + 1, row["value"], "o", color=colour, markersize=4.5)
        axes.set_xlim(0.5, len(rows) + 0.5)
    return figure


def write_dynamics_page(
    path: Path,
    result: Mapping[str, Any],
    held: HeldOut,
    units: Mapping[str, tuple[str, float]],
    command: str,
    before: Sequence[Path] = (),
) -> Path:
    """Write the page of `result`, as `robolearn identify` returns it, at `path`.

    Args:
      units: parameter → its unit and its value in the model.
      command: that makes it again.
      before: files of the earlier results in the course.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for flat, row in result["parameters"].items():
        groups.setdefault(flat.split(".")[0], []).append(row)
    rows = [
        (flat, f"{row['value']:.4g}", f"{row['low']:.4g} to {row['high']:.4g}", units[flat.split(".")[0]][0],
         "" if row["identified"] else "not by this motion")
        for flat, row in result["parameters"].items()
    ]  # fmt: skip
    figures = [draw_errors(held), draw_motion(held)]
    figures += [draw_intervals(name, units[name][0], own, units[name][1]) for name, own in groups.items() if own[1:]]
    html = render_page(
        "dynamics.html",
        title=f"Dynamics of {result['robot']}",
        result=result,
        pictures=[picture(figure, f"p{i}") for i, figure in enumerate(figures)],
        rows=rows,
        beyond=list(result["not_shown_by_motion"].items()),
        times=["parameter", *(str(path) for path in before), "now"],
        course=[
            (
                flat,
                *("–" if one is None else f"{one['value']:.4g} ({one['low']:.4g} to {one['high']:.4g})" for one in row),
            )
            for flat, row in result["course"].items()
        ],
        drift=[(d["name"], f"{d['before']:.4g}", f"{d['now']:.4g}", f"{d['sigmas']:+.1f}") for d in result["drift"]],
        commands=[command],
    )
    return write_page(path, html)
