"""Reads contract files: every mistake is one line that names the file, the place and the nearest right word.

`hardware/contracts/` ships some; `load_contract` takes their names or the path of your own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from hardware.contract import TRAJECTORY, TYPES, Camera, Contract, Gripper, Topic
from hardware.safety.limits import Limits
from robolearn.core.errors import BadInput
from robots import ROBOTS, RobotSpec
from robots.control import CONTROLS

T = TypeVar("T")

CONTRACTS = Path(__file__).with_name("contracts")

CONTROL_HZ = (1.0, 100.0)
STREAM_HZ = (50.0, 1000.0)
MAX_AGE_S = (0.001, 5.0)
IMAGE_EDGE = (8, 4096)
_TOPIC = re.compile(r"(/[A-Za-z_][A-Za-z0-9_]*)+")

_SHARES = ("velocity", "acceleration", "jerk")
_PER_JOINT = ("lower", "upper", *_SHARES)
_SCALARS = (
    "max_jump",
    "command_timeout_s",
    "state_timeout_s",
    "deadman_timeout_s",
    "singularity",
    "collision_distance",
    "gripper_max",
    "gripper_speed",
)


def contract_names() -> tuple[str, ...]:
    """The contracts that come with the package."""
    return tuple(sorted(path.stem for path in CONTRACTS.glob("*.yaml")))


def load_contract(name_or_path: str | Path) -> Contract:
    """The contract called `name_or_path`, or in that file.

    Raises:
      BadInput: there is no such contract, or it breaks the schema; the message names the file, the place in it, what
        was found and what was expected.
    """
    shipped = CONTRACTS / f"{name_or_path}.yaml"
    path = shipped if str(name_or_path) in contract_names() else Path(name_or_path).expanduser()
    if not path.is_file():
        raise BadInput("contract", got=name_or_path, available=(*contract_names(), "<path>.yaml"))
    return _read(path)


def _read(path: Path) -> Contract:
    """Read and check one contract file; `BadInput` where it breaks the schema."""
    root = _Place(_parse(path), path.name, "")
    root.keys(
        required=("robot", "action_kind", "control_hz", "stream_hz", "joints", "joint_states", "command"),
        optional=("name", "gripper", "objects", "cameras", "limits"),
    )
    robot = ROBOTS[root.child("robot").choice(ROBOTS)]
    control_hz = root.child("control_hz").number(*CONTROL_HZ)
    stream_hz = root.child("stream_hz").number(max(STREAM_HZ[0], control_hz), STREAM_HZ[1])
    joints = root.child("joints").names(len(robot.joints))
    _check_order(root.child("joints"), joints, robot)
    gripper_joints, gripper_range, gripper = _gripper(root, robot)
    contract = Contract(
        name=root.child("name").text() if root.has("name") else path.stem,
        robot=robot,
        action_kind=root.child("action_kind").choice(CONTROLS),
        control_hz=control_hz,
        stream_hz=stream_hz,
        joints=joints,
        joint_states=_topic(root.child("joint_states"), "joint_states"),
        command=_topic(root.child("command"), "command"),
        gripper_joints=gripper_joints,
        gripper_range=gripper_range,
        gripper=gripper,
        objects=_topic(root.child("objects"), "objects") if root.has("objects") else None,
        cameras=_cameras(root.child("cameras")) if root.has("cameras") else {},
        limits=_limits(root.child("limits"), robot) if root.has("limits") else Limits.of(robot),
        source=str(path),
    )
    _check_unique(root, contract)
    return contract


class _Place:
    """A value in the file and the way to it, e.g. ``ur5e.yaml: cameras.front.size``."""

    def __init__(self, value: Any, file: str, where: str) -> None:
        self.value, self.file, self.where = value, file, where

    def error(self, expected: object = None, *, got: object = None, available: Collection[object] = ()) -> BadInput:
        what = f"{self.file}: {self.where}" if self.where else self.file
        return BadInput(what, got=_short(self.value) if got is None else got, expected=expected, available=available)

    def has(self, key: str) -> bool:
        """A key that is there with nothing behind it (all lines commented out) counts as absent."""
        return self.value.get(key) is not None

    def child(self, key: str | int) -> _Place:
        return _Place(self.value[key], self.file, f"{self.where}.{key}".lstrip("."))

    def keys(self, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> None:
        known = (*required, *optional)
        if not isinstance(self.value, dict):
            raise self.error("key: value lines", available=known)
        for key in self.value:
            if key not in known:
                what = f"{self.file}: unknown key" + (f" in {self.where}" if self.where else "")
                raise BadInput(what, got=key, available=known)
        for key in required:
            if not self.has(key):
                raise self.error(f"the key {key!r}", got="none")

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.error("a word")
        return self.value

    def choice(self, available: Collection[str]) -> str:
        if self.value not in tuple(available):
            raise self.error(available=available)
        return self.value

    def number(self, low: float, high: float) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.error("a number")
        if not low <= self.value <= high:  # NaN fails this too
            raise self.error(f"{low:g} to {high:g}")
        return float(self.value)

    def integer(self, low: int, high: int) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not low <= self.value <= high:
            raise self.error(f"a whole number from {low} to {high}")
        return self.value

    def list(self, item: Callable[[_Place], T], length: int | None = None) -> tuple[T, ...]:
        if not isinstance(self.value, list):
            raise self.error("a list" if length is None else f"a list of {length}")
        if length is not None and len(self.value) != length:
            raise self.error(f"{length} entries", got=len(self.value))
        return tuple(item(self.child(i)) for i in range(len(self.value)))

    def names(self, length: int | None = None) -> tuple[str, ...]:
        names = self.list(_Place.text, length)
        for name in names:
            if names.count(name) > 1:
                raise self.error("every name once", got=f"{name} {names.count(name)} times")
        return names


def _topic(place: _Place, role: str, *extra: str) -> Topic:
    place.keys(required=("topic", "type"), optional=("max_age_s", *extra))
    name = place.child("topic").text()
    if not _TOPIC.fullmatch(name):
        raise place.child("topic").error("an absolute ROS topic name such as /joint_states")
    age = place.child("max_age_s").number(*MAX_AGE_S) if place.has("max_age_s") else Topic.max_age_s
    return Topic(name, place.child("type").choice(TYPES[role]), age)


def _cameras(place: _Place) -> Mapping[str, Camera]:
    if not isinstance(place.value, dict):
        raise place.error("camera name: {topic, type, size} lines")
    cameras = {}
    for name in place.value:
        camera = place.child(name)
        if not isinstance(name, str) or not name.isidentifier():
            raise camera.error("a camera name of letters, digits and _", got=name)
        topic = _topic(camera, "cameras", "size")
        size = Camera.size
        if camera.has("size"):
            height, width = camera.child("size").list(lambda edge: edge.integer(*IMAGE_EDGE), 2)
            size = (height, width)
        cameras[name] = Camera(topic.topic, topic.type, topic.max_age_s, size)
    return cameras


def _gripper(root: _Place, robot: RobotSpec) -> tuple[tuple[str, ...], tuple[float, float], Gripper | None]:
    own = robot.gripper.joint_range
    if not root.has("gripper"):
        return (), own, None
    place = root.child("gripper")
    place.keys(required=("joints",), optional=("topic", "type", "max_age_s", "unit", "closed", "open"))
    joints = place.child("joints").names()
    if not joints:
        raise place.child("joints").error("at least one joint")
    closed, opened = (
        place.child(key).number(-10.0, 10.0) if place.has(key) else value
        for key, value in zip(("closed", "open"), own, strict=True)
    )
    if closed == opened:
        raise place.error("two positions, closed and open", got=f"{closed:g} for both")
    if not place.has("topic"):  # measured, not commanded
        return joints, (closed, opened), None
    topic = _topic(place, "gripper", "joints", "unit", "closed", "open")
    unit = "joint" if topic.type == TRAJECTORY else Gripper.unit
    if place.has("unit"):
        available = ("joint",) if topic.type == TRAJECTORY else ("opening", "joint")
        unit = place.child("unit").choice(available)
    return joints, (closed, opened), Gripper(topic.topic, topic.type, topic.max_age_s, unit)


def _limits(place: _Place, robot: RobotSpec) -> Limits:
    place.keys(optional=(*_PER_JOINT, *(f"{name}_share" for name in _SHARES), "workspace", *_SCALARS))
    own, n = Limits.of(robot), len(robot.joints)
    changes: dict[str, Any] = {}
    for name in _PER_JOINT:
        if place.has(name):
            values = place.child(name).list(lambda value: value.number(-math.inf, math.inf), n)
            changes[name] = np.array(values)
    for name in _SHARES:
        if place.has(f"{name}_share"):
            share = place.child(f"{name}_share")
            if name in changes:
                raise share.error(f"either {name} or {name}_share")
            if share.number(0.0, math.inf) == 0.0:
                raise share.error("more than 0")
            changes[name] = share.number(0.0, math.inf) * getattr(own, name)
    for name in _SCALARS:
        if place.has(name):
            changes[name] = place.child(name).number(-math.inf, math.inf)
    if place.has("workspace"):
        box = place.child("workspace")
        box.keys(required=("lower", "upper"))
        corners = [box.child(key).list(lambda value: value.number(-10.0, 10.0), 3) for key in ("lower", "upper")]
        changes["workspace"] = np.array(corners)
    try:
        return own.tightened(**changes)
    except BadInput as error:
        raise BadInput(f"{place.file}: {place.where}: {error}") from error


def _check_order(place: _Place, joints: tuple[str, ...], robot: RobotSpec) -> None:
    """Refuse the robot's joints (with whatever prefix) in another order: each would be commanded to another's place."""
    owners = [[own for own in robot.joints if joint.endswith(own)] for joint in joints]
    if all(len(found) == 1 for found in owners):
        order = tuple(found[0] for found in owners)
        if order != robot.joints:
            raise place.error(f"base to tip: {', '.join(robot.joints)}", got=", ".join(joints))


def _check_unique(root: _Place, contract: Contract) -> None:
    both = set(contract.joints) & set(contract.gripper_joints)
    if both:
        raise root.child("gripper").child("joints").error("joints that are not the arm's", got=sorted(both)[0])
    used: dict[str, str] = {}
    topics: dict[str, Topic | None] = {
        "joint_states": contract.joint_states,
        "command": contract.command,
        "gripper": contract.gripper,
        "objects": contract.objects,
        **{f"cameras.{name}": camera for name, camera in contract.cameras.items()},
    }
    for where, topic in topics.items():
        if topic is None:
            continue
        if topic.topic in used:
            place = _Place(topic.topic, root.file, f"{where}.topic")
            raise place.error(f"another topic than {used[topic.topic]}'s")
        used[topic.topic] = where


class _Loader(yaml.SafeLoader):
    """Safe, and strict where YAML is not: a key that stands twice would silently win over the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _parse(path: Path) -> dict[str, Any]:
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInput(f"{path.name}{line}", got=error.problem, expected="YAML") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(path.name, got=str(error).splitlines()[0], expected="YAML") from error
    return data


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
