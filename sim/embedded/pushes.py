"""Worlds of which episodes are pushed: a horizontal force for a while, once in an episode, on the arm or on a thing.

    f = F (cos θ, sin θ, 0)  [N]   in the base frame, during `PUSH_STEPS` control steps from the push's moment on

The force is at the centre of mass of the body that carries the tcp, or of the task's thing that moves. A push is one of
`PUSHES`; which one an episode has is drawn by the episode's own seed, from probabilities that may change between two
episodes. One that ends before its moment counts as pushed all the same: without it the fast successes would be left
out, and late pushes would look worse than they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, check_choice
from robots import RobotSpec
from sim.embedded.task import Array, Task
from sim.embedded.world import MujocoWorlds

PUSHED = ("arm", "thing")
PUSH_STEPS = 4  # control steps, 0.2 s
STRONGEST = 1000.0  # [N]: 0.2 s of it give a thing of 1 kg 200 m/s, and break what an arm stands on
DIRECTIONS, MOMENTS = 8, (0.08, 0.2, 0.32, 0.44)  # shares of the longest episode: experts are done after a half
NONE = -1


@dataclass(frozen=True)
class Push:
    """One push of unit force."""

    direction: float  # θ [rad], from the arm's x axis
    moment: float  # share of the longest episode


PUSHES = tuple(Push(2.0 * math.pi * d / DIRECTIONS, moment) for moment in MOMENTS for d in range(DIRECTIONS))


class PushedWorlds(MujocoWorlds):
    """See the module; other arguments are those of `MujocoWorlds`. Until `push` no episode is pushed.

    Args:
      pushed: what is pushed, one of `PUSHED`.

    Attributes:
      pushes: K, how many there are.
      strongest: the largest force that is taken [N].
      ended_push: (N,) the number of the push of the episode that ended last in each world, `NONE` without one.

    Raises:
      BadInput: two arms, or something else to push.
    """

    pushes = len(PUSHES)
    strongest = STRONGEST

    def __init__(self, task: Task, num_envs: int, *, pushed: str, **options: Any) -> None:
        super().__init__(task, num_envs, **options)
        check_choice("pushed", pushed, PUSHED)
        if not isinstance(self.robot, RobotSpec):
            raise BadInput("pushes", got=self.robot.name, expected="a task for one arm")
        model = self.physics.model
        self._body = (
            int(model.site(self.robot.tcp_site).bodyid[0]) if pushed == "arm" else model.body(task.randomised[0]).id
        )
        self._applied = self.batch.bind("xfrc_applied")
        self._first = np.array([round(push.moment * self.max_episode_steps) for push in PUSHES])
        self._angle = np.array([push.direction for push in PUSHES])
        self._probabilities, self._force = np.zeros(len(PUSHES)), 0.0
        self._push, self._strength = np.full(num_envs, NONE), np.zeros(num_envs)
        self.ended_push = np.full(num_envs, NONE)

    def push(self, probabilities: Array, force: float) -> None:
        """Of the episodes that begin from now on, let the share `probabilities` (K,) of their sum, at most 1, have each
        of `PUSHES` with `force` [N]; the others have none. Raises `BadInput`: no number from 0 to `strongest`."""
        if not 0.0 <= force <= STRONGEST:
            raise BadInput("force of a push", got=f"{force:g} N", expected=f"0 to {STRONGEST:g} N")
        self._probabilities, self._force = probabilities, force

    def _begin(self, ids: NDArray[np.int64]) -> None:
        self.ended_push[ids] = self._push[ids]
        super()._begin(ids)
        edges = np.cumsum(self._probabilities)
        for w in ids:
            drawn = np.random.default_rng([self._seed, int(self._ids[w]), int(self._episode[w]), 3]).random()
            k = int(np.searchsorted(edges, drawn, side="right"))
            self._push[w] = k if k < len(PUSHES) else NONE
        self._strength[ids] = self._force
        self._applied[ids] = 0.0

    def _move(self, rows: NDArray[np.int64], goal: Array, width: Array) -> NDArray[np.bool_]:
        self._applied[rows, self._body] = self._forces()[rows]
        return super()._move(rows, goal, width)

    def _forces(self) -> Array:
        """(N, 6) forces and torques of the next control step in the base frame [N, Nm]."""
        first, angle = self._first[self._push], self._angle[self._push]
        now = (self._push != NONE) & (self._elapsed >= first) & (self._elapsed < first + PUSH_STEPS)
        size = np.where(now, self._strength, 0.0)
        forces = np.zeros((self.num_envs, 6))
        forces[:, 0], forces[:, 1] = size * np.cos(angle), size * np.sin(angle)
        return forces

    def snapshot(self) -> dict[str, NDArray]:
        """See `MujocoWorlds.snapshot`."""
        return super().snapshot() | {"push": self._push.copy(), "strength": self._strength.copy()}

    def restore(self, snapshot: dict[str, NDArray]) -> dict[str, NDArray]:
        """See `MujocoWorlds.restore`."""
        self._push[:], self._strength[:] = snapshot["push"], snapshot["strength"]
        return super().restore(snapshot)
