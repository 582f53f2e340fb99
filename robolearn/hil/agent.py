"""What acts: the policy's chunks, step by step, and an operator who takes over between any two steps.

The operator is asked before every step. Where it steers, its action is executed and the rest of the chunk is void;
after it has handed back, the policy is asked for a new chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import NonFinite, Observation
from robolearn.hil.person import Ask
from robolearn.rollout import Decision
from robots.chunk_execution import Delayed, ExecutionHistory


class Operator(Protocol):
    """A person with a device, or a script in their place."""

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """A new episode begins in the worlds (N,) that are true."""
        ...

    def steer(self) -> None:
        """Steer until the episode ends; a person is asked to."""
        ...

    def command(self, observation: Observation) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Before each control step: (N,) where it steers, and (N, Da) with what."""
        ...


class SteeredAgent:
    """An `robolearn.rollout.Agent` of one world that decides one step at a time.

    Args:
      act: observation (1, …), and the start of a delayed prediction, or None → chunk (H, Da).
      before_chunk: called before each chunk: the moment for other weights.
      before_step: called with the observation and whether the operator steers, before each step; returns what a
        person asks for.
      history: of the steps while the policy computes, or None where that takes no time.

    Attributes:
      label: what a person said of the running episode, or None.
      executed: (Da,) the last action of the running episode, or None.
    """

    observes_every_step = False

    def __init__(
        self,
        act: Callable[[Observation, Delayed | None], NDArray[np.float32]],
        before_chunk: Callable[[], object],
        before_step: Callable[[Observation, bool], Sequence[Ask]],
        history: ExecutionHistory | None = None,
    ) -> None:
        self._history = history
        self._act, self._before_chunk, self._before_step = act, before_chunk, before_step
        self._operator: Operator | None = None
        self._chunk: list[NDArray[np.float32]] = []
        self._held = self._steering = False
        self.label: Ask | None = None
        self.executed: NDArray[np.float32] | None = None

    def start(self, operator: Operator | None, freely: bool = False) -> None:
        """An episode begins, watched by `operator`, who steers all of it where `freely` is true."""
        self._operator, self._chunk = operator, []
        self._held = self._steering = False
        self.label = self.executed = None
        if self._history is not None:
            self._history.clear()
        if operator is not None:
            operator.begin(np.ones(1, np.bool_))
            if freely:
                operator.steer()

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """The episode has ended; see `start`."""

    def observe(self, observation: Observation) -> None:
        """Every step is a decision."""

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """One step. `aux` has the observation that it answers, and whether the operator commanded it.

        Raises:
          NonFinite: the action is not finite.
        """
        for ask in self._before_step(observation, self._steering):
            if ask == "take over":
                self._held = True
            elif ask == "hand back":
                self._held = False
            else:
                self.label = ask
        seen = {key: np.array(value) for key, value in observation.items()}  # the next step may write over them
        if self._history is not None:
            self._history.observe(observation)
        self._steering, action = False, None
        if self._operator is not None:
            steers, commanded = self._operator.command(observation)
            self._steering = bool(steers[0]) or self._held
            action = commanded[0] if self._steering else None
        if action is not None:
            self._chunk = []
        else:
            if not self._chunk:
                self._before_chunk()
                delayed = None if self._history is None else self._history.delayed()
                self._chunk = list(self._act(observation, delayed))
            action = self._chunk.pop(0)
        if not np.isfinite(action).all():
            raise NonFinite(f"{'operator' if self._steering else 'policy'}: its action is not finite")
        self.executed = executed = np.clip(action, -1.0, 1.0).astype(np.float32)
        if self._history is not None:
            self._history.execute(executed[None, None])
        return Decision(executed[None, None], {"observation": seen, "intervention": self._steering})
