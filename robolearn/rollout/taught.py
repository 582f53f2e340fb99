"""Who is taught acts, and a teacher says what it would have done (Ross et al., "A Reduction of Imitation Learning to
No-Regret Online Learning", AISTATS 2011: DAgger).

    a_t ~ β π_teacher(s_t) + (1 − β) π_student(o_t),   stored: (o_t, π_teacher(s_t))
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Observation, Policy
from robolearn.rollout.agents import Decision, PolicyAgent

LABEL = "label"  # the teacher's chunks, in a decision's aux; the student's features stand beside it by their names


class TaughtAgent:
    """Executes the student's chunks, or with probability β, drawn for each decision, the teacher's.

    Args:
      teacher: sees all that the world offers.
      student: what is taught; None while β is 1.
      seen: the features to keep, the student's.
      beta: β.
      execute: Ta, actions that are executed of either's chunk.
      seed: of the draws.
    """

    observes_every_step = False

    def __init__(
        self, teacher: Policy, student: Policy | None, seen: tuple[str, ...], beta: float, execute: int, seed: int
    ) -> None:
        self._teacher, self._student = teacher, None if student is None else PolicyAgent(student)
        self._seen, self._beta, self._execute = seen, beta, execute
        self._rng = np.random.default_rng(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """New episodes begin in the worlds (N,) that are true."""
        self._teacher.begin(worlds)
        if self._student is not None:
            self._student.begin(worlds)

    def observe(self, observation: Observation) -> None:
        """Neither remembers what lies between two decisions."""

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """See `robolearn.rollout.Agent`; ``aux`` holds the student's features and `LABEL` (N, Tp, Da)."""
        label = np.asarray(self._teacher.act(observation), np.float32)
        chunk = label[:, : self._execute]
        taught = self._rng.random(len(worlds)) < self._beta
        if self._student is not None and not taught.all():
            own = self._student.decide(observation, worlds & ~taught).chunk
            chunk = np.where(taught[:, None, None], chunk, own)
        kept = {key: np.array(observation[key]) for key in self._seen}
        return Decision(np.ascontiguousarray(chunk), kept | {LABEL: label})
