"""A policy that moves the arm while a person watches: the person's device takes over as long as its dead-man is on.

Whoever takes over finds the arm where it is, so that nothing jumps (`take_over`): the device is told at every step that
something else moved the arm. Whoever lets go hands back, and the policy begins anew from there. What the policy
asks for is `automatic`: while a person puts the arm in its place it does not count. The safety filter limits every
motion, as always.

A device that goes silent is neither: while the person moves the arm, and after `ALIVE_S` in any case, the arm stops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from numpy.typing import NDArray

from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import Device, EpisodeEvent, Sample, Status
from hardware.teleop.take_over import TakeOver
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
        self._turns = TakeOver(interface)
        self._lost = False  # the device, while the person moved the arm
        self._held = False  # by `hold`

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
        self._turns.begin()

    def hold(self, on: bool) -> None:
        """Give the arm to the device, its dead-man on or off, or back: somebody asks for it elsewhere."""
        self._held = on

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """The person's, with `intervention`, or the policy's."""
        theirs = self._device.sample(observation)
        age = self._clock() - theirs.stamp
        if any(event in (EpisodeEvent.START, EpisodeEvent.REDO) for event in theirs.events):
            self._lost = self._held = False
        if theirs.engaged or (self._held and age <= ALIVE_S):
            self._lost = False
            note = theirs.note if theirs.engaged else "the arm waits for you"
            return replace(self._turns.hand(theirs), engaged=True, intervention=True, note=note or "you move the arm")
        if self._turns.mine:
            meant = age <= MEANT_S if theirs.released is None else theirs.released
            self._lost = not meant
            self._player.begin()
        self._device.prepared()  # the policy moves the arm
        action = None
        if observation is not None and not self._lost:
            action = self._player.action(observation)
        self._turns.policy(action)
        engaged = age <= ALIVE_S and not self._lost
        note = "the policy moves the arm" if engaged else theirs.note or "nobody watches"
        return Sample(action, engaged, theirs.events, theirs.stamp, note, automatic=True)
