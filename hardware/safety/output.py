"""The last look at what goes to the controller: finite, inside the limits, and so are its differences.

    |q_k − q_{k−1}| ≤ v_max Δt,   |Δ²q_k| ≤ a_max Δt²,   |Δ³q_k| ≤ j_max Δt³

It does not depend on how the set-point came about.
"""

from __future__ import annotations

import numba
import numpy as np

from hardware.safety.checks import Array, Refused
from robots.limits import Limits

_KINDS = ("position", "velocity", "acceleration", "jerk")
_UNITS = ("rad", "rad/s", "rad/s²", "rad/s³")
_ROUNDING = 1e-7  # share of a limit that rounding may add


class Output:
    """Watches consecutive set-points of n joints, one `period` [s] apart."""

    def __init__(self, limits: Limits, period: float) -> None:
        self._limits, self._period = limits, period
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
        fault = _judge(q, self._last, self._differences, self._most, self._limits.lower, self._limits.upper, self._next)
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


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def _advance(q, last, differences):
    for i in range(q.shape[0]):
        first = q[i] - last[i]
        second = first - differences[0, i]
        differences[2, i] = second - differences[1, i]
        differences[1, i] = second
        differences[0, i] = first
