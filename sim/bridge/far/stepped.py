"""Worlds whose physics alone is far: the near side commands joints, and has starts, actions, success and time.

What goes over for a world are numbers in MuJoCo's order and frames: of `qpos` the joints [rad, m], then position [m]
and quaternion (wxyz) of each free thing; of `qvel` the joints' velocities, then linear velocity in the world's frame
and angular velocity in the thing's own frame of each thing.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .facts import Facts, Spec, WorldArrays

Array = NDArray[np.float32]
QPOS, QVEL = "qpos", "qvel"


class StepEngine(Protocol):
    """N copies of a scene that step together."""

    def put(self, worlds: NDArray[np.intp], qpos: Array, qvel: Array) -> None:
        """Put `worlds` (M,) in the states (M, nq) and (M, nv), at rest inside."""
        ...

    def step(self, control: Array) -> None:
        """One step of time in all worlds, with the joints' set-points (N, joints)."""
        ...

    def state(self) -> tuple[Array, Array]:
        """(N, nq) and (N, nv)."""
        ...


def facts(task: str, joints: int, things: int, hz: float, version: str) -> Facts:
    """Facts of a scene with so many joints and free things that takes `hz` steps a second; `version`: of the engine."""
    nq, nv = joints + 7 * things, joints + 6 * things
    observation = {QPOS: Spec((nq,)), QVEL: Spec((nv,))}
    # An "action" is a state where an episode begins, and set-points in its first columns in a step.
    return Facts(observation, nq, hz, task, "", 0, reports_success=True, says=(version,))


class SteppedTask:
    """A scene of which all worlds are made already, since they are made together."""

    def __init__(self, made: StepEngine, known: Facts, joints: int) -> None:
        self.facts, self._engine, self._joints = known, made, joints

    def together(self, count: int, first: int) -> SteppedWorlds:
        """Its `count` worlds."""
        return SteppedWorlds(self._engine, count, self._joints)


class SteppedWorlds:
    """See `worlds.Worlds`; a chunk of `steps` set-points is so many steps of time. Worlds that are not active rest:
    they are stepped with the others, and put back."""

    def __init__(self, engine: StepEngine, count: int, joints: int) -> None:
        self._engine, self._joints = engine, joints
        self._control = np.zeros((count, joints), np.float32)
        self.notes: list[tuple[int, str]] = []

    def reset(self, block: WorldArrays, *, begin: bool) -> None:
        """Put the active worlds in the states that stand in ``block.actions[:, 0]``, at rest."""
        rows = np.flatnonzero(block.active)
        qpos = block.actions[rows, 0]
        self._engine.put(rows, qpos, np.zeros((len(rows), block.observation[QVEL].shape[1]), np.float32))
        self._control[rows] = qpos[:, : self._joints]
        self._show(block, rows)
        block.progress[rows] += 1

    def chunk(self, block: WorldArrays, steps: int) -> None:
        """Take `steps` steps of time in the active worlds."""
        rows, rest = np.flatnonzero(block.active), np.flatnonzero(~block.active)
        held = self._engine.state() if len(rest) else None
        block.busy[rows] = True
        for t in range(steps):
            self._control[rows] = block.actions[rows, t, : self._joints]
            self._engine.step(self._control)
            block.progress[rows] += 1
        if held is not None:
            self._engine.put(rest, held[0][rest], held[1][rest])
        self._show(block, rows)
        block.steps[rows] = steps
        block.busy[rows] = False

    def frame(self, world: int) -> None:
        """No picture: the near side draws."""

    def close(self) -> None:
        """Nothing: the engine ends with the process."""

    def _show(self, block: WorldArrays, rows: NDArray[np.intp]) -> None:
        qpos, qvel = self._engine.state()
        block.observation[QPOS][rows], block.observation[QVEL][rows] = qpos[rows], qvel[rows]
