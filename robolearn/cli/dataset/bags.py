"""Robot contracts for bags: what a station's topics mean, in the plain values that `robolearn.data.bags` takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.core import BadInput

if TYPE_CHECKING:
    from hardware.contract import Contract, Topic
    from robolearn.data.bags import Channel, Station
    from robolearn.data.reader import Dataset
    from robolearn.data.source import Progress, Source

FORMAT = "mcap"


def here(path: Path) -> bool:
    """Whether `path` looks like a bag."""
    from robolearn.data.bags import is_bag

    return is_bag(path)


def read(
    path: Path, robot: str, *, task: str = "", success: bool | None = None, cameras: Sequence[str] | None = None
) -> Source:
    """The episodes of the bag at `path` by the contract `robot`; raises `BadInput` as `read_bag` does."""
    from robolearn.data.bags import read_bag
    from robolearn.data.bags.recording import Recording

    contract = _contract(robot, cameras)
    if contract.objects is not None:
        # Only a simulation speaks of them; the names are in its messages.
        topic = contract.objects.topic
        recording = Recording(path)
        if topic in recording.topics:
            first = next(recording.messages([topic]), None)
            contract = contract.with_objects(getattr(first.content, "name", ()) if first is not None else ())
    return read_bag(path, station_of(contract), task=task, success=success)


def write(dataset: Dataset, out: Path, robot: str, progress: Progress | None = None) -> None:
    """Write `dataset` as a bag by the contract `robot`; raises `BadInput` as `write_bag` does."""
    from robolearn.data.bags import write_bag
    from robolearn.data.dataset_source import interface_with_images

    held = interface_with_images(dataset).observation
    contract = _contract(robot, [key.removeprefix("images.") for key in held if key.startswith("images.")])
    if "objects" in held:
        contract = contract.with_objects(held["objects"].names)
    write_bag(dataset, station_of(contract), out, progress)


def station_of(contract: Contract) -> Station:
    """What `contract` says, without the class."""
    from hardware.contract import FLOATS
    from hardware.pictures import picture
    from robolearn.data.bags import Channel, Station

    def channel(topic: Topic) -> Channel:
        return Channel(topic.topic, topic.type, topic.max_age_s)

    closed, opened = contract.gripper_range
    gripper = contract.gripper

    def joint_values(width: float) -> tuple[float, ...]:
        most = contract.robot.gripper.max_width
        share = width / most if most > 0 else 0.0
        return (closed + (opened - closed) * share,) * len(contract.gripper_joints)

    return Station(
        name=f"contract {contract.name}",
        robot=contract.robot,
        interface=contract.interface,
        joints=contract.joints,
        gripper_joints=contract.gripper_joints,
        joint_states=channel(contract.joint_states),
        command=channel(contract.command),
        gripper=None if gripper is None else channel(gripper),
        objects=None if contract.objects is None else channel(contract.objects),
        gripper_width=contract.gripper_width,
        gripper_values=contract.gripper_values,
        gripper_joint_values=joint_values,
        opening=gripper is not None and gripper.type == FLOATS and gripper.unit == "opening",
        picture=picture,
        cameras={name: channel(camera) for name, camera in contract.cameras.items()},
    )


def _contract(robot: str, cameras: Sequence[str] | None) -> Contract:
    from hardware.contract_file import contract_names, load_contract

    if not robot:
        raise BadInput("--robot", got="none", expected="a robot contract", available=(*contract_names(), "<path>.yaml"))
    contract = load_contract(robot)
    return contract if cameras is None else contract.with_cameras(cameras)
