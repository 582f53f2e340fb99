"""What teleoperation needs of the safety node: its reports, and the way to it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.safety.types import SafetyState
from hardware.teleop.waiting import Call


class Report(Protocol):
    """What the safety node last reported."""

    @property
    def state(self) -> SafetyState: ...

    @property
    def reason(self) -> str: ...

    @property
    def arming(self) -> str:
        """Which arming this is, empty unless armed."""
        ...


class ArmLink(Protocol):
    """The way to the safety node."""

    def connected(self) -> bool:
        """Whether its services are there and it receives the dead-man's switch."""
        ...

    def send_target(self, positions: NDArray[np.float64], stamp_ns: int) -> None:
        """One set-point per joint [rad] and the gripper's opening [m]."""
        ...

    def send_deadman(self, held: bool) -> None:
        """A heartbeat of the dead-man's switch."""
        ...

    def observed_ns(self) -> int:
        """Stamp of the newest joint state [ns]."""
        ...

    def arm(self) -> Call: ...

    def disarm(self) -> Call: ...

    def reset(self) -> Call: ...
