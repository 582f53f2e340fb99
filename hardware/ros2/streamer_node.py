"""The streamer: action chunks → joint set-points at `stream_hz`, as time goes on; or a stop, with its reason.

An action becomes set-points when its control step begins, from where the arm is *then*, by the very control that the
simulator uses. In between the set-point is repeated. When the chunk runs out, the policy is gone, joint states are
old or a chunk is refused, the streamer says stop, and goes on saying it until the arm is not armed any more.
"""

from __future__ import annotations

import json
import logging
import math
import time

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.context import Context
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty, String
from trajectory_msgs.msg import JointTrajectory

from hardware.action_chunk_buffer import ActionChunkBuffer, ChunkRefused
from hardware.latency import Latencies
from hardware.observer import JointReader
from hardware.ros2 import messages, qos, topics
from hardware.ros2.runtime import Node, Value
from hardware.setpoints import SetPoints
from robots.stations import Contract, load_contract

log = logging.getLogger(__name__)

SILENCE_S = 0.12  # of the policy's heartbeat, 50 times a second; with the braking, a quarter of a second to rest


class StreamerNode(Node):
    """Streams action chunks.

    Args:
      contract: the station, in place of the parameter `contract`.
    """

    def __init__(
        self,
        *,
        contract: Contract | None = None,
        context: Context | None = None,
        overrides: dict[str, Value] | None = None,
    ) -> None:
        super().__init__(
            "streamer",
            {"contract": "sim", "grace_ms": -1.0, "freeze_steps": 0, "blend": True},
            context=context,
            overrides=overrides,
        )
        self._given = contract

    def configure(self) -> None:
        contract = self._given or load_contract(self.value("contract"))
        self.contract = contract
        self._set_points = SetPoints(contract)
        grace_ms = self.value("grace_ms")
        self.stream = ActionChunkBuffer(
            self._set_points.spec.names,
            1.0 / contract.control_hz,
            grace_s=None if grace_ms < 0 else 1e-3 * grace_ms,
            freeze=self.value("freeze_steps"),
            blend=self.value("blend"),
        )
        self._joints = JointReader(contract)
        self._arming = ""  # which arming this is; empty: not armed
        self._since = 0.0
        self._stop = ""  # why the streamer has stopped, since the arm was armed
        self._policies = 0
        self._alive_at = math.inf  # of the policy's last heartbeat; infinite: none since the arm was armed
        self._step: tuple[float, int] = (0.0, -1)
        self._target = np.zeros(len(self._set_points.names))
        self._observed = Time()  # stamp of the chunk that runs
        self._arrival = Latencies()
        self._first = Latencies()
        self._chunks = 0
        self._gid: object = None
        self._refusals = 0
        self._last_reason = ""

        self._target_publisher = self.create_publisher(JointTrajectory, topics.TARGET, qos.TARGET)
        self._status_publisher = self.create_publisher(String, topics.STREAMER_STATUS, qos.latched())
        events = SubscriptionEventCallbacks(liveliness=self._on_liveliness, incompatible_qos=self._on_incompatible)
        self._inputs = [
            self.poll(JointState, contract.joint_states.topic, self._on_joints, qos.sensor()),
            self.poll(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched()),
            self.poll(JointTrajectory, topics.ACTION_CHUNK, self._on_chunk, qos.CHUNK, events),
            self.poll(Empty, topics.POLICY_ALIVE, self._on_alive, qos.ALIVE),
        ]
        self.beat(1.0 / contract.stream_hz, self._tick)
        self.every(0.5, self._report)

    def deactivate(self) -> None:
        if self._arming:
            self._halt("the streamer was deactivated")

    # --- what arrives --------------------------------------------------------------------------------------

    def _on_safety(self, message: DiagnosticArray, info: MessageInfo) -> None:
        report = messages.read_safety_report(message)
        arming = report.arming if report else ""
        if arming == self._arming:
            return
        self.stream.clear("" if arming else "not armed")
        self._stop, self._step = "", (0.0, -1)
        self._since = self._now()
        self._alive_at = math.inf
        self._arming = arming

    def _on_joints(self, message: JointState, info: MessageInfo) -> None:
        self._joints.update(*messages.named(message), messages.seconds(message.header.stamp))

    def _on_chunk(self, message: JointTrajectory, info: MessageInfo) -> None:
        if not self.active or not self._arming or self._stop:
            return
        now = self._now()
        stamp, names, actions, times = messages.read_chunk(message)
        if 0 < stamp < self._since - 1.0 / self.contract.control_hz and not self.stream.running:
            return  # still on its way from before the arm was armed
        gid = info.get("publisher_gid") or {}
        try:
            self.stream.accept(stamp, now, names, actions, times, sender=bytes(gid.get("data", b"")) or None)
        except ChunkRefused as error:
            self._refusals += 1
            self._halt(str(error))
            return
        self._chunks += 1
        self._observed = message.header.stamp
        self._arrival.add(self.stream.latency_s)

    def _on_alive(self, message: Empty, info: MessageInfo) -> None:
        self._alive_at = time.monotonic()

    def _on_liveliness(self, event: object) -> None:
        self._policies = event.alive_count  # type: ignore[attr-defined]
        if not self._arming:
            return
        if self._policies > 1:
            self._halt(f"{self._policies} policies at once on {topics.ACTION_CHUNK}")
        elif self._policies == 0 and self.stream.running:
            self._halt("the policy node is gone (liveliness lost)")

    def _on_incompatible(self, event: object) -> None:
        self._last_reason = f"a publisher of {topics.ACTION_CHUNK} has incompatible QoS: {event}"
        log.error(self._last_reason)

    # --- what goes out -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        for take in self._inputs:
            take()
        if not self._arming:
            return
        if self._stop:
            self._target_publisher.publish(messages.stop(self._stop))
            return
        if not self.stream.running:
            return  # nothing has been asked for yet; the arm holds still
        if time.monotonic() - self._alive_at > SILENCE_S:
            self._halt(f"the policy node is gone (no heartbeat for {1e3 * SILENCE_S:.0f} ms)")
            return
        if problem := self._joints.problem():
            self._halt(problem)
            return
        step = self.stream.step()
        if step is None:
            self._halt(self.stream.reason)
            return
        if not step.held and (step.stamp, step.index) != self._step:
            assert self._joints.q is not None
            fresh = step.stamp != self._step[0]
            self._step = (step.stamp, step.index)
            self._target = self._set_points.target(self._joints.q, step.action)
            if fresh:
                self._first.add(self._now() - step.stamp)
        self._target_publisher.publish(messages.target(self._set_points.names, self._target, self._observed))

    def _halt(self, reason: str) -> None:
        if self._stop:
            return
        self._stop = self._last_reason = reason
        self.stream.halt(reason)
        self._target_publisher.publish(messages.stop(reason))
        log.warning("stop: %s", reason)

    def _now(self) -> float:
        return 1e-9 * self.get_clock().now().nanoseconds

    def _report(self) -> None:
        policies = self.count_publishers(topics.ACTION_CHUNK)
        if self._arming and policies > 1 and self._policies > 1:
            self._halt(f"{policies} policies at once on {topics.ACTION_CHUNK}")
        reason = self._joints.problem()
        status = {
            "ready": not reason,
            "reason": reason,
            "armed": bool(self._arming),
            "stopped": self._stop,
            "last_stop": self._last_reason,
            "chunks": self._chunks,
            "refused": self._refusals,
            "arrival_ms": self._arrival.summary_ms(),
            "latency_ms": self._first.summary_ms(),
        }
        self._status_publisher.publish(messages.text(json.dumps(status)))
