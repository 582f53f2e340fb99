"""A second policy that brings things back between two episodes: forward and backward take turns on an arm.

    the judge calls it done, or SUCCESS   the things are back: the arm goes home, and the next episode begins by itself
    FAILURE, or the clock                 they are not: the arm goes home, and a person puts everything in its place
    a chunk that is late or refused       the same
    a stop                                the same, once START has armed the arm again

It moves the arm in the same way as the policy that is taught, through the same filter. A person who takes over is
obeyed, and letting go hands back. Nothing of it is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import EpisodeEvent, Sample
from robolearn.core import Interface

NOT_BACK = "things are not back"


class ResetJudge(Protocol):
    """Verdicts on a running reset; `robolearn.rewards.online.OnlineDone` is one."""

    @property
    def solved(self) -> bool:
        """True once the things are back."""
        ...

    def begin(self, task: str, observation: Mapping[str, NDArray]) -> None:
        """Begin with the first frame."""

    def add(self, action: NDArray, observation: Mapping[str, NDArray]) -> None:
        """The next frame, and the action that led to it; never waits."""

    def close(self) -> None:
        """End all work."""


class PolicyReset:
    """One reset after the other.

    Args:
      player: of the policy.
      interface: of the policy.
      seconds: longest reset [s].
      words: its task, for the judge.
      judge: who says that things are back, beside the person's key; or None.

    Attributes:
      going: from `begin` to the end.
      back: the last one has brought things back.
      reason: the end of the last one in words.
    """

    def __init__(
        self, player: ChunkPlayer, interface: Interface, seconds: float, words: str = "",
        judge: ResetJudge | None = None,
    ) -> None:  # fmt: skip
        self.interface, self._player = interface, player
        self._steps, self._seconds = round(seconds * interface.control_hz), seconds
        self._words, self._judge = words, judge
        self._count = 0
        self._action: NDArray | None = None  # the newest, None before the first frame
        self.going = self.back = False
        self.reason = ""

    def begin(self) -> None:
        """Begin one."""
        self._player.begin()
        self._count, self._action = 0, None
        self.going, self.back, self.reason = True, False, ""

    def end(self, back: bool, reason: str) -> None:
        """End the running one."""
        self.going, self.back, self.reason = False, back, reason

    def sample(self, observation: Mapping[str, NDArray] | None, theirs: Sample) -> Sample:
        """The sample of this control step in the place of the device's, `theirs`; may end the reset."""
        if EpisodeEvent.SUCCESS in theirs.events or (self._action is not None and self._judge and self._judge.solved):
            self.end(True, "things are back")
        elif EpisodeEvent.FAILURE in theirs.events:
            self.end(False, NOT_BACK)
        elif self._count >= self._steps:
            self.end(False, f"{NOT_BACK} after {self._seconds:g} s")
        elif self._player.stopped:
            self.end(False, f"{NOT_BACK}: {self._player.stopped}")
        if not self.going or observation is None or not theirs.engaged:
            return theirs
        self._watch(observation)
        if not theirs.automatic:
            self._player.begin()  # it begins anew where the person leaves the arm
            self._action = self._action if theirs.action is None else np.asarray(theirs.action, np.float32)
            return theirs
        self._count += 1
        ask = self._player.asked(observation)

        def later() -> NDArray[np.float32] | None:
            if (action := ask()) is not None:
                self._action = action
            return action

        return replace(theirs, action=None, automatic=False, later=later)

    def close(self) -> None:
        """End the threads of policy and judge."""
        self._player.close()
        if self._judge is not None:
            self._judge.close()

    def _watch(self, observation: Mapping[str, NDArray]) -> None:
        if self._action is None:
            self._action = np.zeros(self.interface.action.shape, np.float32)
            if self._judge is not None:
                self._judge.begin(self._words, observation)
        elif self._judge is not None:
            self._judge.add(self._action, observation)
