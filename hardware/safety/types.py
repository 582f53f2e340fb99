"""What goes into the safety filter and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import RobolearnError

Array = NDArray[np.float64]


class SafetyState(StrEnum):
    """DISARMED → ARMED → BRAKING → LATCHED (or back to DISARMED after a planned stop); `reset` leaves LATCHED."""

    DISARMED = "disarmed"
    ARMED = "armed"
    BRAKING = "braking"
    LATCHED = "latched"


class SafetyRefused(RobolearnError):
    """The filter refuses a request; the message is the reason, in words for the operator."""


@dataclass(frozen=True, eq=False)
class JointTarget:
    """Where the joints shall go.

    Attributes:
      names: the joints of `positions`; exactly the filter's, in its order.
      positions: (n,) [rad].
      gripper: opening [m], or None to leave it as it is.
    """

    names: tuple[str, ...]
    positions: Array
    gripper: float | None = None


@dataclass(frozen=True, eq=False)
class PoseTarget:
    """Where the tcp shall go, in the base frame (Cartesian impedance control).

    Attributes:
      position: (3,) [m].
      quaternion: (4,) wxyz, of unit length.
      gripper: opening [m], or None to leave it as it is.
    """

    position: Array
    quaternion: Array
    gripper: float | None = None


@dataclass(frozen=True, eq=False)
class ArmCommand:
    """One set-point for the controller.

    Attributes:
      positions: (n,) [rad].
      velocities: (n,) [rad/s].
      pose: (3,) position [m] and (4,) wxyz quaternion of the tcp at `positions`, in the base frame.
      gripper: opening [m], or None before the first target that named one.
    """

    positions: Array
    velocities: Array
    pose: tuple[Array, Array]
    gripper: float | None = None
