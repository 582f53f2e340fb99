"""Peg insertion: bring a held 16 mm peg into a square hole, 3 cm deep: 20 mm wide, or 17 mm in the tight variant.

The peg is held by friction: its place and tilt in the gripper differ from episode to episode, it slips when it
is pressed hard, and it falls when the gripper opens.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.se3 import rotate_inverse, yaw_quat
from sim.embedded.scene import GRASPED, TOUCHED
from sim.embedded.task import Array, Start, State, Task, draw
from sim.experts.failures import FailureFacts
from sim.experts.operator import Patience
from sim.experts.waypoints import Script, View, Waypoint

RADIUS = 0.008  # of the peg [m]
HALF_LENGTH = 0.040  # of the peg with its round ends [m]
CLEARANCE = 0.002  # between the peg in the middle and each wall of the hole [m]
TIGHT = 0.0005  # the same in `peg_insert_tight` [m]
BLOCK = 0.045  # half the width of the block around it [m]
HEIGHT = 0.050  # of the block [m]
DEPTH = 0.030  # insertion that counts as success [m]

HASTE = Patience(limit=3.0, against=2.0)  # a peg that is pressed askew for half a second cannot be saved any more

STARTS = np.array(
    [
        (0.42, 0.58), (-0.12, 0.12), (-0.5, 0.5),  # the hole: place [m], yaw [rad]
        (-0.06, 0.06), (-0.003, 0.003),  # the peg in the gripper: tilt about the pads' normal [rad], place [m]
        (-0.05, 0.05), (-0.05, 0.05), (-0.03, 0.03), (-0.15, 0.15),  # the tcp, relative to its home: place, yaw
    ]
)  # fmt: skip


@dataclass(frozen=True)
class PegInsert(Task):
    """Reward 1 and the end of the episode when the tip is 3 cm inside the hole."""

    name: str = "peg_insert"
    prompt: str = "insert the peg into the hole"
    max_episode_steps: int = 120
    timestep: float = 0.0025
    bodies: tuple[str, ...] = ("peg", "hole")
    randomised: tuple[str, ...] = ("peg", "hole")
    observation_names: tuple[str, ...] = (
        *(f"hole_{axis}" for axis in "xyz"),
        *(f"tip_{axis}" for axis in "xyz"),
        *(f"tip_hole_{axis}" for axis in "xyz"),
        *(f"peg_axis_{axis}" for axis in "xyz"),
    )
    patience: Patience = HASTE
    clearance: float = CLEARANCE

    @property
    def hole(self) -> float:
        """Half the width of the hole [m]."""
        return RADIUS + self.clearance

    def script(self) -> Script:
        return PegInsertScript()

    def build(self, spec: mujoco.MjSpec) -> None:
        peg = spec.worldbody.add_body(name="peg", pos=[0.5, 0.0, 0.2])
        peg.add_freejoint(name="peg")
        peg.add_geom(
            name="peg",
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            size=[RADIUS, HALF_LENGTH - RADIUS, 0.0],
            mass=0.05,
            friction=[0.8, 0.01, 0.0001],
            rgba=[0.90, 0.62, 0.15, 1.0],
            **GRASPED,
        )
        hole = spec.worldbody.add_body(name="hole", mocap=True)
        half = self.hole
        wall = 0.5 * (BLOCK - half)
        for x, y, sx, sy in (
            (half + wall, 0.0, wall, BLOCK),
            (-half - wall, 0.0, wall, BLOCK),
            (0.0, half + wall, half, wall),
            (0.0, -half - wall, half, wall),
        ):
            hole.add_geom(
                type=mujoco.mjtGeom.mjGEOM_BOX,
                pos=[x, y, -HEIGHT / 2],
                size=[sx, sy, HEIGHT / 2],
                # Of two frictions that meet MuJoCo takes the larger, which would always be the peg's.
                priority=1,
                friction=[0.4, 0.01, 0.0001],
                rgba=[0.35, 0.40, 0.48, 1.0],
                **TOUCHED,
            )

    def start(self, rng: np.random.Generator) -> Start:
        x, y, yaw, tilt, along, *offset, tcp_yaw = draw(rng, STARTS, self.start_range)
        hole = np.concatenate([[x, y, HEIGHT], yaw_quat(yaw)])  # the hole's mouth
        held = np.array([along, 0.0, 0.025, np.cos(tilt / 2), 0.0, np.sin(tilt / 2), 0.0])
        return Start(np.array(offset), tcp_yaw, 2 * RADIUS - 0.0004, {"hole": hole}, {"peg": held})

    def observe(self, state: State) -> Array:
        hole = state.bodies["hole"].pos
        tip, axis = _tip(state)
        return np.concatenate([hole, tip, rotate_inverse(state.tcp_rot, hole - tip), axis], -1)

    def success(self, state: State) -> NDArray[np.bool_]:
        hole = state.bodies["hole"].pos
        tip, _ = _tip(state)
        inside = np.linalg.norm(tip[:, :2] - hole[:, :2], axis=-1) < self.hole
        return inside & (tip[:, 2] < hole[:, 2] - DEPTH)

    def failure(self, state: State) -> NDArray[np.bool_]:
        gap = np.linalg.norm(state.bodies["peg"].pos - state.tcp_pos, axis=-1)
        return gap > 0.08  # the peg was lost

    def progress(self, state: State) -> Array:
        tip, _ = _tip(state)
        goal = state.bodies["hole"].pos - np.array([0.0, 0.0, DEPTH])
        return 1.0 - np.tanh(12.0 * np.linalg.norm(tip - goal, axis=-1))


def _tip(state: State) -> tuple[Array, Array]:
    """(N, 3) the peg's lower end and (N, 3) its axis, base frame. The peg's z axis points to the tip."""
    peg = state.bodies["peg"]
    axis = peg.rot[:, :, 2]
    return peg.pos + HALF_LENGTH * axis, axis


def peg_insert_tight(start_range: float = 1.0) -> PegInsert:
    """The same with a quarter of the clearance."""
    return PegInsert(
        name="peg_insert_tight", prompt="insert the peg into the tight hole", start_range=start_range, clearance=TIGHT
    )


# --- the demonstrator

# Error of aim of each strategy at bias 1, base frame [m]; the clearance is 2 mm, or 0.5 mm.
PEG_BIAS = np.array([[0.0054, 0.0042], [0.0048, 0.0054]])


class PegInsertScript:
    """Align above the hole with the peg upright, from the left or from the right, come close, press down."""

    phases = 3
    strategies = 2
    failures = FailureFacts(
        carry=0, drop=(0.01, 0.03), aside=(0.022, 0.032), short=(0.026, 0.035),
        kinds=("dropped", "wrong_place", "nearly", "frozen"),
    )  # fmt: skip

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        tip, hole = view.vector("tip"), view.vector("hole")
        rot = _upright(view)
        goal = hole.copy()
        goal[:, :2] += PEG_BIAS[strategy] * bias[:, None]
        if phase == 0:
            goal[:, 1] += np.where(strategy == 0, 0.03, -0.03)
            goal[:, 2] += 0.04
            return Waypoint(view.tcp_pos + goal - tip, rot, -1.0, speed=0.8, tolerance=0.012)
        if phase == 1:
            goal[:, 2] += 0.010
            return Waypoint(view.tcp_pos + goal - tip, rot, -1.0, speed=0.4, tolerance=0.004, dwell=1)
        goal[:, 2] -= 0.045
        return Waypoint(view.tcp_pos + goal - tip, rot, -1.0, speed=0.3)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        tip, hole = view.vector("tip"), view.vector("hole")
        aside, height = np.linalg.norm((tip - hole)[:, :2], axis=1), (tip - hole)[:, 2]
        tilt = np.arccos(np.clip(-view.vector("peg_axis")[:, 2], -1.0, 1.0))
        phase = np.zeros(len(tip), np.int64)
        phase[(aside < 0.045) & (height > 0.004) & (tilt < 0.3)] = 1
        phase[(aside < 0.006) & (height < 0.020) & (tilt < 0.2)] = 2
        return phase


def _upright(view: View) -> Array:
    """(N, 3, 3) the tcp orientation that makes the held peg vertical, reached by the smallest turn."""
    axis = view.vector("peg_axis")
    down = np.array([0.0, 0.0, -1.0])
    v = np.cross(axis, down)
    c = axis @ down
    K = np.zeros((len(axis), 3, 3))
    K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = -v[:, 2], v[:, 1], -v[:, 0]
    K[:, 1, 0], K[:, 2, 0], K[:, 2, 1] = v[:, 2], -v[:, 1], v[:, 0]
    turn = np.eye(3) + K + K @ K / np.maximum(1.0 + c, 1e-6)[:, None, None]
    return turn @ view.tcp_rot
