"""``robolearn dataset repair``: mend what a killed process left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import megabytes
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Repair(Command):
    """Bring a set that a killed recording left behind in order: its running episode is kept as far as it got.

    Finished episodes are never touched; those that meta/info.json has lost sight of are counted again, and lost rows of
    meta/episodes are made again. Hidden copies that killed edits left beside the set are listed; of a folder that is no
    set, only these.

    Example: robolearn dataset repair data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set, or a folder with data sets."""
    clear: bool = False
    """Remove the copies that killed edits, imports, exports and repairs have left."""

    def run(self) -> dict[str, Any]:
        """``{"dataset", "episodes", "frames", "saved": [{"episode", "frames"}], "adopted": [{"episode", "frames"}],
        "rebuilt": [episode], "lost_frames", "left_over": [{"path", "bytes", "what", "cleared"}]}``; of a folder that is
        no set only the first and the last."""
        from robolearn.data.lerobot import layout
        from robolearn.data.writing.leftovers import clear, leftovers
        from robolearn.data.writing.repair import repair

        result: dict[str, Any] = {"dataset": str(self.data)}
        holder = not (self.data / layout.INFO_PATH).exists() and self.data.is_dir()
        left = list(leftovers(self.data if holder else self.data.absolute().parent))
        if not (holder and (left or any(self.data.glob(f"*/{layout.INFO_PATH}")))):
            done = repair(self.data)
            result |= {
                "episodes": done.episodes,
                "frames": done.frames,
                "saved": [{"episode": episode, "frames": frames} for episode, frames in done.saved],
                "adopted": [{"episode": episode, "frames": frames} for episode, frames in done.adopted],
                "rebuilt": done.rebuilt,
                "lost_frames": done.lost,
            }
            left = list(leftovers(self.data.absolute().parent))
        for one in left if self.clear else ():
            clear(one)
        result["left_over"] = [
            {"path": str(one.path), "bytes": one.size, "what": one.what, "cleared": self.clear} for one in left
        ]
        return result

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        if "episodes" in result:
            console.print(f"[bold]{result['dataset']}[/bold]: {result['episodes']} episodes, {result['frames']} frames")
            for adopted in result["adopted"]:
                console.print(f"[green]counted again[/green] episode {adopted['episode']}, {adopted['frames']} frames")
            if rebuilt := result["rebuilt"]:
                console.print(f"[green]made again[/green] the rows of {len(rebuilt)} episodes in meta/episodes")
            for saved in result["saved"]:
                console.print(f"[green]saved[/green] episode {saved['episode']}, {saved['frames']} frames")
            if result["lost_frames"]:
                console.print(f"[yellow]{result['lost_frames']} frames could not be saved[/yellow]")
            if not any(result[key] for key in ("saved", "adopted", "rebuilt", "lost_frames")):
                console.print("no unfinished episode")
        for one in result["left_over"]:
            verb = "[green]removed[/green]" if one["cleared"] else "[yellow]left over[/yellow]"
            console.print(f"{verb} {one['path']} ({megabytes(one['bytes'])}): {one['what']}")
        if any(not one["cleared"] for one in result["left_over"]):
            console.print("--clear removes what is left over")
