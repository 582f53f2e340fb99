"""``robolearn dataset import``: demonstrations in other formats become a data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.choices import Station
from robolearn.cli.dataset import bags
from robolearn.cli.dataset.common import show_stored, write_set
from robolearn.core import BadInput
from robolearn.core.switches import switch
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console

    from robolearn.data.convert.source import EpisodeSource


@dataclass(frozen=True, kw_only=True)
class Import(Command):
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
    format: str = "auto"
    """Which format; auto looks at the files."""
    task: str = ""
    """The task in words, in place of what the files say."""
    hz: float | None = None
    """Frames per second, where the files do not say."""
    embodiment: str = ""
    """The arm's name, in place of what the files say."""
    action_kind: str = ""
    """What an action means, such as tcp_delta or joint_position; "native" if not given."""
    proprio: tuple[str, ...] = ()
    """robomimic: the features that make up the robot's own vector, in order."""
    cameras: tuple[str, ...] | None = None
    """The cameras to take; all of them if not given."""
    images: Annotated[bool, switch("images")] = True
    """Take the cameras' pictures too."""
    robot: Station = ""
    """mcap: the robot contract that says what the topics mean, by name or as a file."""
    outcome: Literal["unsaid", "success", "failure"] = "unsaid"
    """How the episodes ended, where the files do not say."""
    tolerance_s: float = 1e-4
    """LeRobot's formats: how far from its frame a picture of a video may be shown [s]; the nearest one is taken."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert.source import check_new

        check_new(self.out)
        if not self.path.exists():
            raise BadInput("import", got=self.path, expected="a file or folder that is there")
        if self.hz is not None and not 0 < self.hz < 1e4:
            raise BadInput("--hz", got=self.hz, expected="a positive number")
        if not 0 < self.tolerance_s < math.inf:
            raise BadInput("--tolerance-s", got=self.tolerance_s, expected="a positive number of seconds")
        name = guess(self.path) if self.format == "auto" else self.format
        readers = importers()
        if name is None or name not in readers:
            got = f"{self.path}, which looks like none" if name is None else name
            raise BadInput("--format", got=got, available=readers)
        return {"format": name, **write_set(readers[name](self), self.out, "importing", self.json)}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        console.print(f"read as {result['format']}")
        show_stored(result, console)


def importers() -> dict[str, Callable[[Import], EpisodeSource]]:
    """Format → what reads it, given the command's flags."""
    from robolearn.data.convert.formats import FORMATS, ReadOptions

    def plain(name: str) -> Callable[[Import], EpisodeSource]:
        def read(flags: Import) -> EpisodeSource:
            cameras = flags.cameras if flags.images else ()
            options = ReadOptions(
                flags.task,
                flags.hz,
                flags.embodiment,
                flags.action_kind,
                flags.proprio,
                cameras,
                success_of(flags),
                flags.tolerance_s,
            )
            reader = FORMATS[name].read
            assert reader is not None
            return reader(flags.path, options)

        return read

    def bag(flags: Import) -> EpisodeSource:
        cameras = flags.cameras if flags.images else ()
        return bags.read(flags.path, flags.robot, task=flags.task, success=success_of(flags), cameras=cameras)

    plain_formats = {name: plain(name) for name, form in FORMATS.items() if form.read is not None}
    return {**plain_formats, bags.FORMAT: bag}


def success_of(flags: Import) -> bool | None:
    """What ``--outcome`` says."""
    return {"unsaid": None, "success": True, "failure": False}[flags.outcome]


def guess(path: Path) -> str | None:
    """The format that `path` looks like."""
    from robolearn.data.convert.formats import FORMATS

    return next((name for name, form in FORMATS.items() if form.here(path)), bags.FORMAT if bags.here(path) else None)
