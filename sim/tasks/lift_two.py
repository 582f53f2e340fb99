"""Lift with two arms: a bar of 50 cm lies across before them and is raised by 10 cm, level, by both of its ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.se3 import rotate_inverse, yaw_quat
from sim.embedded.scene import GRASPED
from sim.embedded.task import Array, Start, State, Task, draw
from sim.experts.operator import PATIENT, Patience
from sim.experts.waypoints import View, Waypoint, Waypoints, downward, yaw_of

HALF = 0.015  # half its width and height [m]
LENGTH = 0.50  # [m]
GRASPS = 0.20  # from its middle to where each arm takes it [m]
RAISED = 0.10  # height above the table that counts as lifted [m]
LEVEL = 0.03  # largest difference in height between its ends that counts as level [m]
SIDES = np.array([1.0, -1.0])  # of the left arm and of the right one, along y

YAW = (-0.25, 0.25)  # of the bar, from lying along y [rad]
# Where each tcp starts, relative to its home: three coordinates [m] and yaw [rad]. The grippers have turned already.
LEFT = ((-0.05, 0.05), (-0.16, -0.08), (-0.15, -0.08), (-0.15 - np.pi / 2, 0.15 - np.pi / 2))
RIGHT = ((-0.05, 0.05), (0.08, 0.16), (-0.15, -0.08), (-0.15 - np.pi / 2, 0.15 - np.pi / 2))
STARTS = np.array([(0.42, 0.56), (-0.05, 0.05), YAW, *LEFT, *RIGHT])  # bar, then tcps


def add_bar(spec: mujoco.MjSpec, length: float, mass: float, rgba: tuple[float, float, float, float]) -> None:
    """A free bar called `bar`, as long as said along its y axis [m], of this mass [kg]."""
    body = spec.worldbody.add_body(name="bar", pos=[0.5, 0.0, HALF])
    body.add_freejoint(name="bar")
    body.add_geom(
        name="bar",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[HALF, 0.5 * length, HALF],
        mass=mass,
        friction=[1.0, 0.01, 0.0001],
        rgba=list(rgba),
        **GRASPED,
    )


def bar_pose(x: float, y: float, yaw: float) -> Array:
    """(7,) a bar that lies on the table."""
    return np.concatenate([[x, y, HALF], yaw_quat(yaw)])


BAR_NAMES = (  # the bar in the station: its middle, and the direction of its end on the left
    *(f"bar_{axis}" for axis in "xyz"),
    *(f"bar_axis_{axis}" for axis in "xyz"),
    # of each arm, in the frame of its tcp: where it takes the bar, and the direction of the bar
    *(f"{arm}_{what}_{axis}" for arm in ("left", "right") for what in ("grasp", "axis") for axis in "xyz"),
)


@dataclass(frozen=True)
class BarTask(Task):
    """A task of two arms and one bar: `starts` (11, 2) are the ranges of bar and tcps, and `grasps` is how far from its
    middle each arm takes it [m]."""

    starts: ClassVar[Array]
    grasps: ClassVar[float]

    bodies: tuple[str, ...] = ("bar",)
    randomised: tuple[str, ...] = ("bar",)
    observation_names: tuple[str, ...] = BAR_NAMES
    patience: Patience = PATIENT
    arms: int = 2

    def start(self, rng: np.random.Generator) -> Start:
        x, y, yaw, *tcps = draw(rng, self.starts, self.start_range)
        each = np.array(tcps).reshape(2, 4)
        return Start(each[:, :3], each[:, 3], bodies={"bar": bar_pose(x, y, yaw)})

    def observe(self, state: State) -> Array:
        """(N, len(BAR_NAMES))."""
        bar = state.bodies["bar"]
        axis = bar.rot[:, :, 1]
        parts = [bar.pos, axis]
        for k, side in enumerate(SIDES):
            rot, away = state.tcp_rot[:, k], bar.pos + side * self.grasps * axis - state.tcp_pos[:, k]
            parts += [rotate_inverse(rot, away), rotate_inverse(rot, axis)]
        return np.concatenate(parts, -1)


@dataclass(frozen=True)
class LiftTwo(BarTask):
    """Reward 1 and the end of the episode when the bar is 10 cm above where it lay, and level."""

    name: str = "lift_two"
    prompt: str = "lift the bar with both arms"
    max_episode_steps: int = 80
    starts: ClassVar[Array] = STARTS
    grasps: ClassVar[float] = GRASPS

    def script(self) -> LiftTwoScript:
        return LiftTwoScript()

    def build(self, spec: mujoco.MjSpec) -> None:
        add_bar(spec, LENGTH, 0.3, (0.85, 0.22, 0.18, 1.0))

    def success(self, state: State) -> NDArray[np.bool_]:
        bar = state.bodies["bar"]
        level = LENGTH * np.abs(bar.rot[:, 2, 1]) < LEVEL
        return level & (bar.pos[:, 2] > HALF + RAISED)

    def failure(self, state: State) -> NDArray[np.bool_]:
        return state.bodies["bar"].pos[:, 2] < -HALF  # it fell off the table

    def progress(self, state: State) -> Array:
        bar = state.bodies["bar"]
        ends = bar.pos[:, None] + SIDES[:, None] * GRASPS * bar.rot[:, None, :, 1]
        reach = 1.0 - np.tanh(8.0 * np.linalg.norm(ends - state.tcp_pos, axis=-1))
        # The lower end counts: one that is raised alone brings nothing.
        raised = np.clip((ends[..., 2].min(-1) - HALF) / RAISED, 0.0, 1.0)
        return 0.4 * reach.mean(-1) + 0.6 * raised


# --- the demonstrator

# Error of aim of each strategy at bias 1: (along the bar, across it, height) [m].
BAR_BIAS = np.array([[0.030, 0.006, 0.006], [-0.025, 0.008, 0.010]])


def along(axis: Array, reference: Array) -> Array:
    """(N, 3, 3): tcp pointing down, its x axis along a bar of direction `axis` (N, 3), the way round that is nearer to
    the heading `reference` (N,)."""
    yaw = np.arctan2(axis[:, 1], axis[:, 0])
    return downward(reference + (yaw - reference + np.pi / 2) % np.pi - np.pi / 2)


def grasp(view: View, side: float, grasps: float, strategy: NDArray[np.int64], bias: Array) -> tuple[Array, Array]:
    """The place at its end by which the demonstrator thinks the bar has to be taken: (N, 3) and (N, 3, 3)."""
    axis = view.vector("bar_axis")
    rot = along(axis, yaw_of(view.tcp_rot))
    error = BAR_BIAS[strategy] * bias[:, None]
    aim = view.vector("bar") + side * (grasps + error[:, :1]) * axis + rot[:, :, 1] * error[:, 1:2]
    aim[:, 2] += error[:, 2]
    return aim, rot


def take(phase: int, aim: Array, rot: Array, height: Array) -> Waypoint:
    """Hover at a height (N,) [m], descend, close: phases 0 to 2."""
    if phase == 0:
        return Waypoint(aim + height[:, None] * np.array([0.0, 0.0, 1.0]), rot, 1.0, tolerance=0.015)
    if phase == 1:
        return Waypoint(aim, rot, 1.0, speed=0.7, tolerance=0.006, dwell=1)
    return Waypoint(aim, rot, -1.0, speed=0.3, tolerance=0.02, dwell=5)


HOVER = np.array([0.08, 0.05])  # of each strategy [m]


class LiftTwoScript:
    """Hover over both ends, descend, close, raise together; from high up, or from low."""

    phases = 4
    strategies = 2

    def plan_both(
        self, phase: int, views: tuple[View, ...], strategy: NDArray[np.int64], bias: Array, memory: Array
    ) -> Waypoints:
        left, right = (self._of(phase, k, view, strategy, bias, memory[:, k]) for k, view in enumerate(views))
        return left, right

    def _of(
        self, phase: int, k: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array
    ) -> Waypoint:  # fmt: skip
        if phase == 3:
            return Waypoint(memory + np.array([0.0, 0.0, 0.2]), downward(yaw_of(view.tcp_rot)), -1.0, speed=0.7)
        aim, rot = grasp(view, SIDES[k], GRASPS, strategy, bias)
        return take(phase, aim, rot, HOVER[strategy])
