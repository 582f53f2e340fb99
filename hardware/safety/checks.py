"""The stages that judge numbers by themselves: each returns what passes and raises `Refused` with a reason.

The geometry of the arm is judged in `geometry`, motion in `motion`. Comparisons are written so that NaN fails them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

log = logging.getLogger(__name__)

BOX_MARGIN = 1e-3  # [rad] inside the joint limits: rounding in the motion behind it must not reach over them
BORDERS = ("workspace", "obstacle")  # stages that stop the arm at a border and leave it armed
GAP_S = 0.25  # longer between two commands, and the process was not running


class Refused(Exception):
    """A stage refuses.

    Attributes:
      stage: its name, the key under which refusals are counted.
      reason: for the operator.
    """

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage
        self.reason = reason


def unexpected(error: Exception) -> Refused:
    """An exception that is no refusal, as one."""
    log.error("exception in the safety filter", exc_info=error)
    return Refused("exception", f"{type(error).__name__}: {error}")


def finite(what: str, values: Any, stage: str = "finite") -> list[float]:
    """Numbers as floats; refuses what is no number, NaN and infinity."""
    try:
        numbers = np.asarray(values, dtype=np.float64).ravel().tolist()
    except (TypeError, ValueError):
        raise Refused(stage, f"{what}: got {values!r}, expected numbers") from None
    if math.isfinite(sum(numbers)):  # the quick way; a sum may also overflow
        return numbers
    for i, number in enumerate(numbers):
        if not math.isfinite(number):
            raise Refused(stage, f"{what}: component {i + 1} of {len(numbers)} is {number}")
    return numbers


def named(names: Sequence[str], positions: Any, joints: tuple[str, ...]) -> None:
    """Refuses names other than `joints`, in any other order, and positions of any other shape."""
    if names != joints and tuple(names) != joints:
        if sorted(names) == sorted(joints):
            raise Refused("names", f"target: joints in the order {', '.join(names)}, expected {', '.join(joints)}")
        wrong = [name for name in names if name not in joints]
        missing = [name for name in joints if name not in names]
        raise Refused(
            "names",
            f"target: {len(names)} joints, expected {len(joints)}"
            + (f"; unknown: {', '.join(wrong)}" if wrong else "")
            + (f"; missing: {', '.join(missing)}" if missing else ""),
        )
    if np.shape(positions) != (len(joints),):
        raise Refused("names", f"target: positions of shape {np.shape(positions)}, expected ({len(joints)},)")


def fresh(stage: str, what: str, age: float, timeout: float) -> None:
    """Refuses an age [s] beyond `timeout` [s], and one from the future."""
    if not 0.0 <= age <= timeout:
        raise Refused(stage, f"{what} is {age:.3f} s old, allowed {timeout:.3f} s")


def near(
    stage: str, what: str, joints: tuple[str, ...], positions: list[float], measured: list[float], most: float
) -> None:
    """Refuses positions that are farther than `most` [rad] from where the arm is measured."""
    away = [abs(p - q) for p, q in zip(positions, measured, strict=True)]
    if max(away) <= most and math.isfinite(sum(away)):  # the quick way
        return
    for i, (position, there) in enumerate(zip(positions, measured, strict=True)):
        if not abs(position - there) <= most:
            raise Refused(
                stage,
                f"{what}: {joints[i]} at {position:.4g} rad is {abs(position - there):.4g} rad from the measured "
                f"{there:.4g} rad, allowed {most:.4g} rad",
            )


def clamped(positions: list[float], lower: list[float], upper: list[float]) -> list[float]:
    """Positions [rad] moved into the box."""
    return [
        low if p < low else high if p > high else p for p, low, high in zip(positions, lower, upper, strict=True)
    ]  # fmt: skip


def stops_inside(joints: tuple[str, ...], low: Array, high: Array, lower: Array, upper: Array) -> None:
    """Refuses a motion that, braked from here, would carry a joint over its limits.

    Args:
      joints: names.
      low, high: (n,) extremes of each joint until it is at rest [rad].
      lower, upper: (n,) limits [rad].
    """
    i = _first_outside(low, high, lower, upper)
    if i >= 0:
        raise Refused(
            "joint box",
            f"{joints[i]} would move between {low[i]:.4f} and {high[i]:.4f} rad before it stops, "
            f"limits {lower[i]:.4f} to {upper[i]:.4f} rad",
        )


def running(gap: float) -> None:
    """Refuses a gap [s] between two steps in which the process cannot have been running, and a clock that went back."""
    if gap > GAP_S:
        raise Refused("gap", f"gap: the safety filter did not run for {gap:.2f} s, allowed {GAP_S:.2f} s")
    if not gap >= 0.0:
        raise Refused("clock", f"the steady clock went back by {-gap:.3f} s")


@numba.njit(cache=True, nogil=True)
def _first_outside(low, high, lower, upper):
    for i in range(low.shape[0]):
        if not (low[i] >= lower[i] and high[i] <= upper[i]):
            return i
    return -1
