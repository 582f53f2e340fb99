"""The last check of what goes to the controller: finite, inside the limits, and so are its differences.

    |q_k − q_{k−1}| ≤ v_max Δt,   |Δ²q_k| ≤ a_max Δt²,   |Δ³q_k| ≤ j_max Δt³

It does not depend on how the set-point came about.

`Sending` has the time at which commands leave. A controller holds the last command: while no other leaves, the arm
comes to stand there, whatever velocity the set-point had, and to go on at that velocity is a step that no limit of the
set-point sees. So the way on begins at rest. A command leaves between the last look at the clock before its publishing
and the first one after; where those two are far apart, the earlier one counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hardware.safety.checks import Array, Refused
from robots.compiled import compiled
from robots.limits import Limits

_KINDS = ("position", "velocity", "acceleration", "jerk")
_UNITS = ("rad", "rad/s", "rad/s²", "rad/s³")
_ROUNDING = 1e-7  # share of a limit that rounding may add


class Output:
    """Watches consecutive set-points of n joints, one `period` [s] apart."""

    def __init__(self, limits: Limits, period: float) -> None:
        self._limits, self._period = limits, period
        self._lower, self._upper = limits.lower.copy(), limits.upper.copy()  # a call takes longer with read-only ones
        rates = np.stack([limits.velocity, limits.acceleration, limits.jerk])
        self._most = rates * np.array([[period], [period**2], [period**3]]) * (1.0 + _ROUNDING)
        self._last = np.zeros(limits.n)
        self._differences, self._next = np.zeros((3, limits.n)), np.zeros((3, limits.n))

    def begin(self, q: Array) -> None:
        """At rest at `q` (n,) [rad]."""
        self._last = q.copy()
        self._differences[:] = 0.0

    def check(self, q: Array) -> None:
        """Refuse a set-point (n,) [rad]."""
        fault = _judge(q, self._last, self._differences, self._most, self._lower, self._upper, self._next)
        if fault >= 0:
            raise self._reason(q, fault // len(q), fault % len(q))

    def keep(self, q: Array) -> None:
        """The set-point is sent."""
        _advance(q, self._last, self._differences)
        self._last = q

    def _reason(self, q: Array, kind: int, joint: int) -> Refused:
        limits = self._limits
        if kind == 0:
            got, allowed = q[joint], f"{limits.lower[joint]:.4f} to {limits.upper[joint]:.4f}"
        else:
            got = abs(self._next[kind - 1, joint]) / self._period**kind
            allowed = f"{(limits.velocity, limits.acceleration, limits.jerk)[kind - 1][joint]:.4f}"
        words = f"{_KINDS[kind]} of joint {joint + 1} would be {got:.4f} {_UNITS[kind]}, allowed {allowed}"
        return Refused("output", words)


@compiled()
def _judge(q, last, before, most, lower, upper, out):
    """Kind of the fault times n plus its joint, or −1."""
    n = q.shape[0]
    for i in range(n):
        if not (lower[i] <= q[i] <= upper[i]):
            return i
        out[0, i] = q[i] - last[i]
        out[1, i] = out[0, i] - before[0, i]
        out[2, i] = out[1, i] - before[1, i]
        for k in range(3):
            if not abs(out[k, i]) <= most[k, i]:
                return (k + 1) * n + i
    return -1


@compiled()
def _advance(q, last, differences):
    for i in range(q.shape[0]):
        first = q[i] - last[i]
        second = first - differences[0, i]
        differences[2, i] = second - differences[1, i]
        differences[1, i] = second
        differences[0, i] = first


STALL_PERIODS = 3.5  # longer between two commands, three were missed, and the arm stands or is about to
PUBLISHING_PERIODS = 3.0  # longer in publishing, and when the command left is not known


class Sending:
    """Measures the time since the last command left, one `period` [s] after the other by the steady time [s] of
    `clock`. `ahead`: they are sent ahead of the arm, which stands at none of them, see `execution.horizon`. `stalls`:
    how often one was put at rest after a stall."""

    def __init__(self, period: float, clock: Callable[[], float], *, ahead: bool = False) -> None:
        self._clock, self._most = clock, math.inf if ahead else STALL_PERIODS * period
        self._publishing = PUBLISHING_PERIODS * period
        self._at = self._before = -math.inf
        self._leaves: float | None = None  # when the last look before publishing was
        self.stalls = 0

    def leaves(self) -> None:
        """A command is about to be published. Without a clock, which `gap` reports, nothing changes."""
        try:  # `contextlib.suppress` takes ten times as long
            self._leaves = self._clock()
        except Exception:
            return

    def left(self) -> None:
        """A command has left, or the first one is about to. Without a clock, which `gap` reports, nothing changes."""
        try:
            now, leaves = self._clock(), self._leaves
            at = leaves if leaves is not None and now - leaves > self._publishing else now
            self._before, self._at, self._leaves = self._at, at, None
        except Exception:
            return

    def gap(self) -> float:
        """Since the last one left [s]; negative where the clock went back. Raises what the clock raises."""
        return self._clock() - self._at

    def gap_before(self) -> float:
        """From the command before the last to now [s], as long as the last one is not published; 0 without a clock."""
        try:
            return self._clock() - self._before
        except Exception:  # reported by `gap`
            return 0.0

    def stalled(self, gap: float) -> bool:
        """True if the arm stands at the last command after such a gap [s]."""
        return gap > self._most
