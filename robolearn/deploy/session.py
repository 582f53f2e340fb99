"""Episodes on an arm: begin, arm, let the policy work, disarm, count.

The arm decides what an episode is: the simulated one puts everything in its place and judges the task, a real one
asks the person beside it. Any stop of the safety filter ends the session, on the simulated arm too: it latches, and
whoever has understood its cause re-arms. What was done before is not lost; the episode that was stopped is a failure.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from hardware.observing.silence import SafetySilent
from hardware.safety.types import SafetyState
from robolearn.core import RobolearnError

log = logging.getLogger(__name__)

POLL_S = 0.02
DYING_S = 1.0  # longest from the kill of a process to when its parent can see it, on a busy machine
SILENT_DYING_S = 0.2  # the same once the safety node was silent for a while


@dataclass(frozen=True)
class EpisodeResult:
    """One episode.

    Attributes:
      index: from 0.
      success: whether the task was solved; not where the safety filter stopped the arm.
      seconds: from arming to the end.
    """

    index: int
    success: bool
    seconds: float


class SafetyStopped(RobolearnError):
    """The safety filter stopped the arm during an episode, or refused to arm.

    Attributes:
      episode: the one that was stopped, a failure; None where none had begun.
    """

    def __init__(self, message: str, episode: EpisodeResult | None = None) -> None:
        super().__init__(message)
        self.episode = episode


class SafetySwitch(Protocol):
    """What a session needs of the safety node's client; `hardware.ros2.safety_client.SafetyClient`."""

    @property
    def state(self) -> str:
        """A `SafetyState`, or empty before anything was heard."""
        ...

    @property
    def reason(self) -> str: ...

    def check_heard(self) -> None:
        """Raise `SafetySilent` if the safety node does not report any more; called often."""
        ...

    def arm(self, timeout_s: float = ...) -> None: ...

    def disarm(self, timeout_s: float = ...) -> None: ...


class Arm(Protocol):
    """An arm with a task."""

    def begin(self) -> None:
        """Get ready for the next episode; the safety filter is disarmed."""
        ...

    def over(self) -> bool:
        """Whether the episode has ended by itself; the arm may be moving, so this never waits for a person."""
        ...

    def judge(self) -> bool:
        """Whether the episode succeeded; the arm is at rest and disarmed."""
        ...


def run_session(
    switch: SafetySwitch,
    arm: Arm,
    episodes: int,
    *,
    limit_s: float,
    alive: Callable[[], None],
) -> Iterator[EpisodeResult]:
    """Run exactly `episodes` episodes, and yield each when it is judged: whatever ends them all, those before count.

    Args:
      switch: the safety node's client.
      arm: what begins and judges episodes.
      episodes: how many.
      limit_s: longest time from arming to the end [s]; the episode is then judged as it is.
      alive: raises when a node has died.

    Raises:
      SafetyStopped: the filter refused to arm, or stopped the arm in an episode, which was yielded as a failure.
      SafetySilent: the safety node hangs.
      RobolearnError: what `alive` raises.
    """
    for index in range(episodes):
        try:
            result = _episode(index, switch, arm, limit_s, alive)
        except SafetySilent as error:
            _raise_death(alive, SILENT_DYING_S)
            log.error("%s", error)  # at once: to end a node that hangs takes seconds
            raise
        except RobolearnError as error:
            _raise_death(alive, DYING_S)  # a node that died, and not its consequence, is the cause to report
            if isinstance(error, SafetyStopped) and error.episode is not None:
                yield error.episode
            raise
        yield result


def _raise_death(alive: Callable[[], None], limit_s: float) -> None:
    """Raise what `alive` raises within `limit_s`: a process is seen to be dead only when its memory is freed."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        alive()
        time.sleep(POLL_S)
    alive()


def _episode(index: int, switch: SafetySwitch, arm: Arm, limit_s: float, alive: Callable[[], None]) -> EpisodeResult:
    alive()
    arm.begin()
    try:
        switch.arm()
    except SafetySilent:
        raise
    except RobolearnError as error:
        raise SafetyStopped(str(error)) from error
    begun = time.monotonic()
    over = False
    while not over and time.monotonic() - begun < limit_s:
        time.sleep(POLL_S)
        alive()
        switch.check_heard()
        over = arm.over()
        if not over and switch.state in (SafetyState.BRAKING, SafetyState.LATCHED):
            failure = EpisodeResult(index, False, time.monotonic() - begun)
            raise SafetyStopped(f"episode {index + 1}: the safety filter stopped the arm: {switch.reason}", failure)
    seconds = time.monotonic() - begun
    switch.disarm()
    return EpisodeResult(index, arm.judge(), seconds)
