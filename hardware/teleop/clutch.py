"""A clutch for devices without a dead-man's switch: who moves the device takes over, who leaves it at rest hands back.

    off ──the device is moved──► on ──at rest for `REST_S`──► off

A keyboard repeats a key only after a pause, and a hand thinks between two motions: so it is a latch with hysteresis,
and not the motion of a single step. The device's own life is watched as ever: where it is gone or silent, the clutch is
off and was not released on purpose.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from numpy.typing import NDArray

from hardware.teleop.device import Device, Sample, Status

REST_S = 1.0  # longer than the pause before a key repeats


class Moved(Device, Protocol):
    """A device without a dead-man.

    Attributes:
      moving: whether the operator moved it, or asked something of the gripper, at the last sample.
    """

    moving: bool


class Clutch:
    """A `Device` that is engaged while `device` is moved, and a moment longer.

    Args:
      device: without a dead-man.
      rest_s: at rest for so long, it hands back [s].
      clock: steady seconds.
    """

    def __init__(self, device: Moved, rest_s: float = REST_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = device.name
        self._device, self._rest_s, self._clock = device, rest_s, clock
        self._moved_at = -math.inf

    def open(self) -> None:
        """See `Device.open`."""
        self._device.open()

    def close(self) -> None:
        """See `Device.close`."""
        self._device.close()

    def prepared(self) -> None:
        """See `Device.prepared`: the policy moves the arm, or another episode begins, and the clutch is off."""
        self._moved_at = -math.inf
        self._device.prepared()

    def show(self, status: Status) -> None:
        """See `Device.show`."""
        self._device.show(status)

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """See `Device.sample`; where the device lives, it was heard of now."""
        theirs, now = self._device.sample(observation), self._clock()
        if not theirs.engaged:
            self._moved_at = -math.inf
            return replace(theirs, released=False)
        if self._device.moving:
            self._moved_at = now
        engaged = now - self._moved_at < self._rest_s
        return replace(theirs, engaged=engaged, stamp=now, released=None if engaged else True)


def clutched(device: Device) -> Device:
    """`device`, with a clutch where it has no switch that the operator holds: it says so by its `moving`."""
    return Clutch(device) if hasattr(device, "moving") else device  # type: ignore[arg-type]
