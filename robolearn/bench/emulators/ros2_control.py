"""Emulator of an arm on ros2_control, whatever its maker: joint_state_broadcaster and the controller of its contract.

- `joint_states` come in the alphabetical order of their names, as a broadcaster may have them: they are read by name.
- A contract whose command is a trajectory has its arm led by joint_trajectory_controller at 1 kHz
  (`emulators.trajectory_controller`). The limit monitor judges its set-points in place of the messages: a late message
  is a stop, whatever the messages said.
- One whose command is a vector has a forward_command_controller, which hands every set-point on as it comes.
- Openings on the contract's gripper topic are followed at once.

`fault` has habits of a trajectory controller: `driver:cancelled` (another client's goal is cancelled: it holds where
the arm is measured, until the next message), `driver:aborted` (a goal is aborted, and the last velocity stays until
then), `driver:held` (something holds the arm back, and the controller's clock runs on), `driver:slow` (a speed slider
at half).

A driver with more than that (status topics, actions, modes that refuse commands) has an emulator of its own.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.observing.monitor import LimitMonitor
from hardware.ros2 import messages
from hardware.ros2.faults import Sample
from hardware.ros2.sim_driver import SimDriver
from robolearn.bench.emulators.trajectory_controller import PERIOD_S, TrajectoryController, TrajectoryPoint
from robots.stations import FLOATS, TRAJECTORY

Array = NDArray[np.float64]

SLOW = 0.5  # of a speed slider


def came_at(info: Any, ran_until: float) -> float:
    """When a message with this `MessageInfo` reached the controller, by the time of day [s].

    That is when the middleware received it, and not when this process had time for it. But where the process stood
    still, the middleware in it did too, which no controller of an arm does: a message that was sent after `ran_until`,
    the last time [s] that it ran, came when it was sent.
    """
    sent, received = 1e-9 * info["source_timestamp"], 1e-9 * info["received_timestamp"]
    return min(sent, received) if sent > ran_until else received


class EmulatedController(Protocol):
    """A controller that leads the arm between its commands."""

    def take(self, message: Any, now: float) -> str:
        """A command has come by `now` [s]; the reason why it is refused, or nothing."""
        ...

    def step(self, now: float, q: Array, v: Array, *, begun: bool) -> None:
        """One period of the controller, in which the arm is moved if a command has `begun` it."""
        ...

    def hold(self, q: Array) -> None:
        """It is activated where the arm is, or its goal is cancelled there."""
        ...

    def abort(self) -> None:
        """Its goal is aborted, and nothing more is commanded."""
        ...

    def scale(self, speed: float) -> None:
        """Its clock runs as fast as `speed`, 1 the fastest."""
        ...


class EmulatedTrajectory:
    """joint_trajectory_controller."""

    def __init__(self, driver: Ros2ControlEmulator) -> None:
        self._driver = driver
        driver.monitor = LimitMonitor.of(driver.contract.robot, PERIOD_S)
        self._controller = TrajectoryController(driver.contract.joints, driver.arm()[0])
        self._judged_from, self._count = time.monotonic(), 0  # samples of the controller since then

    def take(self, message: Any, now: float) -> str:
        points = [
            TrajectoryPoint(
                messages.seconds(p.time_from_start),
                np.array(p.positions, dtype=np.float64),
                np.array(p.velocities, dtype=np.float64) if len(p.velocities) else None,
            )
            for p in message.points
        ]
        begin = messages.seconds(message.header.stamp)
        why = self._controller.accept(tuple(message.joint_names), points, begin, now)
        return f"trajectory: {why}" if why else ""

    def step(self, now: float, q: Array, v: Array, *, begun: bool) -> None:
        desired = self._controller.sample(now, q, v)
        self._count += 1
        self._driver.monitor.command(desired, self._judged_from + self._count * PERIOD_S)
        if begun:
            self._driver.node.world.command(desired, arm=self._driver.number)

    def hold(self, q: Array) -> None:
        self._controller.hold(q)

    def abort(self) -> None:
        self._controller.abort()

    def scale(self, speed: float) -> None:
        self._controller.speed = speed


class Ros2ControlEmulator(SimDriver):
    """The arm's driver and its controller. Args: see `SimDriver`."""

    commands = (FLOATS, TRAJECTORY)

    def __init__(self, *arm: Any, **named: Any) -> None:
        super().__init__(*arm, **named)
        self._leads = self.controller()
        self.period_s = 0.0 if self._leads is None else PERIOD_S
        self._arrived: deque[tuple[float, Any]] = deque()
        self._begun = False  # a command has come since the last reset
        self._ran_until = -math.inf  # the controller has, by the clock of ROS [s]
        self._habit = ""  # fault of the driver

    def controller(self) -> EmulatedController | None:
        """The controller of the contract's command; None where commands are handed on."""
        return EmulatedTrajectory(self) if self.contract.command.type == TRAJECTORY else None

    def on_command(self, message: Any, info: Any) -> None:
        if self._leads is None:
            super().on_command(message, info)
        else:
            self._arrived.append((came_at(info, self._ran_until), message))

    def pass_time(self, seconds: float) -> None:
        habit = self.fault("driver")
        if self._leads is None or habit == self._habit:
            return
        self._habit = habit
        self._leads.scale(SLOW if habit == "slow" else 1.0)
        if habit == "cancelled":
            self._leads.hold(self.arm()[0])
        elif habit == "aborted":
            self._leads.abort()
        elif habit == "held":
            self.node.world.command(self.arm()[0], arm=self.number)

    def step(self, now: float) -> None:
        assert self._leads is not None
        self._ran_until = now
        while self._arrived and self._arrived[0][0] <= now:
            self._take(self._leads, self._arrived.popleft()[1], now)
        self._leads.step(now, *self.arm(), begun=self._begun and self._habit != "held")

    def _take(self, leads: EmulatedController, message: Any, now: float) -> None:
        if why := leads.take(message, now):
            self.refuse(why)
        else:
            self.node.is_fresh, self._begun = False, True

    def restarted(self) -> None:
        super().restarted()
        self._arrived.clear()
        self._begun = False
        if self._leads is not None:
            self._leads.hold(self.arm()[0])

    def publish_joints(self, sample: Sample) -> None:
        names, q, v, at = sample
        order = sorted(range(len(names)), key=lambda i: names[i])
        self.send((tuple(names[i] for i in order), np.asarray(q)[order], np.asarray(v)[order], at))
