"""ROS 2 bags: a robot contract says what their topics mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robolearn.core import BadInput
from robolearn.data.convert.bags import is_bag, read_bag, write_bag
from robolearn.data.convert.bags.recording import Bag
from robolearn.data.convert.formats.config import FormatConfig
from robolearn.data.convert.options import ReadOptions
from robolearn.data.convert.source import EpisodeSource, Progress, interface_with_images
from robolearn.data.reading.reader import Dataset
from robots.stations import Contract, contract_names, load_contract


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the bag at `path` by the contract `options.robot`; raises `BadInput` as `read_bag` does."""
    contract = _contract(options.robot, options.cameras)
    if contract.objects is not None:
        # Only a simulation sends them; the names are in its messages.
        topic = contract.objects.topic
        recording = Bag(path)
        if topic in recording.topics:
            first = next(recording.messages([topic]), None)
            contract = contract.with_objects(getattr(first.content, "name", ()) if first is not None else ())
    return read_bag(path, contract, options)


def write(dataset: Dataset, out: Path, progress: Progress | None = None, *, robot: str = "") -> None:
    """Write `dataset` as a bag by the contract `robot`; raises `BadInput` as `write_bag` does."""
    held = interface_with_images(dataset).observation
    contract = _contract(robot, [key.removeprefix("images.") for key in held if key.startswith("images.")])
    if "objects" in held:
        contract = contract.with_objects(held["objects"].names)
    write_bag(dataset, contract, out, progress)


def _contract(robot: str, cameras: Sequence[str] | None) -> Contract:
    if not robot:
        raise BadInput(
            "--robot", got="nothing", expected="a robot contract", available=(*contract_names(), "<path>.yaml")
        )
    contract = load_contract(robot)
    return contract if cameras is None else contract.with_cameras(cameras)


OPTIONS = ("task", "cameras", "success", "robot", "episodes", "skip_bad")  # the contract says the rest
FORMAT = FormatConfig(
    "mcap", "a rosbag2 folder, or an .mcap or .db3 file", is_bag, read, write, needs_extra="formats", options=OPTIONS
)
