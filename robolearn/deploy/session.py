"""Episodes on an arm: begin, arm, let the policy work, disarm, count.

The arm decides what an episode is: the simulated one puts everything in its place and judges the task, a real one
asks the person beside it. Any stop of the safety filter ends the session, on the simulated arm too: it latches, and
an operator who has understood its cause re-arms. Earlier episodes count; the one that was stopped is a failure.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from hardware.observing.timing import SafetySilent
from hardware.recording.rollouts import FAILURE, STOPPED, SUCCESS, TIMEOUT
from hardware.safety.states import SafetyState
from robolearn.core import RobolearnError

RESET_S = 30.0  # for the simulated arm to begin an episode: nothing moves, and the machine may be busy
SETTLE_S = 0.25  # after which every joint state on its way is one of the new episode


class ArmOperator(Protocol):
    """The person beside a real arm."""

    def confirm_motion(self, robot: str) -> bool:
        """True where the arm may move by itself; asked once, before the first motion."""
        ...

    def restore_scene(self) -> None:
        """Return when everything is in its place for the next episode."""
        ...

    def ended_episode(self) -> bool:
        """True where the person ends the episode now; the arm may be moving, so this never waits."""
        ...

    def confirm_success(self) -> bool:
        """True where the episode succeeded."""
        ...


def no_homing() -> None:
    """A person brings the arm to where an episode begins."""


class SimulatedArm:
    """Episodes of the simulated arm, begun and judged by its node; `client` is the safety node's, whose ROS node is
    used. `home` brings the arm to its home posture before each. `monitor` is the newest summary of the simulated arm's
    limit monitor."""

    def __init__(self, client: Any, home: Callable[[], None] = no_homing) -> None:
        from hardware.ros2 import topics

        self._client, self._reset_service, self._home = client, topics.SIM_RESET, home
        self._episode, self._ended = -1, dict[int, dict[str, Any]]()
        self.monitor: dict[str, Any] = {}
        client.subscribe_json(topics.SIM_EPISODE, self._on_episode, depth=10)
        client.subscribe_json(topics.SIM_MONITOR, lambda summary: setattr(self, "monitor", summary))

    def begin(self) -> None:
        """Reset the simulation; raises `RobolearnError` if its node refuses."""
        done, message = self._client.call(self._reset_service, RESET_S)
        if not done:
            raise RobolearnError(f"the simulated arm does not begin an episode: {message}")
        self._episode = json.loads(message)["episode"]
        # No other arm is elsewhere all of a sudden: armed on joint states from before, the filter would start there.
        time.sleep(SETTLE_S)
        self._home()

    def over(self) -> bool:
        """True where the task's episode has ended."""
        return self._episode in self._ended

    def judge(self) -> bool:
        """True where the task was solved; raises `RobolearnError` if the episode has not ended."""
        if not self.over():
            raise RobolearnError(f"the simulated arm has not ended episode {self._episode}: is this machine too busy?")
        return bool(self._ended[self._episode]["success"])

    def truncated(self) -> bool:
        """True where the clock of the simulation ended the episode."""
        return bool(self._ended.get(self._episode, {}).get("truncated"))

    def _on_episode(self, message: dict[str, Any]) -> None:
        self._ended[message["episode"]] = message


class RealArm:
    """Episodes of a real arm: the operator puts things in place, may end an episode, and judges it. `home` brings the
    arm to its home posture before each, and before things are put in place. `monitor` is empty: nothing measures the
    commands at the controller of a real arm."""

    def __init__(self, robot: str, operator: ArmOperator, home: Callable[[], None] = no_homing) -> None:
        self._robot, self._operator, self._home, self._confirmed = robot, operator, home, False
        self.monitor: dict[str, Any] = {}

    def begin(self) -> None:
        """Ask for leave to move, and later for the scene to be restored; raises `RobolearnError` without leave."""
        again = self._confirmed
        if not again and not self._operator.confirm_motion(self._robot):
            raise RobolearnError("not confirmed: the arm was not armed")
        self._confirmed = True
        self._home()
        if again:
            self._operator.restore_scene()

    def over(self) -> bool:
        """True where the operator ends the episode before its time."""
        return self._operator.ended_episode()

    def judge(self) -> bool:
        """The operator's verdict."""
        return self._operator.confirm_success()

    def truncated(self) -> bool:
        """False: no clock but that of the session ends an episode."""
        return False


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
      timed_out: a clock ended it, the session's or the simulation's.
      stopped: the safety filter ended it.
    """

    index: int
    success: bool
    seconds: float
    timed_out: bool = False
    stopped: bool = False

    @property
    def outcome(self) -> str:
        """One of `hardware.recording.rollouts.OUTCOMES`."""
        return SUCCESS if self.success else STOPPED if self.stopped else TIMEOUT if self.timed_out else FAILURE


class SafetyStopped(RobolearnError):
    """The safety filter stopped the arm during `episode`, a failure, or refused to arm: then that is None."""

    def __init__(self, message: str, episode: EpisodeResult | None = None) -> None:
        super().__init__(message)
        self.episode = episode


class SafetySwitch(Protocol):
    """The safety node's client; `hardware.ros2.safety_client.SafetyClient` is one, and describes the methods."""

    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...
    def check_heard(self) -> None: ...
    def arm(self, timeout_s: float = ...) -> None: ...
    def disarm(self, timeout_s: float = ...) -> None: ...
    def reset(self, timeout_s: float = ...) -> None: ...
    def estop(self, timeout_s: float = ...) -> None: ...
    def release(self) -> None: ...


HOMING_S = 90.0  # at most; the way is slow


def go_home(client: Any, alive: Callable[[], None]) -> None:
    """Let the streamer bring the arm to its home posture, through the safety filter; `client` is the safety node's.

    Raises:
      SafetyStopped: the filter refused to arm, or stopped the arm.
      RobolearnError: the filter would not let the way pass, which begins where the arm is; or a node has died.
    """
    from hardware.ros2 import topics

    done, message = client.call(topics.GO_HOME, RESET_S)
    if not done:
        raise RobolearnError(message)
    try:
        client.arm()
    except SafetySilent:
        raise
    except RobolearnError as error:
        raise SafetyStopped(f"not home: {error}") from error
    end = time.monotonic() + HOMING_S
    while client.streamer.get("homing") != [int(message), "done"]:
        alive()
        client.check_heard()
        if client.state in (SafetyState.BRAKING, SafetyState.LATCHED) or time.monotonic() > end:
            reason = client.reason or f"not there after {HOMING_S:g} s"
            raise SafetyStopped(f"on the way home the safety filter stopped the arm: {reason}")
        time.sleep(POLL_S)
    client.disarm()


class Arm(Protocol):
    """An arm with a task."""

    def begin(self) -> None:
        """Get ready for the next episode; the safety filter is disarmed."""
        ...

    def over(self) -> bool:
        """True where the episode has ended by itself; the arm may be moving, so this never waits for a person."""
        ...

    def judge(self) -> bool:
        """True where the episode succeeded; the arm is at rest and disarmed."""
        ...

    def truncated(self) -> bool:
        """True where the arm's own clock ended the episode."""
        ...


def run_session(
    switch: SafetySwitch,
    arm: Arm,
    episodes: int,
    *,
    limit_s: float,
    alive: Callable[[], None],
    begins: Callable[[], object] = lambda: None,
) -> Iterator[EpisodeResult]:
    """Run exactly `episodes` episodes, and yield each when it is judged: whatever ends them all, those before count.

    Args:
      switch, arm: the safety node's client, and what begins and judges episodes.
      limit_s: longest time from arming to the end [s]; the episode is then judged as it is.
      alive: raises when a node has died.
      begins: called before the arm is armed for an episode.

    Raises:
      SafetyStopped: the filter refused to arm, or stopped the arm in an episode, which was yielded as a failure.
      SafetySilent: the safety node hangs.
    """
    for index in range(episodes):
        try:
            result = _episode(index, switch, arm, limit_s, alive, begins)
        except SafetySilent as error:
            raise_death(alive, SILENT_DYING_S)
            log.error("%s", error)  # at once: to end a node that hangs takes seconds
            raise
        except RobolearnError as error:
            raise_death(alive, DYING_S)  # a node that died, and not its consequence, is the cause to report
            if isinstance(error, SafetyStopped) and error.episode is not None:
                yield error.episode
            raise
        yield result


def raise_death(alive: Callable[[], None], limit_s: float) -> None:
    """Raise what `alive` raises within `limit_s`: a process is seen to be dead only when its memory is freed."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        alive()
        time.sleep(POLL_S)
    alive()


def _episode(
    index: int, switch: SafetySwitch, arm: Arm, limit_s: float, alive: Callable[[], None], begins: Callable[[], object]
) -> EpisodeResult:
    alive()
    arm.begin()
    begins()
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
            failure = EpisodeResult(index, False, time.monotonic() - begun, stopped=True)
            raise SafetyStopped(f"episode {index + 1}: the safety filter stopped the arm: {switch.reason}", failure)
    seconds = time.monotonic() - begun
    switch.disarm()
    return EpisodeResult(index, arm.judge(), seconds, not over or arm.truncated())
