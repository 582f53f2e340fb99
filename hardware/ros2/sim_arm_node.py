"""The simulated arm: a world in real time behind the topics of a ros2_control position controller.

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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from std_srvs.srv import Trigger

from hardware.observing.monitor import LimitMonitor
from hardware.ros2 import faults, messages, qos, topics
from hardware.ros2.runtime import Node, step_back
from hardware.ros2.scene import MarkerArray, SceneMarkers
from hardware.ros2.senders import sent_at
from robolearn.core.errors import BadInput, RobolearnError
from robolearn.core.scene import Scene
from robots.stations import COMPRESSED, FLOATS, TRAJECTORY, WRENCH, Contract
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
    def command(self, q: Array | None, width: float | None = None) -> None: ...
    def push(self, torque: Array) -> None: ...
    def advance(self, seconds: float) -> None: ...
    def joint_state(self) -> tuple[tuple[str, ...], Array, Array]: ...
    def objects(self) -> tuple[tuple[str, ...], Array]: ...
    def external_torque(self) -> Array: ...
    def scene(self) -> Scene: ...
    def image(self, camera: str) -> NDArray[np.uint8]: ...
    def close(self) -> None: ...


class SimArmNode(Node):
    """The node `sim_arm`. A parameter of its own that may be set at any time: `fault`, see `hardware.ros2.faults`.
    `make_world` makes the world of contract, task, seed and dynamics, in its first episode. Args: see `Node`."""

    commands: tuple[str, ...] = (FLOATS, TRAJECTORY)  # types of command that are followed

    def __init__(self, make_world: Callable[[Contract, str, int, str], ArmWorld], **station: Any) -> None:
        super().__init__("sim_arm", **station)
        self._make_world = make_world
        self._filming: threading.Thread | None = None
        self._no_pictures: Exception | None = None
        self._ended, self._filmed = threading.Event(), threading.Event()
        # Not among the defaults: those are fixed while the node is configured.
        self.declare_parameter("fault", "", ParameterDescriptor(description="where:what, see hardware.ros2.faults"))
        self.fault = faults.parse(self.get_parameter("fault").value or "")
        self.add_on_set_parameters_callback(self._set_fault)

    # --- lifecycle -----------------------------------------------------------------------------------------

    def configure(self) -> None:
        c = self.station()
        if not c.simulated:
            # Its joint states would stand for those of an arm that is elsewhere.
            raise BadInput(f"contract {c.name} for the simulated arm", got="a real arm", expected="simulated: true")
        if c.command.type not in self.commands:
            what = f"contract {c.name}: command type for the simulated arm"
            raise BadInput(what, got=c.command.type, available=self.commands)
        if self.value("joint_hz") <= 0 or self.value("camera_hz") <= 0:
            raise BadInput("rates", got=(self.value("joint_hz"), self.value("camera_hz")), expected="above 0 Hz")
        self.contract = c
        self._seed: int = self.value("seed")
        self.world = self._make_world(c, self.value("task"), self._seed, self.value("dynamics"))
        self.monitor = LimitMonitor.of(c.robot, 1.0 / c.stream_hz)
        self._episode = 0
        self._fresh = True  # not reset or commanded yet
        self._reported = self._slipped = False
        self._refused = 0
        self._faults = {where: faults.VectorFault() for where in ("joint_states", "objects", "contact")}
        self._joint_states = self.create_publisher(messages.JointState, c.joint_states.topic, qos.sensor())
        self._objects = c.objects and self.create_publisher(messages.JointState, c.objects.topic, qos.sensor())
        self._feels: Any = None
        self._efforts: dict[str, float] = {}  # of motors that carry the arm, in its joint states
        if c.contact is not None and c.contact.topic != c.joint_states.topic:
            kind = messages.message_type(c.contact.type)
            self._feels = self.create_publisher(kind, c.contact.topic, qos.sensor())
        self._images = {
            name: self.create_publisher(messages.message_type(camera.type), camera.topic, qos.sensor(2))
            for name, camera in c.cameras.items()
        }
        self._episodes = self.create_publisher(messages.String, topics.SIM_EPISODE, qos.latched(10))
        self._summaries = self.create_publisher(messages.String, topics.SIM_MONITOR, qos.latched())
        self._scenes = self.create_publisher(MarkerArray, topics.SIM_SCENE, qos.latched())
        self._markers = SceneMarkers(c.frames.base)
        kind = messages.message_type(c.command.type)
        self.listen(kind, c.command.topic, self._on_command)
        if c.gripper is not None:
            self.listen(messages.message_type(c.gripper.type), c.gripper.topic, self._on_gripper)
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
        ours = self._joint_states, self._objects, self._feels, self._episodes, self._summaries, self._scenes
        for publisher in filter(None, (*ours, *self._images.values())):
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
        c, n = self.contract, len(self.contract.joints)
        at = self._stamp()
        _, q, v = self.world.joint_state()
        self.monitor.state(q[:n], now)
        # The driver's unit for the gripper: linear between closed and open.
        (closed, opened), (shut, wide) = c.gripper_range, c.robot.gripper.joint_range
        fingers = q[n:] if len(q) - n == len(c.gripper_joints) else np.full(len(c.gripper_joints), q[n:].mean())
        scale = (opened - closed) / (wide - shut)
        q = np.concatenate([q[:n], closed + scale * (fingers - shut)])
        v = np.concatenate([v[:n], np.full(len(fingers), scale * v[n:].mean())])
        if c.contact is not None and c.contact.gravity:
            tau = c.robot.gravity.torques(q[:n]) - self.world.external_torque()
            self._efforts = dict(zip(c.joints, tau.tolist(), strict=True))
        self._publish_arm(((*c.joints, *c.gripper_joints), q, v, at))
        if self._objects is not None:
            names, values = self.world.objects()
            self._send("objects", self._objects, (names, values, np.empty(0), at))
        if self._feels is not None:
            self._publish_contact(q[:n], at)

    def _publish_contact(self, q: Array, at: float) -> None:
        c, torques = self.contract, self.world.external_torque()
        sample = self._faults["contact"].apply(self.fault.get("contact"), (c.joints, torques, np.empty(0), at))
        if sample is None:
            return
        names, torques, _, at = sample
        if c.contact is not None and c.contact.type == WRENCH:
            # As drivers estimate it: the force at the tcp that explains the torques best.
            jacobian = c.robot.chain.jacobian(q[None])[0]
            self._feels.publish(messages.wrench(np.linalg.lstsq(jacobian.T, torques)[0], at))
        else:
            self._feels.publish(messages.joint_state(names, (), at, efforts=torques))

    def _publish_arm(self, sample: faults.Sample) -> None:
        self._send("joint_states", self._joint_states, sample)

    def _pass_time(self, seconds: float) -> None:
        self.world.advance(seconds)

    def _send(self, where: str, publisher: Any, sample: faults.Sample) -> None:
        sent = self._faults[where].apply(self.fault.get(where), sample)
        if sent is not None:
            names, q, v, at = sent
            efforts = [self._efforts.get(name, 0.0) for name in names] if where == "joint_states" else []
            publisher.publish(messages.joint_state(names, q, at, v, efforts if self._efforts else ()))

    def _stamp(self) -> float:
        return faults.stamp(self.fault.get("clock"), 1e-9 * self.get_clock().now().nanoseconds)

    # --- commands ------------------------------------------------------------------------------------------

    def _on_command(self, message: Any, info: Any) -> None:
        c, width = self.contract, None
        q = np.asarray(self._positions(message, c.joints), dtype=np.float64)
        if c.gripper_in_command and len(q) == len(c.command_joints):
            q, fingers = np.split(q, [len(c.joints)])
            width = c.gripper_width(fingers.tolist())
        self.monitor.command(q, sent_at(info))
        self._follow(q, width)

    def _on_gripper(self, message: Any, info: Any) -> None:
        c = self.contract
        values = self._positions(message, c.gripper_joints)
        opening = c.gripper_takes_opening
        if len(values) != (1 if opening else len(c.gripper_joints)):
            self._refuse(f"gripper command of {len(values)} values")
            return
        self._follow(None, float(values[0]) if opening else c.gripper_width(values))

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

    def _follow(self, q: Array | None, width: float | None) -> None:
        try:
            self.world.command(q, width)
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
        self.monitor.new_motion()
        return messages.trigger(response, True, json.dumps({"episode": self._episode, "seed": self._seed}))

    def _restarted(self) -> None:
        """The arm is elsewhere: emulators of drivers forget their commands."""

    def _publish_summary(self) -> None:
        self._summaries.publish(messages.text(json.dumps(self.monitor.summary())))

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
                        compressed = self.contract.cameras[name].type == COMPRESSED
                        make = messages.compressed_image if compressed else messages.image
                        frame = "another" if fault == "swap" else self.contract.cameras[name].frame or name
                        # The world shows what the policy is to see; a camera on its side sends it lying.
                        lying = turned(picture, -self.contract.cameras[name].rotate)
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
