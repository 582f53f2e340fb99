"""Subscriptions of a contract: joint states, objects and cameras into one `Observer`, and conditions.

Types of conditions come with the arm's driver and may not be installed.
"""

from __future__ import annotations

import dataclasses
import logging
import zlib
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from builtin_interfaces.msg import Time
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState

from hardware.observing.joints import JointReader, StationJoints
from hardware.observing.observer import Observer
from hardware.ros2 import messages, qos
from hardware.ros2.runtime import Node
from hardware.ros2.senders import publisher_name
from robolearn.core import BadInput
from robots.stations import AnyContract, Camera, Condition, Contract


def hear_joints(
    node: Node, contract: Contract, reader: JointReader, callback: Callable[[JointState, MessageInfo], None]
) -> None:
    """Hear the joints of arm and gripper; see `Node.hear`. `callback` receives the joint states, `reader` what comes on
    a topic of the gripper's own. From now on it names publishers."""
    node.hear(JointState, contract.joint_states.topic, callback, qos.sensor())
    reader.describe = lambda gid: publisher_name(node, _joint_topics(contract), gid)
    if contract.gripper_states is not None:

        def on_gripper(message: JointState, info: MessageInfo) -> None:
            reader.gripper(*messages.named(message), messages.publisher(info))

        node.hear(JointState, contract.gripper_states.topic, on_gripper, qos.sensor())


def _joint_topics(contract: Contract) -> list[str]:
    return [topic.topic for topic in (contract.joint_states, contract.gripper_states) if topic is not None]


def hear_all_joints(
    node: Node, contract: AnyContract, joints: StationJoints, callback: Callable[[str, JointState, MessageInfo], None]
) -> None:
    """`hear_joints` of every arm; `callback` receives its name first."""
    for name, arm in contract.arms.items():
        hear_joints(node, arm, joints.arms[name], partial(callback, name))


class ObservationInputs:
    """The subscriptions of `node` to what `features` are made of. `stamp` is that of the newest joint state, as it was
    sent, of two arms of the older one: a chunk or target made from it carries the same."""

    def __init__(self, node: Node, contract: AnyContract, observer: Observer, features: Collection[str]) -> None:
        self._observer = observer
        topics = [contract.cameras[name].topic for name in contract.cameras if f"images.{name}" in features]
        observer.describe = lambda gid: publisher_name(node, topics, gid)
        self._stamps = {name: Time() for name in contract.arms}
        hear_all_joints(node, contract, observer.joints, self._on_joints)
        if "objects" in features and contract.objects is not None:
            node.hear(JointState, contract.objects.topic, self._on_objects, qos.sensor())
        for arm in contract.arms.values():
            if observer.contact is not None and arm.contact is not None:
                node.hear(messages.message_type(arm.contact.type), arm.contact.topic, self._on_contact, qos.sensor())
        for name, camera in contract.cameras.items():
            if f"images.{name}" in features:
                kind = messages.message_type(camera.type)
                node.hear(kind, camera.topic, self._on_image(name, camera), qos.sensor(2))

    @property
    def stamp(self) -> Time:
        """Of the observation."""
        return min(self._stamps.values(), key=messages.nanoseconds)

    def _on_joints(self, arm: str, message: JointState, info: MessageInfo) -> None:
        stamp = messages.seconds(message.header.stamp)
        if self._observer.joints.update(*messages.named(message), stamp, messages.publisher(info), arm):
            self._stamps[arm] = message.header.stamp

    def _on_objects(self, message: JointState, info: MessageInfo) -> None:
        self._observer.objects(*messages.named(message), messages.seconds(message.header.stamp))

    def _on_contact(self, message: Any, info: MessageInfo) -> None:
        assert self._observer.contact is not None
        names, values, positions = messages.felt(message)
        self._observer.contact.update(names, values, messages.seconds(message.header.stamp), positions)

    def _on_image(self, name: str, camera: Camera) -> Callable[[Any, MessageInfo], None]:
        def on_image(message: Any, info: MessageInfo) -> None:
            stamp = messages.seconds(message.header.stamp)
            who = messages.publisher(info)
            picture, frame = zlib.crc32(message.data), message.header.frame_id
            self._observer.image(name, picture, lambda: messages.picture(message, camera), stamp, frame, who)

        return on_image


log = logging.getLogger(__name__)


def with_installed_conditions(contract: Contract) -> Contract:
    """The contract; of a simulated arm without the conditions whose message types are not installed here. Raises
    `BadInput`: a type of a real arm is not installed."""
    found = []
    for condition in contract.conditions:
        try:
            messages.installed_type(condition.type)
        except BadInput as error:
            if not contract.simulated:
                raise
            log.warning("condition %s is not rehearsed: %s", condition.name, error)
        else:
            found.append(condition)
    return dataclasses.replace(contract, conditions=tuple(found))


def hear_conditions(contract: Contract, hear: Callable[..., None], heard: Callable[[str, float], None]) -> None:
    """Subscribe to all of them by `hear` (type, topic, callback, QoS); `heard` receives their names and values."""

    def subscribe(one: Condition) -> None:
        def callback(message: Any, info: Any) -> None:
            # A field that is not there is no number, which permits nothing.
            heard(one.name, float(getattr(message, one.field, "nan")))

        hear(messages.installed_type(one.type), one.topic, callback, qos.latched() if one.latched else qos.sensor())

    for condition in contract.conditions:
        subscribe(condition)
