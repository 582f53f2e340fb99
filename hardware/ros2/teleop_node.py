"""The teleoperation node: `hardware.teleop.teleoperation` behind its topics and services.

The device shows the state of things in a thread of its own; everything else runs when the node's heart beats.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from numpy.typing import NDArray
from rclpy.subscription import MessageInfo
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from hardware.node_parameters import TeleopParameters
from hardware.observing.observer import Observer
from hardware.recording.episodes import EpisodeLifecycle
from hardware.ros2 import messages, qos, topics
from hardware.ros2.messages import SafetyReport
from hardware.ros2.observation_inputs import ObservationInputs
from hardware.ros2.runtime import Node, step_back
from hardware.ros2.scene import MarkerArray, read_scene
from hardware.teleop.device import Device
from hardware.teleop.teleoperation import Teleoperation
from robolearn.core import RobolearnError
from robolearn.core.scene import Scene
from robots.stations import AnyContract

log = logging.getLogger(__name__)

SHOW_S = 0.1  # between two looks of the operator at the state of things


class TriggerCall:
    """One call of a Trigger service."""

    def __init__(self, client: Any, name: str) -> None:
        self._client, self.name = client, name
        self._future: Any = None

    def ready(self) -> bool:
        return self._client.service_is_ready()

    def send(self) -> None:
        self._future = self._client.call_async(Trigger.Request())

    def answer(self) -> tuple[bool, str] | None:
        if self._future is None or not self._future.done():
            return None
        answer = self._future.result()
        return bool(answer.success), str(answer.message)

    def cancel(self) -> None:
        self._client.remove_pending_request(self._future)


class TeleopNode(Node):
    """An operator moves the arm. It is the `ArmLink` of its session, `session` once it is configured. `make_device`
    opens the device of a contract and the parameter `device`; the node closes it. `interrupted` is true where it was
    ended by a signal before the session was done. Args: see `Node`."""

    stop_limit_s = 10.0

    def __init__(
        self,
        make_device: Callable[[AnyContract, str], Device] | None = None,
        *,
        name: str = "teleop",
        defaults: TeleopParameters | None = None,
        **station: Any,
    ) -> None:
        super().__init__(name, defaults, **station)
        self._make_device = make_device
        self.interrupted = False
        self.device: Device | None = None
        self.session: Teleoperation | None = None
        self._screen: threading.Thread | None = None
        self._triggers: dict[str, Any] = {}

    def open_session(self) -> Teleoperation:
        """The session, its device open."""
        assert self._make_device is not None
        contract = self.any_station()
        self.device = self._make_device(contract, self.value("device"))
        observer = Observer(contract, ("proprio",))
        return Teleoperation(self.device, EpisodeLifecycle(0, recording=False), self, observer)

    @property
    def report(self) -> SafetyReport | None:
        """The newest of the safety node."""
        return self.session.report if self.session is not None else None  # type: ignore[return-value]

    @property
    def episodes(self) -> EpisodeLifecycle:
        """Those of the session."""
        assert self.session is not None
        return self.session.episodes

    # --- lifecycle -----------------------------------------------------------------------------------------

    def configure(self) -> None:
        session = self.open_session()
        contract, features = session.contract, session.features
        self._target_publisher = self.create_publisher(JointTrajectory, topics.TARGET, qos.TARGET)
        self._deadman_publisher = self.create_publisher(Bool, topics.DEADMAN, qos.DEADMAN)
        for name in (topics.ARM, topics.DISARM, topics.RESET):
            self._client(name)
        self._observation_inputs = ObservationInputs(self, contract, session.observer, features)
        self.hear(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        # The screen's thread takes it: the control loop has nothing to do with it.
        self._scene: Scene | None = None
        self._take_scene: Callable[[], None] = lambda: None
        if contract.simulated:
            self._take_scene = self.poll(MarkerArray, topics.SIM_SCENE, self._on_scene, qos.latched())
        sys.setswitchinterval(0.001)  # a thread that shows or encodes must not hold up the arm for 5 ms
        self._wake = threading.Event()  # of the screen
        session.on_change = self._wake.set
        self.session, self._ended = session, False
        self._screen = threading.Thread(target=self._show, name="screen", daemon=True)
        self._screen.start()
        self.beat(1.0 / contract.stream_hz, self._tick)

    def begin_stop(self, reason: str) -> None:
        self.interrupted = not self.done
        if self.session is not None:
            self.session.do(self.session.episodes.end(reason))
            self._follow_session()

    def stopped(self) -> bool:
        return self.session is None or self.session.at_rest()

    def destroy_node(self) -> None:
        if self._screen is not None:
            self._ended = True
            self._wake.set()
            self._screen.join(2.0)
            self._screen = None
        if self.device is not None:
            self.device.close()
            self.device = None
        super().destroy_node()

    def on_fault(self, error: Exception) -> bool:
        """The device or the recording failed: the arm is not commanded any more."""
        failure = error if isinstance(error, RobolearnError) else RobolearnError(f"{type(error).__name__}: {error}")
        if self.session is None:
            self.error, self.done = self.error or failure, True
        else:
            self.session.fail(failure)
            self._follow_session()
        return True

    # --- the session's link to the safety node -------------------------------------------------------------

    def connected(self) -> bool:
        ready = all(self._triggers[name].service_is_ready() for name in (topics.ARM, topics.DISARM, topics.RESET))
        return ready and self._deadman_publisher.get_subscription_count() > 0

    def send_target(self, positions: NDArray[np.float64], stamp_ns: int) -> None:
        assert self.session is not None
        after_s = 1e-9 * (self.get_clock().now().nanoseconds - stamp_ns)
        names = self.session.set_points.names
        self._target_publisher.publish(messages.target(names, positions, messages.stamp_of(stamp_ns), after_s))

    def send_deadman(self, held: bool) -> None:
        self._deadman_publisher.publish(Bool(data=held))

    def observed_ns(self) -> int:
        return messages.nanoseconds(self._observation_inputs.stamp)

    def arm(self) -> TriggerCall:
        return self.trigger(topics.ARM)

    def disarm(self) -> TriggerCall:
        return self.trigger(topics.DISARM)

    def reset(self) -> TriggerCall:
        return self.trigger(topics.RESET)

    def trigger(self, service: str) -> TriggerCall:
        """A call of any Trigger service, not sent yet."""
        return TriggerCall(self._client(service), service)

    def _client(self, service: str) -> Any:
        if service not in self._triggers:
            self._triggers[service] = self.create_client(Trigger, service)
        return self._triggers[service]

    # --- time ----------------------------------------------------------------------------------------------

    def _on_safety(self, message: DiagnosticArray, info: MessageInfo) -> None:
        report = messages.read_safety_report(message)
        if report is not None and self.session is not None:
            self.session.safety(report)

    def _on_scene(self, message: Any, info: MessageInfo) -> None:
        self._scene = read_scene(message) or self._scene

    def _tick(self) -> None:
        assert self.session is not None
        try:
            self.take_all()
            self.session.tick()
        except (RobolearnError, OSError) as error:  # others are reported with their traces
            self.on_fault(error)
        self._follow_session()

    def _follow_session(self) -> None:
        """End the node with its session."""
        assert self.session is not None
        self.error, self.done = self.error or self.session.error, self.done or self.session.done

    def _show(self) -> None:
        step_back()
        session, device = self.session, self.device
        assert session is not None and device is not None
        while not self._ended:
            status = session.status
            try:
                self._take_scene()
                device.show(dataclasses.replace(status, scene=self._scene))
            except Exception:
                log.exception("the device shows nothing any more")
                return
            session.shown = status.message
            # A change at once: a script begins when it is shown that it is recorded.
            self._wake.wait(SHOW_S)
            self._wake.clear()
