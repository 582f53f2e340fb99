"""Bags as a format of ``dataset import`` and ``export``: a robot contract says what their topics mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.core import BadInput

if TYPE_CHECKING:
    from robolearn.data.convert.source import EpisodeSource, Progress
    from robolearn.data.reading.reader import Dataset
    from robots.stations import Contract

FORMAT = "mcap"


def here(path: Path) -> bool:
    """Whether `path` looks like a bag."""
    from robolearn.data.convert.bags import is_bag

    return is_bag(path)


def read(
    path: Path, robot: str, *, task: str = "", success: bool | None = None, cameras: Sequence[str] | None = None
) -> EpisodeSource:
    """The episodes of the bag at `path` by the contract `robot`; raises `BadInput` as `read_bag` does."""
    from robolearn.data.convert.bags import read_bag
    from robolearn.data.convert.bags.recording import Recording

    contract = _contract(robot, cameras)
    if contract.objects is not None:
        # Only a simulation speaks of them; the names are in its messages.
        topic = contract.objects.topic
        recording = Recording(path)
        if topic in recording.topics:
            first = next(recording.messages([topic]), None)
            contract = contract.with_objects(getattr(first.content, "name", ()) if first is not None else ())
    return read_bag(path, contract, task=task, success=success)


def write(dataset: Dataset, out: Path, robot: str, progress: Progress | None = None) -> None:
    """Write `dataset` as a bag by the contract `robot`; raises `BadInput` as `write_bag` does."""
    from robolearn.data.convert.bags import write_bag
    from robolearn.data.convert.dataset_source import interface_with_images

    held = interface_with_images(dataset).observation
    contract = _contract(robot, [key.removeprefix("images.") for key in held if key.startswith("images.")])
    if "objects" in held:
        contract = contract.with_objects(held["objects"].names)
    write_bag(dataset, contract, out, progress)


def _contract(robot: str, cameras: Sequence[str] | None) -> Contract:
    from robots.stations import contract_names, load_contract

    if not robot:
        raise BadInput("--robot", got="none", expected="a robot contract", available=(*contract_names(), "<path>.yaml"))
    contract = load_contract(robot)
    return contract if cameras is None else contract.with_cameras(cameras)
