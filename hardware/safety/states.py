"""States of the safety filter and the ways between them, its targets and its commands.

    DISARMED ──arm──► ARMED ──disarm──► BRAKING ──at rest──► DISARMED     a planned stop
                        └────fault────► BRAKING ──at rest──► LATCHED ──reset──► DISARMED

A fault while a planned stop is braking makes it one that latches. The first fault's reason is kept: what follows is
mostly its consequence. An emergency stop that comes later is reported beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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


AT_REST = (SafetyState.DISARMED, SafetyState.LATCHED)
"""The states in which an arm stands, and nothing is sent to it."""


class SafetyRefused(RobolearnError):
    """The filter refuses a request; the message is the reason, in words for the operator."""


@dataclass(frozen=True, eq=False)
class JointTarget:
    """Target of the joints.

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
    """Target of the tcp, in the base frame (Cartesian impedance control).

    Attributes:
      position: (3,) [m].
      quaternion: (4,) wxyz, of unit length.
      gripper: opening [m], or None to leave it as it is.
    """

    position: Array
    quaternion: Array
    gripper: float | None = None


@dataclass(frozen=True, eq=False)
class PairTarget:
    """Targets of two arms, which count together: `arms` has that of the left one and that of the right one."""

    arms: tuple[JointTarget | PoseTarget, ...]


Target = JointTarget | PoseTarget | PairTarget


def joint_target(
    slices: Sequence[slice], names: tuple[str, ...], positions: Array, openings: Sequence[float | None] = ()
) -> Target:
    """The target of one arm or of two whose joints are at `slices` of `names` and `positions` (n,) [rad]; `openings` of
    the grippers [m]. What is too much is left to the last arm, whose filter refuses it."""
    starts = [at.start for at in slices]
    each = [
        JointTarget(names[begin:end], positions[begin:end], opening)
        for begin, end, opening in zip(starts, [*starts[1:], None], openings or [None] * len(starts), strict=True)
    ]
    return each[0] if len(each) == 1 else PairTarget(tuple(each))


@dataclass(frozen=True, eq=False)
class ArmCommand:
    """One set-point for the controller, or for those of two arms.

    Attributes:
      positions: (n,) [rad].
      velocities: (n,) [rad/s].
      pose: (3,) position [m] and (4,) wxyz quaternion of the tcp at `positions`, in the base frame; of two arms (2, 3)
        and (2, 4).
      gripper: opening [m], or None before the first target that named one; of two arms that of each in `arms`.
      arms: of two arms the set-point of each; else empty.
    """

    positions: Array
    velocities: Array
    pose: tuple[Array, Array]
    gripper: float | None = None
    arms: tuple[ArmCommand, ...] = ()


log = logging.getLogger(__name__)

_THEN = "; then "


class StateMachine:
    """The state of the safety filter, and its reason.

    Attributes:
      state: the current one.
      reason: why, in words for the operator; empty when nothing happened that needs any.
    """

    def __init__(self) -> None:
        self.state = SafetyState.DISARMED
        self.reason = ""
        self._after = SafetyState.LATCHED  # where BRAKING leads

    def arm(self) -> None:
        """DISARMED → ARMED. Raises `SafetyRefused`: LATCHED or BRAKING."""
        if self.state is SafetyState.LATCHED:
            raise SafetyRefused(f"latched ({self.reason}): reset first, then arm")
        if self.state is SafetyState.BRAKING:
            raise SafetyRefused(f"still braking ({self.reason}): arm again when the arm is at rest")
        self._go(SafetyState.ARMED, "")

    def disarm(self) -> None:
        """ARMED → BRAKING → DISARMED; nothing to do in the other states."""
        if self.state is SafetyState.ARMED:
            self._after = SafetyState.DISARMED
            self._go(SafetyState.BRAKING, "disarmed by the operator")

    def fault(self, reason: str) -> None:
        """Brake, then latch: from ARMED, and from a planned stop."""
        planned = self.state is SafetyState.BRAKING and self._after is SafetyState.DISARMED
        if self.state is SafetyState.ARMED or planned:
            self._after = SafetyState.LATCHED
            self._go(SafetyState.BRAKING, reason)

    def latch(self, reason: str) -> None:
        """LATCHED at once, from any state."""
        if self.state is not SafetyState.LATCHED:
            self._go(SafetyState.LATCHED, self.reason if self.faulted else reason)

    def add(self, reason: str) -> None:
        """Add the newest reason of a stop that latches beside the first: what a person asks for is no consequence."""
        first = self.reason.split(_THEN)[0]
        if reason not in self.reason:
            self._go(self.state, f"{first}{_THEN}{reason}")

    @property
    def faulted(self) -> bool:
        """LATCHED, or braking to there."""
        braking = self.state is SafetyState.BRAKING and self._after is SafetyState.LATCHED
        return braking or self.state is SafetyState.LATCHED

    def stopped(self) -> None:
        """BRAKING has come to rest."""
        if self.state is SafetyState.BRAKING:
            self._go(self._after, self.reason)

    def reset(self) -> None:
        """LATCHED → DISARMED; nothing to do in DISARMED. Raises `SafetyRefused`: ARMED or BRAKING."""
        if self.state is SafetyState.ARMED:
            raise SafetyRefused("armed: there is nothing to reset; disarm to stop")
        if self.state is SafetyState.BRAKING:
            raise SafetyRefused(f"still braking ({self.reason}): reset when the arm is at rest")
        if self.state is SafetyState.LATCHED:
            self._go(SafetyState.DISARMED, "")

    def _go(self, state: SafetyState, reason: str) -> None:
        level = logging.INFO if state in (SafetyState.ARMED, SafetyState.DISARMED) else logging.WARNING
        log.log(level, "%s → %s%s", self.state.value, state.value, f": {reason}" if reason else "")
        self.state, self.reason = state, reason
