"""``robolearn dataset export``: a data set in other formats."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.choices import Station
from robolearn.cli.dataset import bags
from robolearn.cli.dataset.common import show_stored
from robolearn.core import BadInput, RobolearnError
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console

    from robolearn.data.convert.source import Progress
    from robolearn.data.reading.reader import Dataset


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Write a data set in another format: lerobot-v2.1, robomimic (HDF5), npz or mcap (a bag, by a robot contract).

    Actions that an import scaled into [-1, 1] get their own units back.

    Example: robolearn dataset export data/lift --format robomimic --out lift.hdf5
    """

    data: tyro.conf.Positional[Path]
    """The data set."""
    format: str
    """lerobot-v2.1, robomimic, npz or mcap."""
    out: Path
    """The new folder, or file for robomimic and for mcap where it ends in .mcap."""
    robot: Station = ""
    """mcap: the robot contract that says what the topics are, by name or as a file."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert.dataset_source import open_numbers
        from robolearn.data.convert.source import check_new
        from robolearn.runs import Progress

        check_new(self.out)
        writers = exporters()
        if self.format not in writers:
            raise BadInput("--format", got=self.format, available=writers)
        dataset = open_numbers(self.data)
        begun = time.perf_counter()
        with Progress("exporting", total=dataset.episodes, unit="episodes", quiet=self.json) as progress:
            try:
                writers[self.format](self, dataset, progress)
            except OSError as error:
                raise RobolearnError(f"{self.out} cannot be written ({error.strerror or error})") from error
        return {
            "dataset": str(self.out),
            "format": self.format,
            "episodes": dataset.episodes,
            "frames": dataset.frames,
            "wall_s": {"total": time.perf_counter() - begun},
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        show_stored(result, console)


def exporters() -> dict[str, Callable[[Export, Dataset, Progress], None]]:
    """Format → what writes a data set as it, given the command's flags."""
    from robolearn.data.convert.formats import FORMATS

    def plain(name: str) -> Callable[[Export, Dataset, Progress], None]:
        def write(flags: Export, dataset: Dataset, progress: Progress) -> None:
            writer = FORMATS[name].write
            assert writer is not None
            writer(dataset, flags.out, progress)

        return write

    def bag(flags: Export, dataset: Dataset, progress: Progress) -> None:
        bags.write(dataset, flags.out, flags.robot, progress)

    plain_formats = {name: plain(name) for name, form in FORMATS.items() if form.write is not None}
    return {**plain_formats, bags.FORMAT: bag}
