"""A policy that moves the arm while a person watches: the person's device takes over as long as its dead-man is on.

Taking over finds the arm where it is, so that nothing jumps (`TakeOver`): a stick that is held askew, or a key that is
down already, must not become a motion. The first action of the person is none, whatever the device says, and the
gripper stays as the policy left it until the person commands something else. Letting go hands back, and the policy
begins anew from there. The policy's actions are `automatic`: while a person puts the arm in its place they do not
count, and it is not asked. The safety filter limits every motion, as always.

A device that goes silent is neither: while the person moves the arm, and after `ALIVE_S` in any case, the arm stops. So
it does where a chunk of the policy is late or refused, as in a deployment, until START.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import Device, EpisodeEvent, Sample
from hardware.teleop.wrapped import Wrapped
from robolearn.core import Interface
from robots.chunk_execution import ActionParts


class TakeOver:
    """Turns of person and policy, and the part of the device's actions that counts.

    Args:
      interface: whose action it is.

    Attributes:
      mine: the person's turn.
    """

    def __init__(self, interface: Interface) -> None:
        self._grippers = ActionParts.of(interface).opening
        self._relative = interface.action_kind == "tcp_delta"
        self._grip: NDArray[np.float32] | None = None  # what the policy asked of the grippers last
        # What the device asked of them when the person took over; NaN: something else since.
        self._found: NDArray[np.float32] | None = None
        self.mine = False

    def begin(self) -> None:
        """An episode begins."""
        self._grip, self.mine = None, False

    def policy(self, action: NDArray[np.float32] | None) -> None:
        """The policy moves the arm, by this (Da,) action or by none."""
        self.mine = False
        if action is not None:
            self._grip = np.array(action[self._grippers], np.float32)

    def hand(self, theirs: Sample) -> Sample:
        """The person's sample as it is to be executed; `action` is None where the arm is to hold still."""
        taken, self.mine = not self.mine, True
        kept = self._kept_grip(theirs, taken)
        if not taken or kept.action is None:
            return kept
        if not self._relative:
            return replace(kept, action=None)
        return replace(kept, action=np.where(self._grippers, kept.action, np.float32(0.0)))

    def _kept_grip(self, theirs: Sample, taken: bool) -> Sample:
        if theirs.action is None:
            return theirs
        asked = theirs.action[self._grippers]
        if taken:
            self._found = np.array(asked)
        if self._found is None or self._grip is None:
            self._found = None
            return theirs
        # Where the person has asked for something else, that is obeyed from now on.
        self._found = np.where(asked == self._found, self._found, np.float32(np.nan))
        action = np.array(theirs.action)
        action[self._grippers] = np.where(np.isnan(self._found), asked, self._grip)
        return replace(theirs, action=action)


ALIVE_S = 1.0  # a device silent for longer has no operator who watches
MEANT_S = 0.2  # who lets go of a device that was heard of so lately has meant it, where the device does not say


class Supervised(Wrapped):
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
        super().__init__(device)
        self._player, self._clock = player, clock
        self._turns = TakeOver(interface)
        self._lost = False  # the device, while the person moved the arm
        self._held = False  # by `hold`

    def close(self) -> None:
        self._device.close()
        self._player.close()

    def prepared(self) -> None:
        self._device.prepared()
        self._player.begin()
        self._turns.begin()

    def hold(self, on: bool) -> None:
        """Give the arm to the device, its dead-man on or off, or back, as requested from elsewhere."""
        self._held = on

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """The person's, with `intervention`, or the policy's."""
        theirs = self._device.sample(observation)
        age = self._clock() - theirs.stamp
        if any(event in (EpisodeEvent.START, EpisodeEvent.REDO) for event in theirs.events):
            self._lost = self._held = False
            self._player.begin()
        if theirs.engaged or (self._held and age <= ALIVE_S):
            self._lost = False
            note = theirs.note if theirs.engaged else "the arm waits for you"
            return replace(self._turns.hand(theirs), engaged=True, intervention=True, note=note or "you move the arm")
        if self._turns.mine:
            meant = age <= MEANT_S if theirs.released is None else theirs.released
            self._lost = not meant
            self._player.begin()
        self._device.prepared()  # the policy moves the arm
        self._turns.policy(None)
        stopped, later = self._player.stopped, None
        if observation is not None and not self._lost and not stopped:
            later = self._played(observation)
        engaged = age <= ALIVE_S and not self._lost and not stopped
        note = "the policy moves the arm" if engaged else stopped or theirs.note or "no operator watches"
        return Sample(None, engaged, theirs.events, theirs.stamp, note, automatic=True, stopped=stopped, later=later)

    def _played(self, observation: Mapping[str, NDArray]) -> Callable[[], NDArray[np.float32] | None]:
        """`Sample.later` of this control step."""
        ask = self._player.asked(observation)

        def later() -> NDArray[np.float32] | None:
            action = ask()
            self._turns.policy(action)
            return action

        return later
