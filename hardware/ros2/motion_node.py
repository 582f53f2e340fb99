"""A motion as a node, in the place of the streamer: targets for the safety node, and a log of what comes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from hardware.calibration.motion import resampled
from hardware.execution.played_motion import PlayedMotion
from hardware.node_parameters import MotionParameters
from hardware.ros2 import messages, qos, topics
from hardware.ros2.runtime import Node
from robolearn.core import BadInput, RobolearnError

JOINT_STATES = 200  # that wait for a tick


class MotionNode(Node):
    """Plays a motion once the arm is armed, and writes its log. Args: see `Node`."""

    def __init__(self, **station: object) -> None:
        super().__init__("motion", **station)  # pyright: ignore[reportArgumentType]

    def configure(self) -> None:
        self.contract = contract = self.station()
        p: MotionParameters = self.parameters
        try:
            way = np.load(p.way, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BadInput("parameter way", got=f"{p.way or 'nothing'} ({error})", expected="an .npy") from None
        if way.ndim != 2 or way.shape[1] != len(contract.joints) or not len(way) or not np.isfinite(way).all():
            expected = f"finite targets of {len(contract.joints)} joints"
            raise BadInput(f"motion {p.way}", got=f"shape {way.shape}", expected=expected)
        if not p.out:
            raise BadInput("parameter out", got="nothing", expected="a file for the log")
        self._out, self._written, self._lost = Path(p.out), False, ""
        self.motion = PlayedMotion(way.astype(np.float64), 1.0 / contract.stream_hz)
        self._target_publisher = self.create_publisher(JointTrajectory, topics.TARGET, qos.TARGET)
        self._status_publisher = self.create_publisher(String, topics.MOTION_STATUS, qos.latched())
        self.hear(JointState, contract.joint_states.topic, self._on_joints, qos.sensor(JOINT_STATES))
        self.hear(JointState, topics.SET_POINT, self._on_set_point, qos.SET_POINT)
        self.hear(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        self.beat(self.motion.period, self._tick)
        self.every(0.2, self._report)

    def deactivate(self) -> None:
        self.motion.stop("the motion was deactivated")

    def begin_stop(self, reason: str) -> None:
        if hasattr(self, "motion") and self.motion.state == "moving":
            self.motion.stop(reason)
            self._target_publisher.publish(messages.stop(f"the motion ends: {reason}"))

    def _on_joints(self, message: JointState, info: MessageInfo) -> None:
        if set(self.contract.joints) <= set(message.name):  # the safety node judges what is wrong with others
            q = messages.pick(message, self.contract.joints)
            self.motion.joint_state(messages.seconds(message.header.stamp), q)

    def _on_set_point(self, message: JointState, info: MessageInfo) -> None:
        self.motion.set_point(messages.seconds(message.header.stamp), messages.pick(message, self.contract.joints))

    def _on_safety(self, message: DiagnosticArray, info: MessageInfo) -> None:
        report = messages.read_safety_report(message)
        self.motion.safety(report.arming if report else "")

    def _tick(self) -> None:
        self.take_all()
        if not self.active:
            return
        if (target := self.motion.target()) is not None:
            stamp = self.get_clock().now().to_msg()
            self._target_publisher.publish(messages.target(self.contract.joints, target, stamp))

    def _report(self) -> None:
        motion = self.motion
        # Not before it is disarmed: who is armed must send targets in time. What was moved before a stop is kept, too.
        if (motion.over or (motion.state == "stopped" and motion.done)) and not self._written and not self._lost:
            try:
                log = resampled(self.contract.robot.name, motion.period, motion.sent, motion.seen)
                self._written = bool(log.save(self._out))
            except (RobolearnError, OSError) as error:
                self._lost = str(error)
        # The safety node's set-points have to be heard from the first one on, or nothing is recorded.
        status = {
            "ready": motion.ready and self.count_publishers(topics.SET_POINT) > 0, "state": motion.state,
            "reason": motion.reason, "done": motion.done, "of": len(motion.way), "written": self._written,
            "lost": self._lost,
        }  # fmt: skip
        self._status_publisher.publish(messages.text(json.dumps(status)))
