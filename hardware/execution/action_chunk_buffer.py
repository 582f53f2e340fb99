"""Action chunks that arrive late, one after the other, as one stream of actions: real-time chunking.

A chunk's action i belongs to the time [s + iΔt, s + (i+1)Δt) with s the moment of its *observation*: whatever time
the policy took, action i is never executed at the time of action j. With t the time since s when the chunk arrives,

    k₀ = ⌊t / Δt⌋                        the steps before k₀ have elapsed and are dropped,
    d  = ⌈t / Δt⌉                        the latency in steps,
    w_k = clip((k − k₀ − f + 1) / (d + 1), 0, 1)
    a_k ← (1 − w_k) a_k^old + w_k a_k^new     where the chunk before still has an action for that time,

f frozen steps first, then blended over the measured latency, as in Black et al., "Real-Time Execution of Action
Chunking Flow Policies" (2025), without its inpainting: the old chunk's prefix is followed rather than imposed on the
sampler. Grippers are not blended: half open is not between open and closed.

Actions that are displacements are not taken by their time alone: what was executed meanwhile was another chunk's, and
a^new is continued from where that has led (`hardware.execution.delay_compensation`). When a chunk ends does not change
by that.

Wall-clock stamps are compared once, when a chunk arrives; from then on only the steady clock counts, so that neither
a jump of the time of day nor a frozen one prolongs a chunk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.execution.delay_compensation import Executed, continued
from robolearn.core import BadInput, RobolearnError

Array = NDArray[np.float64]

FUTURE_S = 0.05  # clocks of two machines may differ by this much
_EDGE = 1e-6  # of a step: steady times are sums of rounded numbers


class ChunkRefused(RobolearnError):
    """A chunk that must not be executed; the message is the reason."""


@dataclass(frozen=True)
class Step:
    """The action of this moment.

    Attributes:
      stamp: of the observation behind it [s].
      index: which action of its chunk; with `stamp` it identifies the step.
      action: (Da,) in [-1, 1].
      held: the chunk is over, and its last set-point is kept for a short while.
    """

    stamp: float
    index: int
    action: Array
    held: bool = False


@dataclass(frozen=True)
class _Chunk:
    stamp: float
    start: float  # `stamp` on the steady clock
    actions: Array  # (T, Da)


class ActionChunkBuffer:
    """The chunk that is being executed, replaced by each newer one.

    Args:
      names: (Da,) of the action's components, in order.
      period_s: Δt [s].
      grace_s: how long the last action is held when the next chunk is late [s]; None: one Δt.
      freeze: f, steps that follow the old chunk entirely.
      blend: whether chunks are blended at all.
      unblended: components that switch at once.
      relative: whether actions are displacements, but for the gripper's.
      longest: most actions in a chunk.
      clock: steady time [s].

    Attributes:
      reason: why there is no action now; empty while there is one.
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
        unblended: Sequence[str] = ("gripper",),
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
        self.freeze = freeze
        self.blend = blend
        self.longest = longest
        self.reason = "no action chunk yet"
        self.latency_s = math.nan
        self._clock = clock
        self._relative = relative
        self._executed = Executed(period_s, 2 * longest)
        self._running: tuple[float, int] | None = None  # the step that was given out last
        self._jumping = np.array([name in unblended for name in self.names])
        self._chunk: _Chunk | None = None
        self._last_stamp = -math.inf
        self._sender: object = None

    @property
    def running(self) -> bool:
        """Whether there is a chunk that has not run out."""
        return self._chunk is not None

    def clear(self, reason: str = "no action chunk yet") -> None:
        """Empty the buffer: the chunk, the order of stamps and the sender."""
        self._chunk, self._last_stamp, self._sender, self.reason = None, -math.inf, None, reason

    def halt(self, reason: str) -> None:
        """Drop the chunk; later ones are still held to the order of stamps."""
        self._chunk, self.reason = None, reason

    def accept(
        self,
        stamp: float,
        wall: float,
        names: Sequence[str],
        actions: Any,
        times: NDArray,
        sender: object = None,
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
        if sender is not None and self._sender is not None and sender != self._sender:
            raise ChunkRefused("action chunks come from two policies at once")
        if age < -FUTURE_S:
            raise ChunkRefused(f"action chunk is stamped {-age:.3f} s in the future: are the clocks synchronised?")
        age = max(age, 0.0)
        if age >= len(values) * self.period_s:
            raise ChunkRefused(
                f"action chunk is too late: {age:.3f} s after its observation, and it lasts "
                f"{len(values) * self.period_s:.3f} s"
            )
        if stamp <= self._last_stamp:
            raise ChunkRefused(
                f"action chunk is out of order: its observation is {self._last_stamp - stamp:.3f} s older than the last"
            )
        self._chunk = _Chunk(stamp, now - age, self._following(values, now, age))
        self._last_stamp, self._sender, self.latency_s, self.reason = stamp, sender, age, ""

    def step(self) -> Step | None:
        """The action of this moment, or None: there is no chunk, or it ran out just now; which, is in `reason`."""
        chunk = self._chunk
        if chunk is None:
            return None
        now = self._clock()
        elapsed = now - chunk.start
        length = len(chunk.actions)
        index = self._index(elapsed)
        if index < length:
            if self._running != (chunk.stamp, index):
                self._running = (chunk.stamp, index)
                self._executed.add(now, chunk.actions[index])
            return Step(chunk.stamp, index, chunk.actions[index])
        if elapsed <= length * self.period_s + self.grace_s:
            return Step(chunk.stamp, length - 1, chunk.actions[-1], held=True)
        self.halt(f"action chunk ran out: the next is more than {1000 * self.grace_s:.0f} ms late")
        return None

    def _index(self, elapsed: float) -> int:
        return max(0, math.floor(elapsed / self.period_s + _EDGE))

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

    def _following(self, new: Array, now: float, age: float) -> Array:
        """(T, Da) the chunk `new` as it is executed from now on."""
        first = self._index(age)
        if self._relative:
            executed = self._executed.since(now - age, now, len(self.names))
            elapsed = max(age / self.period_s, first)
            return continued(new, executed, elapsed, self.names, lambda k, action: self._blended(k, action, now, age))
        out = new.copy()
        for k in range(first, len(new)):
            out[k] = self._blended(k, new[k], now, age)
        return out

    def _blended(self, k: int, action: Array, now: float, age: float) -> Array:
        """(Da,) `action` of step `k` and what the old chunk has for that time."""
        old, first = self._chunk, self._index(age)
        latency = math.ceil(age / self.period_s - _EDGE)
        if old is None or not self.blend or k >= first + self.freeze + latency:
            return action
        # The middle of the step decides which of the old actions it meets: the two grids may be askew.
        then = self._index(now - age + (k + 0.5) * self.period_s - old.start)
        if then >= len(old.actions):
            return action
        # w_k = clip((k − k₀ − f + 1) / (d + 1), 0, 1)
        w = min(max((k - first - self.freeze + 1) / (latency + 1), 0.0), 1.0)
        weight = np.where(self._jumping, float(w > 0), w)
        return (1.0 - weight) * old.actions[then] + weight * action
