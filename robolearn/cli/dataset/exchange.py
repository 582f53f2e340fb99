"""``robolearn dataset import`` and ``export``: other formats of demonstrations."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.choices import ExportFormat, ImportFormat, Station
from robolearn.cli.dataset.common import show_stored, write_set
from robolearn.core import BadInput, RobolearnError
from robolearn.core.switches import switch
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console

OUTCOMES = {"unsaid": None, "success": True, "failure": False}


@dataclass(frozen=True, kw_only=True)
class DatasetImport(Command):
    """Turn demonstrations in another format into a LeRobotDataset v3.0 that robolearn trains on.

    Formats: lerobot-v2.1 (and v2.0), lerobot-v3.0 of any maker, robomimic (HDF5), npz (a folder with a file per
    episode), mcap (a rosbag2 folder, or an .mcap or .db3 file, by a robot contract). Actions beyond [-1, 1] are scaled
    into it; the scale is kept.

    Example: robolearn dataset import low_dim_v141.hdf5 --out data/square
    """

    path: tyro.conf.Positional[Path]
    """The file or folder to read."""
    out: Path
    """The new data set's folder."""
    format: ImportFormat = "auto"
    """Which format; auto looks at the files."""
    task: str = ""
    """The task in words, in place of what the files say."""
    hz: float | None = None
    """Frames per second, where the files do not say."""
    embodiment: str = ""
    """The arm's name, in place of what the files say."""
    action_kind: str = ""
    """Kind of action, such as tcp_delta or joint_position; "native" if not given."""
    proprio: tuple[str, ...] = ()
    """robomimic: the features that make up the robot's own vector, in order."""
    cameras: tuple[str, ...] | None = None
    """The cameras to take; all of them if not given."""
    images: Annotated[bool, switch("images")] = True
    """Take the cameras' pictures too."""
    robot: Station = ""
    """mcap: the robot contract that says what the topics mean, by name or as a file."""
    outcome: Literal["unsaid", "success", "failure"] = "unsaid"
    """Outcome of the episodes, where the files do not say."""
    tolerance_s: float = 1e-4
    """LeRobot's formats: how far from its frame a picture of a video may be shown [s]; the nearest one is taken."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert.formats import FORMATS, ReadOptions, guess, reader
        from robolearn.data.convert.source import check_new

        check_new(self.out)
        if not self.path.exists():
            raise BadInput("import", got=self.path, expected="a file or folder that is there")
        if self.hz is not None and not 0 < self.hz < 1e4:
            raise BadInput("--hz", got=self.hz, expected="a positive number")
        if not 0 < self.tolerance_s < math.inf:
            raise BadInput("--tolerance-s", got=self.tolerance_s, expected="a positive number of seconds")
        name = guess(self.path) if self.format == "auto" else self.format
        if name is None:
            available = [key for key, form in FORMATS.items() if form.reads]
            raise BadInput("--format", got=f"{self.path}, which is of none of the formats", available=available)
        options = ReadOptions(
            self.task,
            self.hz,
            self.embodiment,
            self.action_kind,
            self.proprio,
            self.cameras if self.images else (),
            OUTCOMES[self.outcome],
            self.tolerance_s,
            self.robot,
        )
        return {"format": name, **write_set(reader(name)(self.path, options), self.out, "importing", self.json)}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        console.print(f"read as {result['format']}")
        show_stored(result, console)


@dataclass(frozen=True, kw_only=True)
class DatasetExport(Command):
    """Write a data set in another format: lerobot-v2.1, robomimic (HDF5), npz or mcap (a bag, by a robot contract).

    Actions that an import scaled into [-1, 1] get their own units back.

    Example: robolearn dataset export data/lift --format robomimic --out lift.hdf5
    """

    data: tyro.conf.Positional[Path]
    """The data set."""
    format: ExportFormat
    """The format to write."""
    out: Path
    """The new folder, or file for robomimic and for mcap where it ends in .mcap."""
    robot: Station = ""
    """mcap: the robot contract that says what the topics are, by name or as a file."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert.dataset_source import open_numbers
        from robolearn.data.convert.formats import writer
        from robolearn.data.convert.source import check_new
        from robolearn.runs import Progress

        check_new(self.out)
        write = writer(self.format)
        dataset = open_numbers(self.data)
        begun = time.perf_counter()
        with Progress("exporting", total=dataset.episodes, unit="episodes", quiet=self.json) as progress:
            try:
                write(dataset, self.out, progress, robot=self.robot)
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
