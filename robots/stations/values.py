"""Values of a contract file, the decorator of its sections, and mistakes in them as `BadInput`.

Types are strict (no text for a number, no truth value for one), unknown keys are refused, and numbers are finite. A
known key with nothing behind it (all of its lines commented out) counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetPydanticSchema,
    StrictFloat,
    StrictStr,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from robolearn.core.errors import BadInput
from robots.spec import RobotSpec

# ROS message types, in full, and those that the topics of a role may have.
FLOATS = "std_msgs/msg/Float64MultiArray"
TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
POSE = "geometry_msgs/msg/PoseStamped"
JOINT_STATE = "sensor_msgs/msg/JointState"
IMAGE = "sensor_msgs/msg/Image"
WRENCH = "geometry_msgs/msg/WrenchStamped"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
STRING = "std_msgs/msg/String"
FRANKA_GRASP = "franka_msgs/action/Grasp"
GRIPPER_COMMAND = "control_msgs/action/GripperCommand"

TYPES: dict[str, tuple[str, ...]] = {
    "joint_states": (JOINT_STATE,),
    "command": (FLOATS, TRAJECTORY, POSE),
    "gripper": (FLOATS, TRAJECTORY),
    "gripper.action": (FRANKA_GRASP, GRIPPER_COMMAND),
    "objects": (JOINT_STATE,),
    "contact": (JOINT_STATE, WRENCH),
    "cameras": (IMAGE, COMPRESSED),
}

MAX_AGE_S = (0.001, 5.0)
IMAGE_EDGE = (8, 4096)  # [px]
GRIPPER_JOINT = (-10.0, 10.0)  # [rad or m]
WORKSPACE = (-10.0, 10.0)  # [m]

_OURS = "robolearn"  # type of the errors that carry the words of a `BadInput` in their context
_EXPECTED = {
    "string_type": "a word",
    "string_too_short": "a word",
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "key: value lines",
}


def place(path: Path) -> str:
    """The file `path` in messages: of the files that come with the package the name says which, of others the folder
    does, for each station's contract is a station.yaml."""
    shipped = path.absolute().is_relative_to(Path(__file__).absolute().parents[1])
    return path.name if shipped else str(path)


def refuse(expected: object = None, *, got: object = None, available: Iterable[object] = (), what: str = "") -> Any:
    """The error that a validator raises; `bad_input` gives its words to `BadInput`."""
    words = {"expected": expected, "got": got, "available": tuple(available), "what": what}
    return PydanticCustomError(_OURS, "{expected}", words)


def bad_input(error: ValidationError, file: str) -> BadInput:
    """The first mistake that `error` names, in one line: file, place, got, expected, available."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        where, _, key = where.rpartition(".")
        return BadInput(f"{file}: {where}" if where else file, got="nothing", expected=f"the key {key!r}")
    words: dict[str, Any] = dict(first.get("ctx", {})) if first["type"] == _OURS else {}
    if words.get("what"):
        what = f"{file}: {words['what']}" + (f" in {where}" if where else "")
    else:
        what = f"{file}: {where}" if where else file
    got = _short(first["input"]) if words.get("got") is None else words["got"]
    expected = words.get("expected") if words else _EXPECTED.get(first["type"], first["msg"])
    return BadInput(what, got=got, expected=expected, available=words.get("available", ()))


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


# --- values ------------------------------------------------------------------------------------------------


def must(holds: Callable[[Any], Any], expected: str) -> AfterValidator:
    """Refuses a value for which `holds` is false."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise refuse(expected)
        return value

    return AfterValidator(check)


def within(low: float, high: float) -> AfterValidator:
    return must(lambda value: low <= value <= high, f"{low:g} to {high:g}")  # NaN fails this too


def matching(pattern: str, expected: str) -> AfterValidator:
    return must(re.compile(pattern).fullmatch, expected)


def one_of(available: Collection[str]) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value not in tuple(available):
            raise refuse(available=available)
        return value

    return BeforeValidator(check)


def entries(value: Any, length: int) -> Any:
    """`value`, if it is a list of so many."""
    if not isinstance(value, list):
        raise refuse(f"a list of {length}")
    if len(value) != length:
        raise refuse(f"{length} entries", got=len(value))
    return value


def unique(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if names.count(name) > 1:
            raise refuse("every name once", got=f"{name} {names.count(name)} times")
    return names


def edge(value: Any) -> int:
    low, high = IMAGE_EDGE
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise refuse(f"a whole number from {low} to {high}")
    return value


def per_joint(value: Any, info: ValidationInfo) -> Any:
    return entries(value, len(robot_of(info).joints))


def robot_of(info: ValidationInfo) -> RobotSpec:
    """The file's robot, which is its first key: how many joints the other parts must have depends on it."""
    if "robot" not in (context := info.context or {}):
        raise refuse("the key 'robot'")
    return context["robot"]


Word = Annotated[StrictStr, Field(min_length=1), must(str.isprintable, "a word without control characters")]
_NAME = "/?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*"
Namespace = Annotated[
    Word, matching(_NAME, "a ROS namespace such as left"), AfterValidator(lambda text: "/" + text.removeprefix("/"))
]
TopicName = Annotated[
    Word, matching(_NAME, "a ROS topic name such as joint_states, or /joint_states whatever the namespace")
]
Finite = Annotated[StrictFloat, Field(allow_inf_nan=False)]
Age = Annotated[StrictFloat, within(*MAX_AGE_S)]
Share = Annotated[Finite, must(lambda value: value > 0, "more than 0")]
LimitShare = Annotated[Share, must(lambda value: value <= 1, "at most 1")]
GripperPosition = Annotated[StrictFloat, within(*GRIPPER_JOINT)]
Edge = Annotated[int, BeforeValidator(edge)]
PerJoint = Annotated[tuple[Finite, ...], BeforeValidator(per_joint)]
_Coordinate = Annotated[StrictFloat, within(*WORKSPACE)]
Corner = Annotated[tuple[_Coordinate, _Coordinate, _Coordinate], BeforeValidator(lambda value: entries(value, 3))]


def known_keys(data: Any, known: Iterable[str]) -> dict[str, Any]:
    """`data` without the keys that have nothing behind them, if it has no unknown ones."""
    known = tuple(known)
    if not isinstance(data, dict):
        raise refuse("key: value lines", available=known)
    for key in data:
        if key not in known:
            raise refuse(got=key, available=known, what="unknown key")
    return {key: value for key, value in data.items() if value is not None}


T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def section(cls: type[T]) -> type[T]:
    """A frozen dataclass whose annotations are what a file is checked by; built in Python it is not checked. A
    `ClassVar` `injected` names fields that are no keys of the file."""
    made = dataclass(frozen=True)(cls)
    hidden = getattr(made, "injected", ())
    keys = [field.name for field in fields(made) if field.name not in hidden]  # type: ignore[arg-type]

    def check_keys(cls: type, data: Any) -> Any:
        given = {name: data[name] for name in hidden if isinstance(data, dict) and name in data}
        own = {name: value for name, value in data.items() if name not in given} if given else data
        return known_keys(own, keys) | given

    made.check_keys = model_validator(mode="before")(classmethod(check_keys))  # type: ignore[attr-defined]
    return made


def read_by(form: type) -> GetPydanticSchema:
    """The annotation of a value that stands in a file in another form, whose `record()` it is."""
    return GetPydanticSchema(
        lambda _, handler: core_schema.no_info_after_validator_function(lambda given: given.record(), handler(form))
    )


LARGEST = 1_000_000  # [bytes]; a contract has a few thousand
MOST = 20_000  # values, those behind aliases counted each time: nine lines of aliases of aliases are a billion


class _Loader(yaml.SafeLoader):
    """A key that stands twice would silently win over the first."""

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is None:
            return None
        if (values := _values(node, {})) > MOST:
            raise yaml.YAMLError(f"{values:,} values, more than {MOST:,}")
        return self.construct_document(node)

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


def read_yaml(path: Path) -> Any:
    """The content of the file `path`. Raises `BadInput`: it is no YAML, or larger or deeper than a contract; the
    message is one line and names the line; `OSError`: it cannot be read."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise BadInput(place(path), got=f"more than {LARGEST:,} bytes", expected="a contract")
    try:
        return yaml.load(content.decode("utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInput(f"{place(path)}{line}", got=error.problem, expected="YAML") from error
    except RecursionError:
        raise BadInput(place(path), got="nested too deeply", expected="YAML") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(place(path), got=str(error).splitlines()[0], expected="YAML") from error


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """Number of values that `node` stands for, aliases followed; `known` caches the counts."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST + 1  # what contains itself never ends
        parts = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]
