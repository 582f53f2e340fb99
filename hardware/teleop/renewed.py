"""A device that comes back: unplugged, or silent for too long, it is opened anew while START is waited for.

Never at another time: the arm must not move again because a cable found its socket. The person at the device sees that
it is back, and presses START. Pressed before, it begins nothing: an episode without its device would end at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from numpy.typing import NDArray

from hardware.teleop.device import WAITING, Device, EpisodeEvent, Sample, Status
from robolearn.core.errors import BadInput

log = logging.getLogger(__name__)

LOOK_S = 1.0  # between two looks; the safety filter has long stopped an arm whose device is gone


class Hardware(Protocol):
    """What can be unplugged.

    Attributes:
      gone: what it died of; empty while it lives.
    """

    @property
    def gone(self) -> str: ...

    def renew(self) -> bool:
        """Look for the hardware, and open it anew; whether it is there. The terminal stays open."""
        ...


class Renewed:
    """A `Device`: `device`, whose `hardware` is opened anew.

    Args:
      device: open; `hardware` itself, or what wraps it.
      clock: steady seconds.
    """

    def __init__(self, device: Device, hardware: Hardware, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = device.name
        self._device, self._hardware, self._clock = device, hardware, clock
        self._waits = False
        self._looked: float | None = None  # None: it lives

    @property
    def gone(self) -> str:
        """What the device died of; empty while it lives."""
        return self._hardware.gone

    def open(self) -> None:
        """See `Device.open`."""
        self._device.open()

    def close(self) -> None:
        """See `Device.close`."""
        self._device.close()

    def prepared(self) -> None:
        """See `Device.prepared`."""
        self._device.prepared()

    def show(self, status: Status) -> None:
        """See `Device.show`."""
        self._waits = status.state == WAITING
        self._device.show(status)

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """See `Device.sample`."""
        now = self._clock()
        if not self._hardware.gone:
            self._looked = None
        elif self._looked is None:
            self._looked = now
        elif self._waits and now - self._looked >= LOOK_S:
            self._hardware.renew()
            self._looked = self._clock()
        sample = self._device.sample(observation)
        if not self._waits or not self._hardware.gone:
            return sample
        events = tuple(event for event in sample.events if event is not EpisodeEvent.START)
        return replace(sample, events=events, note=f"{sample.note or self._hardware.gone}; START when it is back")


def reopened(connect: Callable[[], None]) -> bool:
    """Whether the hardware is there: `connect` opens it, or raises `BadInput`."""
    try:
        connect()
    except BadInput as error:
        log.debug("%s", error)
        return False
    return True


def renewed(device: Device, hardware: object) -> Device:
    """`device`, opened anew where its `hardware` can be: it says so by its `renew`."""
    return Renewed(device, hardware) if hasattr(hardware, "renew") else device  # type: ignore[arg-type]
