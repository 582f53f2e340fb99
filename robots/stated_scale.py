"""The scale that an interface states for joint positions, compared with the limits of its arm.

Whoever executes joint positions takes −1 and 1 for the limits lower, upper [rad] of the arm's joints, so that a scale
in units of joints has to be these limits: u · lower and u · upper, u = 180/π in degrees, 1 in radians.
"""

from __future__ import annotations

import math

import numpy as np

from robolearn.core import BadInput, Interface
from robolearn.core.specs import action_scale
from robots import ROBOTS

FACTORS = {"degrees": 180 / math.pi, "radians": 1.0}


def check_stated_scale(interface: Interface, *, what: str) -> None:
    """Raise `BadInput` where `interface` states a scale in units of joints that is not that of its arm's limits. An arm
    that is not known here is not judged, nor are its gripper's numbers."""
    found, robot = action_scale(interface), ROBOTS.get(interface.embodiment)
    if found is None or robot is None or not found[1]:
        return
    (low, high), unit, _ = found
    if unit not in FACTORS:
        raise BadInput(f"{what}: unit of the scale of its actions", got=unit, available=FACTORS)
    n, factor = len(robot.joints), FACTORS[unit]
    stated, limits = np.array([low[:n], high[:n]]), factor * np.array([robot.lower, robot.upper])
    if stated.shape != limits.shape or not np.allclose(stated, limits, rtol=1e-3, atol=1e-3 * factor):
        got, expected = (
            ", ".join(f"{least:.4g}…{most:.4g}" for least, most in zip(*ends, strict=True)) for ends in (stated, limits)
        )
        hint = f"In {unit} it is that of the joint limits of {robot.name}: import the original once more"
        raise BadInput(f"{what}: scale of its actions", got=got, expected=expected, hint=hint)
