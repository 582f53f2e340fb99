"""The habits of a trajectory controller over real DDS: an emulated arm whose goal is cancelled or aborted, which is
held back, and whose speed slider stands at half."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from rclpy.node import Node as PlainNode

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos, topics
from hardware.ros2.faults import parse
from hardware.ros2.process import Background, wait_until
from hardware.ros2.sim_arm_node import SimArmNode
from robolearn.bench.emulators.franka import FrankaEmulator
from robolearn.bench.emulators.node import make_world
from robolearn.bench.emulators.rehearsal import rehearsal
from robots.stations import load_contract

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8
SECONDS, WAY = 2.0, np.array([0.5, 0, 0, 0, 0, 0, 0])
WINDOW_S = 0.05  # ten steps of the physics: a state may be one of them older than its stamp


class Arm:
    """An emulated FR3 on its way: one trajectory of 0.5 rad of its first joint in 2 s, at rest at both ends."""

    def __init__(self, emulator: SimArmNode) -> None:
        self.emulator, self.begun = emulator, 0.0
        self.heard: list[tuple[float, float]] = []  # measured when, and the first joint [rad]

    def on_joints(self, message: Any) -> None:
        q = messages.pick(message, self.emulator.contract.joints)
        self.heard.append((messages.seconds(message.header.stamp), float(q[0])))

    def at(self, seconds: float, fault: str) -> None:
        """`fault` begins so long after the trajectory did."""
        time.sleep(max(self.begun + seconds - time.time(), 0.0))
        self.emulator.fault = parse(fault)

    def hold_up(self, seconds: float) -> None:
        """The thread of the emulator does not run for so long."""
        done = threading.Event()

        def once() -> None:
            timer.cancel()
            time.sleep(seconds)
            done.set()

        timer = self.emulator.create_timer(0.001, once)
        assert done.wait(10.0)

    @property
    def first(self) -> float:
        return self.heard[-1][1] - self.heard[0][1]

    def fastest(self, since: float) -> float:
        """[rad/s] of the measured first joint from `since` [s] on, over `WINDOW_S`."""
        rows = np.array([row for row in self.heard if row[0] >= self.begun + since])
        grid = np.arange(rows[0, 0], rows[-1, 0], WINDOW_S)
        return float(np.abs(np.diff(np.interp(grid, *rows.T))).max() / WINDOW_S)


@contextmanager
def on_its_way() -> Iterator[Arm]:
    with rehearsal("fr3") as path, Background(DOMAIN) as ros:
        contract = load_contract(path)
        drivers = {contract.driver: FrankaEmulator}
        emulator = SimArmNode(make_world, drivers, contract=contract, context=ros.context, overrides={"seed": 1})
        arm = Arm(emulator)
        client = PlainNode("client", namespace=topics.NAMESPACE, context=ros.context)
        client.create_subscription(messages.JointState, contract.joint_states.topic, arm.on_joints, qos.sensor(50))
        publisher = client.create_publisher(messages.JointTrajectory, contract.command.topic, qos.COMMAND)
        ros.add(client)
        emulator.start()
        ros.add(emulator)
        wait_until(lambda: len(arm.heard) > 20 and publisher.get_subscription_count() > 0, 30.0, "the arm")
        start = np.array(contract.robot.home)
        goal = messages.trajectory(contract.joints, start + WAY, SECONDS)
        goal.points[0].velocities = [0.0] * 7
        arm.begun = time.time()
        publisher.publish(goal)
        yield arm
        assert ros.errors == []


def test_undisturbed_it_arrives() -> None:
    with on_its_way() as arm:
        wait_until(lambda: arm.first > WAY[0] - 0.02, 10.0, "the end of the way")
        assert arm.emulator.monitor.summary()["violations"] == 0


def test_a_cancelled_goal_is_held_where_the_arm_was_measured_and_that_is_a_step() -> None:
    with on_its_way() as arm:
        arm.at(0.5 * SECONDS, "driver:cancelled")
        time.sleep(SECONDS)
        assert 0.2 * WAY[0] < arm.first < 0.8 * WAY[0], "it stays on the way"
        assert arm.emulator.monitor.summary()["violations_by_kind"]["acceleration"] > 0


def test_an_aborted_goal_leaves_the_last_velocity() -> None:
    with on_its_way() as arm:
        arm.at(0.5 * SECONDS, "driver:aborted")
        time.sleep(0.4 * SECONDS)
        assert arm.fastest(0.75 * SECONDS) == pytest.approx(1.5 * WAY[0] / SECONDS, rel=0.2), "as fast as in the middle"
        wait_until(lambda: arm.first > 1.2 * WAY[0], 10.0, "the arm, beyond its goal")


def test_an_arm_that_is_let_go_catches_up_with_a_clock_that_ran_on() -> None:
    with on_its_way() as arm:
        arm.at(0.25 * SECONDS, "driver:held")
        time.sleep(0.4 * SECONDS)
        held = arm.first
        assert held < 0.35 * WAY[0]
        arm.at(0.8 * SECONDS, "")
        wait_until(lambda: arm.first > 0.9 * WAY[0], 10.0, "the end of the way")
        assert arm.fastest(0.75 * SECONDS) > 2 * 1.5 * WAY[0] / SECONDS, "far faster than was asked for"


def test_a_machine_that_was_held_up_makes_the_arm_no_faster() -> None:
    """The controller's time runs on, and the physics has to run with it: else the arm would catch up."""
    with on_its_way() as arm:
        time.sleep(max(arm.begun + 0.4 * SECONDS - time.time(), 0.0))
        arm.hold_up(0.15)
        wait_until(lambda: arm.first > WAY[0] - 0.02, 10.0, "the end of the way")
        assert arm.fastest(0.0) < 1.15 * 1.5 * WAY[0] / SECONDS
        assert np.diff([at for at, _ in arm.heard]).max() > 0.1, "it was held up"


def test_at_half_speed_it_takes_twice_as_long() -> None:
    with on_its_way() as arm:
        arm.at(0.0, "driver:slow")
        time.sleep(max(arm.begun + SECONDS - time.time(), 0.0))
        assert 0.3 * WAY[0] < arm.first < 0.7 * WAY[0]
        wait_until(lambda: arm.first > WAY[0] - 0.02, 10.0, "the end of the way")
        assert time.time() - arm.begun > 1.6 * SECONDS
