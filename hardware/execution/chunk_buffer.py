"""The action chunk that is being executed: `robots.chunk_execution` by the clock, and what is refused.

Whatever time the policy took, action i is never executed at the time of action j. A chunk that is refused changes
nothing. Wall-clock stamps are compared once, when a chunk arrives; from then on only the steady clock counts, so that
neither a jump of the time of day nor a frozen one prolongs a chunk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.observing.clocks import FUTURE_S, MEND
from robolearn.core import BadInput, RobolearnError
from robots.chunk_execution import ActionParts, ChunkExecutor, ChunkStep

Array = NDArray[np.float64]

SIM_GRACE_S = 0.15  # for the next chunk on a simulated arm, which may stand still for a moment: nothing falls


class ChunkRefused(RobolearnError):
    """A chunk that must not be executed; the message is the reason."""


class ActionChunkBuffer:
    """The chunk that is being executed, replaced by each newer one.

    Args:
      names: (Da,) of the action's components, in order.
      period_s: Δt [s].
      grace_s: how long the last action is held when the next chunk is late [s]; None: one Δt.
      freeze: f, steps that follow the old chunk entirely.
      blend: blend a chunk with the one before.
      relative: actions are displacements, but for the gripper's.
      longest: most actions in a chunk.
      clock: steady time [s].

    Attributes:
      reason: why there is no action now; empty while there is one.
      stamp: of the newest chunk's observation [s].
      latency_s: between the last chunk's observation and its arrival.
    """

    def __init__(
        self,
        names: Sequence[str],
        period_s: float,
        *,
        grace_s: float | None = None,
        freeze: int = 0,
        blend: bool = True,
        relative: bool = False,
        longest: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not period_s > 0 or freeze < 0 or (grace_s is not None and grace_s < 0):
            raise BadInput(
                "action chunk buffer", got=(period_s, grace_s, freeze), expected="a positive period, the rest ≥ 0"
            )
        self.names = tuple(names)
        self.period_s = period_s
        self.grace_s = period_s if grace_s is None else grace_s
        self.longest = longest
        self.reason = "no action chunk yet"
        self.latency_s = math.nan
        self._clock = clock
        self._executor = ChunkExecutor(
            ActionParts.named(self.names, displacements=relative),
            period_s,
            grace=self.grace_s,
            freeze=freeze,
            blend=blend,
            kept=2 * longest,
        )
        self.stamp = -math.inf
        self._sender: object = None

    @property
    def running(self) -> bool:
        """True while there is a chunk that has not run out."""
        return self._executor.running

    def clear(self, reason: str = "no action chunk yet") -> None:
        """Empty the buffer: the chunk, the order of stamps and the sender."""
        self.halt(reason)
        self.stamp, self._sender = -math.inf, None

    def halt(self, reason: str) -> None:
        """Drop the chunk; later ones are still held to the order of stamps."""
        self._executor.clear()
        self.reason = reason

    def accept(
        self, stamp: float, wall: float, names: Sequence[str], actions: Any, times: NDArray, sender: object = None
    ) -> None:
        """Take a chunk, which replaces the one before from its first action on that has not elapsed.

        Args:
          stamp: of its observation [s], on the same clock as `wall`.
          wall: now [s].
          names: of the components.
          actions: (T, Da) in [-1, 1].
          times: (T,) each action's time after the observation [s]: 0, Δt, 2Δt, …
          sender: identifies the policy that sent it, comparable; the same from the first chunk on.

        Raises:
          ChunkRefused: it must not be executed. Nothing has changed.
        """
        now = self._clock()
        values = self._values(names, actions, times)
        age = wall - stamp
        if not math.isfinite(stamp) or stamp <= 0:
            raise ChunkRefused("action chunk without an observation stamp")
        if problem := self.foreign(sender):
            raise ChunkRefused(problem)
        if age < -FUTURE_S:
            raise ChunkRefused(f"action chunk is stamped {-age:.3f} s in the future; {MEND}")
        age = max(age, 0.0)
        if age >= len(values) * self.period_s:
            raise ChunkRefused(
                f"action chunk is too late: {age:.3f} s after its observation, and it lasts "
                f"{len(values) * self.period_s:.3f} s"
            )
        if stamp <= self.stamp:
            raise ChunkRefused(
                f"action chunk is out of order: its observation is {self.stamp - stamp:.3f} s older than the last"
            )
        self._executor.put(values, now - age, now)
        self.stamp, self._sender, self.latency_s, self.reason = stamp, sender, age, ""

    def warm(self) -> None:
        """See `ChunkExecutor.warm`."""
        self._executor.warm(self._clock())

    def foreign(self, sender: object) -> str:
        """Problem of a policy that is not the one that chunks have come from; empty where it is, or is not known."""
        if sender is None or self._sender is None or sender == self._sender:
            return ""
        return "action chunks come from two policies at once"

    def step(self) -> ChunkStep | None:
        """The action of this moment, or None: there is no chunk, or it ran out just now; which, is in `reason`."""
        if not self._executor.running:
            return None
        if (step := self._executor.step(self._clock())) is None:
            self.halt(f"action chunk ran out: the next is more than {1000 * self.grace_s:.0f} ms late")
        return step

    def _values(self, names: Sequence[str], actions: Any, times: NDArray) -> Array:
        if tuple(names) != self.names:
            raise ChunkRefused(f"action chunk names {', '.join(names) or 'nothing'}; expected {', '.join(self.names)}")
        if len(actions) == 0:
            raise ChunkRefused("action chunk is empty")
        if not isinstance(actions, np.ndarray) or actions.ndim != 2 or actions.shape[1] != len(self.names):
            raise ChunkRefused(f"action chunk has actions of the wrong length; expected {len(self.names)} each")
        if len(actions) > self.longest:
            raise ChunkRefused(f"action chunk has {len(actions)} actions; expected at most {self.longest}")
        if not np.isfinite(actions).all():
            raise ChunkRefused("action chunk is not finite")
        times = np.asarray(times, dtype=np.float64)
        if len(times) != len(actions) or not np.isfinite(times).all() or np.any(np.diff(times) <= 0):
            raise ChunkRefused("action chunk's times do not rise")
        if np.abs(times - np.arange(len(times)) * self.period_s).max() > 0.1 * self.period_s:
            raise ChunkRefused(f"action chunk's times are not 0, {self.period_s:g}, {2 * self.period_s:g} … s")
        return np.clip(actions.astype(np.float64), -1.0, 1.0)
