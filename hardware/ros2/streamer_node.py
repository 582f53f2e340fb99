"""The streamer as a node: `hardware.execution.streamer` behind its topics."""

from __future__ import annotations

import json
import logging
import math
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty, String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from hardware.execution.homing import way_home
from hardware.execution.streamer import Streamer, StreamStop, StreamTarget
from hardware.node_parameters import StreamerParameters
from hardware.ros2 import messages, qos, topics
from hardware.ros2.observation_inputs import hear_all_joints
from hardware.ros2.runtime import Node
from hardware.ros2.senders import Alive
from robolearn.core import RobolearnError

log = logging.getLogger(__name__)


class StreamerNode(Node):
    """Streams action chunks. Args: see `Node`."""

    def __init__(self, **station: Any) -> None:
        super().__init__("streamer", **station)

    def configure(self) -> None:
        self.contract = contract = self.any_station()
        p: StreamerParameters = self.parameters
        self.streamer = Streamer(
            contract,
            self._send,
            grace_s=None if p.grace_ms < 0 else 1e-3 * p.grace_ms,
            freeze_steps=p.freeze_steps,
            blend=p.blend,
            wall=lambda: 1e-9 * self.get_clock().now().nanoseconds,
        )
        self._policies = 0  # alive
        self._target_publisher = self.create_publisher(JointTrajectory, topics.TARGET, qos.TARGET)
        self._status_publisher = self.create_publisher(String, topics.STREAMER_STATUS, qos.latched())
        events = SubscriptionEventCallbacks(incompatible_qos=self._on_incompatible, **Alive(self._on_policies).events)
        hear_all_joints(self, contract, self.streamer.joints, self._on_joints)
        self.hear(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        self.hear(JointTrajectory, topics.ACTION_CHUNK, self._on_chunk, qos.CHUNK, events)
        self.hear(Empty, topics.POLICY_ALIVE, lambda message, info: self.streamer.heartbeat(), qos.ALIVE)
        self.create_service(Trigger, topics.GO_HOME, self._go_home)
        self._stream_period, self._due = 1.0 / contract.stream_hz, -math.inf
        self.beat(self.quick(self._stream_period), self._look)
        self.every(0.5, self._report)

    def deactivate(self) -> None:
        if self.streamer.arming:
            self.streamer.halt("the streamer was deactivated")

    def _on_safety(self, message: DiagnosticArray, info: MessageInfo) -> None:
        report = messages.read_safety_report(message)
        self.streamer.safety(report.arming if report else "")

    def _on_joints(self, arm: str, message: JointState, info: MessageInfo) -> None:
        stamp = messages.seconds(message.header.stamp)
        self.streamer.joint_state(*messages.named(message), stamp, messages.publisher(info), arm)

    def _on_chunk(self, message: JointTrajectory, info: MessageInfo) -> None:
        if not self.active:
            return
        stamp_ns, sender = messages.nanoseconds(message.header.stamp), messages.publisher(info)
        if reason := messages.stop_reason(message):
            self.streamer.policy_stop(stamp_ns, reason, sender)
            return
        _, names, actions, times = messages.read_chunk(message)
        if self.streamer.chunk(stamp_ns, names, actions, times, sender):
            self._due = time.monotonic() + self._stream_period  # a second target would hide when the first was sent

    def _on_policies(self, count: int) -> None:
        self._policies = count
        self.streamer.policies_alive(count, self.resolve_topic_name(topics.ACTION_CHUNK))

    def _on_incompatible(self, event: object) -> None:
        self.streamer.last_stop = (
            f"a publisher of {self.resolve_topic_name(topics.ACTION_CHUNK)} has incompatible QoS: {event}"
        )
        log.error(self.streamer.last_stop)

    def _go_home(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self.take_all()
        q = self.streamer.joints.q
        if self.streamer.arming or q is None:
            why = "the arm is armed" if self.streamer.arming else "no joint states"
            return messages.trigger(response, False, f"not home: {why}")
        try:
            way = way_home(self.contract, q)
        except RobolearnError as error:
            return messages.trigger(response, False, f"not home: {error}")
        return messages.trigger(response, True, str(self.streamer.go_home(way)))

    def _look(self) -> float:
        self.take_all()  # a chunk's first target goes out with it
        if (now := time.monotonic()) >= self._due:
            self._due = max(self._due + self._stream_period, now + 0.6 * self._stream_period)
            self.streamer.tick()
        if expects := self.streamer.expects_chunk:
            self.streamer.warm()
        return self.sooner(expects)

    def _send(self, what: StreamTarget | StreamStop) -> None:
        if isinstance(what, StreamStop):
            message = messages.stop(what.reason)
        else:
            stamp = messages.stamp_of(what.stamp_ns)
            message = messages.target(self.streamer.names, what.positions, stamp, what.after_s)
        self._target_publisher.publish(message)

    def _report(self) -> None:
        policies = self.count_publishers(topics.ACTION_CHUNK)
        if self.streamer.arming and policies > 1 and self._policies > 1:
            self.streamer.halt(f"{policies} policies at once on {self.resolve_topic_name(topics.ACTION_CHUNK)}")
        self._status_publisher.publish(messages.text(json.dumps(self.streamer.status())))
