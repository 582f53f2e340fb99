"""``robolearn dataset edit``, ``import`` and ``export``: new data sets from old ones, and other formats."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.choices import ExportFormat, ImportFormat, Station
from robolearn.cli.dataset.common import Edit, episode_list, show_stored, write_set, write_sets
from robolearn.core import BadInput, RobolearnError
from robolearn.core.switches import switch
from robolearn.io.paths import no_such_folder
from robolearn.runs import Progress
from robolearn.runs.command import Command, check_seed

if TYPE_CHECKING:
    from rich.console import Console

    from robolearn.data.convert.source import EpisodeSource
    from robolearn.data.reading.reader import Dataset


@dataclass(frozen=True, kw_only=True)
class DatasetDrop(Edit):
    """Write a new set without some episodes.

    Example: robolearn dataset edit drop data/lift --episodes 3,7,10-19 --failed --out data/lift-clean
    """

    episodes: str = ""
    """Which episodes go, such as 3,7,10-19."""
    failed: bool = False
    """Every episode that is not a success goes."""
    keep: str = ""
    """In place of the others: which episodes stay; all others go."""

    def opened(self) -> EpisodeSource:
        """The episodes that stay. Files of a damaged set in which none of them lies are not looked at."""
        from robolearn.data.convert.formats import ReadOptions, lerobot_v30
        from robolearn.data.convert.source import open_numbers
        from robolearn.data.lerobot import layout

        if bool(self.keep) == bool(self.episodes or self.failed):
            got = "--keep with other flags" if self.keep else "no episodes"
            raise BadInput("drop", got=got, expected="--episodes, --failed or --keep")
        if not self.data.is_dir():
            raise BadInput(f"data set {self.data}: {no_such_folder(self.data)}", hint=layout.A_SET)
        count = int(layout.read_info(self.data)["total_episodes"])
        if self.keep:
            kept = episode_list(self.keep, count, "--keep")
        else:
            gone = set(episode_list(self.episodes, count)) if self.episodes else set()
            if self.failed:
                dataset = open_numbers(self.data)
                if not dataset.outcomes:
                    got = "no word on which episodes succeeded"
                    raise BadInput(f"data set {self.data}", got=got, expected="it for --failed")
                gone |= {index for index, success in enumerate(dataset.success) if not success}
            kept = [index for index in range(count) if index not in gone]
        if not kept:
            raise BadInput(f"data set {self.data}", got="no episode left", expected="at least one")
        return lerobot_v30.read(self.data, ReadOptions(episodes=lambda count: kept))


@dataclass(frozen=True, kw_only=True)
class DatasetSplit(Command):
    """Divide the episodes of a set over new ones.

    Example: robolearn dataset edit split data/lift --fractions 0.9 0.1 --out data/train data/val --seed 0
    """

    data: tyro.conf.Positional[Path]
    """The data set; it stays as it is."""
    out: tuple[Path, ...]
    """The folders of the new sets."""
    fractions: tuple[float, ...] = ()
    """The share of the episodes that each gets, made to add up to 1; equal ones if not given."""
    seed: int | None = None
    """Deal the episodes at random; without it the first ones go to the first set."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert import edit
        from robolearn.data.convert.source import check_new, open_numbers

        fractions = self.fractions or (1.0,) * len(self.out)
        if len(self.out) < 2 or len(set(self.out)) != len(self.out):
            raise BadInput("--out", got=f"{len(self.out)} folders", expected="two or more, all different")
        if len(fractions) != len(self.out):
            raise BadInput("--fractions", got=f"{len(fractions)} numbers", expected=f"{len(self.out)}, one per --out")
        if self.seed is not None:
            check_seed(self.seed)
        for out in self.out:
            check_new(out)
        dataset = open_numbers(self.data)
        parts = edit.split(dataset, fractions, self.seed)
        written = write_sets([edit.keep(dataset, episodes) for episodes in parts], self.out, "writing", self.json)
        return {"datasets": [{**one, "from_episodes": part} for one, part in zip(written, parts, strict=True)]}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        for one in result["datasets"]:
            show_stored(one, console)


@dataclass(frozen=True, kw_only=True)
class DatasetMerge(Command):
    """Write the episodes of several sets of one interface into a new one.

    Example: robolearn dataset edit merge data/monday data/tuesday --out data/week
    """

    data: tyro.conf.Positional[tuple[Path, ...]]
    """The data sets, in order; they stay as they are."""
    out: Path
    """The new data set's folder."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert import edit
        from robolearn.data.convert.source import check_new, open_numbers

        if len(self.data) < 2:
            raise BadInput("merge", got=f"{len(self.data)} data sets", expected="two or more")
        check_new(self.out)
        return write_set(edit.merge([open_numbers(path) for path in self.data]), self.out, "merging", self.json)

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        show_stored(result, console)


@dataclass(frozen=True, kw_only=True)
class DatasetRenameTask(Edit):
    """Write a new set in which a task has other words.

    Example: robolearn dataset edit rename-task data/lift --to "lift the red cube" --out data/lift-red
    """

    to: str
    """The new words."""
    task: str | None = None
    """The old words; without it every episode gets the new ones."""

    def source(self, dataset: Dataset) -> EpisodeSource:
        from robolearn.data.convert import edit

        return edit.rename_task(dataset, self.task, self.to)


@dataclass(frozen=True, kw_only=True)
class DatasetCrop(Edit):
    """Write a new set whose episodes begin later or end sooner.

    Example: robolearn dataset edit crop data/lift --start 10 --episodes 4-6 --out data/lift-cropped
    """

    start: int = 0
    """Steps to cut at the start."""
    end: int = 0
    """Steps to cut at the end; the outcome moves to the new last step."""
    episodes: str = ""
    """Which episodes, such as 3,7,10-19; all of them if not given."""

    def source(self, dataset: Dataset) -> EpisodeSource:
        from robolearn.data.convert import edit

        chosen = episode_list(self.episodes, dataset.episodes) if self.episodes else None
        return edit.crop(dataset, self.start, self.end, chosen)


@dataclass(frozen=True, kw_only=True)
class DatasetSubsample(Edit):
    """Write a new set with every n-th frame; its rate is lower by as much.

    Example: robolearn dataset edit subsample data/lift --every 2 --out data/lift-10hz
    """

    every: int
    """Which frames stay: 2 for every second."""
    action: Literal["auto", "first", "last", "mean", "sum"] = "auto"
    """The action that stands for those of the frames between: auto takes the mean of small motions (tcp_delta) and
    the last target of joint positions, else the first."""

    def source(self, dataset: Dataset) -> EpisodeSource:
        from robolearn.data.convert import edit

        return edit.subsample(dataset, self.every, self.action)


OUTCOMES = {"unsaid": None, "success": True, "failure": False}


@dataclass(frozen=True, kw_only=True)
class DatasetImport(Command):
    """Turn demonstrations in another format into a LeRobotDataset v3.0 that robolearn trains on.

    Formats: lerobot-v2.1 (and v2.0), lerobot-v3.0 of any maker, robomimic (HDF5 of robomimic, robosuite, LIBERO, Isaac
    Lab, ManiSkill), aloha (a folder of HDF5 files), zarr (Diffusion Policy, UMI), rlds (tensorflow_datasets, Open
    X-Embodiment), npz (a folder with a file per episode), mcap (a rosbag2 folder, or an .mcap or .db3 file, by a robot
    contract). Joint positions come to the limits of the arm by their --unit; other actions beyond [-1, 1] are
    scaled by their extremes. The scale is kept. It ends with three lists: read, left out, changed.

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
    unit: Literal["", "degrees", "radians", "normalised"] = ""
    """Of joint positions, which need it: normalised is [-1, 1] over the limits of the joints; the others also need an
    --embodiment whose limits are known."""
    gripper_unit: Literal["", "percent", "share", "metres", "jaw"] = ""
    """Of the gripper among joint positions in degrees or radians: percent or share (1) of open, metres of opening, or
    jaw, the angle of a turning jaw. By default percent where it is called gripper.pos, as LeRobot's; else required."""
    scale: Literal["extremes", "quantiles"] = "extremes"
    """Of actions beyond [-1, 1] that have no unit: by the least and the greatest, or by the quantiles q01 and q99,
    which one wrong frame does not move; what is beyond them is cut."""
    map: tuple[str, ...] = ()
    """robomimic, aloha, zarr, rlds and npz: NAME=FEATURE for arrays that become a feature, in place of the usual ones,
    such as obs/ee_pos=proprio obs/ee_ori=proprio: those of one feature are put side by side. action is one, too."""
    filter: str = ""
    """robomimic and rlds: the list of episodes in the file (mask), or the split, to take, such as train."""
    episodes: str = ""
    """Which episodes, such as 0-9,12, in the order of the files; all of them if not given."""
    skip_bad: bool = False
    """Leave out episodes that cannot be read or stored, and say which, in place of refusing all."""
    cameras: tuple[str, ...] | None = None
    """The cameras to take; all of them if not given."""
    images: Annotated[bool, switch("images")] = True
    """Take the cameras' pictures too."""
    robot: Station = ""
    """The robot contract, by name or as a file. mcap: it says what the topics mean. robomimic, aloha, zarr, rlds and
    npz: the set is for this arm. Proprioception and actions are made of where joints [rad] and fingers [m] were, which
    are known of robomimic's, LIBERO's and ManiSkill's files; of others --map NAME=joints NAME=gripper says it."""
    outcome: Literal["unsaid", "success", "failure"] = "unsaid"
    """Outcome of the episodes, where no file says it in so many words, whatever their rewards are."""
    tolerance_s: float = 1e-4
    """How far from its frame a timestamp may be, and in LeRobot's formats a picture of a video [s]; the nearest one is
    taken."""

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
            available = [key for key, form in FORMATS.items() if form.read]
            raise BadInput("--format", got=f"{self.path}, which is of none of the formats", available=available)
        same = (
            "task",
            "hz",
            "embodiment",
            "action_kind",
            "unit",
            "gripper_unit",
            "tolerance_s",
            "robot",
            "filter",
            "scale",
        )
        given = {name: getattr(self, name) for name in (*same, "skip_bad")}
        named = [(array, feature) for array, _, feature in (one.partition("=") for one in self.map)]
        if lame := [one for one, (array, feature) in zip(self.map, named, strict=True) if not (array and feature)]:
            raise BadInput("--map", got=lame[0], expected="NAME=FEATURE, such as obs/ee_pos=proprio")
        options = ReadOptions(
            **given, named=tuple(named), cameras=self.cameras if self.images else (), success=OUTCOMES[self.outcome],
            episodes=(lambda count: episode_list(self.episodes, count)) if self.episodes else None,
        )  # fmt: skip
        return {"format": name, **write_set(reader(name)(self.path, options), self.out, "importing", self.json)}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        console.print(f"[bold]{result['format']}[/bold]")
        show_stored(result, console)
        console.print(
            f"next        robolearn train --data {result['dataset']} --out runs/… : a policy that imitates them"
        )
        if self.robot:
            console.print(
                f"            robolearn deploy --policy runs/… --robot {self.robot} : on the arm that they are for"
            )
        elif any("joint" in line for line in result["left_out"]):
            console.print("            for an arm that you have, once more with --robot CONTRACT (robolearn robots): "
                          "actions are then made of the joints")  # fmt: skip


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
        from robolearn.data.convert.formats import FORMATS, writer
        from robolearn.data.convert.source import check_new, open_numbers
        from robolearn.data.lerobot.features import observed

        check_new(self.out)
        write = writer(self.format)
        dataset = open_numbers(self.data)
        begun = time.perf_counter()
        with Progress("exporting", total=dataset.episodes, unit="episodes", quiet=self.json) as progress:
            try:
                write(dataset, self.out, progress, robot=self.robot)
            except OSError as error:
                raise RobolearnError(f"{self.out} cannot be written ({error.strerror or error})") from error
        size = {"episodes": dataset.episodes, "frames": dataset.frames}
        took = {"wall_s": {"total": time.perf_counter() - begun}}
        left_out = [*observed(dataset.features)[1], *dataset.texts.held(FORMATS[self.format].texts)[1]]
        return {"dataset": str(self.out), "format": self.format, **size, "left_out": left_out, **took}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        show_stored(result, console)
