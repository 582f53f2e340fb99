"""The page of a comparison of rivals: a table with intervals over seeds, and one plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from robolearn.eval.plots import COLOURS, MUTED, STYLE, canvas, legend
from robolearn.eval.report import picture, render_page, write_page

DRAWN = {"imitation": "imitation", "success": "after RL"}


def draw_means(rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str], named: str, title: str) -> Figure:
    """Means over seeds side by side, each with its interval.

    Args:
      rows: from left to right.
      labels: key of one or two values of a row, as `over_seeds` gives them or None → label.
      named: key of a row's name.
    """
    with mpl.rc_context(STYLE):
        figure, axes = canvas(title, "", "success [%]", percent=True, lines=len(labels))
        for (key, label), colour, aside in zip(labels.items(), (MUTED, COLOURS["--c1"]), (-0.12, 0.12), strict=False):
            places = [(i + aside, row[key]) for i, row in enumerate(rows) if row[key] is not None]
            for at, value in places:
                if value["low"] is not None:
                    axes.plot([at, at], [value["low"], value["high"]], color=colour, linewidth=2.0)
            where = [at for at, _ in places]
            axes.plot(where, [value["mean"] for _, value in places], "o", color=colour, markersize=5, label=label)
        axes.set_xticks(range(len(rows)), [row[named] for row in rows], rotation=30, ha="right")
        axes.set_xlim(-0.5, len(rows) - 0.5)
        legend(axes, 2)
    return figure


def percent(value: Mapping[str, Any]) -> str:
    """A share over seeds for people, in percent: ``45.0 (38.1–51.9)``."""
    text = f"{100 * value['mean']:.1f}"
    return text if value["low"] is None else f"{text} ({100 * value['low']:.1f}–{100 * value['high']:.1f})"


def write_rivals_page(path: Path, result: Mapping[str, Any], settings: Mapping[str, str], command: str) -> Path:
    """Write the page of `result`, as `robolearn benchmark rivals` returns it, at `path`; `settings` in words."""
    by_task: dict[tuple[str, str], Mapping[str, Any]] = {(row["rival"], row["task"]): row for row in result["rows"]}
    tasks = [one["task"] for one in result["tasks"]] if len(result["tasks"]) > 1 else []  # one is its own mean
    rows = [
        (mean["rival"], percent(mean["imitation"]), percent(mean["success"]), f"{100 * mean['success']['median']:.1f}",
         *(percent(by_task[mean["rival"], task]["success"]) for task in tasks),
         f"{mean['env_steps']['mean']:,.0f}", f"{mean['tuning_s']['mean'] / 60:,.1f}")
        for mean in result["means"]
    ]  # fmt: skip
    numbers = [
        (one["task"], one["demonstrations"],
         ", ".join(f"{100 * rate:.1f} with {number}" for number, rate in one["tried"].items()),
         "yes" if one["within"] else "no")
        for one in result["tasks"]
    ]  # fmt: skip
    html = render_page(
        "rivals.html",
        title="Rivals on equal ground",
        picture=picture(draw_means(result["means"], DRAWN, "rival", "Mean over the tasks"), "means"),
        heads=("rival", "imitation", "after RL", "median seed", *tasks, "control steps", "minutes of RL"),
        rows=rows,
        numbers=numbers,
        failed=[(one["rival"], one["task"], one["seed"], one["why"]) for one in result["failed"]],
        repairs=sorted(
            {
                (row["rival"], ", ".join(cell["repairs"]))
                for row in result["rows"]
                for cell in row["cells"]
                if cell.get("repairs")
            }
        ),
        stopped=[
            (row["rival"], row["task"], cell["seed"], cell["stopped"])
            for row in result["rows"]
            for cell in row["cells"]
            if cell.get("stopped")
        ],
        settings=list(settings.items()),
        commands=[command],
    )
    return write_page(path, html)
