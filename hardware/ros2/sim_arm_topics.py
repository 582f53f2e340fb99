"""One arm of the simulated station, behind its topics: what its driver publishes, and the monitor of its commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.observing.monitor import LimitMonitor
from hardware.ros2 import faults, messages
from robots.stations import WRENCH, Contract

Array = NDArray[np.float64]


class SimArmTopics:
    """The publishers of an arm.

    Args:
      contract: the arm's.
      number: of the arm in the world.
      publisher: makes that of a topic for messages of a kind.

    Attributes:
      monitor: of its commands.
      states, feels: publishers of its joint states, and of contact, or None.
    """

    def __init__(self, contract: Contract, number: int, publisher: Callable[[Any, str], Any]) -> None:
        self.contract, self.number = contract, number
        self.monitor = LimitMonitor.of(contract.robot, 1.0 / contract.stream_hz)
        self.states = publisher(messages.JointState, contract.joint_states.topic)
        self.feels: Any = None
        self._efforts: dict[str, float] = {}  # of motors that carry the arm, in its joint states
        if contract.contact is not None and contract.contact.topic != contract.joint_states.topic:
            self.feels = publisher(messages.message_type(contract.contact.type), contract.contact.topic)
        self._faults = {where: faults.VectorFault() for where in ("joint_states", "contact")}

    def sample(self, q: Array, v: Array, torque: Array, at: float) -> faults.Sample:
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

    def publish(self, sample: faults.Sample, fault: str | None) -> None:
        """Send a joint state."""
        sent = self._faults["joint_states"].apply(fault, sample)
        if sent is not None:
            names, q, v, at = sent
            efforts = [self._efforts.get(name, 0.0) for name in names] if self._efforts else ()
            self.states.publish(messages.joint_state(names, q, at, v, efforts))

    def publish_contact(self, q: Array, torques: Array, at: float, fault: str | None) -> None:
        """Send the torques (n,) [Nm] that contacts put on the arm at `q` (n,) [rad], where its station measures them on
        a topic of their own."""
        c = self.contract
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
