"""Devices around a device: a clutch, reconnection, a page.

`Clutch` is for devices without a dead-man's switch: moving the device takes over, leaving it at rest hands back.

    off ──the device is moved──► on ──at rest for `REST_S`──► off

A keyboard repeats a key only after a pause, and a hand thinks between two motions: so it is a latch with hysteresis,
and not the motion of a single step. Where the device is gone or silent, the clutch is off and was not released on
purpose.

`Reconnecting` opens a device that was unplugged anew, and only while START is waited for: the arm must not move again
because a cable found its socket. Pressed before, START begins nothing: an episode without its device would end at once.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hardware.teleop.device import WAITING, Clock, Device, EpisodeEvent, Sample, Status
from robolearn.core.errors import BadInput

if TYPE_CHECKING:
    from hardware.teleop.browser.viewer import Viewer

log = logging.getLogger(__name__)

REST_S = 1.0  # longer than the pause before a key repeats
LOOK_S = 1.0  # between two looks; the safety filter has long stopped an arm whose device is gone


class Wrapped(Device):
    """A `Device` that passes everything on to `device`."""

    def __init__(self, device: Device) -> None:
        self.name, self._device = device.name, device

    def open(self) -> None:
        self._device.open()

    def close(self) -> None:
        self._device.close()

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        return self._device.sample(observation)

    def prepared(self) -> None:
        self._device.prepared()

    def show(self, status: Status) -> None:
        self._device.show(status)


class Clutch(Wrapped):
    """A `Device` that is engaged while `device` is moved, and a moment longer.

    Args:
      device: without a dead-man; its `moving`: the operator moved it, or commanded the gripper, at the last sample.
      rest_s: at rest for so long, it hands back [s].
    """

    def __init__(self, device: Device, rest_s: float = REST_S, clock: Clock = time.monotonic) -> None:
        super().__init__(device)
        self._rest_s, self._clock = rest_s, clock
        self._moved_at = -math.inf

    def prepared(self) -> None:
        """See `Device.prepared`: the policy moves the arm, or another episode begins, and the clutch is off."""
        self._moved_at = -math.inf
        super().prepared()

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """See `Device.sample`; where the device lives, it was heard of now."""
        theirs, now = super().sample(observation), self._clock()
        if not theirs.engaged:
            self._moved_at = -math.inf
            return replace(theirs, released=False)
        if self._device.moving:  # type: ignore[attr-defined]
            self._moved_at = now
        engaged = now - self._moved_at < self._rest_s
        return replace(theirs, engaged=engaged, stamp=now, released=None if engaged else True)


def clutched(device: Device) -> Device:
    """`device`, with a clutch where it has no switch that the operator holds, as its `moving` says."""
    return Clutch(device) if hasattr(device, "moving") else device


class Reconnecting(Wrapped):
    """A `Device`: `device`, whose `hardware` is opened anew.

    Args:
      device: open; `hardware` itself, or what wraps it.
      hardware: its `gone` is the reason of its death, empty while it lives; its `reconnect` looks for it and opens it
        anew, True where it is there. The terminal stays open.
    """

    def __init__(self, device: Device, hardware: Any, clock: Clock = time.monotonic) -> None:
        super().__init__(device)
        self._hardware, self._clock = hardware, clock
        self._waits = False
        self._looked: float | None = None  # None: it lives

    @property
    def gone(self) -> str:
        """Reason of the device's death; empty while it lives."""
        return self._hardware.gone

    def show(self, status: Status) -> None:
        self._waits = status.state == WAITING
        super().show(status)

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        now = self._clock()
        if not self._hardware.gone:
            self._looked = None
        elif self._looked is None:
            self._looked = now
        elif self._waits and now - self._looked >= LOOK_S:
            self._hardware.reconnect()
            self._looked = self._clock()
        sample = super().sample(observation)
        if not self._waits or not self._hardware.gone:
            return sample
        events = tuple(event for event in sample.events if event is not EpisodeEvent.START)
        return replace(sample, events=events, note=f"{sample.note or self._hardware.gone}; press Start when it is back")


def reopened(device: Any) -> bool:
    """The `reconnect` of a `device` that can `_disconnect`, and `_connect` or raise `BadInput`."""
    device._disconnect()
    try:
        device._connect()
    except BadInput as error:
        log.debug("%s", error)
        return False
    return True


def reconnecting(device: Device, hardware: object) -> Device:
    """`device`, opened anew where its `hardware` has a `reconnect`."""
    return Reconnecting(device, hardware) if hasattr(hardware, "reconnect") else device


class Viewed(Wrapped):
    """A `Device`: the operator's, open, with all that it shows on the page of `viewer` too, closed with it."""

    def __init__(self, device: Device, viewer: Viewer) -> None:
        super().__init__(device)
        self._viewer = viewer

    def close(self) -> None:
        """See `Device.close`; the page says that the recording is over."""
        try:
            super().close()
        finally:
            self._viewer.close()

    def show(self, status: Status) -> None:
        """See `Device.show`; the page draws in a thread of its own."""
        self._viewer.show(status)
        super().show(status)
