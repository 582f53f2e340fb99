"""Joint positions of other systems → [-1, 1] over the limits of the arm's joints, as of `robots.control.JointPosition`.

With the limits lower, upper [rad] of each joint and u = 180/π in degrees, 1 in radians,

    low = u · lower      high = u · upper      a = 2 (x − low) / (high − low) − 1

and for the gripper low = closed, high = open: 0 and 100 in percent, 0 and 1 as a share, 0 and the greatest opening in
metres, the ends of its range where it is the jaw's own angle (taken as linear in the opening, as in `robots.arms`).

LeRobot's calibration puts zero into the middle of each range, as the models here do. Its −100 … 100 spans what each
motor was moved through when it was calibrated, which no data set states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robots import ROBOTS
from robots.spec import RobotSpec

UNITS = ("degrees", "radians", "normalised")
TOLERANCE = 1e-6  # as in the checks of a writer
BEYOND = 0.1  # of a range: a leader arm reaches a little further than its follower, another unit or zero much further


@dataclass(frozen=True)
class Scale:
    """Ends of a range that −1 and 1 stand for.

    Attributes:
      low, high: (Da,) in the units of a file.
      unit, gripper: these units where low and high are the limits of the arm, otherwise nothing.
      notes: what the user should know, a sentence each.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    unit: str = ""
    gripper: str = ""
    notes: list[str] = field(default_factory=list)

    def apply(self, action: NDArray) -> NDArray[np.float32]:
        """(…, Da) in the system's units → [-1, 1]."""
        span = self.high - self.low
        x = np.asarray(action, np.float64) - self.low
        a = 2.0 * x / np.where(span > 0, span, 1.0) - 1.0
        return np.clip(np.where(span > 0, a, 0.0), -1.0, 1.0).astype(np.float32)

    def invert(self, action: NDArray) -> NDArray[np.float32]:
        """(…, Da) in [-1, 1] → the system's units."""
        x = self.low + 0.5 * (np.asarray(action, np.float64) + 1.0) * (self.high - self.low)
        return x.astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """The entry of an interface."""
        units = {"unit": self.unit, "gripper": self.gripper} if self.unit else {}
        return {"low": self.low.tolist(), "high": self.high.tolist(), **units}


def joint_scale(interface: Interface, unit: str, gripper: str, low: NDArray, high: NDArray) -> Scale | None:
    """The scale of joint positions in `unit`, which span `low` to `high` (Da,); None where they are in [-1, 1] already.
    Raises `BadInput`: no unit, an arm without known limits, other joints, a gripper of unknown unit, or numbers that
    are not in these units."""
    spans = f"{low.min():.4g} … {high.max():.4g}"
    if unit not in UNITS:
        hint = "normalised: [-1, 1] over the limits of the joints, and from closed to open"
        raise BadInput(
            f"--unit of joint positions, which span {spans}", got=unit or "nothing", available=UNITS, hint=hint
        )
    if unit == "normalised":
        if low.min() < -1 - TOLERANCE or high.max() > 1 + TOLERANCE:
            hint = "LeRobot's −100 … 100 is by each motor's calibration, which no set states: record with use_degrees"
            raise BadInput(f"joint positions, {unit}", got=spans, expected="[-1, 1]", available=UNITS, hint=hint)
        return None
    robot = ROBOTS.get(interface.embodiment)
    if robot is None:
        hint = "Say --embodiment: its limits are what [-1, 1] spans"
        raise BadInput("joint positions: arm", got=interface.embodiment, available=ROBOTS, hint=hint)
    _check_order(interface.action.names, robot, interface.action.size)
    gripper = gripper or ("percent" if interface.action.names[-1:] == ("gripper.pos",) else "")  # LeRobot's, always
    closed, opened = _gripper(gripper, unit, robot, f"{low[-1]:.4g} … {high[-1]:.4g}")
    factor = 180 / math.pi if unit == "degrees" else 1.0
    scale = Scale(np.append(factor * robot.lower, closed), np.append(factor * robot.upper, opened), unit, gripper)
    names = (*robot.joints, "gripper")
    if unit == "degrees" and np.abs([low[:-1], high[:-1]]).max() <= math.pi:
        raise BadInput("joint positions in degrees", got=f"{spans}, which are radians", expected="--unit radians")
    if gripper == "percent" and 0 < high[-1] <= 1 + TOLERANCE:
        raise BadInput("gripper in percent", got=f"{low[-1]:.4g} … {high[-1]:.4g}", expected="--gripper-unit share")
    scale.notes.append(
        f"the actions are joint positions in {unit}, the gripper in {gripper}: [-1, 1] spans the limits of {robot.name}"
    )
    for i, name in enumerate(names):
        least, most, range_ = scale.low[i], scale.high[i], scale.high[i] - scale.low[i]
        if low[i] < least - BEYOND * range_ or high[i] > most + BEYOND * range_:
            got, expected = (
                f"{low[i]:.4g} … {high[i]:.4g}",
                f"{least:.4g} … {most:.4g} {gripper if name == names[-1] else unit}",
            )
            hint = "Another unit, another zero or another arm"
            raise BadInput(f"joint positions: {name}", got=got, expected=expected, hint=hint)
        if low[i] < least - TOLERANCE * range_ or high[i] > most + TOLERANCE * range_:
            scale.notes.append(
                f"{name} spans {low[i]:.4g} … {high[i]:.4g}; actions beyond its limits {least:.4g} … {most:.4g} are cut"
            )
    return scale


def _check_order(given: Sequence[str], robot: RobotSpec, size: int) -> None:
    """Raise `BadInput` unless `given` may be the joints of `robot` in order, and its gripper; names are optional."""
    joints = (*robot.joints, "gripper")
    if size != len(joints):
        raise BadInput(f"joint positions of {robot.name}", got=f"{size} numbers", expected=", ".join(joints))
    plain = [name.removesuffix(".pos").removeprefix("main_") for name in given]
    if set(plain) & set(joints) and plain != list(joints):
        raise BadInput(f"joint positions of {robot.name}", got=", ".join(given), expected=", ".join(joints))


def _gripper(gripper: str, unit: str, robot: RobotSpec, spans: str) -> tuple[float, float]:
    """(closed, open) in the unit `gripper`, where the joints are in `unit`."""
    ends = {"percent": (0.0, 100.0), "share": (0.0, 1.0), "metres": (0.0, robot.gripper.max_width)}
    if robot.gripper.jaw_range is not None:
        factor = 180 / math.pi if unit == "degrees" else 1.0
        ends["jaw"] = (factor * robot.gripper.jaw_range[0], factor * robot.gripper.jaw_range[1])
    if gripper not in ends:
        hint = "percent and share: open is 100, or 1; jaw: its own angle, in the unit of the joints"
        raise BadInput(f"--gripper-unit of {spans}", got=gripper or "nothing", available=ends, hint=hint)
    return ends[gripper]
