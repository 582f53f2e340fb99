"""Agents: the policy's chunks, step by step, and an operator who takes over between any two steps.

The operator is called before every step. Where it steers, its action is executed and the rest of the chunk is void;
after it has handed back, the policy is asked for a new chunk. What remains of a chunk is `robots.chunk_execution`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from robolearn.core import Interface, NonFinite, Observation
from robolearn.hil.operator_console import OperatorCommand
from robolearn.rollout import Decision
from robots.chunk_execution import Delayed, ExecutionHistory, SteppedChunks

if TYPE_CHECKING:  # it loads pyarrow, which starts threads
    from robolearn.rl.algorithms.off_policy import OffPolicy


class Operator(Protocol):
    """A person with a device, or a script in their place."""

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """Begin a new episode in the worlds (N,) that are true."""
        ...

    def steer(self) -> None:
        """Steer until the episode ends, or ask the person to."""
        ...

    def command(self, observation: Observation) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Before each control step: (N,) true where it steers, and its actions (N, Da)."""
        ...


class SteeredAgent:
    """An `robolearn.rollout.Agent` of one world that decides one step at a time.

    Args:
      interface: of the world.
      act: observation (1, …), and the start of a delayed prediction or None → chunk (H, Da).
      before_chunk: called before each chunk: the moment for other weights.
      before_step: called before each step with the observation, and true where the operator steers; returns the
        operator's commands.
      history: of the steps while the policy computes, or None where that takes no time.

    Attributes:
      label: given by the operator to the running episode, or None.
      executed: (Da,) the last action of the running episode, or None.
    """

    observes_every_step = False

    def __init__(
        self,
        interface: Interface,
        act: Callable[[Observation, Delayed | None], NDArray[np.float32]],
        before_chunk: Callable[[], object],
        before_step: Callable[[Observation, bool], Sequence[OperatorCommand]],
        history: ExecutionHistory | None = None,
    ) -> None:
        self._history = history
        self._act, self._before_chunk, self._before_step = act, before_chunk, before_step
        self._operator: Operator | None = None
        self._chunks = SteppedChunks(self._predict, interface, 1)
        self._held = self._steering = self._told = False
        self.label: OperatorCommand | None = None
        self.executed: NDArray[np.float32] | None = None

    def start(self, operator: Operator | None, freely: bool = False) -> None:
        """Begin an episode with `operator`, who steers all of it where `freely` is true."""
        self._operator = operator
        self._chunks.drop(np.ones(1, np.bool_))
        self._held = self._steering = False
        self.label = self.executed = None
        if self._history is not None:
            self._history.clear()
        if operator is not None:
            operator.begin(np.ones(1, np.bool_))
        self._told = False
        if freely:
            self.steer()

    def steer(self) -> bool:
        """Let the operator steer the rest of the episode; true where one had not been told to before."""
        if self._operator is None or self._told:
            return False
        self._told = True
        self._operator.steer()
        return True

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """The episode has ended; see `start`."""

    def observe(self, observation: Observation) -> None:
        """Every step is a decision."""

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """One step. `aux` has its ``observation``, and ``intervention``: the operator commanded it.

        Raises:
          NonFinite: the action is not finite.
        """
        for command in self._before_step(observation, self._steering):
            if command in (OperatorCommand.TAKE_OVER, OperatorCommand.HAND_BACK):
                self._held = command == OperatorCommand.TAKE_OVER
            else:
                self.label = command
        seen = {key: np.array(value) for key, value in observation.items()}  # the next step may write over them
        if self._history is not None:
            self._history.observe(observation)
        self._steering, action = False, None
        if self._operator is not None:
            steers, commanded = self._operator.command(observation)
            self._steering = bool(steers[0]) or self._held
            action = commanded[0] if self._steering else None
        if action is None:
            action = self._chunks.step(observation, worlds)[0]
        else:
            self._chunks.drop(worlds)
        if not np.isfinite(action).all():
            raise NonFinite(f"{'operator' if self._steering else 'policy'}: its action is not finite")
        self.executed = executed = np.clip(action, -1.0, 1.0).astype(np.float32)
        if self._history is not None:
            self._history.execute(executed[None, None])
        return Decision(executed[None, None], {"observation": seen, "intervention": self._steering})

    def _predict(self, observation: Observation) -> NDArray[np.float32]:
        self._before_chunk()
        return self._act(observation, None if self._history is None else self._history.delayed())[None]


class DoubleBufferedPolicy:
    """A policy with two sets of weights: one acts while the other one is loaded.

    Args:
      make: makes an algorithm; called twice.

    Attributes:
      version: of the weights in use; −1: none yet.
      uncertain: the uncertainty of the last chunk is above the threshold.
    """

    def __init__(self, make: Callable[[], OffPolicy]) -> None:
        self._used, self._spare = make(), make()
        self._spare.generator = self._used.generator  # one stream of noise, whichever acts
        self._lock = threading.Lock()
        self._ready: int | None = None
        self.version = -1
        self.uncertain = False

    @property
    def newest(self) -> int:
        """Version of the weights that were loaded last."""
        ready = self._ready
        return self.version if ready is None else ready

    @property
    def loaded(self) -> bool:
        """True once there are weights."""
        return self.newest >= 0

    @property
    def like(self) -> dict[str, NDArray]:
        """Weights of the right names, types and shapes."""
        return {key: value.cpu().numpy() for key, value in self._used.acting().items()}

    def load(self, version: int, tensors: Mapping[str, NDArray]) -> None:
        """Load weights into the spare set; any thread may call it."""
        with self._lock:
            self._spare.load_acting({key: torch.from_numpy(np.array(value)) for key, value in tensors.items()})
            self._ready = version

    def swap(self) -> bool:
        """Use the spare set from now on, if it is loaded and not in use: never waits. True where it did."""
        if self._ready is None or not self._lock.acquire(blocking=False):
            return False
        try:
            self._used, self._spare = self._spare, self._used
            self.version, self._ready = self._ready, None
        finally:
            self._lock.release()
        return True

    def seed(self, seed: int) -> None:
        """Begin a new episode, with noise of this seed."""
        self.uncertain = False
        self._used.generator.manual_seed(seed)

    def act(self, observation: Observation, delayed: Delayed | None = None) -> NDArray[np.float32]:
        """A chunk (H, Da) for the one world of `observation`."""
        chunk = self._used.act(observation, explore=True, delayed=delayed)[0]
        self.uncertain = self._used.unsure
        return chunk
