"""``robolearn dataset repair``: mend what a killed recording left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.command import Command

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Repair(Command):
    """Bring a set that a killed recording left behind in order: its running episode is kept as far as it got.

    Finished episodes are never touched.

    Example: robolearn dataset repair data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set."""

    def run(self) -> dict[str, Any]:
        """``{"dataset", "episodes", "frames", "removed": [...]}``; episodes and frames are those that were saved."""
        from robolearn.data.repair import repair

        done = repair(self.data)
        return {
            "dataset": str(self.data),
            "episodes": done.episodes,
            "frames": done.frames,
            "removed": list(done.removed),
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        if not result["episodes"] and not result["removed"]:
            console.print(f"{result['dataset']}: nothing to repair")
            return
        console.print(
            f"[bold]{result['dataset']}[/bold]: saved {result['episodes']} episodes, {result['frames']} frames"
        )
        for name in result["removed"]:
            console.print(f"removed {name}")
