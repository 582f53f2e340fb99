"""A device whose recording is shown on a page too, for those that have none: keyboard, gamepad, leader arm …"""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import NDArray

from hardware.teleop.browser.viewer import Viewer
from hardware.teleop.device import Device, Sample, Status


class Viewed:
    """A `Device`: `device`, with everything that it shows on the page of `viewer` as well.

    Args:
      device: the operator's, open.
      viewer: its page, open; closed with the device.
    """

    def __init__(self, device: Device, viewer: Viewer) -> None:
        self.name = device.name
        self._device, self._viewer = device, viewer

    def open(self) -> None:
        """See `Device.open`."""
        self._device.open()

    def close(self) -> None:
        """See `Device.close`; the page says that the recording is over."""
        try:
            self._device.close()
        finally:
            self._viewer.close()

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """See `Device.sample`."""
        return self._device.sample(observation)

    def prepared(self) -> None:
        """See `Device.prepared`."""
        self._device.prepared()

    def show(self, status: Status) -> None:
        """See `Device.show`; the page draws in a thread of its own."""
        self._viewer.show(status)
        self._device.show(status)
