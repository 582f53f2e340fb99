"""The recorder beside a policy as a node: `hardware.recording.rollouts` behind its topics.

It only listens, as a process of its own of half the priority of those that drive the arm: none of them waits for it.
On a busy machine it is held up, and then reads what has queued in the order in which that was sent: a row has what was
observed when its target was sent, not what is observed when that is read.
`robolearn deploy` says when an episode begins and how it ended; beside a policy node that ends by itself every arming
is one, with that node's outcome.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import CompressedImage, Image
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
ONE_CLOCK_S = 0.01  # a sender that is off by less has the clock of this machine
PICTURES = 20  # that may wait; of other inputs as many as set-points
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
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []  # sent at, rank among equals, what it does
        self._needed: dict[str, float] = {}  # topic of an input → its age from which on one was missed [s]
        self._heard: dict[str, float] = {}  # topic → when its newest message was sent

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
        self._needed = _needed(rollouts.contract, features)
        self.hear(String, topics.ROLLOUT, self._on_rollout, qos.latched(10))
        self.hear(String, topics.POLICY_STATUS, self._on_policy, qos.latched())
        self.hear(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        self.hear(JointTrajectory, topics.TARGET, self._on_target, qos.SET_POINT)
        self.hear(JointTrajectory, topics.ACCEPTED, self._on_accepted, qos.SET_POINT)
        self.beat(max(1.0 / rollouts.contract.stream_hz, BEAT_S), self._tick)
        log.info(READY)

    def begin_stop(self, reason: str) -> None:
        if self.recording is not None:
            self._drain()
            self.recording.cancel(f"it has no outcome ({reason})")

    def stopped(self) -> bool:
        return self._storage is None or not self._storage.pending()

    def destroy_node(self) -> None:
        if self._storage is not None:
            self._storage.close()
            self._storage = None
        self._stack.close()
        super().destroy_node()

    def hear(self, kind: Any, topic: str, callback: Any, profile: QoSProfile, events: Any = None) -> None:
        """As of any node, but messages queue while this one is held up, and wait for those of other topics that were
        sent before them."""
        rank = _RANKS.get(topic, 0)
        sender = SenderOffset()
        if profile.reliability == ReliabilityPolicy.BEST_EFFORT:
            profile = qos.sensor(PICTURES if kind in (Image, CompressedImage) else qos.SET_POINT.depth)

        def wait(message: Any, info: MessageInfo) -> None:
            sent = sender.sent_s(info)

            def act() -> None:
                self._heard[topic] = sent
                callback(message, info)

            self._waiting.append((sent, rank, act))

        super().hear(kind, topic, wait, profile, events)

    def _drain(self) -> None:
        """Take what has come, in the order in which it was sent, whichever topic was read first."""
        self.take_all()
        waiting, self._waiting = sorted(self._waiting, key=lambda one: one[:2]), []
        for _, _, act in waiting:
            act()

    def _missed(self, sent_s: float) -> str:
        """The input that was sent shortly before `sent_s` and is not there, in words; nothing where all are."""
        ages = {topic: sent_s - self._heard.get(topic, sent_s) for topic in self._needed}
        late = [topic for topic, age in ages.items() if age > self._needed[topic]]
        return f"{ages[late[0]]:.2f} s of {late[0]}" if late else ""

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

    def _on_target(self, message: JointTrajectory, info: Any) -> None:
        sent_s = self._heard[topics.TARGET]
        assert self.recording is not None
        for point in list(message.points)[:1]:
            self.recording.target(np.array(point.positions), time.time() - sent_s, self._missed(sent_s))

    def _on_accepted(self, message: JointTrajectory, info: Any) -> None:
        assert self.recording is not None
        for point in list(message.points)[:1]:
            self.recording.accepted(np.array(point.positions))

    def _tick(self) -> None:
        assert self.recording is not None
        self._drain()
        self.recording.look()
        if self.recording.error is not None:
            error = self.recording.error
            self.error = error if isinstance(error, RobolearnError) else RobolearnError(f"not recorded: {error}")
            self.done = True


class SenderOffset:
    """When messages of one topic were sent, by the clock of this machine: that of a sender elsewhere may be off by
    anything, which the message that took least time shows."""

    def __init__(self) -> None:
        self._least = math.inf

    def sent_s(self, info: Mapping[str, Any]) -> float:
        """When the message of `info` was sent [s]."""
        sent, received = 1e-9 * info["source_timestamp"], 1e-9 * (info.get("received_timestamp") or 0)
        if received:
            self._least = min(self._least, received - sent)
        off = math.isfinite(self._least) and abs(self._least) > ONE_CLOCK_S
        return sent + self._least if off else sent


_RANKS = {topics.TARGET: 1, topics.ACCEPTED: 2}


def _needed(contract: AnyContract, features: Collection[str]) -> dict[str, float]:
    """Topic of an input → the age [s] from which on the recorder has missed messages of it."""
    found = {arm.joint_states.topic: 1.0 / contract.control_hz for arm in contract.arms.values()}
    if "objects" in features and contract.objects is not None:
        found[contract.objects.topic] = contract.objects.max_age_s
    seen = [camera for name, camera in contract.cameras.items() if f"images.{name}" in features]
    return found | {camera.topic: camera.max_age_s for camera in seen}
