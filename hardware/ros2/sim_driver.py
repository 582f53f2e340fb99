"""The driver of one arm of the simulated station: its topics, its controller, and the monitor of its commands.

This one hands every set-point on as it comes, as a ros2_control position controller does, and holds the last.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy

from hardware.observing.monitor import LimitMonitor
from hardware.ros2 import faults, messages, qos
from hardware.ros2.runtime import Node
from hardware.ros2.senders import sent_at
from robolearn.core.errors import BadInput
from robolearn.core.scene import Scene
from robots.stations import FLOATS, TRAJECTORY, WRENCH, Contract

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

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
    def push(self, torque: Array, arm: int = 0) -> None: ...
    def advance(self, seconds: float) -> None: ...
    def joint_state(self, arm: int = 0) -> tuple[tuple[str, ...], Array, Array]: ...
    def objects(self) -> tuple[tuple[str, ...], Array]: ...
    def external_torque(self, arm: int = 0) -> Array: ...
    def scene(self) -> Scene: ...
    def image(self, camera: str) -> NDArray[np.uint8]: ...
    def close(self) -> None: ...


class WorldNode(Node, ABC):
    """A node with a simulated world, whose arms its drivers move.

    Attributes:
      fault: place → fault that is switched on, see `hardware.ros2.faults`.
      is_fresh: the world was neither reset nor commanded yet.
    """

    world: ArmWorld
    fault: Mapping[str, str]
    is_fresh: bool

    @abstractmethod
    def stamp(self, fault: str | None = None, at: float | None = None) -> float:
        """The time of a message [s], with this fault of a clock, or that of all: of now, or of what was so `at` a time,
        however long this process took since."""


class MakesDriver(Protocol):
    """The class of a driver."""

    def __call__(self, node: WorldNode, contract: Contract, name: str, number: int) -> SimDriver: ...


class SimDriver:
    """Driver and controller of an arm. Emulators of other drivers derive from it.

    Args:
      node: of the world.
      contract: the arm's.
      name: of the arm in the station, empty for the only one.
      number: of the arm in the world.

    Attributes:
      monitor: of its commands.
      states, feels: publishers of its joint states, and of contact, or None.

    Raises:
      BadInput: a type of command that it does not follow.
    """

    commands: tuple[str, ...] = (FLOATS, TRAJECTORY)
    """Types of command that are followed."""
    period_s = 0.0
    """Of a controller that moves the arm between its commands; 0: it does not."""

    def __init__(self, node: WorldNode, contract: Contract, name: str, number: int) -> None:
        command, gripper = contract.command, contract.gripper
        if command.type not in self.commands:
            what = f"contract {contract.name}: command type for the simulated arm"
            raise BadInput(what, got=command.type, available=self.commands)
        self.node, self.contract, self.name, self.number = node, contract, name, number
        self.monitor = LimitMonitor.of(contract.robot, 1.0 / contract.stream_hz)
        self._refused = 0
        self.states = node.create_publisher(messages.JointState, contract.joint_states.topic, qos.sensor())
        self.feels: Any = None
        self._efforts: dict[str, float] = {}  # of motors that carry the arm, in its joint states
        contact = contract.contact
        if contact is not None and contact.topic != contract.joint_states.topic:
            self.feels = node.create_publisher(messages.message_type(contact.type), contact.topic, qos.sensor())
        self._faults = {where: faults.VectorFault() for where in ("joint_states", "contact")}
        self.hear(messages.message_type(command.type), command.topic, self.on_command)
        if gripper is not None:
            self.hear(messages.message_type(gripper.type), gripper.topic, self.on_gripper)

    def activate(self) -> None:
        """Begin to publish what has a rate of its own."""

    def deactivate(self) -> None:
        """Pause."""

    def close(self) -> None:
        """The driver ends."""
        for publisher in filter(None, (self.states, self.feels)):
            self.node.destroy_publisher(publisher)

    def hear(self, kind: Any, topic: str, callback: Callable[[Any, Any], None]) -> None:
        """Take what comes on a topic of the contract, at each tick."""
        self.node.hear(kind, topic, callback, COMMANDS)

    def fault(self, where: str) -> str:
        """The fault that is switched on there, or nothing."""
        faults = self.node.fault
        return faults.get(f"{self.name}/{where}", faults.get(where, ""))

    # --- time ------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Time passes: what moves beside the arm's controller."""

    def step(self, now: float) -> None:
        """One period of a controller that has any, until `now` [s] by the clock of ROS."""

    def restarted(self) -> None:
        """The arm is elsewhere: emulators of drivers forget their commands."""
        self.monitor.new_motion()

    def arm(self) -> tuple[Array, Array]:
        """(n,) positions and velocities of the arm."""
        n = len(self.contract.joints)
        _, q, v = self.node.world.joint_state(self.number)
        return q[:n], v[:n]

    def opening(self) -> float:
        """Of the gripper [m]."""
        _, q, _ = self.node.world.joint_state(self.number)
        return 2 * float(q[len(self.contract.joints) :].mean())

    # --- commands --------------------------------------------------------------------------------------------

    def on_command(self, message: Any, info: Any) -> None:
        """Set-points have come."""
        c, width = self.contract, None
        q = np.asarray(positions(message, c.joints), dtype=np.float64)
        if c.gripper_in_command and len(q) == len(c.command_joints):
            q, fingers = np.split(q, [len(c.joints)])
            width = c.gripper_width(fingers.tolist())
        self.monitor.command(q, sent_at(info))
        self.follow(q, width)

    def on_gripper(self, message: Any, info: Any) -> None:
        """An opening has come."""
        c = self.contract
        values = positions(message, c.gripper_joints)
        opening = c.gripper_takes_opening
        if len(values) != (1 if opening else len(c.gripper_joints)):
            self.refuse(f"gripper command of {len(values)} values")
            return
        self.follow(None, float(values[0]) if opening else c.gripper_width(values))

    def hear_no_openings(self) -> None:
        """The gripper is moved by actions, as an emulator of its driver has them."""
        if self.contract.gripper is not None:
            self.node.unhear(self.contract.gripper.topic)

    def follow(self, q: Array | None, width: float | None) -> None:
        """Let the arm follow set-points (n,) [rad] and an opening [m] from now on; what is None stays."""
        try:
            self.node.world.command(q, width, self.number)
        except BadInput as error:
            self.refuse(str(error))
        else:
            self.node.is_fresh = False

    def refuse(self, why: str) -> None:
        """Drop a command."""
        self._refused += 1
        if self._refused == 1:
            log.error("dropped, and the last command kept: %s", why)

    # --- what is measured --------------------------------------------------------------------------------------

    def publish(self, now: float, at: float) -> None:
        """Send what is measured `now` [s], by the steady clock, with the stamp `at` [s]."""
        n, torque = len(self.contract.joints), self.node.world.external_torque(self.number)
        _, q, v = self.node.world.joint_state(self.number)
        self.monitor.state(q[:n], now)
        self.publish_joints(self._sample(q, v, torque, at))
        self._publish_contact(q[:n], torque, at)

    def publish_joints(self, sample: faults.Sample) -> None:
        """Send a joint state of arm and gripper."""
        self.send(sample)

    def send(self, sample: faults.Sample) -> None:
        """Send a joint state as it is, but for its fault."""
        sent = self._faults["joint_states"].apply(self.fault("joint_states"), sample)
        if sent is not None:
            names, q, v, at = sent
            efforts = [self._efforts.get(name, 0.0) for name in names] if self._efforts else ()
            self.states.publish(messages.joint_state(names, q, at, v, efforts))

    def _sample(self, q: Array, v: Array, torque: Array, at: float) -> faults.Sample:
        """The joint state of the driver for positions and velocities of arm and gripper, and the torques that the world
        puts on the arm (n,) [Nm]."""
        c, n = self.contract, len(self.contract.joints)
        # The driver's unit for the gripper: linear between closed and open.
        (closed, opened), (shut, wide) = c.gripper_range, c.robot.gripper.joint_range
        fingers = q[n:] if len(q) - n == len(c.gripper_joints) else np.full(len(c.gripper_joints), q[n:].mean())
        scale = (opened - closed) / (wide - shut)
        q = np.concatenate([q[:n], closed + scale * (fingers - shut)])
        v = np.concatenate([v[:n], np.full(len(fingers), scale * v[n:].mean())])
        if c.contact is not None and c.contact.gravity:
            tau = c.robot.gravity.torques(q[:n]) - torque
            self._efforts = dict(zip(c.joints, tau.tolist(), strict=True))
        return (*c.joints, *c.gripper_joints), q, v, at

    def _publish_contact(self, q: Array, torques: Array, at: float) -> None:
        """Send the torques (n,) [Nm] that contacts put on the arm at `q` (n,) [rad], where its station measures them on
        a topic of their own."""
        c, fault = self.contract, self.fault("contact")
        sample = self._faults["contact"].apply(fault, (c.joints, torques, np.empty(0), at)) if self.feels else None
        if sample is None:
            return
        names, torques, _, at = sample
        if c.contact is not None and c.contact.type == WRENCH:
            # As drivers estimate it: the force at the tcp that explains the torques best.
            jacobian = c.robot.chain.jacobian(q[None])[0]
            self.feels.publish(messages.wrench(np.linalg.lstsq(jacobian.T, torques)[0], at))
        else:
            self.feels.publish(messages.joint_state(names, (), at, efforts=torques))


def positions(message: Any, joints: tuple[str, ...]) -> list[float]:
    """Set-points in the order of `joints`; empty where their names are ambiguous."""
    if not isinstance(message, messages.JointTrajectory):
        return list(message.data)
    points, names = list(message.points), list(message.joint_names)
    if len(points) != 1 or sorted(names) != sorted(joints) or len(points[0].positions) != len(names):
        return []
    return [points[0].positions[names.index(joint)] for joint in joints]
