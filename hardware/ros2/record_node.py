"""The recorder as a node: `hardware.recording` behind its topics and services."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from rclpy.subscription import MessageInfo
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from hardware.node_parameters import TeleopParameters
from hardware.observing.observer import Observer
from hardware.recording import Recording, Session, StorageThread
from hardware.ros2 import messages, qos, topics
from hardware.ros2.runtime import step_back
from hardware.ros2.teleop_node import TeleopNode


class RecordNode(TeleopNode):
    """Records demonstrations.

    Args:
      make_session: parameters → the session; called once, when the node is configured.
      defaults: its parameters.
      name: of the node.
      make: of the recording, `Recording` or a class derived from it.
      station: see `Node`.

    Attributes:
      recording: the logic, once configured.
      monitor: the newest summary of the simulated arm's.
    """

    def __init__(
        self,
        make_session: Callable[[Any], Session],
        *,
        defaults: TeleopParameters | None = None,
        make: Callable[..., Recording] = Recording,
        name: str = "record",
        **station: Any,
    ) -> None:
        super().__init__(name=name, defaults=defaults, **station)
        self._make_session, self._make = make_session, make
        self.recording: Recording | None = None
        self.monitor: dict[str, Any] = {}
        self._storage: StorageThread | None = None

    def open_session(self) -> Recording:
        session = self._make_session(self.parameters)
        self.placed(session.contract)
        self.device, self._storage = session.device, StorageThread(step_back)
        self.recording = self._make(
            session,
            self,
            Observer(session.contract, tuple(session.interface.observation)),
            self._storage,
            sim_reset=lambda: self.trigger(topics.SIM_RESET),
            wall=lambda: 1e-9 * self.get_clock().now().nanoseconds,
        )
        return self.recording

    def configure(self) -> None:
        super().configure()
        assert self.recording is not None
        self.hear(JointTrajectory, topics.ACCEPTED, self._on_accepted, qos.ACCEPTED)
        if self.recording.session.simulated:
            self.create_subscription(String, topics.SIM_EPISODE, self._on_episode, qos.latched(10))
            self.create_subscription(String, topics.SIM_MONITOR, self._on_monitor, qos.latched())
        self.every(0.1, self._look)

    def destroy_node(self) -> None:
        if self._storage is not None:
            self._storage.close()
            self._storage = None
        super().destroy_node()

    def _on_accepted(self, message: JointTrajectory, info: MessageInfo) -> None:
        points = list(message.points)
        if points and self.recording is not None:
            self.recording.accepted(messages.nanoseconds(message.header.stamp), np.array(points[0].positions))

    def _on_episode(self, message: String) -> None:
        assert self.recording is not None
        self.recording.sim_episode(json.loads(message.data))

    def _on_monitor(self, message: String) -> None:
        self.monitor = json.loads(message.data)

    def _look(self) -> None:
        assert self.recording is not None
        self.recording.look()
        self._follow_session()
