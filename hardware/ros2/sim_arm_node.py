"""The simulated arm, or two in one world: in real time behind the topics of a ros2_control position controller each.

It replaces the driver and the controller of a real arm and behaves like them: joint states are published with or
without commands, set-points are followed as they arrive, and the last one is held. Topics, joint names and message
types are the contract's. A limit monitor checks every command before it is followed.

An episode that ends is reported once; the world goes on from where it is until `sim_arm/reset` begins the next.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from std_srvs.srv import Trigger

from hardware.observing.monitor import LimitMonitor, joined
from hardware.ros2 import faults, messages, qos, topics
from hardware.ros2.runtime import Node, step_back
from hardware.ros2.scene import MarkerArray, SceneMarkers
from hardware.ros2.senders import sent_at
from hardware.ros2.sim_arm_topics import SimArmTopics
from robolearn.core.errors import BadInput, RobolearnError
from robolearn.core.scene import Scene
from robots.stations import COMPRESSED, FLOATS, TRAJECTORY, AnyContract, Contract
from robots.stations.pictures import turned

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

MAX_BEHIND_S = 0.05  # what the physics catches up with at once; beyond, simulated time slips
MONITOR_PERIOD_S = 0.5
SCENE_PERIOD_S = 0.05
CAMERA_NICE = 5
# More than a controller keeps: one that reads only the newest skips set-points whenever it is held up, and then the
# monitor would count steps that were not commanded. Every command is seen and followed, in order.
COMMANDS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=200, reliability=ReliabilityPolicy.RELIABLE)


class ArmWorld(Protocol):
    """A simulated world; `sim.realtime.RealtimeWorld` is one, and describes the methods. Units: rad, m, s, Nm. Pictures
    are asked for, and ended by `close`, in a thread of their own."""

    @property
    def outcome(self) -> dict[str, Any] | None: ...
    def reset(self) -> int: ...
    def command(self, q: Array | None, width: float | None = None, arm: int = 0) -> None: ...
    def push(self, torque: Array) -> None: ...
    def advance(self, seconds: float) -> None: ...
    def joint_state(self, arm: int = 0) -> tuple[tuple[str, ...], Array, Array]: ...
    def objects(self) -> tuple[tuple[str, ...], Array]: ...
    def external_torque(self, arm: int = 0) -> Array: ...
    def scene(self) -> Scene: ...
    def image(self, camera: str) -> NDArray[np.uint8]: ...
    def close(self) -> None: ...


class SimArmNode(Node):
    """The node `sim_arm`. A parameter of its own that may be set at any time: `fault`, see `hardware.ros2.faults`.
    `make_world` makes the world of contract, task, seed and dynamics, in its first episode. Args: see `Node`."""

    commands: tuple[str, ...] = (FLOATS, TRAJECTORY)  # types of command that are followed
    takes_pairs = True

    def __init__(self, make_world: Callable[[AnyContract, str, int, str], ArmWorld], **station: Any) -> None:
        super().__init__("sim_arm", **station)
        self._make_world = make_world
        self._filming: threading.Thread | None = None
        self._no_pictures: Exception | None = None
        self._ended, self._filmed = threading.Event(), threading.Event()
        # Not among the defaults: those are fixed while the node is configured.
        self.declare_parameter("fault", "", ParameterDescriptor(description="where:what, see hardware.ros2.faults"))
        self.fault = faults.parse(self.get_parameter("fault").value or "")
        self.add_on_set_parameters_callback(self._set_fault)

    @property
    def contract(self) -> Contract:
        """That of the only arm, of the first of two."""
        return self.arms[0].contract

    @property
    def monitor(self) -> LimitMonitor:
        """The same of its commands."""
        return self.arms[0].monitor

    # --- lifecycle -----------------------------------------------------------------------------------------

    def configure(self) -> None:
        c = self.any_station() if self.takes_pairs else self.station()
        if not c.simulated:
            # Its joint states would stand for those of an arm that is elsewhere.
            raise BadInput(f"contract {c.name} for the simulated arm", got="a real arm", expected="simulated: true")
        for arm in c.arms.values():
            if arm.command.type not in self.commands:
                what = f"contract {arm.name}: command type for the simulated arm"
                raise BadInput(what, got=arm.command.type, available=self.commands)
        if self.value("joint_hz") <= 0 or self.value("camera_hz") <= 0:
            raise BadInput("rates", got=(self.value("joint_hz"), self.value("camera_hz")), expected="above 0 Hz")
        self._cameras = c.cameras
        self._seed: int = self.value("seed")
        self.world = self._make_world(c, self.value("task"), self._seed, self.value("dynamics"))
        self._episode = 0
        self._fresh = True  # not reset or commanded yet
        self._reported = self._slipped = False
        self._refused = 0
        self._objects_fault = faults.VectorFault()
        self.arms = [
            SimArmTopics(arm, number, lambda kind, topic: self.create_publisher(kind, topic, qos.sensor()))
            for number, arm in enumerate(c.arms.values())
        ]
        self._objects = c.objects and self.create_publisher(messages.JointState, c.objects.topic, qos.sensor())
        self._images = {
            name: self.create_publisher(messages.message_type(camera.type), camera.topic, qos.sensor(2))
            for name, camera in c.cameras.items()
        }
        self._episodes = self.create_publisher(messages.String, topics.SIM_EPISODE, qos.latched(10))
        self._summaries = self.create_publisher(messages.String, topics.SIM_MONITOR, qos.latched())
        self._scenes = self.create_publisher(MarkerArray, topics.SIM_SCENE, qos.latched())
        self._markers = SceneMarkers(c.frames.base)
        for arm in self.arms:
            command, gripper = arm.contract.command, arm.contract.gripper
            self.listen(messages.message_type(command.type), command.topic, partial(self._on_command, arm))
            if gripper is not None:
                self.listen(messages.message_type(gripper.type), gripper.topic, partial(self._on_gripper, arm))
        self._service = self.create_service(Trigger, topics.SIM_RESET, self._on_reset)

    def activate(self) -> None:
        self._last: float | None = None  # when the physics was advanced
        self._scene_due = 0.0
        self._still = self.beat(1.0 / self.value("joint_hz"), self._tick)
        self._summing = self.every(MONITOR_PERIOD_S, self._publish_summary)
        if self._images:
            self._ended.clear()
            self._filmed.clear()
            self._filming = threading.Thread(target=self._film, name="cameras", daemon=True)
            self._filming.start()

    def deactivate(self) -> None:
        self._stop_cameras()
        self._still()
        self.destroy_timer(self._summing)

    def cleanup(self) -> None:
        self.unhear(*(topic for topic, _ in self._inputs))
        self.destroy_service(self._service)
        arms = (publisher for arm in self.arms for publisher in (arm.states, arm.feels))
        ours = self._objects, self._episodes, self._summaries, self._scenes
        for publisher in filter(None, (*arms, *ours, *self._images.values())):
            self.destroy_publisher(publisher)

    def begin_stop(self, reason: str) -> None:
        self._stop_cameras()

    def destroy_node(self) -> None:
        self._stop_cameras()
        super().destroy_node()

    def _stop_cameras(self) -> None:
        self._ended.set()
        if self._filming is not None:
            self._filming.join(2.0)
            self._filming = None

    # --- time ----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.take_all()
        if self._no_pictures is not None and not self._filmed.is_set():
            raise self._no_pictures  # a machine that cannot draw at all
        now = time.monotonic()
        behind, self._last = 0.0 if self._last is None else now - self._last, now
        if behind > MAX_BEHIND_S and not self._slipped:
            self._slipped = True
            log.warning("%.0f ms behind: simulated time slips whenever this machine is too busy", 1e3 * behind)
        self._pass_time(min(behind, MAX_BEHIND_S))
        self._publish_states(now)
        if now >= self._scene_due:
            self._scene_due = now + SCENE_PERIOD_S
            if (scene := self._markers.message(self.world.scene(), self._stamp())) is not None:
                self._scenes.publish(scene)
        outcome = self.world.outcome
        if outcome is not None and not self._reported:
            self._reported = True
            self._episodes.publish(messages.text(json.dumps({"episode": self._episode, **outcome})))
            self._publish_summary()

    def _publish_states(self, now: float) -> None:
        at = self._stamp()
        for arm in self.arms:
            n, torque = len(arm.contract.joints), self.world.external_torque(arm.number)
            _, q, v = self.world.joint_state(arm.number)
            arm.monitor.state(q[:n], now)
            self._publish_arm(arm, arm.sample(q, v, torque, at))
            arm.publish_contact(q[:n], torque, at, self.fault.get("contact"))
        if self._objects is not None:
            sent = self._objects_fault.apply(self.fault.get("objects"), (*self.world.objects(), np.empty(0), at))
            if sent is not None:
                names, values, v, at = sent
                self._objects.publish(messages.joint_state(names, values, at, v))

    def _publish_arm(self, arm: SimArmTopics, sample: faults.Sample) -> None:
        arm.publish(sample, self.fault.get("joint_states"))

    def _pass_time(self, seconds: float) -> None:
        self.world.advance(seconds)

    def _stamp(self) -> float:
        return faults.stamp(self.fault.get("clock"), 1e-9 * self.get_clock().now().nanoseconds)

    # --- commands ------------------------------------------------------------------------------------------

    def _on_command(self, arm: SimArmTopics, message: Any, info: Any) -> None:
        c, width = arm.contract, None
        q = np.asarray(self._positions(message, c.joints), dtype=np.float64)
        if c.gripper_in_command and len(q) == len(c.command_joints):
            q, fingers = np.split(q, [len(c.joints)])
            width = c.gripper_width(fingers.tolist())
        arm.monitor.command(q, sent_at(info))
        self._follow(q, width, arm.number)

    def _on_gripper(self, arm: SimArmTopics, message: Any, info: Any) -> None:
        c = arm.contract
        values = self._positions(message, c.gripper_joints)
        opening = c.gripper_takes_opening
        if len(values) != (1 if opening else len(c.gripper_joints)):
            self._refuse(f"gripper command of {len(values)} values")
            return
        self._follow(None, float(values[0]) if opening else c.gripper_width(values), arm.number)

    def listen(self, kind: Any, topic: str, callback: Callable[[Any, Any], None]) -> None:
        """Take what comes on a topic of the contract, at each tick."""
        self.hear(kind, topic, callback, COMMANDS)

    def _hear_no_openings(self) -> None:
        """The gripper is moved by actions, as an emulator of its driver has them."""
        if self.contract.gripper is not None:
            self.unhear(self.contract.gripper.topic)

    def _positions(self, message: Any, joints: tuple[str, ...]) -> list[float]:
        """Set-points in the order of `joints`; empty where their names are ambiguous."""
        if not isinstance(message, messages.JointTrajectory):
            return list(message.data)
        points, names = list(message.points), list(message.joint_names)
        if len(points) != 1 or sorted(names) != sorted(joints) or len(points[0].positions) != len(names):
            return []
        return [points[0].positions[names.index(joint)] for joint in joints]

    def _follow(self, q: Array | None, width: float | None, arm: int = 0) -> None:
        try:
            self.world.command(q, width, arm)
        except BadInput as error:
            self._refuse(str(error))
        else:
            self._fresh = False

    def _refuse(self, why: str) -> None:
        self._refused += 1
        if self._refused == 1:
            log.error("dropped, and the last command kept: %s", why)

    # --- operator ------------------------------------------------------------------------------------------

    def _on_reset(self, request: Any, response: Any) -> Any:
        # Nothing was done to the first episode before the first reset: it is the next one.
        if not self._fresh:
            self._seed = self.world.reset()
            self._episode += 1
        self._reported = self._fresh = False
        self._last = None
        self._restarted()
        for arm in self.arms:
            arm.monitor.new_motion()
        return messages.trigger(response, True, json.dumps({"episode": self._episode, "seed": self._seed}))

    def _restarted(self) -> None:
        """The arm is elsewhere: emulators of drivers forget their commands."""

    def _publish_summary(self) -> None:
        self._summaries.publish(messages.text(json.dumps(joined([arm.monitor.summary() for arm in self.arms]))))

    def _set_fault(self, parameters: Any) -> SetParametersResult:
        for parameter in parameters:
            if parameter.name == "fault":
                try:
                    self.fault = faults.parse(parameter.value or "")
                except RobolearnError as error:
                    return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    # --- cameras, in a thread of their own: rendering takes longer than the time between joint states ----------

    def _film(self) -> None:
        # This thread, and those that a software renderer starts from it: joint states, and every other node, go first.
        step_back()
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), CAMERA_NICE)
        spoilt = {name: faults.CameraFault() for name in self._images}
        period, due = 1.0 / self.value("camera_hz"), time.monotonic()
        try:
            while not self._ended.wait(max(0.0, due - time.monotonic())):
                for name, publisher in self._images.items():
                    if not publisher.get_subscription_count():
                        continue  # no subscriber
                    at = self._stamp()
                    picture = spoilt[name].apply(fault := self.fault.get("camera"), self.world.image(name))
                    if picture is not None:
                        camera = self._cameras[name]
                        make = messages.compressed_image if camera.type == COMPRESSED else messages.image
                        frame = "another" if fault == "swap" else camera.frame or name
                        # The world shows what the policy is to see; a camera on its side sends it lying.
                        lying = turned(picture, -camera.rotate)
                        stamp = faults.picture_stamp(fault, at)
                        publisher.publish(make(np.ascontiguousarray(lying), stamp, frame))
                    self._filmed.set()
                # Late pictures are left out, never made up for, and there is always some time for others.
                due = max(due + period, time.monotonic() + 0.2 * period)
        except Exception as error:
            self._no_pictures = error
            if self._filmed.is_set() and not self._ended.is_set():
                log.error("no more pictures: %s", error)
        finally:
            self.world.close()
