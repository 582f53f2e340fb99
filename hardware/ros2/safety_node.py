"""The safety node: the safety filter on a clock, and the only publisher to the controller, or to those of two arms.

Each tick of a steady clock moves the set-point by one period of the filter. The judgement is in
`hardware.safety.supervisor`; here are topics, services, QoS events and what comes of them: another publisher to the
controller, or an endpoint whose QoS does not match, keeps the arm from being armed. At a signal to end, the node
brakes first.

Targets are set-points of the joints, from the streamer or a teleoperation, or with ``targets: poses`` poses of the tcp,
from a planner or a servo loop of other software.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from hardware.execution.ahead import send_ahead
from hardware.execution.horizon import Horizon, Point
from hardware.execution.tick_phase import TickPhase
from hardware.observing.lag import LOOK_S, Lags
from hardware.ros2 import messages, qos, topics
from hardware.ros2.controllers import ArmControllers
from hardware.ros2.observation_inputs import hear_conditions, with_installed_conditions
from hardware.ros2.runtime import Node
from hardware.ros2.senders import Alive, Callers, comparable, endpoint_name, publisher_name, same_program, sent_at
from hardware.safety import ArmCommand, PoseTarget, SafetyState
from hardware.safety.supervisor import SafetySupervisor, attempt
from robolearn.core import BadInput, check_choice
from robots.own import check_confirmed
from robots.stations import Topic

log = logging.getLogger(__name__)

STATE_HZ = 10.0
JOINT_STATES = 10  # that wait for a tick: none of a second publisher may be overwritten before it is seen
JOINTS, POSES = "joints", "poses"  # what targets are


class SafetyNode(Node):
    """Filters targets, publishes commands. Args: see `Node`."""

    def __init__(self, **station: Any) -> None:
        super().__init__("safety", **station)

    def configure(self) -> None:
        contract = self.any_station().with_arms(with_installed_conditions)
        if not (contract.simulated or self.value("dry_run")):
            for part in contract.robot.parts:
                check_confirmed(part.robot)
        self.contract = contract
        self._period = 1.0 / contract.stream_hz
        self._comparable = comparable()
        self.supervisor = SafetySupervisor(
            contract,
            wall=lambda: 1e-9 * self.get_clock().now().nanoseconds,
            describe=self._publisher_name,
            same=same_program if self._comparable else lambda first, second: True,
        )
        self._filter = self.supervisor.filter
        self._dry_run = self.value("dry_run")
        if not self._comparable:
            log.warning("not Fast DDS: callers of arm and reset are not checked, nor publishers without messages")
        self._most = 0 if self._dry_run else 1  # publishers to the controller
        self._published: tuple[str, str] = ("", "")  # state and reason as last published
        self._watched: list[str] = []  # topics whose QoS has to match
        self.problems: list[str] = []  # endpoints whose QoS does not match ours
        self._mismatch = False  # whether an event reported one
        self._horizon = Horizon(self._period, contract.horizon_s) if contract.horizon_s else None
        self._phase = TickPhase(self._period)
        self._others = ""  # who else publishes to a controller
        self.controllers = [
            ArmControllers(arm, at, self._controller, lambda: self.get_clock().now().to_msg())
            for arm, at in zip(contract.arms.values(), contract.robot.slices, strict=True)
        ]
        self._command_topics = tuple(topic for one in self.controllers for topic in one.topics)
        self._state_publisher = self.create_publisher(DiagnosticArray, topics.SAFETY_STATE, qos.latched())
        self._accepted_publisher = self.create_publisher(JointTrajectory, topics.ACCEPTED, qos.ACCEPTED)
        self._set_point_publisher = self.create_publisher(JointState, topics.SET_POINT, qos.SET_POINT)
        supervisor = self.supervisor
        for name, arm in contract.arms.items():
            on_joints = partial(self._on_joints, name)
            self._watch(JointState, arm.joint_states.topic, on_joints, qos.sensor(JOINT_STATES))
        self._watch(
            Bool,
            topics.DEADMAN,
            lambda message, info: supervisor.deadman(message.data, messages.publisher(info)),
            qos.DEADMAN_HEARD,
            **Alive(supervisor.operators_alive).events,
        )
        self._hear_targets(self.value("targets"))
        for name, arm in contract.arms.items():
            if (contact := arm.contact) is not None:
                kind = messages.message_type(contact.type)
                self._watch(kind, contact.topic, partial(self._on_contact, name), qos.sensor(JOINT_STATES))
            hear_conditions(arm, self._watch, partial(supervisor.condition, arm=name))
        self.create_service(Trigger, topics.DISARM, self._service(self._filter.disarm, "braking, then disarmed"))
        self.create_service(Trigger, topics.ESTOP, self._service(self._filter.estop, "emergency stop"))
        self._arming = Callers(self, self.create_service(Trigger, topics.ARM, self._arm))
        self._resetting = Callers(self, self.create_service(Trigger, topics.RESET, self._reset))
        self.beat(self._period, self._tick)
        self._lags = Lags(contract)
        self.every(LOOK_S, partial(self._lags.look, self._filter.stop))
        self.every(1.0 / STATE_HZ, self._publish_state)
        self.looking = self.every(0.5, self._look_around)

    def _hear_targets(self, what: str) -> None:
        kinds = {
            JOINTS: (JointTrajectory, topics.TARGET, self._on_target),
            POSES: (PoseStamped, topics.TARGET_POSE, self._on_pose),
        }
        check_choice("targets of the safety node", what, kinds)
        if what == POSES and len(self.contract.arms) > 1:
            raise BadInput("targets of the safety node", got="poses for two arms", expected=JOINTS)
        kind, topic, callback = kinds[what]
        self._targets = self.resolve_topic_name(topic)
        self._target_opening: float | None = None
        if what == POSES:  # first: an opening that was sent with a pose is taken with it
            self._watch(Float64, topics.TARGET_OPENING, self._on_opening, qos.CONTROLLER)
        self._watch(
            kind,
            topic,
            callback,
            qos.TARGET,
            deadline=lambda event: self.supervisor.deadline_missed(),
            **Alive(lambda count: self.supervisor.streamers_alive(count, self._targets)).events,
        )

    def deactivate(self) -> None:
        self._filter.disarm()

    def cleanup(self) -> None:
        if self.supervisor.moving:
            raise BadInput("clean up", got=f"a safety filter that is {self._filter.state}", expected="one at rest")

    def begin_stop(self, reason: str) -> None:
        if hasattr(self, "supervisor"):
            log.info("%s: braking first", reason)
            self._filter.disarm()

    def stopped(self) -> bool:
        done = not hasattr(self, "supervisor") or not self.supervisor.moving
        if done and hasattr(self, "_state_publisher"):
            self._publish_state()
        return done

    def on_fault(self, error: Exception) -> bool:
        """Brake and latch; the node goes on, because ending it would end the braking too."""
        if not hasattr(self, "supervisor"):
            return False
        self._filter.estop(f"the safety node failed: {error!r}")
        return True

    # --- what arrives --------------------------------------------------------------------------------------

    def _on_joints(self, arm: str, message: JointState, info: MessageInfo) -> None:
        stamp, named = messages.seconds(message.header.stamp), messages.named(message)
        self.supervisor.joint_state(*named, stamp, messages.publisher(info), arm)
        self._lags.measured(arm, *named)

    def _on_contact(self, arm: str, message: Any, info: MessageInfo) -> None:
        stamp = messages.seconds(message.header.stamp)
        names, values, positions = messages.felt(message)
        self.supervisor.contact(names, values, stamp, messages.publisher(info), positions, arm)

    def _on_target(self, message: JointTrajectory, info: MessageInfo) -> None:
        count = len(message.points)
        if count == 0:
            self.supervisor.stop_request(message.header.frame_id)
            self._publish_changes()
        elif count > 1:
            self.supervisor.malformed_target(f"a target of {count} points; expected one")
        else:
            _, names, rows, after = messages.read_chunk(message)
            new = self.supervisor.target(names, rows[0], messages.nanoseconds(message.header.stamp), after[0])
            if new and self._horizon is None:  # what is sent ahead waits anyway
                self._phase.waited(time.monotonic() - sent_at(info))

    def _on_opening(self, message: Float64, info: MessageInfo) -> None:
        if self.supervisor.opening(messages.publisher(info)):
            self._target_opening = message.data

    def _on_pose(self, message: PoseStamped, info: MessageInfo) -> None:
        p, o = message.pose.position, message.pose.orientation
        target = PoseTarget(np.array([p.x, p.y, p.z]), np.array([o.w, o.x, o.y, o.z]), self._target_opening)
        stamp_ns, publisher = messages.nanoseconds(message.header.stamp), messages.publisher(info)
        self.supervisor.pose_target(target, message.header.frame_id, stamp_ns, publisher)

    # --- services ------------------------------------------------------------------------------------------

    def _service(self, act: Callable[[], None], done: str) -> Callable[..., Trigger.Response]:
        def handle(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            try:
                return messages.trigger(response, *attempt(act, done))
            finally:
                self._publish_changes()

        return handle

    def _reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if reason := self._unauthorised(self._resetting):
            return messages.trigger(response, False, f"not reset: {reason}")
        return self._service(self._filter.reset, "reset: ready to be armed")(request, response)

    def _unauthorised(self, callers: Callers) -> str:
        """The reason for which the caller may neither arm nor reset, or nothing."""
        self.take_all()
        if not self._comparable:
            return ""
        caller = callers.caller()
        if caller is None:
            return "the middleware has not reported the caller yet; call again"
        return self.supervisor.unauthorised(caller)

    def _arm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        unauthorised = self._unauthorised(self._arming)
        self._look_around()
        if reason := unauthorised or self._against_arming():
            return messages.trigger(response, False, f"not armed: {reason}")
        self._lags.begin()
        self._target_opening = None
        for one in self.controllers:
            one.begin()
        if self._horizon is not None:
            self._horizon.begin()
        return self._service(self.supervisor.arm, "armed")(request, response)

    def _against_arming(self) -> str:
        """The reason against arming, as far as the filter does not check it, or nothing."""
        if not self.active:
            return "the safety node is not active"
        if self.problems:
            return "; ".join(self.problems)
        if self._others:
            return self._others
        for one in self.controllers:
            if topic := one.unheard():
                return f"no controller listens on {topic}"
        states = [arm.joint_states.topic for arm in self.contract.arms.values()] if self._comparable else []
        there = ([bytes(one.endpoint_gid) for one in self.get_publishers_info_by_topic(topic)] for topic in states)
        return self.supervisor.refusal(self._targets, *there)

    # --- what goes out -------------------------------------------------------------------------------------

    def _tick(self) -> float:
        if not self.supervisor.due():
            return 0.0
        self.take_all()
        armed = self._filter.state is SafetyState.ARMED
        if armed and any(self.count_publishers(topic) > self._most for topic in self._command_topics):
            self._look_around()
        command = self.supervisor.step()
        if command is not None:
            self._publish(command)
            self._filter.sent()
            self._lags.commanded(command.positions)
            if self._set_point_publisher.get_subscription_count():
                now = 1e-9 * self.get_clock().now().nanoseconds
                sent = messages.joint_state(self.contract.joints, command.positions, now, command.velocities)
                self._set_point_publisher.publish(sent)
            if accepted := self.supervisor.newly_accepted():
                stamp_ns, positions = accepted
                names = (*self.contract.joints, *self.contract.grippers)
                stamp = messages.stamp_of(stamp_ns)
                self._accepted_publisher.publish(messages.target(names, positions, stamp))
        self._publish_changes()
        return self._phase.shift(at_rest=command is None or not np.any(command.velocities))

    def _publish(self, command: ArmCommand) -> None:
        """To the controllers of all arms, or of none."""
        if self._horizon is not None:
            send_ahead(self._horizon, self._filter, command, self._controllers_clock, self._ahead)
        elif not self._dry_run:
            made = [one.message(own) for one, own in zip(self.controllers, _each(command), strict=True)]
            checked = self._filter.checked(command)
            if checked is None:
                return
            for one, message, own in zip(self.controllers, made, _each(checked), strict=True):
                one.publish(message if checked is command else one.message(own), own)
        for one, own in zip(self.controllers, _each(command), strict=True):
            one.open(own.gripper)

    def _ahead(self, due: Sequence[Point]) -> Callable[[], None]:
        """Makes the messages of all controllers; the function that publishes them."""
        made = [(one, one.ahead(due)) for one in self.controllers]

        def publish() -> None:
            for one, message in made:
                one.publish_ahead(message)

        return publish

    def _controllers_clock(self) -> float:
        return 1e-9 * self.get_clock().now().nanoseconds

    def _publisher_name(self, gid: Hashable) -> str:
        """The node that publishes joint states, contact, poses, openings or the dead-man's switch under this
        identifier."""
        own = (topics.DEADMAN, topics.TARGET_POSE, topics.TARGET_OPENING)
        arms = self.contract.arms.values()
        states, felt = [arm.joint_states for arm in arms], [arm.contact for arm in arms if arm.contact is not None]
        return publisher_name(self, (*own, *(topic.topic for topic in (*states, *felt))), gid)

    def _publish_changes(self) -> None:
        if (self._filter.state, self._filter.reason) != self._published:
            self._publish_state()

    def _publish_state(self) -> None:
        state, reason = self._filter.state, self._filter.reason
        self._published = (state, reason)
        if state is SafetyState.DISARMED and not reason:
            reason = self._others or "; ".join(self.problems)
        values = {**self.supervisor.values(), "dry_run": self._dry_run}
        self._state_publisher.publish(messages.safety_report(state, reason, values, self.get_clock().now().to_msg()))

    def _look_around(self) -> None:
        """Look for other publishers to the controller, and of the gripper's opening."""
        self._others = ""
        if self._mismatch:
            self.problems = self._check_qos()
            self._mismatch = bool(self.problems)
        if self.value("targets") == POSES and self.count_publishers(topics.TARGET_OPENING) > 1:
            there = self.get_publishers_info_by_topic(topics.TARGET_OPENING)
            self._others = self.supervisor.openings_there([bytes(info.endpoint_gid) for info in there])
        for topic in self._command_topics:
            # Counting is cheap; asking who they are is not.
            if self.count_publishers(topic) <= self._most:
                continue
            names = [endpoint_name(info) for info in self.get_publishers_info_by_topic(topic)]
            if not self._dry_run and self.get_fully_qualified_name() in names:
                names.remove(self.get_fully_qualified_name())
            others = " and ".join(names)
            self._others = f"{others} publishes to {topic} too: only the safety node may"
            self._filter.stop(self._others)

    def _check_qos(self) -> list[str]:
        """The endpoints at the other end of our topics that ask for, or offer, what does not match."""
        found = []
        own = self.get_fully_qualified_name()
        # All profiles as the middleware reports them: what is left at its default reads differently before.
        for topic in self._watched:
            publishers = self.get_publishers_info_by_topic(topic)
            for publisher, subscriber in itertools.product(publishers, self.get_subscriptions_info_by_topic(topic)):
                names = endpoint_name(publisher), endpoint_name(subscriber)
                match, why = qos_check_compatible(publisher.qos_profile, subscriber.qos_profile)
                if match == QoSCompatibility.ERROR and own in names:
                    found.append(f"{names[1]} cannot receive from {names[0]} on {topic}: {why.strip(' ;')}")
        return found

    def _on_mismatch(self, event: Any) -> None:
        self._mismatch = True
        self.problems = self._check_qos() or ["the QoS of another node does not match ours"]
        log.error("; ".join(self.problems))
        self._filter.stop("; ".join(self.problems))

    def _controller(self, to: Topic | None) -> Any:
        """The publisher to a topic of a controller; None: nothing is sent there."""
        if to is None or self._dry_run:
            return None
        self._watched.append(to.topic)
        events = PublisherEventCallbacks(incompatible_qos=self._on_mismatch)
        return self.create_publisher(messages.message_type(to.type), to.topic, qos.COMMAND, event_callbacks=events)

    def _watch(
        self, kind: Any, topic: str, callback: Callable[[Any, MessageInfo], None], profile: QoSProfile, **events: Any
    ) -> None:
        """Hear a topic whose QoS has to match; `events` are called back, see `SubscriptionEventCallbacks`."""
        self._watched.append(topic)
        callbacks = SubscriptionEventCallbacks(incompatible_qos=self._on_mismatch, **events)
        self.hear(kind, topic, callback, profile, callbacks)


def _each(command: ArmCommand) -> Sequence[ArmCommand]:
    """The set-point of each arm."""
    return command.arms or (command,)
