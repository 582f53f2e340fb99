"""Agents, alike to the engine: a policy, a teleoperator, an RL algorithm, or the student and the teacher of DAgger.

DAgger (Ross et al., "A Reduction of Imitation Learning to No-Regret Online Learning", AISTATS 2011): the student acts,
and what its teacher would have done is stored.

    a_t ~ β π_teacher(s_t) + (1 − β) π_student(o_t),   stored: (o_t, π_teacher(s_t))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, NonFinite, Observation, Policy, Teleoperator


@dataclass(frozen=True)
class Decision:
    """The next actions of N worlds."""

    # (N, Ta, Da) actions in [-1, 1]; rows of worlds that were not asked for are never executed
    chunk: NDArray[np.float32]
    # name → (N, …) arrays or tensors that the update of an algorithm needs, e.g. the chain of a sampler
    aux: dict[str, Any] = field(default_factory=dict)


class Agent(Protocol):
    """Decides for N worlds; a class that inherits from this one gets the defaults of an agent without memory."""

    observes_every_step: bool = False  # whether `observe` is to be called at the steps between two decisions

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """New episodes begin in the worlds (N,) that are true."""

    def observe(self, observation: Observation) -> None:
        """The observation of a step at which nothing is decided."""

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """A decision for the worlds (N,) that are true; `observation` holds all N.

        The arrays of `observation` may be written over by the next step: what is kept must be copied.
        """
        ...


class PolicyAgent:
    """A `Policy`, its chunks checked.

    Raises (from `decide`):
      BadInput: chunks of another shape than the policy's interface states.
      NonFinite: NaN or infinity in a world that is to be moved.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.observes_every_step = policy.observes_every_step

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self.policy.begin(worlds)

    def observe(self, observation: Observation) -> None:
        self.policy.observe(observation)

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        chunks = np.asarray(self.policy.act(observation), dtype=np.float32)
        n, ta, da = len(worlds), self.policy.execute_steps, self.policy.interface.action.size
        if chunks.ndim != 3 or chunks.shape[0] != n or chunks.shape[1] < ta or chunks.shape[2] != da:
            raise BadInput("policy: action chunk", got=chunks.shape, expected=f"({n}, Tp ≥ {ta}, {da})")
        chunks = np.ascontiguousarray(chunks[:, :ta])
        if not np.isfinite(chunks[worlds]).all():
            raise NonFinite("policy: its actions are NaN or infinite; is the checkpoint damaged?")
        return Decision(chunks)


class TeleoperatorAgent(Agent):
    """A `Teleoperator`: one action at a time, kept with the observation that it answers."""

    def __init__(self, teleoperator: Teleoperator) -> None:
        self.teleoperator = teleoperator

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self.teleoperator.reset(worlds)

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        # A copy: the teleoperator may write its next command into the same array.
        return Decision(np.array(self.teleoperator.command(observation), dtype=np.float32)[:, None])


LABEL = "label"  # the teacher's chunks, in a decision's aux; the student's features stand beside it by their names


class DaggerAgent(Agent):
    """Executes the student's chunks, or with probability β, drawn for each decision, the teacher's.

    Args:
      teacher: sees all that the world offers.
      student: the policy that learns; None while β is 1.
      seen: the features to keep, the student's.
      beta: β.
      execute: Ta, actions that are executed of either's chunk.
    """

    def __init__(
        self, teacher: Policy, student: Policy | None, seen: tuple[str, ...], beta: float, execute: int, seed: int
    ) -> None:
        self._teacher, self._student = teacher, None if student is None else PolicyAgent(student)
        self._seen, self._beta, self._execute = seen, beta, execute
        self._rng = np.random.default_rng(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self._teacher.begin(worlds)
        if self._student is not None:
            self._student.begin(worlds)

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """See `robolearn.rollout.Agent`; ``aux`` holds the student's features and `LABEL` (N, Tp, Da)."""
        label = np.asarray(self._teacher.act(observation), np.float32)
        chunk = label[:, : self._execute]
        by_teacher = self._rng.random(len(worlds)) < self._beta
        if self._student is not None and not by_teacher.all():
            own = self._student.decide(observation, worlds & ~by_teacher).chunk
            chunk = np.where(by_teacher[:, None, None], chunk, own)
        kept = {key: np.array(observation[key]) for key in self._seen}
        return Decision(np.ascontiguousarray(chunk), kept | {LABEL: label})
