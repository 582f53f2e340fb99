"""``robolearn runs``: what is in the runs folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.core import BadInput
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT = Path("runs")
COLOURS = {"finished": "green", "resumable": "yellow", "in use": "cyan"}


@dataclass(frozen=True, kw_only=True)
class Runs(Command):
    """List runs and say which are finished, which --resume would go on with, and which are in use.

    Example: robolearn runs runs/quickstart. See also robolearn runs compare, and robolearn runs rm.
    """

    folder: tyro.conf.Positional[Path] = DEFAULT
    """Where the runs are; subfolders are looked into."""

    def run(self) -> dict[str, Any]:
        """``{"runs": [{"path", "status", "step", "done", "unit", "wall_s", "age_s"}, …]}``."""
        from robolearn.io.paths import no_such_folder
        from robolearn.runs import find_runs

        if not self.folder.is_dir():
            if self.folder == DEFAULT and not self.folder.exists():
                return {"runs": []}
            raise BadInput(f"runs folder {self.folder}: {no_such_folder(self.folder)}")
        now = time.time()
        return {
            "runs": [
                {
                    "path": str(info.path),
                    "status": info.status,
                    "step": info.step,
                    "done": info.done,
                    "unit": info.unit,
                    "wall_s": info.wall_s,
                    "age_s": round(max(0.0, now - info.modified), 1),
                }
                for info in find_runs(self.folder)
            ]
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        """A table of the runs."""
        from rich.table import Table

        if not result["runs"]:
            console.print(f"no runs in {self.folder}")
            return
        table = Table("run", "status", "done", "worked", "changed", box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for run in result["runs"]:
            colour = COLOURS[run["status"]]
            done = "–" if run["done"] is None else f"{run['done']:,} {run['unit']}"
            table.add_row(
                run["path"],
                f"[{colour}]{run['status']}[/{colour}]",
                done,
                _duration(run["wall_s"]),
                f"{_duration(run['age_s'])} ago",
            )
        console.print(table)


def _duration(seconds: float | None) -> str:
    """Seconds in the largest unit that keeps it readable."""
    if seconds is None:
        return "–"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
