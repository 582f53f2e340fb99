"""A thing that the words do not mean: a second cube of another colour, which a demonstrator may grasp by mistake.

It lies where the task's own things do not, at a place of its own numbers: starts are those of the task without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np

from robolearn.core.errors import BadInput
from robolearn.core.se3 import yaw_quat
from robolearn.core.specs import DISTRACTOR
from sim.embedded.task import Array, Start, Task

HALF = 0.02  # half its edge [m]
COLOUR = (0.88, 0.70, 0.16, 1.0)
STREAM = 7  # apart from the numbers that starts, dynamics, looks and cousins are drawn from
TRIES = 60  # places that are tried
APART = 0.11  # from the middle of the task's things to its own: room for a hand [m]
AREA = np.array([(0.40, 0.60), (-0.22, 0.22)])  # where it may lie, of the whole layout [m]


def with_distractor(task: Task) -> Task:
    """`task` with a distractor. Raises `BadInput`: nothing is grasped in it that lies on the table."""
    if not task.has_distractor:
        raise BadInput("--distractor", got=f"task {task.name}", expected="lift or pick_place")
    return replace(task, distractor=True, bodies=(*task.bodies, DISTRACTOR))


def add_distractor(spec: mujoco.MjSpec, contact: Mapping[str, Any]) -> None:
    """Add the free body to a scene: as large and as heavy as the cube of the tasks; `contact`: of its geom."""
    body = spec.worldbody.add_body(name=DISTRACTOR, pos=[0.5, 0.3, HALF])
    body.add_freejoint(name=DISTRACTOR)
    body.add_geom(
        name=DISTRACTOR, type=mujoco.mjtGeom.mjGEOM_BOX, size=[HALF] * 3, mass=0.1, friction=[1.0, 0.01, 0.0001],
        rgba=list(COLOUR), **contact,
    )  # fmt: skip


def place_distractor(start: Start, key: tuple[int, int, int], scale: float) -> Start:
    """`start` of the episode (seed, start id, episode) = `key`, with the distractor beside the task's things."""
    rng = np.random.default_rng([STREAM, *key])
    low, high = (AREA * scale).T
    places, yaw = low + rng.random((TRIES, 2)) * (high - low), rng.uniform(-np.pi / 4, np.pi / 4)
    taken: Array = np.array([pose[:2] for pose in start.bodies.values()])
    gaps = np.linalg.norm(places[:, None] - taken, axis=2).min(1)
    free = np.flatnonzero(gaps > APART)
    x, y = places[free[0] if free.size else int(gaps.argmax())]
    return replace(start, bodies={**start.bodies, DISTRACTOR: np.concatenate([[x, y, HALF], yaw_quat(yaw)])})
