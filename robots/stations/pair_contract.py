"""Contracts of stations with two arms: each arm is an entry of `arms`, a contract of its own with a base.

    robot: so101_pair
    arms:
      left: {contract: so101, base: {position: [0.0, 0.15, 0.0], yaw: 0.0}}
      right: {contract: so101, base: {position: [0.0, -0.15, 0.0], yaw: 0.0}}

An arm's relative topics are in a namespace of its own, by default the name of its entry. What an arm's contract says in
its base frame (obstacles, workspace) holds where that base stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, StrictFloat, TypeAdapter, ValidationError

from robolearn.core.errors import BadInput
from robolearn.core.specs import ArraySpec, Interface
from robots.arms import PAIRS
from robots.control import make_control
from robots.limits import Limits
from robots.pair import PairSpec
from robots.spec import Base, proprio_spec
from robots.stations import values
from robots.stations.contract import Contract
from robots.stations.contract_file import CONTRACTS, load_contract

PAIR_CONTRACTS = CONTRACTS / "pairs"
YAW = (-6.3, 6.3)  # [rad]


@values.section
class BaseForm:
    """Place of a base in the station: position [m] and turn about the vertical [rad]."""

    position: values.Corner = (0.0, 0.0, 0.0)
    yaw: Annotated[StrictFloat, values.within(*YAW)] = 0.0


@values.section
class ArmForm:
    """An arm of the station.

    Attributes:
      contract: name, file or folder of its contract; relative to this file.
      base: where it stands; by default as in the pair.
      namespace: of its relative topics; by default the name of the entry.
    """

    contract: values.Word
    base: BaseForm | None = None
    namespace: values.Namespace | None = None


def _two(arms: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(arms) != 2:
        raise values.refuse("two arms, such as left and right", got=", ".join(arms) or "none")
    return arms


@values.section
class PairFile:
    """The whole file.

    Attributes:
      collision_distance: smallest gap between two links of one arm, or of both [m]; by default the larger of the arms'.
    """

    robot: Annotated[str, values.one_of(PAIRS)]
    arms: Annotated[Mapping[str, ArmForm], AfterValidator(_two)]
    name: values.Word = ""
    collision_distance: values.Finite | None = None


@dataclass(frozen=True, eq=False)
class PairContract:
    """Offer of a station with two arms.

    Attributes:
      name: the contract's name.
      robot: both arms, where they stand.
      arms: the contract of each, in the order of the robot's parts.
      limits: those of the safety filter, which knows both arms.
      path: the file this was read from.
    """

    name: str
    robot: PairSpec
    arms: Mapping[str, Contract]
    limits: Limits
    path: str = ""

    @property
    def joints(self) -> tuple[str, ...]:
        """(n,) names of the joints of both arms, as the safety filter has them: each begins with its arm's."""
        return tuple(f"{name}_{joint}" for name, arm in self.arms.items() for joint in arm.joints)

    @property
    def control_hz(self) -> float:
        """Rate of the actions [Hz]."""
        return next(iter(self.arms.values())).control_hz

    @property
    def stream_hz(self) -> float:
        """Rate of the commands to the controllers [Hz]."""
        return next(iter(self.arms.values())).stream_hz

    @property
    def action_kind(self) -> str:
        """Meaning of an action, of both arms."""
        return next(iter(self.arms.values())).action_kind

    @property
    def interface(self) -> Interface:
        """Interface to policies; a camera is called ``<arm>_<camera>``."""
        observation = {"proprio": proprio_spec(self.robot)}
        for name, arm in self.arms.items():
            for camera, facts in arm.cameras.items():
                observation[f"images.{name}_{camera}"] = ArraySpec((*facts.size, 3), "uint8")
        action = make_control(self.action_kind, self.robot).spec
        return Interface(observation, action, self.control_hz, self.robot.name, self.action_kind)


def pair_names() -> tuple[str, ...]:
    """The contracts of two arms that come with the package."""
    return tuple(sorted(path.stem for path in PAIR_CONTRACTS.glob("*.yaml")))


def load_pair(name_or_path: str | Path) -> PairContract:
    """The contract of two arms called `name_or_path`, or in that file. Raises `BadInput`: there is none, it or an arm's
    contract breaks the schema, or the two do not fit together; the message names the file and the place in it."""
    shipped = PAIR_CONTRACTS / f"{name_or_path}.yaml"
    path = shipped if shipped.is_file() else Path(name_or_path).expanduser()
    if not path.is_file():
        raise BadInput("contract of two arms", got=name_or_path, available=(*pair_names(), "<path>.yaml"))
    try:
        given = _FILE.validate_python(values.read_yaml(path))
    except ValidationError as error:
        raise values.bad_input(error, path.name) from error
    pair = PAIRS[given.robot]
    names = tuple(part.name for part in pair.parts)
    if sorted(given.arms) != sorted(names):
        raise BadInput(f"{path.name}: arms", got=", ".join(given.arms), expected=", ".join(names))
    arms = {name: _arm(given.arms[name], name, path) for name in names}
    parts = []
    for part in pair.parts:
        robot, base = arms[part.name].robot, given.arms[part.name].base
        if robot.name != part.robot.name:
            where = f"{path.name}: arms.{part.name}.contract"
            raise BadInput(where, got=f"a contract of {robot.name}", expected=f"one of {part.robot.name}")
        parts.append(replace(part, robot=robot, base=part.base if base is None else Base(base.position, base.yaw)))
    robot = replace(pair, parts=tuple(parts))
    _check_together(arms, path.name)
    limits = Limits.joined(robot, [arm.limits for arm in arms.values()])
    if given.collision_distance is not None:
        limits = _tightened(limits, given.collision_distance, path.name)
    return PairContract(given.name or path.stem, robot, arms, limits, str(path))


_FILE = TypeAdapter(PairFile)


def _arm(form: ArmForm, name: str, path: Path) -> Contract:
    beside = path.parent / form.contract
    try:
        there = beside if beside.exists() else form.contract
        return load_contract(there, form.namespace or f"/{name}", override=True)
    except BadInput as error:
        raise BadInput(f"{path.name}: arms.{name}: {error}") from error


def _tightened(limits: Limits, distance: float, file: str) -> Limits:
    try:
        return limits.tightened(collision_distance=distance)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from error


def _check_together(arms: Mapping[str, Contract], file: str) -> None:
    """Refuse two arms of which one would move the other, or at another pace."""
    (left, one), (right, other) = arms.items()
    for name in ("action_kind", "control_hz", "stream_hz"):
        if getattr(one, name) != getattr(other, name):
            got = f"{getattr(one, name)} of {left}, {getattr(other, name)} of {right}"
            raise BadInput(f"{file}: {name}", got=got, expected="the same of both arms")
    taken = {topic.topic: role for role, topic in one.topics.items()}
    for role, topic in other.topics.items():
        if topic.topic in taken:
            expected = f"another topic than {left}'s {taken[topic.topic]}"
            raise BadInput(f"{file}: arms.{right}: {role}", got=topic.topic, expected=expected)
