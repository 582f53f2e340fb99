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
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from std_srvs.srv import Trigger

from hardware.observing.monitor import LimitMonitor, joined
from hardware.ros2 import faults, messages, qos, topics
from hardware.ros2.runtime import step_back
from hardware.ros2.scene import MarkerArray, SceneMarkers
from hardware.ros2.sim_driver import ArmWorld, MakesDriver, SimDriver, WorldNode
from robolearn.core.errors import BadInput, RobolearnError
from robots.stations import COMPRESSED, AnyContract, Contract
from robots.stations.pictures import turned

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

MAX_BEHIND_S = 0.05  # what the physics catches up with at once; beyond, simulated time slips
MAX_LED_S = 0.5  # the same of an arm whose controller runs by the clock: where it slips, the arm goes faster than asked
MONITOR_PERIOD_S = 0.5
SCENE_PERIOD_S = 0.05
CAMERA_NICE = 5


class SimArmNode(WorldNode):
    """The node `sim_arm`. A parameter of its own that may be set at any time: `fault`, see `hardware.ros2.faults`.

    Args:
      make_world: makes the world of contract, task, seed and dynamics, in its first episode.
      drivers: the key `driver` of an arm's contract → makes the emulator of that driver.
      station: see `Node`.
    """

    def __init__(
        self,
        make_world: Callable[[AnyContract, str, int, str], ArmWorld],
        drivers: Mapping[str, MakesDriver] = {},
        **station: Any,
    ) -> None:
        super().__init__("sim_arm", **station)
        self._make_world, self._drivers = make_world, drivers
        self._names: tuple[str, ...] | None = None  # of the arms
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
        c = self.any_station()
        if not c.simulated:
            # Its joint states would stand for those of an arm that is elsewhere.
            raise BadInput(f"contract {c.name} for the simulated arm", got="a real arm", expected="simulated: true")
        self._names = tuple(c.arms)
        self.fault = faults.parse(self.get_parameter("fault").value or "", self._names)
        if self.value("joint_hz") <= 0 or self.value("camera_hz") <= 0:
            raise BadInput("rates", got=(self.value("joint_hz"), self.value("camera_hz")), expected="above 0 Hz")
        self._cameras = c.cameras
        self._seed: int = self.value("seed")
        self.world = self._make_world(c, self.value("task"), self._seed, self.value("dynamics"))
        self._episode = 0
        self.is_fresh = True  # not reset or commanded yet
        self._reported = self._slipped = False
        self._objects_fault = faults.VectorFault()
        self.arms: list[SimDriver] = [
            self._drivers.get(arm.driver, SimDriver)(self, arm, name, number)
            for number, (name, arm) in enumerate(c.arms.items())
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
        self._service = self.create_service(Trigger, topics.SIM_RESET, self._on_reset)

    def activate(self) -> None:
        self._last: float | None = None  # when the physics was advanced
        self._stepped = self._at = self._ros_now()  # of the controllers, of the world
        for arm in self.arms:
            arm.activate()
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
        for arm in self.arms:
            arm.deactivate()

    def cleanup(self) -> None:
        self.unhear(*(topic for topic, _ in self._inputs))
        self.destroy_service(self._service)
        for arm in self.arms:
            arm.close()
        ours = self._objects, self._episodes, self._summaries, self._scenes
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
        most = MAX_LED_S if any(arm.period_s for arm in self.arms) else MAX_BEHIND_S
        if behind > most and not self._slipped:
            self._slipped = True
            log.warning("%.0f ms behind: simulated time slips whenever this machine is too busy", 1e3 * behind)
        self._pass_time(min(behind, most))
        self._publish_states(now)
        if now >= self._scene_due:
            self._scene_due = now + SCENE_PERIOD_S
            if (scene := self._markers.message(self.world.scene(), self.stamp())) is not None:
                self._scenes.publish(scene)
        outcome = self.world.outcome
        if outcome is not None and not self._reported:
            self._reported = True
            self._episodes.publish(messages.text(json.dumps({"episode": self._episode, **outcome})))
            self._publish_summary()

    def _pass_time(self, seconds: float) -> None:
        """Let `seconds` pass in the world. Controllers that move an arm between its commands have as much as has passed
        by the clock of ROS, and the world with them."""
        for arm in self.arms:
            arm.pass_time(seconds)
        led = [arm for arm in self.arms if arm.period_s]
        self._at = now = self._ros_now()
        period = max((arm.period_s for arm in led), default=0.0)
        self._stepped = min(self._stepped, now)  # the clock may have been set back
        steps = int((now - self._stepped) / period) if led else 0
        for _ in range(steps):
            self._stepped += period
            for arm in led:
                arm.step(self._stepped)
            self.world.advance(min(period, MAX_LED_S / steps))
        if not led:
            self.world.advance(seconds)

    def _publish_states(self, now: float) -> None:
        for arm in self.arms:
            arm.publish(now, self.stamp(arm.fault("clock"), self._at))
        if self._objects is not None:
            sample = (*self.world.objects(), np.empty(0), self.stamp(at=self._at))
            sent = self._objects_fault.apply(self.fault.get("objects"), sample)
            if sent is not None:
                names, values, v, at = sent
                self._objects.publish(messages.joint_state(names, values, at, v))

    def _ros_now(self) -> float:
        return 1e-9 * self.get_clock().now().nanoseconds

    def stamp(self, fault: str | None = None, at: float | None = None) -> float:
        """See `WorldNode.stamp`."""
        return faults.stamp(fault or self.fault.get("clock"), self._ros_now() if at is None else at)

    # --- operator ------------------------------------------------------------------------------------------

    def _on_reset(self, request: Any, response: Any) -> Any:
        # Nothing was done to the first episode before the first reset: it is the next one.
        if not self.is_fresh:
            self._seed = self.world.reset()
            self._episode += 1
        self._reported = self.is_fresh = False
        self._last = None
        for arm in self.arms:
            arm.restarted()
        return messages.trigger(response, True, json.dumps({"episode": self._episode, "seed": self._seed}))

    def _publish_summary(self) -> None:
        self._summaries.publish(messages.text(json.dumps(joined([arm.monitor.summary() for arm in self.arms]))))

    def _set_fault(self, parameters: Any) -> SetParametersResult:
        for parameter in parameters:
            if parameter.name == "fault":
                try:
                    self.fault = faults.parse(parameter.value or "", self._names)
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
                first = None  # picture of this round
                for name, publisher in self._images.items():
                    if not publisher.get_subscription_count():
                        continue  # no subscriber
                    at = self.stamp()
                    taken = self.world.image(name)
                    first = taken if first is None else first
                    picture = spoilt[name].apply(fault := self.fault.get("camera"), taken, first)
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
