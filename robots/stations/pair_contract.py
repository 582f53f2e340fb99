"""Contracts of stations with two arms: each arm is an entry of `arms`, a contract of its own with a base.

    robot: so101_pair
    arms:
      left:
        contract: so101
        base: {position: [0.0, 0.15, 0.0], yaw: 0.0}
        servos: {port: /dev/ttyACM0, calibration: left}
      right:
        contract: so101
        base: {position: [0.0, -0.15, 0.0], yaw: 0.0}
        servos: {port: /dev/ttyACM1, calibration: right}

An arm's relative topics are in a namespace of its own, by default the name of its entry. What an arm's contract says in
its base frame (obstacles, workspace) holds where that base stands. What belongs to neither arm (`cameras`, `objects`)
stands beside `arms`, and so do the nodes: their topics have no namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, StrictFloat, TypeAdapter, ValidationError

from robolearn.core.errors import BadInput
from robolearn.core.specs import ArraySpec, Interface
from robots.arms import PAIRS
from robots.control import GRIPPER, make_control
from robots.limits import Limits
from robots.pair import PairSpec
from robots.spec import Base, proprio_spec
from robots.stations import values
from robots.stations.contract import Contract, check_objects, picked, resized
from robots.stations.contract_file import PAIR_CONTRACTS, NoContract, contract_names, load_contract
from robots.stations.mounting import Camera, Frames
from robots.stations.parts import Objects, ServoPort, Topic

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
      cameras: those of its contract that the station has; by default all.
      servos: its bus of servos, in place of its contract's.
    """

    contract: values.Word
    base: BaseForm | None = None
    namespace: values.Namespace | None = None
    cameras: tuple[values.Word, ...] | None = None
    servos: ServoPort | None = None


def _two(arms: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(arms) != 2:
        raise values.refuse("two arms, such as left and right", got=", ".join(arms) or "nothing")
    return arms


@values.section
class PairFile:
    """The whole file.

    Attributes:
      collision_distance: smallest gap between two links of one arm, or of both [m]; by default the larger of the arms'.
      cameras: of the station, beside those of the arms.
      objects: the task's privileged vector (simulation only), or None; that of an arm's contract is not used.
    """

    robot: Annotated[str, values.one_of(PAIRS)]
    arms: Annotated[Mapping[str, ArmForm], AfterValidator(_two)]
    name: values.Word = ""
    collision_distance: values.Finite | None = None
    cameras: Mapping[str, Camera] = field(default_factory=dict)
    objects: Objects | None = None


@dataclass(frozen=True, eq=False)
class PairContract:
    """Offer of a station with two arms, in the words of `Contract`.

    Attributes:
      name: the contract's name.
      robot: both arms, where they stand.
      arms: the contract of each, in the order of the robot's parts.
      limits: those of the safety filter, which knows both arms.
      cameras: camera name → where its images arrive; one of an arm is called ``<arm>_<camera>``.
      objects: the task's privileged vector as named positions (simulation only), or None.
      object_names: components of that vector, given by the task; see `with_objects`.
      frames: names of the station's frames.
      namespace: where our nodes are.
      path: the file this was read from.
      version: of the station's folder, which two arms do not have.
    """

    name: str
    robot: PairSpec
    arms: Mapping[str, Contract]
    limits: Limits
    cameras: Mapping[str, Camera] = field(default_factory=dict)
    objects: Topic | None = None
    object_names: tuple[str, ...] = ()
    frames: Frames = field(default_factory=Frames)
    namespace: str = ""
    path: str = ""
    version: str = ""

    @property
    def joints(self) -> tuple[str, ...]:
        """(n,) names of the joints of both arms, as the safety filter has them: each begins with its arm's."""
        return tuple(f"{name}_{joint}" for name, arm in self.arms.items() for joint in arm.joints)

    @property
    def grippers(self) -> tuple[str, ...]:
        """Names of the openings among the numbers of a target, behind those of all joints."""
        return tuple(part.named(GRIPPER) for part in self.robot.parts)

    @property
    def control_hz(self) -> float:
        """Rate of the actions [Hz]."""
        return self._one.control_hz

    @property
    def stream_hz(self) -> float:
        """Rate of the commands to the controllers [Hz]."""
        return self._one.stream_hz

    @property
    def action_kind(self) -> str:
        """Meaning of an action, of both arms."""
        return self._one.action_kind

    @property
    def horizon_s(self) -> float:
        """Time by which set-points are sent ahead of the arms [s]."""
        return self._one.horizon_s

    @property
    def simulated(self) -> bool:
        """Our commands start the arms, as a simulation."""
        return self._one.simulated

    @property
    def _one(self) -> Contract:
        """Either arm, for what is the same of both."""
        return next(iter(self.arms.values()))

    def with_arms(self, change: Callable[[Contract], Contract]) -> PairContract:
        """See `Contract.with_arms`."""
        return replace(self, arms={name: change(arm) for name, arm in self.arms.items()})

    def with_objects(self, names: Iterable[str]) -> PairContract:
        """See `Contract.with_objects`."""
        names = tuple(names)
        check_objects(self.name, self.objects, names)
        return replace(self, object_names=names)

    def with_cameras(self, names: Iterable[str]) -> PairContract:
        """See `Contract.with_cameras`."""
        return replace(self, cameras=picked(self.name, self.cameras, names))

    def with_picture_sizes(self, observation: Mapping[str, ArraySpec]) -> PairContract:
        """See `Contract.with_picture_sizes`."""
        return replace(self, cameras=resized(self.cameras, observation))

    @property
    def interface(self) -> Interface:
        """Interface to policies, in the words of the simulated worlds."""
        observation = {"proprio": proprio_spec(self.robot)}
        if self.object_names:
            observation["objects"] = ArraySpec((len(self.object_names),), names=self.object_names)
        for name, camera in self.cameras.items():
            observation[f"images.{name}"] = ArraySpec((*camera.size, 3), "uint8")
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
        raise values.bad_input(error, values.place(path)) from error
    pair = PAIRS[given.robot]
    names = tuple(part.name for part in pair.parts)
    if sorted(given.arms) != sorted(names):
        raise BadInput(f"{values.place(path)}: arms", got=", ".join(given.arms), expected=", ".join(names))
    arms = {name: _arm(given.arms[name], name, path) for name in names}
    parts = []
    for part in pair.parts:
        robot, base = arms[part.name].robot, given.arms[part.name].base
        if robot.name != part.robot.name:
            where = f"{values.place(path)}: arms.{part.name}.contract"
            raise BadInput(where, got=f"a contract of {robot.name}", expected=f"one of {part.robot.name}")
        parts.append(replace(part, robot=robot, base=part.base if base is None else Base(base.position, base.yaw)))
    robot = replace(pair, parts=tuple(parts))
    objects = given.objects and replace(given.objects, topic=_absolute(given.objects.topic))
    own = {name: replace(one, topic=_absolute(one.topic)) for name, one in given.cameras.items()}
    _check_together(arms, {**({"objects": objects} if objects else {}), **own}, values.place(path))
    cameras = own | {f"{name}_{key}": one for name, arm in arms.items() for key, one in arm.cameras.items()}
    limits = Limits.joined(robot, [arm.limits for arm in arms.values()])
    if given.collision_distance is not None:
        limits = _tightened(limits, given.collision_distance, values.place(path))
    return PairContract(given.name or path.stem, robot, arms, limits, cameras, objects, path=str(path))


AnyContract = Contract | PairContract
"""Of a station with one arm, or with two."""


def load_any_contract(name_or_path: str | Path, namespace: str = "") -> AnyContract:
    """The contract called `name_or_path`, or in that file, of one arm or of two; `namespace` as `load_contract` has it.
    Raises `BadInput`: see `load_contract`, `load_pair`."""
    path = Path(name_or_path).expanduser()
    if str(name_or_path) in pair_names():
        return load_pair(name_or_path)
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        data = values.read_yaml(path)
        if isinstance(data, dict) and "arms" in data:
            return load_pair(path)
    try:
        return load_contract(name_or_path, namespace)
    except NoContract as error:
        available = (*contract_names(), *pair_names(), "<path>.yaml")
        raise BadInput("contract", got=name_or_path, available=available) from error


_FILE = TypeAdapter(PairFile)


def _absolute(topic: str) -> str:
    return topic if topic.startswith("/") else f"/{topic}"


def _arm(form: ArmForm, name: str, path: Path) -> Contract:
    beside = path.parent / form.contract
    try:
        there = beside if beside.exists() else form.contract
        found = load_contract(there, form.namespace or f"/{name}", override=True)
        found = found if form.cameras is None else found.with_cameras(form.cameras)
    except BadInput as error:
        raise BadInput(f"{values.place(path)}: arms.{name}: {error}") from error
    if form.servos is None:
        return found
    if found.servos is None:
        raise BadInput(
            f"{values.place(path)}: arms.{name}.servos", got=form.servos.port, expected=f"none: {found.name} has none"
        )
    return replace(found, servos=replace(found.servos, port=form.servos.port, calibration=form.servos.calibration))


def _tightened(limits: Limits, distance: float, file: str) -> Limits:
    try:
        return limits.tightened(collision_distance=distance)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from error


def _check_together(arms: Mapping[str, Contract], own: Mapping[str, Topic], file: str) -> None:
    """Refuse two arms of which one would move the other, or at another pace; `own` topics are the station's."""
    (left, one), (right, other) = arms.items()
    for name in ("action_kind", "control_hz", "stream_hz", "horizon_s", "simulated"):
        if getattr(one, name) != getattr(other, name):
            got = f"{getattr(one, name)} of {left}, {getattr(other, name)} of {right}"
            raise BadInput(f"{file}: {name}", got=got, expected="the same of both arms")
    taken = {topic.topic: role for role, topic in one.topics.items()}
    for role, topic in other.topics.items():
        if topic.topic in taken:
            expected = f"another topic than {left}'s {taken[topic.topic]}"
            raise BadInput(f"{file}: arms.{right}: {role}", got=topic.topic, expected=expected)
    if one.servos is not None and other.servos is not None:
        for name in ("port", "calibration"):
            if (got := getattr(other.servos, name)) == getattr(one.servos, name):
                raise BadInput(f"{file}: arms.{right}.servos.{name}", got=got, expected=f"another than {left}'s")
    taken |= {topic.topic: role for role, topic in other.topics.items()}
    for role, topic in own.items():
        if (of := taken.get(topic.topic)) is not None:
            expected = f"another topic than {of} of an arm"
            raise BadInput(f"{file}: {role}", got=topic.topic, expected=expected)
