"""Preparation of a safety filter: checks of its parts, the joint box that targets are clamped to, compilation.

Everything that a step calls is compiled before: the first steps must not take longer than the others.
"""

from __future__ import annotations

import numpy as np

from hardware.safety import checks
from hardware.safety.arms import Arms
from hardware.safety.checks import Array
from hardware.safety.geometry import Geometry
from hardware.safety.motion import Motion
from hardware.safety.output import Output
from hardware.safety.states import PoseTarget
from robolearn.core.errors import BadInput
from robots.limits import Limits
from robots.pair import AnyRobot


def check_parts(robot: AnyRobot, joints: tuple[str, ...], limits: Limits, period: float) -> None:
    """Check that the parts fit together. Raises `BadInput`: the sizes do not agree, limits are looser than the robot's,
    or the period is not in (0, 0.05] s."""
    n = len(robot.joints)
    if len(joints) != n or limits.n != n:
        raise BadInput("joints", got=f"{len(joints)} names, {limits.n} limits", expected=f"{n} of each")
    if len(limits.each) != len(robot.parts):
        got = f"limits of {len(limits.each)} arms"
        raise BadInput("limits", got=got, expected=f"those of {len(robot.parts)}: Limits.joined")
    if len(set(joints)) != n:
        raise BadInput("joints", got=", ".join(joints), expected="names that differ")
    if not 0.0 < period <= 0.05:
        raise BadInput("period", got=f"{period} s", expected="above 0, at most 0.05 s")
    Limits.of(robot).tightened(**vars(limits))  # raises when anything is looser


def inner_box(limits: Limits) -> tuple[list[float], list[float]]:
    """(n,) lower and upper joint limits [rad] less a margin."""
    margin = np.minimum(checks.BOX_MARGIN, 0.25 * (limits.upper - limits.lower))
    return (limits.lower + margin).tolist(), (limits.upper - margin).tolist()


def warm_up(
    home: list[float], limits: Limits, motion: Motion, geometry: Geometry, output: Output, arms: Arms
) -> tuple[Array, Array]:
    """Use every part once, at `home` (n,) [rad] inside the limits; the pose of the tcp there."""
    motion.place(home)
    motion.braked_by_formula()
    motion.knots_to_rest()
    state = motion.toward(home)
    way = motion.way_to_rest(state).postures
    rest = way[-1].copy()
    geometry.begin(rest)
    pose = geometry.pose(rest)
    set_points = motion.set_points_to_rest(state, 0.0)
    geometry.check(way, np.inf, lambda: set_points)
    end = 0
    for k, reach in enumerate(arms.reaches):
        begin, end = end, end + reach.n
        one = pose if len(arms.reaches) == 1 else (pose[0][k], pose[1][k])
        reach.joints(PoseTarget(*one), home[begin:end])
    geometry.warm_up(rest)
    ends = limits.lower.copy(), limits.upper.copy()  # as steps have them: one that is read-only is another type
    checks.stops_inside(tuple(map(str, home)), rest, rest, *ends)
    output.begin(rest)
    output.check(rest)
    output.keep(rest)
    return pose
