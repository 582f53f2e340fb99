"""A policy's actions, one per control step, for a recorder in which a person may take over.

A policy means the same here as in a deployment: what is predicted when (`hardware.execution.prediction`), which action
of a chunk is executed when, blending, what is refused, and how late a chunk may be before the arm stops
(`hardware.execution.chunk_buffer`) are the same code. Policy, streamer and recorder are one process all the same: a
person takes over between two control steps, and a row is the observation of a step with the action that was executed
from it, which three processes would have to agree on step by step. So the clock counts control steps: a chunk that
comes within the step in which it was asked for begins then, as in the streamer; one that comes in a later step begins
with the next.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hardware.execution.chunk_buffer import SIM_GRACE_S, ActionChunkBuffer, ChunkRefused
from hardware.execution.prediction import EARLY_S, PredictionRequest, Predictor
from robolearn.core import Policy, RobolearnError


class ChunkPlayer:
    """Plays `policy` for one arm.

    Args:
      policy: bound to the station.
      seed: of its noise.
      simulated: the arm is; it may stand still for longer where a chunk is late.
      clock: steady time [s].

    Attributes:
      stopped: why nothing is played any more since `begin`: a chunk was late, or refused; else empty.

    Raises:
      BadInput: the policy's chunks are no chunks.
    """

    def __init__(
        self, policy: Policy, seed: int = 0, *, simulated: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        interface = policy.interface
        self._features, self._clock = tuple(interface.observation), clock
        self._names = interface.action.names or ("",) * interface.action.size
        self._period = 1.0 / interface.control_hz
        self._turn = self._count = 0
        self._due, self._begun = math.inf, 0.0  # by `clock`: the next control step, this one
        self.stream = ActionChunkBuffer(
            self._names,
            self._period,
            grace_s=SIM_GRACE_S if simulated else None,
            relative=interface.action_kind == "tcp_delta",
            clock=self._now,
        )
        self.done: queue.SimpleQueue[tuple[PredictionRequest, NDArray]] = queue.SimpleQueue()
        self.predictor = Predictor(policy, self._period, lambda *made: self.done.put(made), seed=seed)
        self.stopped = ""

    def begin(self) -> None:
        """The arm was elsewhere, or moved by another source: drop the chunk and all history."""
        self._turn += 1
        self.predictor.begin(self._turn)
        self.stream.clear()
        self._due, self.stopped = math.inf, ""

    def action(self, observation: Mapping[str, NDArray]) -> NDArray[np.float32] | None:
        """(Da,) for this control step; None while there is none: see `later`.

        Args:
          observation: feature → (…) of the one arm.

        Raises:
          RobolearnError: the policy failed.
        """
        self._begun = now = self._clock()
        late = max(now - self._due, 0.0)
        # As the recorder: in step again after one that was more than a period late. Those left out have gone by.
        self._count += 1 + int(late / self._period)
        self._due = self._due + self._period if late <= self._period and self._due < math.inf else now + self._period
        stamp = self._count * self._period
        if self.predictor.overdue(stamp) >= -EARLY_S:
            self.predictor.ask(stamp, {key: np.asarray(observation[key])[None] for key in self._features})
        return self.later()

    def later(self) -> NDArray[np.float32] | None:
        """(Da,) for this control step, where it has come by now; None: hold still, at the last set-point.

        Raises:
          RobolearnError: the policy failed.
        """
        if self.predictor.fault:
            raise RobolearnError(self.predictor.fault)
        while not self.done.empty():
            request, actions = self.done.get()
            if request.turn == self._turn and not self.stopped:
                times = np.arange(len(actions)) * self._period
                try:
                    self.stream.accept(request.stamp, self._now(), self._names, actions, times)
                except ChunkRefused as error:
                    self._stop(str(error))
        ran = self.stream.running
        step = self.stream.step()
        if ran and step is None:
            self._stop(self.stream.reason)
        return step.action.astype(np.float32) if step is not None and step.fresh else None

    def asked(self, observation: Mapping[str, NDArray]) -> Callable[[], NDArray[np.float32] | None]:
        """`Sample.later` of this control step: the first call asks for its action, the others look again."""
        ask: Callable[[], NDArray[np.float32] | None] = partial(self.action, observation)

        def later() -> NDArray[np.float32] | None:
            nonlocal ask
            action, ask = ask(), self.later
            return action

        return later

    def close(self) -> None:
        """End the thread of the inference; more than once is no fault."""
        self.predictor.close()

    def _now(self) -> float:
        """Time by control steps [s], and by the clock within one."""
        within = min(max(self._clock() - self._begun, 0.0), 0.99 * self._period)
        return self._count * self._period + within

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        self.stream.halt(reason)
        self.predictor.begin(None)
