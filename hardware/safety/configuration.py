"""What a safety filter is made for: checks of its parts, and the joint box that targets are clamped to."""

from __future__ import annotations

import numpy as np

from hardware.safety import checks
from robolearn.core.errors import BadInput
from robots.limits import Limits
from robots.spec import RobotSpec


def check_parts(robot: RobotSpec, joints: tuple[str, ...], limits: Limits, period: float) -> None:
    """Check that the parts fit together.

    Raises:
      BadInput: the sizes do not agree, limits are looser than the robot's, or the period is not in (0, 0.05] s.
    """
    if len(joints) != robot.chain.n or limits.n != robot.chain.n:
        raise BadInput("joints", got=f"{len(joints)} names, {limits.n} limits", expected=f"{robot.chain.n} of each")
    if not 0.0 < period <= 0.05:
        raise BadInput("period", got=f"{period} s", expected="above 0, at most 0.05 s")
    Limits.of(robot).tightened(**vars(limits))  # raises when anything is looser


def inner_box(limits: Limits) -> tuple[list[float], list[float]]:
    """(n,) lower and upper joint limits [rad] less a margin."""
    margin = np.minimum(checks.BOX_MARGIN, 0.25 * (limits.upper - limits.lower))
    return (limits.lower + margin).tolist(), (limits.upper - margin).tolist()
