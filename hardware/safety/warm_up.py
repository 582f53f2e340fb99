"""Compiles everything that a step of the safety filter calls: the first steps must not take longer than the others."""

from __future__ import annotations

import numpy as np

from hardware.safety import checks
from hardware.safety.checks import Array
from hardware.safety.geometry import Geometry
from hardware.safety.motion import Motion
from hardware.safety.output import Output
from hardware.safety.reach import Reach
from hardware.safety.types import PoseTarget
from robots.limits import Limits


def warm_up(
    home: list[float], limits: Limits, motion: Motion, geometry: Geometry, output: Output, reach: Reach
) -> tuple[Array, Array]:
    """Use every part once, at `home` (n,) [rad] inside the limits; the pose of the tcp there."""
    motion.place(home)
    motion.braked_by_formula()
    state = motion.toward(home)
    way = motion.way_to_rest(state).postures
    rest = way[-1].copy()
    geometry.begin(rest)
    pose = geometry.pose(rest)
    geometry.check(way, np.inf, lambda: motion.set_points_to_rest(state, 0.0))
    reach.joints(PoseTarget(*pose), home)
    checks.stops_inside(tuple(map(str, home)), rest, rest, limits.lower, limits.upper)
    output.begin(rest)
    output.check(rest)
    output.keep(rest)
    return pose
