"""The page of a comparison of learners from stored demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robolearn.eval.offline_table import HEADS, shown, shown_seeds
from robolearn.eval.report import picture, render_page, write_page
from robolearn.eval.rivals_page import draw_means


def write_offline_page(path: Path, result: Mapping[str, Any], settings: Mapping[str, str], command: str) -> Path:
    """Write the page of `result`, as `robolearn benchmark offline` returns it, at `path`; `settings` in words."""
    rows, tasks = result["rows"], dict.fromkeys(row["task"] for row in result["rows"])
    pictures = []
    for task in tasks:
        own = [row for row in rows if row["task"] == task]
        figure = draw_means(own, {"offline": "offline", "online": "after control steps"}, "learner", task)
        pictures.append(picture(figure, f"means-{task}"))
    html = render_page(
        "offline.html",
        title="Learning from stored demonstrations",
        pictures=pictures,
        best=[(one["task"], one["phase"], one["sentence"]) for one in result["best"]],
        heads=HEADS,
        rows=[shown(row) for row in rows],
        seeds=[line for row in rows for line in shown_seeds(row)],
        settings=list(settings.items()),
        commands=[command],
    )
    return write_page(path, html)
