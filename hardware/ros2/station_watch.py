"""Watches a station for some seconds: every topic of its contract, and the safety node's report. Publishes nothing."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.duration import Infinite
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible
from sensor_msgs.msg import CameraInfo, JointState

from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background
from hardware.station import Endpoint, JointSample, LensSample, PictureSample, SeenStation, SeenTopic
from hardware.station.seen import LENS_TYPE, SAFETY_STATE, StationSample, station_roles
from robolearn.core import BadInput
from robots.stations import AnyContract, Camera, Topic
from robots.stations.pictures import raw_picture

NODE = "doctor"
COMMANDS = ("command", "command.posture", "gripper")
SETTLE_S = 1.0  # subscriptions are found, and cameras begin to work once subscribed: not counted
DEPTH = 1000  # nothing is lost while this process is busy: two seconds of joint states at 500 Hz
PICTURES = 20


class StationWatch:
    """Listens to all topics of `contract` from now on, by a node that spins in `background`."""

    def __init__(self, background: Background, contract: AnyContract) -> None:
        nodes = topics.namespace_of_nodes(contract.namespace)
        self._node = background.add(Node(NODE, namespace=nodes, context=background.context))
        report = Topic(f"{nodes}/{topics.SAFETY_STATE}", "diagnostic_msgs/msg/DiagnosticArray")
        self._roles = {**station_roles(contract), SAFETY_STATE: report}
        self._samples: dict[str, list[StationSample]] = {role: [] for role in self._roles}
        self._safety: tuple[str, str] | None = None
        self._arms = tuple(f"{name}." for name in contract.arms if name)
        for role, topic in self._roles.items():
            kind = self._kind(role)
            if role == SAFETY_STATE:
                self._hear(role, topic, self._on_safety, qos.latched())
            elif kind in ("joint_states", "gripper_states", "objects"):
                self._hear(role, topic, _joints, qos.sensor(DEPTH))
            elif topic.type == LENS_TYPE:
                self._hear(role, topic, _lens, qos.sensor(PICTURES))
            elif isinstance(topic, Camera):
                self._hear(role, topic, partial(_picture, topic), qos.sensor(PICTURES))
            elif kind not in COMMANDS:
                self._hear(role, topic, lambda message, sample: sample, qos.sensor(DEPTH))

    def _kind(self, role: str) -> str:
        """The role without the name of its arm."""
        return next((role.removeprefix(arm) for arm in self._arms if role.startswith(arm)), role)

    def begin(self) -> None:
        """Forget the messages until now."""
        for role in self._samples:
            if role != SAFETY_STATE:  # latched: it may have come already
                self._samples[role] = []

    def seen(self) -> SeenStation:
        """Everything seen until now."""
        found = {role: self._topic(role, topic) for role, topic in self._roles.items()}
        return SeenStation(found, time.time(), self._safety)

    def _hear(
        self, role: str, topic: Topic, make: Callable[[Any, StationSample], StationSample], profile: QoSProfile
    ) -> None:
        def on_message(message: Any, info: Any) -> None:
            sample = StationSample(_arrival(info), _stamp(message), messages.publisher(info))
            self._samples[role].append(make(message, sample))

        self._node.create_subscription(messages.installed_type(topic.type), topic.topic, on_message, profile)

    def _on_safety(self, message: DiagnosticArray, sample: StationSample) -> StationSample:
        if report := messages.read_safety_report(message):
            self._safety = (str(report.state), report.reason)
        return sample

    def _topic(self, role: str, topic: Topic) -> SeenTopic:
        publishers: list[Any] = self._node.get_publishers_info_by_topic(topic.topic)
        listeners: list[Any] = self._node.get_subscriptions_info_by_topic(topic.topic)
        own = self._node.get_fully_qualified_name()
        # Commands are heard by the controller with the QoS that the safety node offers, present or not.
        offered = [(node_name(one), one.qos_profile) for one in publishers]
        if self._kind(role) in COMMANDS:
            offered = [(f"{self._node.get_namespace()}/safety", _offered())]
        mismatches = [
            f"{node_name(listener)} cannot receive from {who}: {why.strip(' ;')}"
            for (who, profile), listener in product(offered, listeners)
            for match, why in [qos_check_compatible(profile, listener.qos_profile)]
            if match == QoSCompatibility.ERROR
        ]
        names = self._node.get_topic_names_and_types()
        elsewhere = [name for name, types in names if topic.type in types and name != topic.topic]
        return SeenTopic(
            publishers=tuple(_endpoint(one) for one in publishers),
            listeners=tuple(_endpoint(one) for one in listeners if node_name(one) != own),
            samples=list(self._samples[role]),
            mismatches=tuple(dict.fromkeys(mismatches)),
            elsewhere=tuple(
                name for name in elsewhere if self._kind(role) in COMMANDS or self._node.count_publishers(name)
            ),
        )


def watch(contract: AnyContract, seconds: float, domain: int | None = None) -> SeenStation:
    """Watch a station for `seconds`, after one in which everybody finds each other. Raises `BadInput`: `seconds` is not
    more than 0."""
    if not seconds > 0:
        raise BadInput("--seconds", got=seconds, expected="more than 0")
    with Background(domain) as background:
        station = StationWatch(background, contract)
        time.sleep(SETTLE_S)
        station.begin()
        time.sleep(seconds)
        return station.seen()


def _offered() -> QoSProfile:
    """QoS that the safety node offers to controllers, as the middleware reports it."""
    given = {name: getattr(qos.COMMAND, name) for name in ("history", "depth", "reliability", "durability")}
    watched = {"liveliness": qos.COMMAND.liveliness, "liveliness_lease_duration": qos.COMMAND.liveliness_lease_duration}
    return QoSProfile(**given, **watched, deadline=Infinite, lifespan=Infinite)


def _endpoint(info: Any) -> Endpoint:
    return Endpoint(node_name(info), str(info.topic_type), bytes(info.endpoint_gid))


def node_name(info: Any) -> str:
    """The full name of the node behind an endpoint."""
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


def _arrival(info: Any) -> float:
    """Time of day at which the middleware received a message [s], whatever this process was busy with."""
    received = int(info.get("received_timestamp") or 0)
    return 1e-9 * received if received else time.time()


def _stamp(message: Any) -> float:
    return messages.seconds(message.header.stamp) if hasattr(message, "header") else 0.0


def _joints(message: JointState, sample: StationSample) -> StationSample:
    names, positions = messages.named(message)
    return JointSample(sample.arrived, sample.stamp, sample.sender, names, tuple(positions.tolist()))


def _lens(message: CameraInfo, sample: StationSample) -> StationSample:
    size, matrix = (message.height, message.width), tuple(float(value) for value in message.k)
    return LensSample(sample.arrived, sample.stamp, sample.sender, size, matrix)


def _picture(camera: Camera, message: Any, sample: StationSample) -> StationSample:
    common = sample.arrived, sample.stamp, sample.sender
    encoding, checksum = str(getattr(message, "encoding", getattr(message, "format", ""))), zlib.crc32(message.data)
    try:
        found = raw_picture(message, camera.depth)
    except BadInput as error:
        return PictureSample(*common, (0, 0), encoding, checksum, str(error))
    height, width = found.shape[:2]
    brightness, frame = float(found[::8, ::8].mean()), message.header.frame_id
    return PictureSample(*common, (height, width), encoding, checksum, "", brightness, frame)
