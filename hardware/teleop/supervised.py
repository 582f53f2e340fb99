"""A policy that moves the arm while a person watches: the person's device takes over as long as its dead-man is on.

Whoever takes over finds the arm where it is, so that nothing jumps: the device is told at every step that something
else moved the arm, and the gripper stays as the policy left it until the person asks for something else. Whoever lets
go hands back, and the policy begins anew from there. The safety filter limits every motion, as always.

A device that goes silent is neither: while the person moves the arm, and after `ALIVE_S` in any case, the arm stops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import Device, EpisodeEvent, Sample, Status
from robolearn.core import Interface

ALIVE_S = 1.0  # a device silent for longer has nobody at it who watches
MEANT_S = 0.2  # who lets go of a device that was heard of so lately has meant it, where the device does not say


class Supervised:
    """A `Device`: `device` while its dead-man is on, else the policy of `player`.

    Args:
      device: the person's, open.
      player: plays the policy.
      interface: of the station.
      clock: that of the device's stamps [s].
    """

    def __init__(
        self, device: Device, player: ChunkPlayer, interface: Interface, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = device.name
        self._device, self._player, self._clock = device, player, clock
        names = interface.action.names
        self._gripper = names.index("gripper") if "gripper" in names else None
        self._mine = False  # the person's
        self._lost = False  # the device, while the person moved the arm
        self._grip: float | None = None  # what the policy asked of the gripper last
        self._found: float | None = None  # what the device asked of it when the person took over

    def open(self) -> None:
        """See `Device.open`."""
        self._device.open()

    def close(self) -> None:
        """See `Device.close`."""
        self._device.close()
        self._player.close()

    def show(self, status: Status) -> None:
        """See `Device.show`."""
        self._device.show(status)

    def prepared(self) -> None:
        """See `Device.prepared`: an episode begins."""
        self._device.prepared()
        self._player.begin()
        self._grip = None

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """The person's, with `intervention`, or the policy's."""
        theirs = self._device.sample(observation)
        age = self._clock() - theirs.stamp
        if any(event in (EpisodeEvent.START, EpisodeEvent.REDO) for event in theirs.events):
            self._lost = False
        if theirs.engaged:
            taken, self._mine, self._lost = not self._mine, True, False
            return replace(self._kept_grip(theirs, taken), intervention=True, note=theirs.note or "you move the arm")
        if self._mine:
            meant = age <= MEANT_S if theirs.released is None else theirs.released
            self._mine, self._lost = False, not meant
            self._player.begin()
        self._device.prepared()  # the policy moves the arm
        action = None
        if observation is not None and not self._lost:
            action = self._player.action(observation)
            if action is not None and self._gripper is not None:
                self._grip = float(action[self._gripper])
        engaged = age <= ALIVE_S and not self._lost
        note = "the policy moves the arm" if engaged else theirs.note or "nobody watches"
        return Sample(action, engaged, theirs.events, theirs.stamp, note)

    def _kept_grip(self, theirs: Sample, taken: bool) -> Sample:
        if theirs.action is None or self._gripper is None:
            return theirs
        asked = float(theirs.action[self._gripper])
        if taken:
            self._found = asked
        if self._found is None or asked != self._found or self._grip is None:
            self._found = None  # the person has asked for something else, and is obeyed from now on
            return theirs
        action = np.array(theirs.action)
        action[self._gripper] = self._grip
        return replace(theirs, action=action)
