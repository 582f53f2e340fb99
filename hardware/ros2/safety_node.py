"""The safety node: the safety filter on a clock, and the only publisher to the controller.

Each tick of a steady clock moves the set-point by one period of the filter. Everything else only tells the filter
what happened: joint states, targets, the dead-man's switch, a process that is gone. Whoever else publishes to the
controller is noticed, and then this node does not arm. Told to end, it brakes first.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from numpy.typing import NDArray
from rclpy.context import Context
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64MultiArray
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from hardware.latency import Latencies
from hardware.observer import Freshness
from hardware.ros2 import messages, qos, topics
from hardware.ros2.runtime import Node, Value
from hardware.safety import ArmCommand, JointTarget, SafetyFilter, SafetyRefused, SafetyState
from hardware.safety.stuck import Stuck
from hardware.setpoints import GRIPPER
from robolearn.core import BadInput
from robots.stations import Contract, load_contract

log = logging.getLogger(__name__)

STATE_HZ = 10.0
GRIPPER_REFRESH_S = 0.1  # an unchanged gripper command is repeated this often: a gripper may have been switched on late
EARLY_S = 0.1  # after arming, a stop is still the one that ended the last arming; one that is meant is repeated
MOVING = (SafetyState.ARMED, SafetyState.BRAKING)


class SafetyNode(Node):
    """Filters targets, publishes commands.

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
            "safety",
            {"contract": "sim", "dry_run": False},
            context=context,
            overrides=overrides,
        )
        self._given = contract

    def configure(self) -> None:
        contract = self._given or load_contract(self.value("contract"))
        self.contract = contract
        self._period = 1.0 / contract.stream_hz
        self._filter = SafetyFilter(contract.robot, contract.joints, contract.limits, self._period)
        self._dry_run = self.value("dry_run")
        self._joints = Freshness(
            f"joint states on {contract.joint_states.topic}", contract.joint_states.max_age_s, _now
        )
        self._arming = 0  # which one
        self._armed_at = 0.0
        self._told: tuple[str, str] = ("", "")  # state and reason as last published
        self._watched: list[str] = []  # topics whose QoS has to match
        self._problems: list[str] = []  # endpoints whose QoS does not match ours
        self._mismatch = False  # whether there was an event that says so
        self._ticked = 0.0
        self._target_at = self._deadman_at = 0.0
        self._streamers = 0  # alive
        self._streaming = False  # targets have come since the arm was armed
        self._observed: float | None = None  # stamp behind the newest target, until its command is out
        self._last_stamp = 0.0
        self._target_stamp = Time()  # of the newest target
        self._accepted: Any = None  # what was last said to have been accepted
        self._latency = Latencies()
        self._commands = 0
        self._skipped = 0
        self._gripper: tuple[float, float] = (float("nan"), 0.0)  # last opening, and when
        self._others = ""  # who else publishes to the controller
        self._set_point: NDArray[np.float64] | None = None
        self._stuck = Stuck()

        self._command_publisher: Any = None
        self._gripper_publisher: Any = None
        if not self._dry_run:
            self._command_publisher = self._controller(contract.command.topic, contract.command.type)
            if contract.gripper is not None:
                self._gripper_publisher = self._controller(contract.gripper.topic, contract.gripper.type)
        self._state_publisher = self.create_publisher(DiagnosticArray, topics.SAFETY_STATE, qos.latched())
        self._accepted_publisher = self.create_publisher(JointTrajectory, topics.ACCEPTED, qos.ACCEPTED)
        self._inputs = [
            self._hear(JointState, contract.joint_states.topic, self._on_joints, qos.sensor()),
            self._hear(Bool, topics.DEADMAN, self._on_deadman, qos.DEADMAN, liveliness=self._on_operator),
            self._hear(
                JointTrajectory, topics.TARGET, self._on_target, qos.TARGET, self._on_target_late, self._on_streamer
            ),
        ]
        for name, handle in (
            (topics.ARM, self._arm), (topics.DISARM, self._disarm), (topics.RESET, self._reset),
            (topics.ESTOP, self._estop),
        ):  # fmt: skip
            self.create_service(Trigger, name, handle)
        self.beat(self._period, self._tick)
        self.every(1.0 / STATE_HZ, self._tell)
        self.every(0.5, self._look_around)

    def deactivate(self) -> None:
        self._filter.disarm()

    def cleanup(self) -> None:
        if self._filter.state in MOVING:
            raise BadInput("clean up", got=f"a safety filter that is {self._filter.state}", expected="one at rest")

    def begin_stop(self, reason: str) -> None:
        if hasattr(self, "_filter"):
            log.info("%s: braking first", reason)
            self._filter.disarm()

    def stopped(self) -> bool:
        done = not hasattr(self, "_filter") or self._filter.state not in MOVING
        if done and hasattr(self, "_state_publisher"):
            self._tell()
        return done

    def on_fault(self, error: Exception) -> bool:
        """Brake and latch; the node goes on, because ending it would end the braking too."""
        if not hasattr(self, "_filter"):
            return False
        self._filter.estop(f"the safety node failed: {error!r}")
        return True

    # --- what arrives --------------------------------------------------------------------------------------

    def _on_joints(self, message: JointState, info: MessageInfo) -> None:
        names, positions = messages.named(message)
        if not any(name in names for name in self.contract.joints):
            return  # another device on the same topic
        newer = self._joints.update(messages.seconds(message.header.stamp))
        if self._filter.state is SafetyState.ARMED:
            problem = self._joints.problem()
            if not problem and self._set_point is not None and self._stuck(positions, self._set_point):
                problem = f"{self._joints.name}: frozen, the same values although the arm is commanded to move"
            if problem:
                self._filter.stop(problem)
        if newer:
            self._filter.measured(names, positions)

    def _on_target(self, message: JointTrajectory, info: MessageInfo) -> None:
        if self._filter.state is not SafetyState.ARMED:
            return
        self._target_at = _now()
        if not message.points:
            if not self._streaming and _now() - self._armed_at < EARLY_S:
                return
            self._filter.stop(message.header.frame_id or "the streamer asks for a stop without saying why")
            self._tell_changes()
            return
        self._streaming = True
        if len(message.points) != 1:
            self._filter.stop(f"a target of {len(message.points)} points; expected one")
            return
        stamp, names, rows, _ = messages.read_chunk(message)
        positions, gripper = rows[0], None
        if names and names[-1] == GRIPPER and len(positions) == len(names):
            names, positions, gripper = names[:-1], positions[:-1], float(positions[-1])
        self._filter.target(JointTarget(names, positions, gripper))
        self._target_stamp = message.header.stamp
        if stamp != self._last_stamp:
            self._last_stamp = self._observed = stamp

    def _on_deadman(self, message: Bool, info: MessageInfo) -> None:
        self._deadman_at = _now()
        self._filter.deadman(message.data)

    def _on_target_late(self, event: object) -> None:
        # The event may have waited behind a target; what counts is how old that one is now.
        if self._streaming and _now() - self._target_at > 0.8 * self.contract.limits.command_timeout_s:
            self._filter.stop("targets are late (deadline missed)")

    def _on_streamer(self, event: Any) -> None:
        self._streamers = event.alive_count
        if event.alive_count == 0 and self._streaming:
            self._filter.stop("the streamer is gone (liveliness lost)")
        elif event.alive_count > 1:
            self._filter.stop(f"{event.alive_count} publishers of {topics.TARGET} at once")

    def _on_operator(self, event: Any) -> None:
        if event.alive_count == 0:
            self._filter.stop("the operator's dead-man switch is gone (liveliness lost)")

    # --- services ------------------------------------------------------------------------------------------

    def _arm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        for take in self._inputs:
            take()
        self._look_around()
        if reason := self._against_arming():
            return messages.trigger(response, False, f"not armed: {reason}")
        self._streaming, self._observed, self._gripper = False, None, (float("nan"), 0.0)
        self._set_point = None
        self._stuck.begin()
        self._arming += 1
        self._armed_at = _now()
        return self._answer(response, self._filter.arm, "armed")

    def _disarm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, self._filter.disarm, "braking, then disarmed")

    def _reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, self._filter.reset, "reset: ready to be armed")

    def _estop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, self._filter.estop, "emergency stop")

    def _answer(self, response: Trigger.Response, act: Callable[[], None], done: str) -> Trigger.Response:
        try:
            act()
        except SafetyRefused as error:
            return messages.trigger(response, False, str(error))
        finally:
            self._tell_changes()
        return messages.trigger(response, True, done)

    def _against_arming(self) -> str:
        """Why the arm must not be armed, as far as the filter cannot know."""
        if not self.active:
            return "the safety node is not active"
        if self._problems:
            return "; ".join(self._problems)
        if self._others:
            return self._others
        command = self.contract.command.topic
        if self._command_publisher is not None and self._command_publisher.get_subscription_count() == 0:
            return f"no controller listens on {command}"
        # By their leases: one that was killed stays in the graph for 20 s.
        if self._streamers != 1:
            return f"{self._streamers or 'nobody'} publishes {topics.TARGET}; expected one streamer"
        return self._joints.problem()

    # --- what goes out -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = _now()
        if now - self._ticked < 0.5 * self._period:
            self._skipped += 1  # a late tick is followed by one in time: two set-points at once would be a jump
            return
        self._ticked = now
        for take in self._inputs:
            take()
        command = self._filter.step()
        if command is not None:
            self._publish(command, now)
            self._tell_accepted()
        self._tell_changes()

    def _publish(self, command: ArmCommand, now: float) -> None:
        if self._command_publisher is not None:
            self._command_publisher.publish(self._command_message(command))
        self._commands += 1
        self._set_point = command.positions
        if self._observed is not None:
            self._latency.add(self._wall() - self._observed)
            self._observed = None
        gripper, (last, at) = command.gripper, self._gripper
        if gripper is None or self._gripper_publisher is None:
            return
        if not abs(gripper - last) < 1e-5 or now - at > GRIPPER_REFRESH_S:
            self._gripper = (gripper, now)
            self._gripper_publisher.publish(self._gripper_message(gripper))

    def _tell_accepted(self) -> None:
        """What is made of the newest target, whenever that changes: recordings store what was done."""
        accepted = self._filter.accepted
        stamp = self._target_stamp
        if accepted is None or (stamp.sec, stamp.nanosec, *accepted) == self._accepted:
            return
        self._accepted = (stamp.sec, stamp.nanosec, *accepted)
        self._accepted_publisher.publish(messages.target((*self.contract.joints, GRIPPER), accepted, stamp))

    def _command_message(self, command: ArmCommand) -> Any:
        kind = messages.message_type(self.contract.command.type)
        if kind is Float64MultiArray:
            return Float64MultiArray(data=command.positions.tolist())
        if kind is PoseStamped:
            # Its frame is the robot's base; impedance controllers of the contracts take it without a transform.
            return messages.pose(*command.pose, self.get_clock().now().to_msg())
        return messages.trajectory(self.contract.joints, command.positions, self._period)

    def _gripper_message(self, width: float) -> Any:
        contract = self.contract
        assert contract.gripper is not None
        values = contract.gripper_values(width)
        if messages.message_type(contract.gripper.type) is Float64MultiArray:
            return Float64MultiArray(data=list(values))
        return messages.trajectory(contract.gripper_joints, values, self._period)

    def _tell_changes(self) -> None:
        if (self._filter.state, self._filter.reason) != self._told:
            self._tell()

    def _tell(self) -> None:
        status = self._filter.status()
        state, reason = status.pop("state"), status.pop("reason")
        if state == "disarmed" and not reason:
            reason = self._others or "; ".join(self._problems)
        latency = self._latency.summary_ms()
        values = {
            "arming": self._arming,
            **status,
            "latency_p50_ms": latency.get("p50", ""),
            "latency_p99_ms": latency.get("p99", ""),
            "latency_count": len(self._latency),
            "commands": self._commands,
            "skipped_ticks": self._skipped,
            "dry_run": self._dry_run,
        }
        self._state_publisher.publish(messages.safety_report(state, reason, values, self.get_clock().now().to_msg()))
        self._told = (self._filter.state, self._filter.reason)

    def _look_around(self) -> None:
        """Whether anybody else speaks to the controller."""
        self._others = ""
        if self._mismatch:
            self._problems = self._check_qos()
            self._mismatch = bool(self._problems)
        topic = self.contract.command.topic
        most = 0 if self._dry_run else 1
        # Counting is cheap; asking who they are is not.
        if self.count_publishers(topic) > most:
            names = [_endpoint(info) for info in self.get_publishers_info_by_topic(topic)]
            if not self._dry_run and self.get_fully_qualified_name() in names:
                names.remove(self.get_fully_qualified_name())
            others = " and ".join(names)
            self._others = f"{others} publishes to {topic} too: only the safety node may"
            self._filter.stop(self._others)

    def _check_qos(self) -> list[str]:
        """The endpoints at the other end of our topics that ask for, or offer, what does not match."""
        found = []
        own = self.get_fully_qualified_name()
        # All profiles as the middleware tells them: what is left at its default reads differently before.
        for topic in self._watched:
            publishers, subscribers = (
                self.get_publishers_info_by_topic(topic),
                self.get_subscriptions_info_by_topic(topic),
            )
            for publisher, subscriber in itertools.product(publishers, subscribers):
                names = _endpoint(publisher), _endpoint(subscriber)
                match, why = qos_check_compatible(publisher.qos_profile, subscriber.qos_profile)
                if match == QoSCompatibility.ERROR and own in names:
                    found.append(f"{names[1]} cannot hear {names[0]} on {topic}: {why.strip(' ;')}")
        return found

    def _on_mismatch(self, event: Any) -> None:
        self._mismatch = True
        self._problems = self._check_qos() or ["somebody's QoS does not match ours"]
        log.error("; ".join(self._problems))
        self._filter.stop("; ".join(self._problems))

    def _controller(self, topic: str, kind: str) -> Any:
        self._watched.append(topic)
        events = PublisherEventCallbacks(incompatible_qos=self._on_mismatch)
        return self.create_publisher(messages.message_type(kind), topic, qos.COMMAND, event_callbacks=events)

    def _hear(
        self,
        kind: Any,
        topic: str,
        callback: Callable[[Any, MessageInfo], None],
        profile: QoSProfile,
        deadline: Callable[[Any], None] | None = None,
        liveliness: Callable[[Any], None] | None = None,
    ) -> Callable[[], None]:
        events = SubscriptionEventCallbacks(
            incompatible_qos=self._on_mismatch, deadline=deadline, liveliness=liveliness
        )
        self._watched.append(topic)
        return self.poll(kind, topic, callback, profile, events)

    def _wall(self) -> float:
        return 1e-9 * self.get_clock().now().nanoseconds


def _now() -> float:
    return time.monotonic()


def _endpoint(info: Any) -> str:
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"
