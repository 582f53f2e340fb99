"""Pairs that need no look yet: odometers of pieces.

A piece moves against the link that joint s of its arm stands on by at most Σ_k |Δq_k| R_k, over the joints k from s on
that are below it, with R_k the most that it is away from joint k. The odometer (piece, s) adds that up from posture to
posture, as far as the last one goes back and forth. So a pair of which a bound says that it has d to spare at one
posture has some to spare at every other one, and on the way on which the arm would stop from there, as long as its
odometers and the same sum for that way have not gone on by d. Of two arms both pieces move, and both odometers count.

Nothing is left out by this that the bound itself would not leave out (`nearing`); it only is not worked out each time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardware.safety.checks import Array
from hardware.safety.gjk import borrowing

ROUNDING = 1e-7  # [m] more than the sums lose by it
_MOST = 50.0  # [m] then all begin anew, or they would lose more


class Odometers(NamedTuple):
    """The odometers of an arm's pieces, as the compiled functions take them."""

    far: Array  # (count, n) R of each piece, 0 for joints that do not move it
    joints: NDArray[np.int64]  # (count, 2) the first that moves it, and the end
    slots: NDArray[np.int64]  # (p, 2) of the pieces of each pair among `readings`
    readings: Array  # (2, count n + 1) at the last posture, and at most on the way from there [m]; the last one stays 0
    last: Array  # (n,) that posture [rad]
    steps: Array  # (2, n) |Δq| from the one before to there, and at most on the way from there [rad]
    until: Array  # (p,) a pair is clear as long as its odometers are no farther [m]


@borrowing()
def advance(odometers, start, low, high):
    """Go on to a way that begins at `start` (n,) and whose joints stay between `low` and `high` (n,)."""
    far, joints, readings, steps = odometers.far, odometers.joints, odometers.readings, odometers.steps
    most, n = 0.0, far.shape[1]
    for k in range(n):
        steps[0, k] = abs(start[k] - odometers.last[k])
        steps[1, k] = max(high[k] - start[k], start[k] - low[k])
        odometers.last[k] = start[k]
    for piece in range(far.shape[0]):
        moved = ahead = 0.0
        for k in range(joints[piece, 1] - 1, joints[piece, 0] - 1, -1):
            moved += steps[0, k] * far[piece, k]
            ahead += steps[1, k] * far[piece, k]
            readings[0, n * piece + k] += moved
            readings[1, n * piece + k] = readings[0, n * piece + k] + ahead
        most = max(most, readings[0, n * piece + joints[piece, 0]])
    if not most <= _MOST:
        readings[:] = 0.0
        odometers.until[:] = -np.inf


@borrowing(inline="always")
def reading(odometers, row, pair):
    """Odometers of both pieces of a pair [m]: at the posture (row 0), or the most on the way (row 1)."""
    slots, readings = odometers.slots, odometers.readings
    return readings[row, slots[pair, 0]] + readings[row, slots[pair, 1]]
