"""Pick and place: put a cube on a disc 15 to 45 cm away and let go of it."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.se3 import rotate_inverse
from sim.embedded.task import Array, Start, State, draw
from sim.experts.failures import KINDS, FailureFacts
from sim.experts.waypoints import Script, View, Waypoint, downward, yaw_of
from sim.tasks.lift import (
    CUBE_NAMES,
    HALF,
    LOOSE,
    TCP,
    YAW,
    Lift,
    LiftScript,
    add_cube,
    cube_pose,
    held,
    opened,
    rest,
)

RADIUS = 0.03  # largest distance of the cube's centre from the disc's that counts as placed [m]
AT_REST = 0.05  # speed below which the cube lies still [m/s]

STARTS = np.array([(0.40, 0.58), (-0.22, -0.06), YAW, (0.40, 0.58), (0.08, 0.22), *TCP])  # cube, disc, tcp


@dataclass(frozen=True)
class PickPlace(Lift):
    """Reward 1 and the end of the episode when the cube lies still on the disc and the gripper is open."""

    name: str = "pick_place"
    prompt: str = "put the cube on the green disc"
    max_episode_steps: int = 180
    bodies: tuple[str, ...] = ("cube", "target")
    observation_names: tuple[str, ...] = (
        *CUBE_NAMES,
        *(f"{place}_{axis}" for place in ("target", "cube_target") for axis in "xyz"),
    )

    def script(self) -> Script:
        return PickPlaceScript()

    def build(self, spec: mujoco.MjSpec) -> None:
        add_cube(spec, (0.20, 0.42, 0.80, 1.0))
        target = spec.worldbody.add_body(name="target", mocap=True)
        target.add_geom(
            type=mujoco.mjtGeom.mjGEOM_CYLINDER,
            size=[RADIUS + HALF, 0.001, 0.0],
            contype=0,
            conaffinity=0,
            rgba=[0.25, 0.62, 0.35, 1.0],
        )

    def start(self, rng: np.random.Generator) -> Start:
        x, y, yaw, target_x, target_y, *offset, tcp_yaw = draw(rng, STARTS, self.start_range)
        target = np.array([target_x, target_y, 0.001, 1.0, 0.0, 0.0, 0.0])
        return Start(np.array(offset), tcp_yaw, bodies={"cube": cube_pose(x, y, yaw), "target": target})

    def observe(self, state: State) -> Array:
        target = state.bodies["target"].pos
        relative = rotate_inverse(state.tcp_rot, target - state.bodies["cube"].pos)
        return np.concatenate([super().observe(state), target, relative], -1)

    def success(self, state: State) -> NDArray[np.bool_]:
        cube = state.bodies["cube"]
        still = np.linalg.norm(cube.linear, axis=-1) < AT_REST
        lying = state.lying
        released = state.width > lying.width + LOOSE
        return (_beside(state) < RADIUS) & still & (cube.pos[:, 2] < lying.rest + 0.005) & released

    def brought(self, state: State) -> Array:
        return 1.0 - np.tanh(6.0 * _beside(state))


def _beside(state: State) -> Array:
    """(N,) distance of the cube from the middle of the disc, seen from above [m]."""
    return np.linalg.norm(state.bodies["cube"].pos[:, :2] - state.bodies["target"].pos[:, :2], axis=-1)


# --- the demonstrator

# Error of aim on the disc of each strategy at bias 1, base frame [m].
PLACE_BIAS = np.array([[0.016, 0.010], [0.012, 0.016]])

CARRY = np.array([0.11, 0.07])  # height of the tcp on the way, of each strategy [m]


def _height(view: View, strategy: NDArray[np.int64]) -> Array:
    """(N,) height of the tcp on the way [m]: higher where the thing is taller or its table is."""
    return np.minimum(CARRY[strategy] + rest(view) - HALF, view.ceiling)


def carry(phase: int, view: View, goal: Array, height: Array | float, memory: Array) -> Waypoint:
    """The waypoints of a cube on its way, phases 3 to 5: up to `height` (N,) [m], above `goal` (N, 3), down to it. The
    tcp goes where the cube, wherever it sits in the gripper, comes to lie on the table."""
    rot, goal = downward(yaw_of(view.tcp_rot)), goal.copy()
    if phase == 3:
        up = memory.copy()
        up[:, 2] = height
        return Waypoint(up, rot, -1.0, tolerance=0.02)
    if phase == 4:
        goal[:, 2] = height
        return Waypoint(goal, rot, -1.0, tolerance=0.012)
    goal[:, 2] = np.clip(view.tcp_pos[:, 2] - view.objects["cube_z"], -0.03, 0.03) + rest(view) + 0.001
    return Waypoint(goal, rot, -1.0, speed=0.7, tolerance=0.006, dwell=1)


class PickPlaceScript(LiftScript):
    """Grasp as in lift, carry, lower, open, retreat; from above and high, or from the side and low."""

    phases = 7
    failures = FailureFacts(
        grasp=2, carry=4, drop=(0.04, 0.10), aside=(0.07, 0.11), near=(0.040, 0.052), kinds=KINDS, thing="cube"
    )

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        if phase < 3:
            return super().plan(phase, view, strategy, bias, memory)
        rot = downward(yaw_of(view.tcp_rot))
        # The tcp goes where the cube, wherever it sits in the gripper, comes to lie on the disc. A cube that was not
        # grasped is left behind: the demonstrator does not notice, and sets down nothing.
        goal = view.vector("target") + np.clip(view.tcp_pos - view.vector("cube"), -0.03, 0.03)
        goal[:, :2] += PLACE_BIAS[strategy] * bias[:, None]
        if phase < 6:
            return carry(phase, view, goal, _height(view, strategy), memory)
        up = memory.copy()
        up[:, 2] += 0.06
        let_go = view.width > opened(view) - 0.005
        return Waypoint(np.where(let_go[:, None], up, view.tcp_pos), rot, 1.0, speed=0.5)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        cube = view.vector("cube")
        aside = np.linalg.norm((cube - view.vector("target"))[:, :2], axis=1)
        carried, high = held(view), view.tcp_pos[:, 2] > _height(view, strategy) - 0.02
        phase = np.minimum(super().resume(view, strategy), 2)
        phase[carried] = np.where(aside < 0.02, 5, np.where(high, 4, 3))[carried]
        phase[(aside < 0.03) & (cube[:, 2] < rest(view) + 0.007) & (view.width > opened(view))] = 6
        return phase
