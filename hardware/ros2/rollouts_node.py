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
from collections.abc import Callable, Collection, Hashable, Mapping
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
SLOW_S, ENOUGH = 1.0, 20  # the first messages may be as slow on a busy machine; so many later ones are not, all of them
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
        self._needed: dict[str, float] = {}  # topic → seconds of it that no row can do without
        self._permitted: dict[str, float] = {}  # topic of an input → its greatest age [s]
        self._heard: dict[str, float] = {}  # topic → when its newest message was sent
        self._numbered: set[str] = set()  # topics whose missing messages are noticed by their numbers

    def configure(self) -> None:
        rollouts = self._open(self.parameters, self._stack)
        features = tuple(rollouts.contract.interface.observation)
        observer, self._storage = Observer(rollouts.contract, features), StorageThread(step_back)
        self.recording = RolloutRecording(observer, rollouts.writer, rollouts.task, self._storage)
        sys.setswitchinterval(0.001)  # the thread that stores rows must not hold up the one that takes them
        robot = rollouts.contract.robot
        robot.forward(np.zeros((1, len(rollouts.contract.joints))))  # compiled now, not while the arm moves
        self._inputs_of_rows = ObservationInputs(self, rollouts.contract, observer, features)
        self._permitted = _permitted(rollouts.contract, features)
        states = [arm.joint_states.topic for arm in rollouts.contract.arms.values()]
        self._needed = self._permitted | dict.fromkeys([*states, topics.TARGET], 1.0 / rollouts.contract.control_hz)
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
        sender, numbers = SenderOffset(), Numbers()
        if profile.reliability == ReliabilityPolicy.BEST_EFFORT:
            profile = qos.sensor(PICTURES if kind in (Image, CompressedImage) else qos.SET_POINT.depth)

        def wait(message: Any, info: MessageInfo) -> None:
            sent = sender.sent_s(info)
            gap_s = numbers.gap_s(info, sent)

            def act() -> None:
                self._look_for_gap(topic, gap_s, sent)
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

    def _look_for_gap(self, topic: str, gap_s: float | None, sent_s: float) -> None:
        """A message came `gap_s` after the last one before those that are missing; None: nobody numbers them."""
        assert self.recording is not None
        if gap_s is None:
            self._numbered.discard(topic)
            return
        self._numbered.add(topic)
        if gap_s > self._needed.get(topic, math.inf):
            self.recording.missed(f"{gap_s:.2f} s of {topic}", time.time() - sent_s)

    def _silent(self, sent_s: float) -> str:
        """The input that is too old for a target of `sent_s`, in words; nothing where none is. Where messages have no
        numbers, joint states that are older than a control step were missed."""
        ages = {topic: sent_s - self._heard.get(topic, sent_s) for topic in self._permitted}
        limits = {topic: (self._permitted if topic in self._numbered else self._needed)[topic] for topic in ages}
        late = [topic for topic, age in ages.items() if age > limits[topic]]
        return f"no {late[0]} for {ages[late[0]]:.2f} s" if late else ""

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
        other = 0.0
        if self.get_parameter("use_sim_time").value:  # other stamps are in the time of a simulator
            other = 1e-9 * self.get_clock().now().nanoseconds - time.time()
        for point in list(message.points)[:1]:
            self.recording.target(np.array(point.positions), sent_s + other, self._silent(sent_s))

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
        self._least, self._count = math.inf, 0

    def sent_s(self, info: Mapping[str, Any]) -> float:
        """When the message of `info` was sent [s]."""
        sent, received = 1e-9 * info["source_timestamp"], 1e-9 * (info.get("received_timestamp") or 0)
        if received:
            self._least, self._count = min(self._least, received - sent), self._count + 1
        slowest = ONE_CLOCK_S if self._count > ENOUGH else SLOW_S
        off = math.isfinite(self._least) and not -ONE_CLOCK_S < self._least < slowest
        return sent + self._least if off else sent


class Numbers:
    """The numbers that publishers of one topic give their messages: one that is missing was sent and never read."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int, float]] = {}  # publisher → number of its newest message, sent at [s]

    def gap_s(self, info: Mapping[str, Any], sent_s: float) -> float | None:
        """Time [s] from the message before those that are missing to that of `info`, which was sent at `sent_s`; 0
        where none is missing, None where the middleware gives no numbers."""
        number = info.get("publication_sequence_number")
        if number is None:
            return None
        publisher = messages.publisher(info)
        before, then = self._last.get(publisher, (number - 1, sent_s))
        self._last[publisher] = number, sent_s
        return sent_s - then if number > before + 1 else 0.0


_RANKS = {topics.TARGET: 1, topics.ACCEPTED: 2}


def _permitted(contract: AnyContract, features: Collection[str]) -> dict[str, float]:
    """Topic of an input → the greatest age [s] that the contract permits."""
    found = {arm.joint_states.topic: arm.joint_states.max_age_s for arm in contract.arms.values()}
    if "objects" in features and contract.objects is not None:
        found[contract.objects.topic] = contract.objects.max_age_s
    seen = [camera for name, camera in contract.cameras.items() if f"images.{name}" in features]
    return found | {camera.topic: camera.max_age_s for camera in seen}
