"""`Limits`: what a station holds an arm to, and obstacles. They come from the robot and can only be tightened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput, check_choice
from robots.pair import AnyRobot, PairSpec
from robots.spec import Base

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Plane:
    """The arm stays on the side that the normal points to: n·x ≥ offset."""

    name: str  # for the operator: table, wall
    normal: Array  # (3,) unit vector
    offset: float = 0.0  # [m]

    def __post_init__(self) -> None:
        normal = _vector(f"normal of {self.name}", self.normal)
        length = float(np.linalg.norm(normal))
        if not length > 1e-6 or not np.isfinite(self.offset):
            raise BadInput(f"plane {self.name}", got=f"{normal.tolist()}, {self.offset}", expected="a normal, a number")
        object.__setattr__(self, "normal", normal / length)

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "normal": self.normal.tolist(), "offset": self.offset}

    def moved(self, base: Base, name: str) -> Plane:
        """The plane of an arm's base frame in the frame of the station: n' = R n, n'·(x − p) ≥ offset."""
        normal = base.rotation @ self.normal
        return Plane(name, normal, self.offset + float(normal @ np.array(base.position)))


@dataclass(frozen=True, eq=False)
class Box:
    """A box that the arm stays out of: mount, wall, camera post."""

    name: str  # for the operator
    # lower, upper: (3,) its corners before it is turned [m]
    lower: Array
    upper: Array
    yaw: float = 0.0  # turned about the vertical through its centre [rad]

    def __post_init__(self) -> None:
        lower, upper = (_vector(f"corner of {self.name}", corner) for corner in (self.lower, self.upper))
        if not np.all(lower < upper) or not np.isfinite(self.yaw):
            got = f"{lower.tolist()} to {upper.tolist()}, yaw {self.yaw}"
            raise BadInput(f"box {self.name}", got=got, expected="lower corner below upper corner")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def centre(self) -> Array:
        """(3,) [m]."""
        return 0.5 * (self.lower + self.upper)

    @property
    def half(self) -> Array:
        """(3,) half sizes [m]."""
        return 0.5 * (self.upper - self.lower)

    @property
    def rotation(self) -> Array:
        """(3, 3)."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "lower": self.lower.tolist(), "upper": self.upper.tolist(), "yaw": self.yaw}

    def moved(self, base: Base, name: str) -> Box:
        """The box of an arm's base frame in the frame of the station: its centre moves, and it turns with the base."""
        centre = np.array(base.position) + base.rotation @ self.centre
        return Box(name, centre - self.half, centre + self.half, self.yaw + base.yaw)


Obstacle = Plane | Box


def _same(a: Obstacle, b: Obstacle) -> bool:
    """True for planes that are one: the table that both arms stand on."""
    if not (isinstance(a, Plane) and isinstance(b, Plane)):
        return False
    return np.allclose(a.normal, b.normal, atol=1e-9) and abs(a.offset - b.offset) < 1e-9


def _vector(name: str, value: object) -> Array:
    try:
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(name, got=value, expected="three numbers") from None
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise BadInput(name, got=vector.tolist(), expected="three finite numbers")
    vector.flags.writeable = False
    return vector


# How a value gets tighter: a lower bound by rising, an upper bound by falling.
_RISING = ("lower", "collision_distance", "obstacle_distance")
_PER_JOINT = ("lower", "upper", "velocity", "acceleration", "jerk")
# What a station may loosen, because it belongs to its delays and not to the arm, and how far: a lag of 0.25 s at the
# 2.6 rad/s of the fastest joint of a Panda is 0.65 rad.
WIDEST = {"state_timeout_s": 0.3, "max_jump": 0.7}
# Below, the arm would take hours to move, or every target and state be refused; and differences of set-points drown in
# rounding: at 1 kHz and 1 rad/s³ the third one is 1e-9 rad, and doubles of 3 rad have steps of 4e-16.
LEAST = {
    "velocity": 0.01,
    "acceleration": 0.1,
    "jerk": 1.0,
    "max_jump": 0.01,
    "command_timeout_s": 0.01,
    "state_timeout_s": 0.01,
    "deadman_timeout_s": 0.02,
    "singularity": 2.0,
    "gripper_speed": 0.001,
}
_TOO_LITTLE = "with less the arm could not be moved"
_BOXES = ("workspace", "held")
# Of a pair: what each arm has for itself; what the tighter of two holds for both.
_OF_AN_ARM = ("max_jump", "state_timeout_s", "singularity", "gripper_max", "gripper_speed")
_TIMES, _DISTANCES = ("command_timeout_s", "deadman_timeout_s"), ("collision_distance", "obstacle_distance")
_MAY_BE_0 = ("collision_distance", "obstacle_distance", "gripper_max")


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of n joints, of the tcp, and of time. Arrays are read-only.

    Attributes:
      lower, upper: (n,) joint positions [rad].
      velocity: (n,) of the joints [rad/s].
      acceleration: (n,) of the joints [rad/s²].
      jerk: (n,) of the joints [rad/s³].
      workspace: (2, 3) lower and upper corner of the box that the tcp stays in, base frame [m]; None: no box.
      max_jump: largest distance of a joint's target, or of its set-point, from where the joint is measured [rad].
      command_timeout_s: age at which a target is stale [s].
      state_timeout_s: age at which a joint state is stale [s].
      deadman_timeout_s: age at which the dead-man's heartbeat is stale [s].
      singularity: largest condition number of the tcp's Jacobian (lengths in halves of the arm's length).
      collision_distance: smallest gap between links that are not neighbours [m].
      obstacle_distance: smallest gap between the arm and an obstacle [m].
      obstacles: planes and boxes that no link enters, nor what the gripper holds.
      held: (2, 3) lower and upper corner of the box that what the gripper holds lies in, tcp frame [m]; None: nothing.
      gripper_max: largest opening [m].
      gripper_speed: of the opening [m/s].
      arms: of a pair of arms, the limits of each by itself, `workspace` and `held` in its own frames; see `each`. Empty
        for one arm.
    """

    lower: Array
    upper: Array
    velocity: Array
    acceleration: Array
    jerk: Array
    workspace: Array | None = None
    max_jump: float = 0.35
    command_timeout_s: float = 0.1
    state_timeout_s: float = 0.1
    deadman_timeout_s: float = 0.25
    singularity: float = 60.0
    collision_distance: float = 0.02
    obstacle_distance: float = 0.005
    obstacles: tuple[Obstacle, ...] = ()
    held: Array | None = None
    gripper_max: float = 0.08
    gripper_speed: float = 0.2
    arms: tuple[Limits, ...] = ()

    def __post_init__(self) -> None:
        n = np.size(self.lower)
        for name in _PER_JOINT:
            object.__setattr__(self, name, _array(name, getattr(self, name), (n,)))
        for name in _BOXES:
            if getattr(self, name) is not None:
                box = _array(name, getattr(self, name), (2, 3))
                if not np.all(box[0] < box[1]):
                    raise BadInput(name, got=box.tolist(), expected="lower corner below upper corner")
                object.__setattr__(self, name, box)
                if self.arms:
                    raise BadInput(f"{name} of two arms", got="one for both", expected="one of each arm, in `arms`")
        if not np.all(self.lower < self.upper):
            raise BadInput("joint limits", got=f"{self.lower} to {self.upper}", expected="lower below upper")
        for name in ("velocity", "acceleration", "jerk"):
            value = getattr(self, name)
            if not np.all(value > 0):
                raise BadInput(name, got=value, expected="more than 0")
            if np.any(value < LEAST[name]):
                expected = f"at least {LEAST[name]}: {_TOO_LITTLE}"
                raise BadInput(f"limit {name}", got=float(value.min()), expected=expected)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in (*_PER_JOINT, *_BOXES, "obstacles", "arms"):
                continue
            least = 0.0 if field.name in _MAY_BE_0 else np.nextafter(0, 1)
            if not np.isfinite(value) or value < least:
                expected = "finite, at least 0" if least == 0 else "finite, more than 0"
                raise BadInput(field.name, got=value, expected=expected)
            if value < LEAST.get(field.name, 0.0):
                raise BadInput(
                    f"limit {field.name}", got=value, expected=f"at least {LEAST[field.name]}: {_TOO_LITTLE}"
                )
            object.__setattr__(self, field.name, float(value))

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.lower)

    @property
    def each(self) -> tuple[Limits, ...]:
        """Limits of each arm; of a pair the tighter of its own and those of both."""
        if not self.arms:
            return (self,)
        return tuple(
            replace(arm, **{name: min(getattr(self, name), getattr(arm, name)) for name in _OF_AN_ARM})
            for arm in self.arms
        )

    @staticmethod
    def of(robot: AnyRobot) -> Limits:
        """The robot's own limits: what its maker allows, and no workspace box."""
        if isinstance(robot, PairSpec):
            return Limits.joined(robot, [Limits.of(part.robot) for part in robot.parts])
        gripper = robot.gripper
        # Without a gripper the opening stays 0, at whatever speed.
        speed = 2.0 * gripper.max_speed if gripper.max_speed > 0 else Limits.gripper_speed
        return Limits(
            lower=robot.lower,
            upper=robot.upper,
            velocity=np.asarray(robot.velocity),
            acceleration=np.asarray(robot.acceleration),
            jerk=np.asarray(robot.jerk),
            gripper_max=gripper.max_width,
            gripper_speed=speed,
        )

    @staticmethod
    def joined(pair: PairSpec, arms: Sequence[Limits]) -> Limits:
        """Limits of two arms in one station, from those that each has in its own base frame: joint by joint one after
        the other, the tighter of two distances and times, and all obstacles, where they are in the station."""
        found: list[Obstacle] = []
        for part, limits in zip(pair.parts, arms, strict=True):
            for obstacle in (one.moved(part.base, f"{part.name} {one.name}") for one in limits.obstacles):
                if not any(_same(obstacle, other) for other in found):
                    found.append(obstacle)
        return Limits(
            **{name: np.concatenate([getattr(limits, name) for limits in arms]) for name in _PER_JOINT},
            **{name: min(getattr(limits, name) for limits in arms) for name in _TIMES},
            **{name: max(getattr(limits, name) for limits in arms) for name in (*_OF_AN_ARM, *_DISTANCES)},
            obstacles=tuple(found),
            arms=tuple(arms),
        )

    def tightened(self, **changes: Any) -> Limits:
        """These limits with some of them tighter. `changes`: attribute → new value; a single number stands for all
        joints. Raises `BadInput`: there is no such limit, its shape is wrong, or it would become looser."""
        names = [field.name for field in fields(self)]
        for name in changes:
            check_choice("limit", name, names)
        new = replace(self, **{name: self._broadcast(name, value) for name, value in changes.items()})
        for name in changes:
            self._check_tighter(name, new)
        return new

    def to_json(self) -> Mapping[str, Any]:
        """A plain dict, for configuration files and diagnostics."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        obstacles = [obstacle.to_json() for obstacle in self.obstacles]
        return {**plain, "obstacles": obstacles, "arms": [limits.to_json() for limits in self.arms]}

    def _broadcast(self, name: str, value: Any) -> Any:
        if name in _PER_JOINT and np.ndim(value) == 0:
            return np.full(self.n, float(value))
        return value

    def _check_tighter(self, name: str, new: Limits) -> None:
        old_value, new_value = getattr(self, name), getattr(new, name)
        if name == "obstacles":
            gone = [obstacle.name for obstacle in old_value if obstacle not in new_value]
            if gone:
                raise BadInput("obstacles", got=f"no {', '.join(gone)}", expected="what is there already, or more")
            return
        if name == "arms":
            for old, one in zip(old_value, new_value, strict=True):
                old.tightened(**vars(one))
            return
        if name in WIDEST:
            if new_value > WIDEST[name]:
                raise BadInput(f"limit {name}", got=new_value, expected=f"at most {WIDEST[name]}")
            return
        if name in _BOXES:  # the workspace gets smaller, what the gripper holds larger
            inner, outer = (old_value, new_value) if name == "held" else (new_value, old_value)
            side = "around" if name == "held" else "inside"
            if old_value is not None and (
                new_value is None or np.any(inner[0] < outer[0]) or np.any(inner[1] > outer[1])
            ):
                got = None if new_value is None else new_value.tolist()
                raise BadInput(name, got=f"{got}", expected=f"a box {side} {old_value.tolist()}")
            return
        looser = new_value < old_value if name in _RISING else new_value > old_value
        if np.any(looser):
            side = "at least" if name in _RISING else "at most"
            if np.ndim(old_value):
                i = int(np.argmax(looser))
                raise BadInput(f"limit {name} of joint {i + 1}", got=new_value[i], expected=f"{side} {old_value[i]}")
            raise BadInput(f"limit {name}", got=new_value, expected=f"{side} {old_value}")


def _array(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"limit {name}", got=value, expected=f"numbers of shape {shape}") from None
    if array.shape != shape:
        raise BadInput(f"limit {name}", got=f"shape {array.shape}", expected=f"shape {shape}")
    if not np.all(np.isfinite(array)):
        raise BadInput(f"limit {name}", got=array.tolist(), expected="finite numbers")
    array.flags.writeable = False
    return array
