"""Arms as `run_session` needs them: the simulated one, and a real one with the person beside it."""

from __future__ import annotations

import json
import time
from typing import Any, Protocol

from robolearn.core import RobolearnError

RESET_S = 30.0  # for the simulated arm to begin an episode: nothing moves, and the machine may be busy
SETTLE_S = 0.25  # after which every joint state on its way is one of the new episode


class Operator(Protocol):
    """The person beside a real arm."""

    def confirm_motion(self, robot: str) -> bool:
        """Whether the arm may move by itself; asked once, before the first motion."""
        ...

    def restore_scene(self) -> None:
        """Return when everything is in its place for the next episode."""
        ...

    def ended_episode(self) -> bool:
        """Whether the person ends the episode now; the arm may be moving, so this never waits."""
        ...

    def judge_success(self) -> bool:
        """Whether the episode succeeded."""
        ...


class SimulatedArm:
    """Episodes of the simulated arm, begun and judged by its node.

    Args:
      client: of the safety node; its ROS node is used.

    Attributes:
      monitor: the newest summary of the simulated arm's limit monitor.
    """

    def __init__(self, client: Any) -> None:
        from hardware.ros2 import topics

        self._client, self._reset_service = client, topics.SIM_RESET
        self._episode, self._ended = -1, {}
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

    def over(self) -> bool:
        """Whether the task's episode has ended."""
        return self._episode in self._ended

    def judge(self) -> bool:
        """Whether the task was solved; raises `RobolearnError` if the episode has not ended."""
        if not self.over():
            raise RobolearnError(f"the simulated arm has not ended episode {self._episode}: is this machine too busy?")
        return self._ended[self._episode]

    def _on_episode(self, message: dict[str, Any]) -> None:
        self._ended[message["episode"]] = bool(message["success"])


class RealArm:
    """Episodes of a real arm: the operator puts things in place, may end an episode, and judges it.

    Attributes:
      monitor: empty: nothing measures the commands at the controller of a real arm.
    """

    def __init__(self, robot: str, operator: Operator) -> None:
        self._robot, self._operator, self._confirmed = robot, operator, False
        self.monitor: dict[str, Any] = {}

    def begin(self) -> None:
        """Ask for leave to move, and later for the scene to be restored; raises `RobolearnError` without leave."""
        if self._confirmed:
            self._operator.restore_scene()
        elif not self._operator.confirm_motion(self._robot):
            raise RobolearnError("not confirmed: the arm was not armed")
        self._confirmed = True

    def over(self) -> bool:
        """Whether the operator ends the episode before its time."""
        return self._operator.ended_episode()

    def judge(self) -> bool:
        """The operator's verdict."""
        return self._operator.judge_success()
