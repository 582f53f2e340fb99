"""Prediction of action chunks while an arm executes: one inference per executed chunk, in a thread of its own.

A chunk made from the observation of time s is executed over [s, s + Ta/control_hz); so the next observation is the one
taken at the end of that, as in the simulator. Where inference takes longer than a control step, so many further actions
are kept as are executed until the next chunk is there, as far as the policy predicts.

The policy node of a deployment and the recorder that a person takes over in (`hardware.teleop.chunk_player`) share
this, so that a policy is asked for the same at the same times.
"""

from __future__ import annotations

import logging
import math
import queue
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Observation, Policy, RobolearnError
from robolearn.core.protocols import warm

log = logging.getLogger(__name__)

EARLY_S = 0.0005  # stamps are rounded
WARMED_S = 0.003  # a policy that takes longer gains little by it, and would be busy when it is asked
TYPICAL = 9  # inferences whose median says how long one takes


@dataclass(frozen=True, eq=False)
class PredictionRequest:
    """An observation for the policy.

    Attributes:
      turn: of the policy, see `Predictor.begin`.
      stamp: of the observation [s].
      observation: feature → (1, …).
      tag: whatever goes with it.
      asked: when it was handed over, on the monotonic clock [s].
      acts: a chunk is wanted; else the policy only takes the observation into its history.
    """

    turn: object
    stamp: float
    observation: Observation
    tag: Any
    asked: float
    acts: bool


_WARM = PredictionRequest(None, 0.0, {}, None, 0.0, False)  # in place of one


class Predictor:
    """Asks `policy` for chunks.

    Args:
      policy: bound to the station.
      period_s: Δt, of a control step [s].
      done: takes each request of the running turn and its chunk (T, Da), in the thread of the inference.
      seed: of the policy's noise.
      tail_steps: actions beyond Ta that are kept; below 0: as many as inference takes.
      delay_s: by which every inference takes longer on purpose [s].

    Attributes:
      fault: why the policy failed in this turn; empty while it works.

    Raises:
      BadInput: the policy's chunks are no chunks.
    """

    def __init__(
        self,
        policy: Policy,
        period_s: float,
        done: Callable[[PredictionRequest, NDArray], None],
        *,
        seed: int = 0,
        tail_steps: int = -1,
        delay_s: float = 0.0,
    ) -> None:
        self._policy, self._period, self._done, self._delay_s = policy, period_s, done, delay_s
        self._steps, self.tail_steps = policy.execute_steps, tail_steps
        self._turn: object = None
        self._due = -math.inf  # stamp of the next observation to act on
        self._look = math.inf  # and of the next for a policy that observes every step
        self.busy = False
        self._slot: queue.Queue[PredictionRequest | None] = queue.Queue(1)
        self._took = deque[float](maxlen=TYPICAL)
        self.fault = ""
        policy.reset(seed)
        self._warm_up()
        policy.reset(seed)
        # Inference holds the interpreter for up to 5 ms by default; joint states must not wait that long.
        sys.setswitchinterval(0.001)
        self._thread = threading.Thread(target=self._infer, name="policy", daemon=True)
        self._thread.start()

    def begin(self, turn: object, after: float = -math.inf) -> None:
        """The policy's turn `turn` begins, without any history, with an observation stamped later than `after` [s]; one
        that is false (0, empty, None): nothing is asked any more."""
        self._turn = turn
        if turn:
            self._due, self._look, self.fault = after + 2 * EARLY_S, math.inf, ""

    def overdue(self, stamp: float) -> float:
        """Time from the stamp that is wanted next to `stamp` [s]; −∞ where none is wanted."""
        if not self._turn or self.busy or self.fault:
            return -math.inf
        return stamp - min(self._due, self._look)

    def ask(self, stamp: float, observation: Observation, tag: Any = None) -> None:
        """Hand over the observation (1, …) of `stamp`; only where it is wanted."""
        self.busy = True
        acts = stamp - self._due >= -EARLY_S
        if acts:
            self._due = stamp + self._steps * self._period
        self._look = stamp + self._period if self._policy.observes_every_step else math.inf
        self._slot.put(PredictionRequest(self._turn, stamp, observation, tag, time.monotonic(), acts))

    def warm(self) -> None:
        """The next observation is about to come: see `robolearn.core.protocols.warm`, for a policy that is quick."""
        if statistics.median(self._took) < WARMED_S and self._slot.empty():
            self._slot.put(_WARM)

    def close(self) -> None:
        """End the thread; more than once is no fault."""
        self._turn = None
        if self._thread.is_alive():
            self._slot.put(None)
            self._thread.join(2.0)

    def _infer(self) -> None:
        turn: object = None
        while (request := self._slot.get()) is not None:
            try:
                if request is _WARM:
                    warm(self._policy)
                    continue
                if request.turn != turn:
                    turn = request.turn
                    self._policy.begin(np.ones(1, dtype=bool))
                if not request.acts:
                    self._policy.observe(request.observation)
                    continue
                actions = self._act(request.observation)[0]
                self._took.append(time.monotonic() - request.asked)
                if request.turn == self._turn:
                    self._done(request, actions[: self._steps + self._tail()])
            except Exception as error:
                self.fault = f"the policy failed: {error}" if isinstance(error, RobolearnError) else repr(error)
                log.error("%s", self.fault)
            finally:
                if request is not _WARM:  # one may have been asked meanwhile
                    self.busy = False

    def _act(self, observation: Observation) -> NDArray:
        chunk = np.asarray(self._policy.act(observation))
        time.sleep(self._delay_s)
        return chunk

    def _tail(self) -> int:
        """Number of actions kept beyond those of the chunk: those executed while the next is computed."""
        if self.tail_steps >= 0:
            return self.tail_steps
        steps = statistics.median(self._took) / self._period
        # One more: the next may take longer than they usually do.
        return 0 if steps < 1 else math.ceil(steps) + 1

    def _warm_up(self) -> None:
        """Compile and allocate now, not while the arm moves, and measure an inference."""
        interface = self._policy.interface
        blank = {key: np.zeros((1, *spec.shape), spec.dtype) for key, spec in interface.observation.items()}
        chunk, size = self._act(blank), interface.action.size
        if chunk.ndim != 3 or chunk.shape[2] != size or chunk.shape[1] < self._steps:
            raise BadInput("policy's chunk", got=chunk.shape, expected=(1, f"≥ {self._steps}", size))
        begun = time.monotonic()
        self._act(blank)
        self._took.append(time.monotonic() - begun)
        if (steps := self._took[0] / self._period) > chunk.shape[1] - self._steps and steps > 1:
            log.warning(
                "a decision takes %.0f ms, %.1f control steps: of %d predicted %d are executed, and the others do not "
                "last until the next: train with a longer --horizon",
                1e3 * self._took[0], steps, chunk.shape[1], self._steps,
            )  # fmt: skip
