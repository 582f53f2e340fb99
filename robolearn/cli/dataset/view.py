"""``robolearn dataset view``: look at episodes in rerun."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import episode_list, megabytes
from robolearn.core import BadInput, RobolearnError
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class View(Command):
    """Look at images, vectors and actions of episodes in the rerun viewer, or save them for it.

    Example: robolearn dataset view data/lift --episodes 0-4 --save lift.rrd
    """

    data: tyro.conf.Positional[Path]
    """The data set."""
    episodes: str = "0"
    """Which episodes, such as 3,7,10-19, or all."""
    save: Path | None = None
    """Write a file that `rerun FILE` opens, in place of opening the viewer."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert.dataset_source import open_numbers

        if self.save is not None and self.save.exists():
            raise BadInput("--save", got=f"{self.save}, which is there", expected="a new file")
        dataset = open_numbers(self.data)
        everything = f"0-{dataset.episodes - 1}"
        episodes = episode_list(everything if self.episodes == "all" else self.episodes, dataset.episodes)
        if self.save is not None:
            return self._write(dataset, episodes, self.save)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "episodes.rrd"
            result = self._write(dataset, episodes, file)
            # By itself the viewer would also take connections from other machines.
            done = subprocess.run(
                [sys.executable, "-P", "-m", "rerun", str(file), "--bind", "127.0.0.1", "--port", "auto"]
            )
        if done.returncode:
            raise RobolearnError("the rerun viewer could not be opened; --save FILE writes what it would show")
        return {**result, "file": None}

    def _write(self, dataset: Any, episodes: list[int], file: Path) -> dict[str, Any]:
        from robolearn.data.convert.view import save
        from robolearn.data.writing.leftovers import part_of
        from robolearn.runs import Progress

        part = part_of(file)
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            with Progress("reading", total=len(episodes), unit="episodes", quiet=self.json) as progress:
                frames = save(dataset, episodes, part, progress)
            part.replace(file)
        except (OSError, RuntimeError) as error:  # the latter is rerun's
            raise RobolearnError(f"{file} cannot be written ({error})") from error
        finally:
            part.unlink(missing_ok=True)
        return {
            "dataset": str(self.data),
            "file": str(file),
            "episodes": episodes,
            "frames": frames,
            "bytes": file.stat().st_size,
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        shown = f"{len(result['episodes'])} episodes, {result['frames']} frames"
        if result["file"] is None:
            console.print(f"showed {shown}")
        else:
            console.print(f"[bold]{result['file']}[/bold]: {shown}, {megabytes(result['bytes'])}. Open it with rerun")
