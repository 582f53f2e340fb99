"""Lift: grasp a cube that lies anywhere in a 20 × 24 cm area and raise it by 6 cm."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.se3 import yaw_quat
from sim.embedded.scene import GRASPED
from sim.embedded.task import Array, Start, State, Task, draw, pose_names, pose_seen
from sim.experts.failures import KINDS, FailureFacts
from sim.experts.operator import PATIENT, Patience
from sim.experts.waypoints import Script, View, Waypoint, downward, nearest, yaw_of

HALF = 0.02  # half the cube's edge [m]
RAISED = 0.06  # height above the table that counts as lifted [m]

YAW = (-np.pi / 4, np.pi / 4)  # of the cube, which looks the same four times [rad]
# Where the tcp starts, relative to its home: three coordinates [m], yaw [rad].
TCP = ((-0.05, 0.05), (-0.05, 0.05), (-0.15, -0.08), (-0.15, 0.15))
STARTS = np.array([(0.40, 0.60), (-0.12, 0.12), YAW, *TCP])  # cube, then tcp


def add_cube(spec: mujoco.MjSpec, rgba: tuple[float, float, float, float]) -> None:
    """A free 4 cm cube of 100 g called `cube`."""
    body = spec.worldbody.add_body(name="cube", pos=[0.5, 0.0, HALF])
    body.add_freejoint(name="cube")
    body.add_geom(
        name="cube",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[HALF] * 3,
        mass=0.1,
        friction=[1.0, 0.01, 0.0001],
        rgba=list(rgba),
        **GRASPED,
    )


def cube_pose(x: float, y: float, yaw: float) -> Array:
    """(7,) a cube that lies on the table."""
    return np.concatenate([[x, y, HALF], yaw_quat(yaw)])


CUBE_NAMES = pose_names("cube")


@dataclass(frozen=True)
class Lift(Task):
    """Reward 1 and the end of the episode when the cube is 6 cm above where it lay."""

    name: str = "lift"
    prompt: str = "lift the cube"
    max_episode_steps: int = 64
    bodies: tuple[str, ...] = ("cube",)
    randomised: tuple[str, ...] = ("cube",)
    observation_names: tuple[str, ...] = CUBE_NAMES
    thing: str = "cube"
    has_cousins: bool = True
    has_distractor: bool = True
    patience: Patience = PATIENT

    def script(self) -> Script:
        return LiftScript()

    def build(self, spec: mujoco.MjSpec) -> None:
        add_cube(spec, (0.85, 0.22, 0.18, 1.0))

    def start(self, rng: np.random.Generator) -> Start:
        x, y, yaw, *offset, tcp_yaw = draw(rng, STARTS, self.start_range)
        return Start(np.array(offset), tcp_yaw, bodies={"cube": cube_pose(x, y, yaw)})

    def observe(self, state: State) -> Array:
        return pose_seen(state, "cube")

    def success(self, state: State) -> NDArray[np.bool_]:
        return state.bodies["cube"].pos[:, 2] > state.lying.rest + RAISED

    def failure(self, state: State) -> NDArray[np.bool_]:
        lying = state.lying
        return state.bodies["cube"].pos[:, 2] < lying.table - lying.half[:, 2]  # it fell off the table

    def progress(self, state: State) -> Array:
        cube = state.bodies["cube"].pos
        reach = 1.0 - np.tanh(8.0 * np.linalg.norm(cube - state.tcp_pos, axis=-1))
        return 0.4 * reach + 0.6 * self.brought(state)

    def brought(self, state: State) -> Array:
        """(N,) in [0, 1], how near the cube is to where it has to be."""
        return np.clip((state.bodies["cube"].pos[:, 2] - state.lying.rest) / RAISED, 0.0, 1.0)


# --- the demonstrator

# Error of aim of each strategy at bias 1, in the tcp frame: (along the pads, along the finger travel, height) [m].
LIFT_BIAS = np.array([[0.020, 0.006, 0.006], [0.017, 0.008, 0.010]])

LOOSE = 0.015  # a gripper that holds nothing is wider than the thing by this [m]
OPEN = 2 * HALF + LOOSE  # width of a gripper that holds no cube [m]


def half_sizes(view: View) -> Array:
    """(N, 3) half sizes of the thing as it lies [m]: those of the cube where scenes do not differ."""
    differ = "half_x" in view.objects
    return view.vector("half") if differ else np.full((len(view.width), 3), HALF)


def rest(view: View) -> Array:
    """(N,) height of the thing's middle where it lies on the table [m]."""
    return half_sizes(view)[:, 2] + view.objects.get("table_z", 0.0)


def opened(view: View) -> Array:
    """(N,) width of a gripper that does not hold the thing across [m]."""
    return 2 * half_sizes(view)[:, 1] + LOOSE


def grasp_pose(view: View, strategy: NDArray[np.int64], bias: Array) -> tuple[Array, Array]:
    """Where the demonstrator thinks the cube has to be grasped: (N, 3) and (N, 3, 3)."""
    cube = view.vector("cube")
    cube_rot = view.tcp_rot @ view.rotation("tcp_cube_rot")
    half, heading = half_sizes(view), (yaw_of(cube_rot), yaw_of(view.tcp_rot))
    long = half[:, 0] > half[:, 1] + 1e-6  # it is gripped across
    rot = downward(np.where(long, nearest(*heading, np.pi), nearest(*heading, np.pi / 2)))
    error = LIFT_BIAS[strategy] * bias[:, None]
    aim = cube + rot[:, :, 0] * error[:, :1] + rot[:, :, 1] * error[:, 1:2]
    aim[:, 2] += error[:, 2]
    return aim - rot @ view.grip, rot


class LiftScript:
    """Hover, descend, close, raise; from above, or slid in low from the side."""

    phases = 4
    strategies = 2
    failures = FailureFacts(grasp=2, carry=3, drop=(0.012, 0.035), short=(-0.13, -0.115), kinds=KINDS, thing="cube")

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        if phase == 3:
            up = memory + np.array([0.0, 0.0, 0.15])
            return Waypoint(up, _upright(view), -1.0)
        aim, rot = grasp_pose(view, strategy, bias)
        if phase == 0:
            side = (strategy == 1)[:, None]
            above = aim + np.array([0.0, 0.0, 0.08])
            above[:, 2] = np.minimum(above[:, 2], view.ceiling)
            # Two fingers straddle the cube on the way down; one that stands still has to pass beside it.
            low, tolerance = (0.015, 0.01) if view.jaw else (0.045, 0.015)
            beside = aim + rot[:, :, 0] * 0.07 + np.array([0.0, 0.0, low])
            return Waypoint(np.where(side, beside, above), rot, 1.0, tolerance=tolerance)
        if phase == 1:
            return Waypoint(aim, rot, 1.0, speed=0.7, tolerance=0.006, dwell=1)
        return Waypoint(aim, rot, -1.0, speed=0.3, tolerance=0.02, dwell=5)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        offset = gripped(view) - view.vector("cube")
        aside, height = np.linalg.norm(offset[:, :2], axis=1), offset[:, 2]
        beside = (strategy == 1) & (aside < 0.085) & (height < 0.055)
        near = (view.width > opened(view)) & ((aside < 0.02) | beside)
        phase = np.where(near, 1, 0)
        phase[near & (np.linalg.norm(offset, axis=1) < 0.008)] = 2
        phase[held(view)] = 3
        return phase


def held(view: View) -> NDArray[np.bool_]:
    """(N,) the cube is between the fingers, and they are not open."""
    return (view.width < opened(view)) & (np.linalg.norm(gripped(view) - view.vector("cube"), axis=1) < 0.025)


def gripped(view: View) -> Array:
    """(N, 3) where a thing would be gripped now, in the base frame."""
    return view.tcp_pos + view.tcp_rot @ view.grip


def _upright(view: View) -> Array:
    return downward(yaw_of(view.tcp_rot))
