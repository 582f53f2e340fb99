"""Reads the graph of a running station: topics of joint states, controllers with their joints, cameras.

Publishes nothing. A controller is a node that listens to ``~/joint_trajectory`` or ``~/commands``; its `joints` are
asked for by the parameter service that every node of ROS 2 has.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from rclpy.node import Node
from rclpy.parameter_client import AsyncParameterClient
from sensor_msgs.msg import JointState

from hardware.ros2 import qos
from hardware.ros2.process import Background
from hardware.ros2.station_watch import node_name
from hardware.station.driver_topics import LiveController, LiveGraph, LiveJoints
from robolearn.core import BadInput
from robots.stations.values import FLOATS, JOINT_STATE, TRAJECTORY, TYPES

SCAN_S = 0.1
INPUTS = {TRAJECTORY: "joint_trajectory", FLOATS: "commands"}


def read_graph(seconds: float, domain: int | None = None) -> LiveGraph:
    """The graph, and what is heard and answered in `seconds`. Raises `BadInput`: they are not more than 0."""
    if not seconds > 0:
        raise BadInput("--seconds", got=seconds, expected="more than 0")
    with Background(domain) as background:
        node = background.add(Node("graph_reader", context=background.context))
        reader = _Reader(node)
        end = time.monotonic() + seconds
        while time.monotonic() < end:  # not everybody is found at once
            reader.scan()
            time.sleep(SCAN_S)
        return reader.graph()


class _Reader:
    """Topics and controllers found until now."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._heard: dict[str, tuple[str, ...]] = {}  # topic of joint states → names
        self._listeners: set[tuple[str, str, str]] = set()  # topic, type, node
        self._clients: dict[str, AsyncParameterClient] = {}
        self._answers: dict[str, Any] = {}  # node → future of its joints
        self._cameras: set[str] = set()

    def scan(self) -> None:
        """Look at all topics, listen to new joint states, ask new controllers."""
        for topic, kinds in self._node.get_topic_names_and_types():
            published = self._node.count_publishers(topic)
            for kind in kinds:
                if kind == JOINT_STATE and published and topic not in self._heard:
                    self._heard[topic] = ()
                    self._node.create_subscription(JointState, topic, partial(self._hear, topic), qos.sensor(10))
                elif kind in TYPES["cameras"] and published:
                    self._cameras.add(topic)
                elif topic.endswith(f"/{INPUTS.get(kind, '?')}"):
                    for info in self._node.get_subscriptions_info_by_topic(topic):
                        self._listeners.add((topic, kind, node_name(info)))
        for *_, who in self._listeners:
            if who not in self._clients:
                self._clients[who] = AsyncParameterClient(self._node, who)
            if who not in self._answers and self._clients[who].services_are_ready():
                self._answers[who] = self._clients[who].get_parameters(["joints"])

    def graph(self) -> LiveGraph:
        controllers = (LiveController(*one, _strings(self._answers.get(one[2]))) for one in sorted(self._listeners))
        states = (LiveJoints(*one) for one in sorted(self._heard.items()))
        return LiveGraph(tuple(states), tuple(controllers), tuple(sorted(self._cameras)))

    def _hear(self, topic: str, message: JointState) -> None:
        self._heard[topic] = tuple(dict.fromkeys((*self._heard[topic], *message.name)))


def _strings(answer: Any) -> tuple[str, ...]:
    """The value of a parameter that is a list of strings; empty where there is none."""
    if answer is None or not answer.done() or not (values := answer.result().values):
        return ()
    return tuple(values[0].string_array_value)
