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

    Finished episodes are never touched; those that meta/info.json has lost sight of are counted again.

    Example: robolearn dataset repair data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set."""

    def run(self) -> dict[str, Any]:
        """``{"dataset", "episodes", "frames", "saved": [{"episode", "frames"}], "adopted": [{"episode", "frames"}],
        "lost_frames"}``."""
        from robolearn.data.repair import repair

        done = repair(self.data)
        return {
            "dataset": str(self.data),
            "episodes": done.episodes,
            "frames": done.frames,
            "saved": [{"episode": episode, "frames": frames} for episode, frames in done.saved],
            "adopted": [{"episode": episode, "frames": frames} for episode, frames in done.adopted],
            "lost_frames": done.lost,
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        console.print(f"[bold]{result['dataset']}[/bold]: {result['episodes']} episodes, {result['frames']} frames")
        for adopted in result["adopted"]:
            console.print(f"[green]counted again[/green] episode {adopted['episode']}, {adopted['frames']} frames")
        for saved in result["saved"]:
            console.print(f"[green]saved[/green] episode {saved['episode']}, {saved['frames']} frames")
        if result["lost_frames"]:
            console.print(f"[yellow]{result['lost_frames']} frames could not be saved[/yellow]")
        if not result["saved"] and not result["adopted"] and not result["lost_frames"]:
            console.print("no unfinished episode")
