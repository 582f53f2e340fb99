"""A task and its layout before an arm: bodies, starts, an observation, success, failure, a measure of progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec
from robolearn.core.se3 import rot6d, rotate_inverse
from robolearn.core.specs import COUSIN, DISTRACTOR
from robots import AnyRobot
from robots.spec import GripperKind

if TYPE_CHECKING:
    from sim.embedded.cousins import CousinRange
    from sim.experts.operator import Patience
    from sim.experts.waypoints import PairScript, Script

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BodyPose:
    """Positions (N, 3) [m] and orientations (N, 3, 3) of one body in the base frame, with its twist if free."""

    pos: Array
    rot: Array
    linear: Array  # (N, 3) velocity [m/s], base frame
    angular: Array  # (N, 3) velocity [rad/s], body frame


@dataclass(frozen=True)
class Extent:
    """Where the thing of a task lies in N worlds, whose shapes and tables may differ."""

    half: Array  # (N, 3) half sizes of the box around it as it lies [m]
    table: Array  # (N,) height of the table's top [m]

    @property
    def rest(self) -> Array:
        """(N,) height of its middle where it lies on the table [m]."""
        return self.table + self.half[:, 2]

    @property
    def width(self) -> Array:
        """(N,) the wider of its sides that a gripper may hold [m]."""
        return 2.0 * np.maximum(np.minimum(self.half[:, 0], HELD), self.half[:, 1])


HELD = 0.03  # half the width of what grippers hold, at most [m]


@dataclass(frozen=True)
class State:
    """The simulator's truth about N worlds at one moment; of a pair of arms openings and tcps are (N, 2, …), the left
    one first, in the frame of the station."""

    q: Array  # (N, n) arm joint positions [rad]
    qvel: Array  # (N, n) arm joint velocities [rad/s]
    width: Array  # (N,) opening of the gripper [m]
    tcp_pos: Array  # (N, 3) [m]
    tcp_rot: Array  # (N, 3, 3)
    bodies: Mapping[str, BodyPose]
    extent: Extent | None = None  # of tasks with a thing that may have another shape

    @property
    def lying(self) -> Extent:
        """`extent` of a task that has it."""
        assert self.extent is not None
        return self.extent

    def put(self, rows: NDArray[np.int64], part: State) -> None:
        """Write `part`, the state of M worlds, over the worlds `rows` (M,)."""
        pairs: list[tuple[object, object]] = [(self, part)]
        pairs += [(pose, part.bodies[name]) for name, pose in self.bodies.items()]
        pairs += [(self.extent, part.extent)] if self.extent is not None else []
        for old, new in pairs:
            for name, value in vars(new).items():
                if name not in ("bodies", "extent"):
                    getattr(old, name)[rows] = value


@dataclass(frozen=True)
class Start:
    """Start of one episode of one world."""

    tcp_offset: Array  # (3,) from the home position of the tcp [m]; of a pair (2, 3)
    tcp_yaw: float | Array = 0.0  # about the vertical [rad]; of a pair (2,)
    width: float = 0.08  # gripper opening [m]
    bodies: Mapping[str, Array] = field(default_factory=dict)  # body → (7,) position and quaternion in the base frame
    # body → (7,) position and quaternion in the tcp frame, for bodies that begin in the gripper
    held: Mapping[str, Array] = field(default_factory=dict)


def draw(rng: np.random.Generator, ranges: Array, share: float) -> Array:
    """(k,) uniform in the middle `share` of the `ranges` (k, 2)."""
    low, high = ranges[:, 0], ranges[:, 1]
    return 0.5 * (low + high) + share * (high - low) * (rng.random(len(ranges)) - 0.5)


def pose_names(body: str) -> tuple[str, ...]:
    """Names of the components of `pose_seen`."""
    return (
        *(f"{body}_{axis}" for axis in "xyz"),
        *(f"tcp_{body}_{axis}" for axis in "xyz"),
        *(f"tcp_{body}_rot{i}" for i in range(6)),
    )


def pose_seen(state: State, body: str) -> Array:
    """(N, 12) where a body is in the base frame, and in the tcp frame with its orientation."""
    pose = state.bodies[body]
    relative = rotate_inverse(state.tcp_rot, pose.pos - state.tcp_pos)
    return np.concatenate([pose.pos, relative, rot6d(np.swapaxes(state.tcp_rot, -1, -2) @ pose.rot)], -1)


COUSIN_NAMES = ("half_x", "half_y", "half_z", "table_z")  # of the feature `COUSIN` [m]


@dataclass(frozen=True)
class Task:
    """One task; a subclass is a file in `sim/tasks`."""

    name: str  # of ``--task``
    prompt: str  # the task in words
    max_episode_steps: int  # control steps before the clock ends an episode
    bodies: tuple[str, ...]  # free or mocap bodies that `State.bodies` shall hold
    randomised: tuple[str, ...]  # bodies whose friction and mass differ from episode to episode
    observation_names: tuple[str, ...]  # components of the `objects` vector
    patience: Patience  # when a scripted operator who watches a policy takes over
    # components of the privileged feature `target`, of a goal that nothing in the world shows; or none
    target_names: tuple[str, ...] = ()
    timestep: float = 0.005  # of the physics [s]; the main lever of speed: as large as the task's contacts allow
    arms: int = 1  # that it needs
    start_range: float = 1.0  # share of each range that starts are drawn from, about its centre
    thing: str = ""  # the body, of one box, that is handled
    has_cousins: bool = False  # success, failure, progress and script go by the `extent` of the thing
    cousins: CousinRange | None = None  # its scenes, where they differ
    has_distractor: bool = False  # a thing that is not meant may lie beside the one that is
    distractor: bool = False  # it does

    @property
    def privileged(self) -> dict[str, ArraySpec]:
        """Feature → spec, of what worlds show beside `objects`."""
        names = {"target": self.target_names, COUSIN: COUSIN_NAMES if self.cousins else ()}
        names[DISTRACTOR] = pose_names(DISTRACTOR) if self.distractor else ()
        return {key: ArraySpec((len(own),), names=own, privileged=True) for key, own in names.items() if own}

    def truth(self, state: State) -> dict[str, Array]:
        """Feature of `privileged` → (N, …)."""
        found = {"target": self.target(state)} if self.target_names else {}
        if self.cousins:
            found[COUSIN] = np.column_stack([state.lying.half, state.lying.table])
        if self.distractor:
            found[DISTRACTOR] = pose_seen(state, DISTRACTOR)
        return found

    def script(self) -> Script | PairScript:
        """The scripted demonstrator; of a task of two arms a `sim.experts.waypoints.PairScript`."""
        raise NotImplementedError

    def build(self, spec: mujoco.MjSpec) -> None:
        """Add the task's bodies to a scene that holds the arm and a table whose top is z = 0."""
        raise NotImplementedError

    def start(self, rng: np.random.Generator) -> Start:
        """Draw the start of one episode."""
        raise NotImplementedError

    def observe(self, state: State) -> Array:
        """(N, len(observation_names)) privileged state of the task."""
        raise NotImplementedError

    def target(self, state: State) -> Array:
        """(N, len(target_names)) the goal of each world's episode."""
        raise NotImplementedError

    def success(self, state: State) -> NDArray[np.bool_]:
        """(N,) the task is solved."""
        raise NotImplementedError

    def failure(self, state: State) -> NDArray[np.bool_]:
        """(N,) the task can no longer be solved."""
        raise NotImplementedError

    def progress(self, state: State) -> Array:
        """(N,) in [0, 1], larger nearer to success: the potential that shapes the dense reward."""
        raise NotImplementedError


HOME = (0.50, 0.0, 0.28)  # tcp of the arms that the tasks are laid out for, at home [m]


@dataclass(frozen=True)
class WorkspaceLayout:
    """A task's layout before an arm, as far away as it reaches.

        (x, y)* = s (x, y),   tcp* = s (tcp at home + offset),   cameras* = s cameras

    The tasks are laid out for arms that reach 0.85 m. Things and heights keep their size: a cube is no smaller because
    the arm is.
    """

    scale: float = 1.0  # s
    tasks: frozenset[str] | None = None  # those that the arm can do; None for all
    why: str = ""  # the reason that it cannot do the others
    table: tuple[float, float] = (0.55, 0.5)  # half sizes along x and y [m]

    def home(self, own: Array) -> Array:
        """(3,) origin of the tcp's start offsets [m]; `own` (3,) for an arm of full size."""
        return own if self.scale == 1.0 else self.scale * np.array(HOME)

    def place(self, start: Start) -> Start:
        """A start of the layout, before this arm."""
        if self.scale == 1.0:
            return start
        nearer = np.array([self.scale, self.scale, 1.0, 1.0, 1.0, 1.0, 1.0])
        bodies = {name: pose * nearer for name, pose in start.bodies.items()}
        return replace(start, tcp_offset=self.scale * start.tcp_offset, bodies=bodies)


FULL = WorkspaceLayout()
LAYOUTS: dict[str, WorkspaceLayout] = {
    # It reaches 0.30 m where its gripper points down, and with its wrist at its limit no further up than 8 cm so.
    "so101": WorkspaceLayout(
        0.42,
        frozenset({"lift", "pick_place"}),
        why="A jaw that turns holds no peg upright, and the ways back are laid out for longer arms",
    ),
    "panda_pair": WorkspaceLayout(table=(0.55, 0.8)),
    "so101_pair": WorkspaceLayout(0.42, frozenset(), why="The tasks of two arms are laid out for longer ones"),
}


def layout_of(robot: AnyRobot) -> WorkspaceLayout:
    """The layout of an arm."""
    return LAYOUTS.get(robot.name, FULL)


def fits(robot: AnyRobot, task: str, arms: int = 1) -> bool:
    """True where `robot` can do the embedded task called `task`, which needs so many arms."""
    each = [part.robot for part in robot.parts]
    if len(each) != arms or any(arm.gripper.kind is GripperKind.NONE for arm in each):
        return False
    layout = LAYOUTS.get(robot.name)
    if layout is None:
        return all(arm.gripper.kind is GripperKind.PARALLEL and len(arm.joints) >= 6 for arm in each)
    return layout.tasks is None or task in layout.tasks
