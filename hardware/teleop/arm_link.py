"""The link from teleoperation to the safety node: its reports, its services, and work that waits for them.

Such work is a generator: each `next` makes one step, and the thread that drives the arm never waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.safety.states import SafetyState
from robolearn.core import RobolearnError

Steps = Iterator[None]
"""Work that takes time: each step is made at one tick; `next(work, work)` is the work itself where none is left."""


class ArmRefused(RobolearnError):
    """The arm cannot be prepared; the message is the reason."""


class Call(Protocol):
    """A call of a service, made as soon as the service is there."""

    name: str

    def ready(self) -> bool:
        """True if the service is there."""
        ...

    def send(self) -> None:
        """Send the request."""

    def answer(self) -> tuple[bool, str] | None:
        """Success and message of the answer; None before the answer."""
        ...

    def cancel(self) -> None:
        """Its answer is not waited for any more."""


class Report(Protocol):
    """Last report of the safety node."""

    @property
    def state(self) -> SafetyState: ...

    @property
    def reason(self) -> str: ...

    @property
    def arming(self) -> str: ...  # the number of this arming, empty unless armed


class ArmLink(Protocol):
    """The way to the safety node."""

    def connected(self) -> bool:
        """True if its services are there and it receives the dead-man's switch."""
        ...

    def send_target(self, positions: NDArray[np.float64], stamp_ns: int) -> None:
        """One set-point per joint [rad] and the opening of each gripper [m], as `SetPoints.names` has them."""

    def send_deadman(self, held: bool) -> None:
        """A heartbeat of the dead-man's switch."""

    def observed_ns(self) -> int:
        """Stamp of the newest joint state [ns]."""
        ...

    def arm(self) -> Call: ...

    def disarm(self) -> Call: ...

    def reset(self) -> Call: ...
