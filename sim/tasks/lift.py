"""Lift: grasp a cube that lies anywhere in a 20 × 24 cm area and raise it by 6 cm."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.se3 import rot6d, rotate_inverse, yaw_quat
from sim.embedded.scene import GRASP_SOLIMP, GRASP_SOLREF
from sim.embedded.task import Array, Start, State, draw

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
        contype=2,
        conaffinity=3,
        condim=4,
        friction=[1.0, 0.01, 0.0001],
        solref=list(GRASP_SOLREF),
        solimp=list(GRASP_SOLIMP),
        rgba=list(rgba),
    )


def cube_pose(x: float, y: float, yaw: float) -> Array:
    """(7,) a cube that lies on the table."""
    return np.concatenate([[x, y, HALF], yaw_quat(yaw)])


def observe_cube(state: State) -> Array:
    """(N, 12): the cube in the base frame, and in the tcp frame with its orientation."""
    cube = state.bodies["cube"]
    relative = rotate_inverse(state.tcp_rot, cube.pos - state.tcp_pos)
    rot = np.swapaxes(state.tcp_rot, -1, -2) @ cube.rot
    return np.concatenate([cube.pos, relative, rot6d(rot)], -1)


CUBE_NAMES = (
    *(f"cube_{axis}" for axis in "xyz"),
    *(f"tcp_cube_{axis}" for axis in "xyz"),
    *(f"tcp_cube_rot{i}" for i in range(6)),
)


@dataclass(frozen=True)
class Lift:
    """Reward 1 and the end of the episode when the cube is 6 cm above where it lay."""

    name: str = "lift"
    prompt: str = "lift the cube"
    max_episode_steps: int = 64
    timestep: float = 0.005
    bodies: tuple[str, ...] = ("cube",)
    randomised: tuple[str, ...] = ("cube",)
    observation_names: tuple[str, ...] = CUBE_NAMES
    start_range: float = 1.0

    def build(self, spec: mujoco.MjSpec) -> None:
        add_cube(spec, (0.85, 0.22, 0.18, 1.0))

    def start(self, rng: np.random.Generator) -> Start:
        x, y, yaw, *offset, tcp_yaw = draw(rng, STARTS, self.start_range)
        return Start(np.array(offset), tcp_yaw, bodies={"cube": cube_pose(x, y, yaw)})

    def observe(self, state: State) -> Array:
        return observe_cube(state)

    def success(self, state: State) -> NDArray[np.bool_]:
        return state.bodies["cube"].pos[:, 2] > HALF + RAISED

    def failure(self, state: State) -> NDArray[np.bool_]:
        return state.bodies["cube"].pos[:, 2] < -HALF  # it fell off the table

    def progress(self, state: State) -> Array:
        cube = state.bodies["cube"].pos
        reach = 1.0 - np.tanh(8.0 * np.linalg.norm(cube - state.tcp_pos, axis=-1))
        height = np.clip((cube[:, 2] - HALF) / RAISED, 0.0, 1.0)
        return 0.4 * reach + 0.6 * height
