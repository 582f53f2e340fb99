"""Checks of numbers by themselves: each returns what passes and raises `Refused` with a reason.

The geometry of the arm is judged in `geometry`, motion in `motion`. Comparisons are written so that NaN fails them.
Cartesian targets become joint positions here (`Reach`), so that they pass the same stages as joint targets.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.safety.states import PoseTarget
from robolearn.core.se3 import quat_to_matrix
from robots.compiled import compiled
from robots.ik import IKConfig, solve
from robots.spec import RobotSpec

Array = NDArray[np.float64]

log = logging.getLogger(__name__)

BOX_MARGIN = 1e-3  # [rad] inside the joint limits: rounding in the motion behind it must not reach over them
BORDERS = ("workspace", "obstacle")  # stages that stop the arm at a border and leave it armed
GAP_S = 0.25  # longer between two commands, and the process was not running


class Refused(Exception):
    """A stage refuses: its name, the key under which refusals are counted, and the reason for the operator."""

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
    if type(values) is float and math.isfinite(values):  # the quick way
        return [values]
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
    shape = positions.shape if isinstance(positions, np.ndarray) else np.shape(positions)
    if shape != (len(joints),):
        raise Refused("names", f"target: positions of shape {shape}, expected ({len(joints)},)")


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
    """Refuses a motion that, braked from here, would carry a joint over its limits `lower`, `upper` (n,) [rad]; `low`,
    `high` (n,) are the extremes of each joint until it is at rest [rad]."""
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


@compiled()
def _first_outside(low, high, lower, upper):
    for i in range(low.shape[0]):
        if not (low[i] >= lower[i] and high[i] <= upper[i]):
            return i
    return -1


# Well damped: near a singularity the joints shall follow calmly, and the pose be missed by a little.
CONFIG = IKConfig(iterations=8, damping=0.05, posture_gain=0.0)
POSITION_TOLERANCE = 0.01  # [m] by which the pose may be missed
ROTATION_TOLERANCE = 0.1  # [rad]


class Reach:
    """Inverse kinematics of one arm."""

    def __init__(self, robot: RobotSpec) -> None:
        self._chain, self._rest = robot.chain, np.asarray(robot.home)
        self.n = robot.chain.n

    def joints(self, target: PoseTarget, start: list[float]) -> list[float]:
        """Joint positions [rad] of a pose, near `start`. Raises `Refused`: numbers that are not finite, shapes, a
        quaternion that is not one, or a pose that is not reached."""
        position = finite("target position", target.position)
        quat = finite("target quaternion", target.quaternion)
        if len(position) != 3 or len(quat) != 4:
            raise Refused("names", f"target pose: {len(position)} and {len(quat)} numbers, expected 3 and 4 (wxyz)")
        norm = math.sqrt(sum(x * x for x in quat))
        if not abs(norm - 1.0) <= 0.01:
            raise Refused("names", f"target quaternion: length {norm:.3f}, expected 1")
        rot = quat_to_matrix(np.array(quat) / norm)
        q = solve(
            self._chain, np.array([start]), np.array([position]), rot[None], rest=self._rest, config=CONFIG
        )  # fmt: skip
        there, turned = (pose[0] for pose in self._chain.forward(q))
        missed = math.dist(there, position)
        # trace(RᵀR*) = 1 + 2 cos θ
        angle = math.acos(min(max(0.5 * (float(np.vdot(turned, rot)) - 1.0), -1.0), 1.0))
        if not (missed <= POSITION_TOLERANCE and angle <= ROTATION_TOLERANCE):
            raise Refused(
                "reach",
                f"target pose: the arm misses it by {missed:.3f} m and {angle:.3f} rad, "
                f"allowed {POSITION_TOLERANCE} m and {ROTATION_TOLERANCE} rad",
            )
        return q[0].tolist()
