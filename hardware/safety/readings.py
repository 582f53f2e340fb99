"""Joint states that are no readings of now: the same again from encoders that have noise, or of another time.

*Noise.* Encoders that are read anew differ from message to message, at rest too; those of few bits repeat, and so does
a simulation. So noise is learned while the arm is not armed, over `LEARN_S` and `LEARN` messages at least. With the
positions q_k (n,) and their changes d_k = q_k − q_{k−1} an arm has noise where

    no q_k is one of the `RECENT` before it, and of some joint
    ½ ≤ rms(d, last third) / rms(d, first third) ≤ 2    what settles decays
    rms(d) ≥ `LEAST_RAD`
    d_k d_{k−1} < 0 of a share `TURNS` of all k          what moves goes on

From then on the same values for longer than joint states may be silent are no readings, while the arm is armed.
Where the changes before them were less than noise, the arm came to a stand as a simulated one does, and has no noise.

*Leaps.* A driver that begins to send readings of before makes the arm jump back. Between two joint states that differ,
dt apart, a joint whose speed was w goes at most

    1.5 w (dt + late) + ½ a (dt + late)² + `ROOM_RAD` + what noise there is

late is by how much a reading may be older than its stamp where the driver was held up: a share `LATE` of the time for
which the arm's joint states may be silent, as a slow bus has more of both. dt is the longer one of their times by
stamps and by arrivals; a is more than motors, or a hand that pushes, can do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.safety.measured import REPEATS

Array = NDArray[np.float64]

LEARN_S, LEARN = 1.0, 30
RECENT = 20  # joints of few bits that flicker come back to where they were
LEAST_RAD = 1e-6
STEADY = 2.0  # ratio of what noise is early and late
TURNS = 0.3  # of white noise 2/3, of noise behind a low pass 1/2
LAST = 5  # changes before a repetition
SMALL = 0.25  # of noise: all of `LAST` that are smaller are no noise

LATE = 0.2
ROOM_RAD = 0.01
PUSHED = 50.0  # [rad/s²] at least: no motor's, and a push is slower
SPAN_S = 0.03  # over which a speed is measured, at least
NOISES = 5.0  # deviations of a change


class EncoderNoise:
    """The noise of the joint states of an arm of n joints. `timeout` is how long they may be silent [s].

    Attributes:
      level: (n,) root mean square of the changes of joints that have noise, 0 of others [rad]; None: none has.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._publisher: Hashable = None
        self._forget()

    def _forget(self) -> None:
        self.level: Array | None = None
        self._q: Array | None = None  # newest
        self._since, self._repeats = 0.0, 0  # when it was new
        self._changes: deque[Array] = deque(maxlen=LAST)
        self._recent: deque[bytes] = deque(maxlen=RECENT)
        self._block: list[Array] = []  # of what is learned now
        self._begun = 0.0

    def rest(self, q: Array, now: float, publisher: Hashable = None) -> None:
        """An arm that is not armed is measured at q (n,) [rad], at the time `now` [s], by a `publisher`."""
        if publisher != self._publisher:
            self._publisher = publisher
            self._forget()
        self._see(q, now)
        key = q.tobytes()
        if key in self._recent:
            self.level, self._block = None, []
        self._recent.append(key)
        if not self._block:
            self._begun = now
        self._block.append(q)
        if now - self._begun >= LEARN_S and len(self._block) >= LEARN:
            self._learn()
            self._block = []

    def stands(self, q: Array, now: float) -> float:
        """Time for which an armed arm that has noise was measured at the very q (n,) [rad], where that is longer than
        its joint states may be silent; else 0 [s]."""
        self._block = []
        self._see(q, now)
        if self.level is None or self._repeats < REPEATS or now - self._since <= self._timeout:
            return 0.0
        if not any(((change >= SMALL * self.level) & (self.level > 0.0)).any() for change in self._changes):
            self.level = None
            return 0.0
        return now - self._since

    def _see(self, q: Array, now: float) -> None:
        if self._q is not None and np.array_equal(q, self._q):
            self._repeats += 1
            return
        if self._q is not None:
            self._changes.append(np.abs(q - self._q))
        self._q, self._since, self._repeats = q, now, 0

    def _learn(self) -> None:
        d = np.diff(np.array(self._block), axis=0)
        third = len(d) // 3
        early, late, level = _rms(d[:third]), _rms(d[-third:]), _rms(d)
        steady = (late <= STEADY * early) & (early <= STEADY * late)
        turns = (d[1:] * d[:-1] < 0.0).mean(axis=0)
        noisy = steady & (level >= LEAST_RAD) & (turns >= TURNS)
        if noisy.any():
            self.level = np.where(noisy, level, 0.0)


def _rms(d: Array) -> Array:
    return np.sqrt((d * d).mean(axis=0))


class Leap:
    """Joint states between which an arm of `joints` cannot have moved; `acceleration` (n,) is its motors' [rad/s²], and
    `timeout` how long its joint states may be silent [s]."""

    def __init__(self, joints: Sequence[str], acceleration: ArrayLike, timeout: float) -> None:
        self._joints, self._late = tuple(joints), LATE * timeout
        self._acceleration = np.maximum(PUSHED, 2.0 * np.asarray(acceleration, dtype=np.float64))
        # (n,) positions, stamp, arrival: the newest that differed, and two from before, by which speed is measured
        self._last: tuple[Array, float, float] | None = None
        self._from = self._between = self._last

    def __call__(self, q: Array, stamp: float, now: float, noise: Array | None = None) -> str:
        """The joint that has leapt, in words, or nothing: the arm is measured at q (n,) [rad], stamped so [s], which
        arrives at the steady time `now` [s]; `noise` (n,) is that of its changes [rad]."""
        last, self._last = self._last, (q, stamp, now)
        if last is None:
            self._from = self._between = self._last
            return ""
        if np.array_equal(q, last[0]):  # a driver that had nothing newer: time goes by until it has
            self._last = last
            return ""
        dt, speed = max(stamp - last[1], now - last[2]), self._speed(last)
        ago = dt + self._late
        most = 1.5 * speed * ago + 0.5 * self._acceleration * ago**2 + ROOM_RAD
        went = np.abs(q - last[0])
        excess = went - most - (0.0 if noise is None else NOISES * noise)
        j = int(np.argmax(excess))
        if not excess[j] > 0.0:
            return ""
        expected = f"at most {most[j]:.2f} expected: old readings, or another arm's?"
        return f"{self._joints[j]} jumped by {went[j]:.2f} rad in {1e3 * dt:.0f} ms, {expected}"

    def _speed(self, last: tuple[Array, float, float]) -> Array:
        """(n,) of the arm until `last` [rad/s]."""
        assert self._from is not None and self._between is not None
        q, stamp, now = last
        if now - self._between[2] >= SPAN_S:
            self._from, self._between = self._between, last
        seconds = max(min(stamp - self._from[1], now - self._from[2]), SPAN_S)
        return np.abs(q - self._from[0]) / seconds
