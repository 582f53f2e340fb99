"""One device for each arm of a station, as one device.

The arms move together or not at all. While one device asks for nothing, as a leader that is not yet where its arm is,
every arm holds still. One that falls silent or is let go takes the dead-man's switch away from all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.device import Device, Sample, Status
from robolearn.core.errors import BadInput
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots.pair import AnyRobot


def arm_interfaces(interface: Interface, robot: AnyRobot) -> Iterator[Interface]:
    """The part of `interface` that a device for one arm needs, for each arm of `robot`."""
    from robots import make_control
    from robots.spec import proprio_spec

    for part in robot.parts:
        action = make_control(interface.action_kind, part.robot, interface.control_hz).spec
        observation = {"proprio": proprio_spec(part.robot)}
        yield replace(interface, observation=observation, action=action, embodiment=part.robot.name)


class JoinedDevices(Device):
    """A `Device` of `devices`, arm → its own, for the arms of `robot` in their order.

    An action is theirs one after the other, an event that of any, the stamp the oldest; a note names its arm.
    """

    def __init__(self, devices: Mapping[str, Device], robot: AnyRobot) -> None:
        from robots.spec import proprio_spec

        self.devices = dict(devices)
        self.name = next(iter(self.devices.values())).name
        self._ends = np.cumsum([proprio_spec(part.robot).size for part in robot.parts])[:-1]

    def open(self) -> None:
        with ExitStack() as opened:
            for arm, device in self.devices.items():
                try:
                    device.open()
                except BadInput as error:
                    raise BadInput(f"{arm}: {error}") from error
                opened.callback(device.close)
            opened.pop_all()

    def close(self) -> None:
        with ExitStack() as stack:
            for device in self.devices.values():
                stack.callback(device.close)

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        asked = zip(self.devices.items(), self._apart(observation), strict=True)
        samples = {arm: device.sample(seen) for (arm, device), seen in asked}
        each = list(samples.values())
        actions = [one.action for one in each if one.action is not None]
        released = {one.released for one in each if not one.engaged}
        return Sample(
            np.concatenate(actions) if len(actions) == len(each) else None,
            all(one.engaged for one in each),
            tuple(dict.fromkeys(event for one in each for event in one.events)),
            min(one.stamp for one in each),
            "; ".join(f"{arm}: {one.note}" for arm, one in samples.items() if one.note),
            # One that was lost counts before one that cannot tell.
            released=next((known for known in (False, None, True) if known in released), None),
        )

    def _apart(self, observation: Mapping[str, NDArray] | None) -> list[Mapping[str, NDArray] | None]:
        """The observation of each arm."""
        if observation is None:
            return [None] * len(self.devices)
        return [{"proprio": one} for one in np.split(observation["proprio"], self._ends, axis=-1)]

    def prepared(self) -> None:
        for device in self.devices.values():
            device.prepared()

    def show(self, status: Status) -> None:
        for device in self.devices.values():
            device.show(status)

    # --- see `Clutch` and `Reconnecting` -----------------------------------------------------------------------

    @property
    def moving(self) -> bool:
        """True where one is moved; an `AttributeError` where they have a dead-man, as theirs is."""
        return any([device.moving for device in self.devices.values()])  # type: ignore[attr-defined]

    @property
    def gone(self) -> str:
        """Reason of the first one's death; empty while all live."""
        dead = (f"{arm}: {device.gone}" for arm, device in self.devices.items() if device.gone)  # type: ignore[attr-defined]
        return next(dead, "")

    def reconnect(self) -> bool:
        """Open those that are gone anew; True where all are there."""
        gone = [device for device in self.devices.values() if device.gone]  # type: ignore[attr-defined]
        return all([device.reconnect() for device in gone])  # type: ignore[attr-defined]
