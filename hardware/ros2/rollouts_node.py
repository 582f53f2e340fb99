"""The recorder beside a policy as a node: `hardware.recording.rollouts` behind its topics.

It only listens, as a process of its own of half the priority of those that drive the arm: none of them waits for it.
`robolearn deploy` says when an episode begins and how it ended; beside a policy node that ends by itself every arming
is one, with that node's outcome.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from numpy.typing import NDArray
from rclpy.subscription import MessageInfo
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from hardware.observing.observer import Observer
from hardware.recording.rollouts import OUTCOMES, RolloutRecording
from hardware.recording.session import StorageThread, Writer
from hardware.ros2 import messages, qos, topics
from hardware.ros2.observation_inputs import ObservationInputs
from hardware.ros2.runtime import Node, step_back
from robolearn.core import RobolearnError
from robots.stations import AnyContract

log = logging.getLogger(__name__)

BEAT_S = 0.005  # at least, between two looks; in between, commands wait
READY = "ready to record"  # logged once everything that can fail was tried


@dataclass(frozen=True)
class Rollouts:
    """A recording: the station with what is to be stored, a writer of its rows, and the task in words."""

    contract: AnyContract
    writer: Writer
    task: str


class RolloutsNode(Node):
    """The node `rollouts`. `open_rollouts` opens the recording that its parameters name; what it enters into the stack
    is closed once everything is stored. Args: see `Node`.

    Attributes:
      recording: the logic, once configured.
    """

    stop_limit_s = 60.0

    def __init__(self, open_rollouts: Callable[[Any, ExitStack], Rollouts], **station: Any) -> None:
        super().__init__("rollouts", **station)
        self._open, self._stack = open_rollouts, ExitStack()
        self.recording: RolloutRecording | None = None
        self._storage: StorageThread | None = None
        self._arming = ""
        self._commands: list[tuple[float, bool, NDArray[np.float64]]] = []  # sent at, an answer, positions

    def configure(self) -> None:
        rollouts = self._open(self.parameters, self._stack)
        features = tuple(rollouts.contract.interface.observation)
        observer, self._storage = Observer(rollouts.contract, features), StorageThread(step_back)
        self.recording = RolloutRecording(
            observer, rollouts.writer, rollouts.task, self._storage,
            wall=lambda: 1e-9 * self.get_clock().now().nanoseconds,
        )  # fmt: skip
        sys.setswitchinterval(0.001)  # the thread that stores rows must not hold up the one that takes them
        robot = rollouts.contract.robot
        robot.forward(np.zeros((1, len(rollouts.contract.joints))))  # compiled now, not while the arm moves
        self._inputs_of_rows = ObservationInputs(self, rollouts.contract, observer, features)
        self.hear(String, topics.ROLLOUT, self._on_rollout, qos.latched(10))
        self.hear(String, topics.POLICY_STATUS, self._on_policy, qos.latched())
        self.hear(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        self.hear(JointTrajectory, topics.TARGET, partial(self._on_command, False), qos.SET_POINT)
        self.hear(JointTrajectory, topics.ACCEPTED, partial(self._on_command, True), qos.SET_POINT)
        self.beat(max(1.0 / rollouts.contract.stream_hz, BEAT_S), self._tick)
        log.info(READY)

    def begin_stop(self, reason: str) -> None:
        if self.recording is not None:
            self.take_all()
            self.recording.cancel(f"it has no outcome ({reason})")

    def stopped(self) -> bool:
        return self._storage is None or not self._storage.pending()

    def destroy_node(self) -> None:
        if self._storage is not None:
            self._storage.close()
            self._storage = None
        self._stack.close()
        super().destroy_node()

    # --- what arrives ----------------------------------------------------------------------------------------

    def _on_rollout(self, message: String, info: MessageInfo) -> None:
        assert self.recording is not None
        outcome = json.loads(message.data)["outcome"]
        if outcome in OUTCOMES:
            self.recording.end(outcome)
        else:
            self.recording.begin()

    def _on_policy(self, message: String, info: MessageInfo) -> None:
        outcome = json.loads(message.data).get("ended")
        if outcome in OUTCOMES and self.recording is not None:
            self.recording.end(outcome)

    def _on_safety(self, message: DiagnosticArray, info: MessageInfo) -> None:
        report = messages.read_safety_report(message)
        arming = report.arming if report else ""
        assert self.recording is not None
        if arming == self._arming:
            return
        before, self._arming = self._arming, arming
        if self.value("every_arming"):
            if arming:
                self.recording.begin()
            elif before:
                self.recording.cancel(report.reason if report and report.reason else "the arm was disarmed")
        self.recording.armed(bool(arming))

    def _on_command(self, answers: bool, message: JointTrajectory, info: Any) -> None:
        for point in list(message.points)[:1]:
            self._commands.append((1e-9 * info["source_timestamp"], answers, np.array(point.positions)))

    def _tick(self) -> None:
        assert self.recording is not None
        self.take_all()
        # In the order in which they were sent, whichever topic was read first.
        commands, self._commands = sorted(self._commands, key=lambda one: one[:2]), []
        for sent_s, answers, positions in commands:
            if answers:
                self.recording.accepted(positions)
            else:
                self.recording.target(positions, time.time() - sent_s)
        self.recording.look()
        if self.recording.error is not None:
            error = self.recording.error
            self.error = error if isinstance(error, RobolearnError) else RobolearnError(f"not recorded: {error}")
            self.done = True
