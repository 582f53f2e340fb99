"""Arm, obstacles and what was found out about them, in an `ArrayBlock` for the compiled functions of `nearing`.

A block has the fields of `ArmGeometry`, `Odometers` and `Findings`, in that order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardware.safety.blocks import floats_1, floats_2, floats_3, whole_1, whole_2
from hardware.safety.checks import Array
from hardware.safety.odometers import Odometers
from robots.compiled import compiled

SELF, OBSTACLE, PLANE = 0, 1, 2  # kinds of pairs; a plane is an obstacle, too


class ArmGeometry(NamedTuple):
    """The arm and what stands around it, as the compiled functions take it."""

    offset_pos: Array
    offset_rot: Array
    axis: Array
    points: Array  # of all pieces
    which: NDArray[np.int64]  # (count, 3) per piece: link, first point, end
    sizes: Array  # (count, 5) centre and radius of the sphere around it, its own radius
    below: NDArray[np.int64]  # (n,) the link that each joint stands on; 0 where an arm begins
    pairs: NDArray[np.int64]  # (p, 3) first piece (or plane), second piece, kind
    between: NDArray[np.int64]  # (p, 3) the link in whose frame `axes` are, first joint between the two, end
    reach: Array  # (p, n) R, of two arms those of both
    allowed: Array  # (p, 2) distance, and how much less between two postures
    axes: Array  # (p, 3) where the last search for a distance ended
    apart: Array  # (p,) at least that far apart were they
    where: Array  # (p, n) at this posture
    planes: Array  # (planes, 4) normal and offset


class Findings(NamedTuple):
    """Findings of a look at a way, and the accelerations that bound any."""

    suspects: NDArray[np.int64]  # (p,) 1: a pair that the postures leave uncertain
    found: Array  # (2, 4) the worst pair of the arm itself, and of arm and obstacle: excess, gap, allowed [m], number
    acceleration: Array  # (n,) the most that joints accelerate by [rad/s²]


@compiled()
def arm_of(floats, whole):
    """The `ArmGeometry` with which a block begins."""
    return ArmGeometry(
        floats_2(floats, whole, 0), floats_3(floats, whole, 1), floats_2(floats, whole, 2), floats_2(floats, whole, 3),
        whole_2(whole, 4), floats_2(floats, whole, 5), whole_1(whole, 6), whole_2(whole, 7), whole_2(whole, 8),
        floats_2(floats, whole, 9), floats_2(floats, whole, 10), floats_2(floats, whole, 11),
        floats_1(floats, whole, 12), floats_2(floats, whole, 13), floats_2(floats, whole, 14),
    )  # fmt: skip


@compiled()
def odometers_of(floats, whole):
    """The `Odometers` that follow."""
    return Odometers(
        floats_2(floats, whole, 15), whole_2(whole, 16), whole_2(whole, 17), floats_2(floats, whole, 18),
        floats_1(floats, whole, 19), floats_2(floats, whole, 20), floats_1(floats, whole, 21),
    )  # fmt: skip


@compiled()
def findings_of(floats, whole):
    """The `Findings` at the end."""
    return Findings(whole_1(whole, 22), floats_2(floats, whole, 23), floats_1(floats, whole, 24))


@compiled()
def nothing_found(floats, whole):
    """True if no pair was nearer than allowed on the way that was looked at."""
    found = findings_of(floats, whole).found
    return found[0, 0] <= 0.0 and found[1, 0] <= 0.0
