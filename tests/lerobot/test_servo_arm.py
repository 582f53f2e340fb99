"""The thin whole of an SO-101 without ROS driver, from a policy to servos on a pseudo-terminal.

Safety filter and `robolearn driver` talk over DDS, the driver and the servos by LeRobot's bus. The limit monitor judges
what is sent; the servos' own registers what became of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rclpy.node import Node
from std_msgs.msg import Float64MultiArray

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.observing.monitor import LimitMonitor
from hardware.ros2 import messages, qos
from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.senders import sent_at
from robolearn.core import ActionChunk, Observation, Policy
from robolearn.deploy import StackProcesses
from robolearn.deploy.processes import node_program
from robots import SO101, make_control
from robots.stations import Contract, load_contract

sys.path.insert(0, str(Path(__file__).parent))
import so101_rig as rig

pytestmark = pytest.mark.realtime

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-P", "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8
HOME = np.array(SO101.home)


class Waves(Policy):
    """Up and to the sides, and the jaw open and closed."""

    execute_steps = 2

    def __init__(self, contract: Contract) -> None:
        self.interface = contract.interface
        self._control, self._begun = make_control("joint_position", SO101), time.monotonic()

    def reset(self, seed: int) -> None: ...

    def act(self, observation: Observation) -> ActionChunk:
        t = time.monotonic() - self._begun
        goal = HOME + np.array([0.25 * np.sin(2 * t), -0.2, -0.1, 0.0, 0.3 * np.sin(3 * t)])
        width = 0.03 + 0.04 * (np.sin(t) > 0)
        action = self._control.actions(HOME[None], goal[None], np.array([width]))
        return np.tile(action[:, None], (1, 8, 1)).astype(np.float32)


class Witness:
    """What anybody on the topics sees: commands, by when they were sent, and joint states, by their stamps."""

    def __init__(self, ros: Background, contract: Contract) -> None:
        self.contract = contract
        self.monitor = LimitMonitor.of(contract.robot, 1.0 / contract.stream_hz)
        self.commands: list[list[float]] = []
        self.states: list[tuple[float, float, dict[str, float]]] = []
        self._lock = threading.Lock()
        node = self.node = ros.add(Node("witness", context=ros.context))
        deep = qos.stream(lease_s=None, depth=200)
        node.create_subscription(Float64MultiArray, contract.command.topic, self._on_command, deep)
        node.create_subscription(messages.JointState, contract.joint_states.topic, self._on_state, qos.sensor(50))

    def _on_command(self, message: Float64MultiArray, info: object) -> None:
        values = list(message.data)
        self.commands.append(values)
        self.monitor.command(np.array(values[: len(self.contract.joints)]), sent_at(info))

    def _on_state(self, message: messages.JointState) -> None:
        found = dict(zip(message.name, message.position, strict=True))
        self.states.append((messages.seconds(message.header.stamp), time.time(), found))

    def pan(self) -> float:
        """Where the first joint is [rad]."""
        return self.states[-1][2]["shoulder_pan"]


class Running:
    """`robolearn driver` as a user runs it."""

    def __init__(self, contract: Path, calibration: Path, *more: str) -> None:
        environment = {**os.environ, "HF_LEROBOT_CALIBRATION": str(calibration), "PYTHONPATH": str(ROOT)}
        words = [*PROGRAM, "driver", "--robot", str(contract), "--domain", str(DOMAIN), "--json", *more]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(words, env=environment, text=True, **pipes)

    def end(self, how: int = signal.SIGINT) -> tuple[int, dict, str]:
        if self.process.poll() is None:
            self.process.send_signal(how)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, json.loads(out.splitlines()[-1]) if out.strip() else {}, err


@pytest.fixture
def servos() -> Iterator:
    with rig.arm() as servos:
        yield servos


@pytest.fixture
def station(servos, tmp_path: Path) -> tuple[Path, Contract]:
    rig.calibrate(tmp_path)
    path = rig.contract(tmp_path, servos.port)
    return path, load_contract(path)


def test_the_filter_drives_the_servos_and_they_hold_when_it_is_gone(servos, station, tmp_path: Path) -> None:
    path, contract = station
    driver = Running(path, tmp_path)
    nodes = [
        node_program("streamer", str(path), 10, grace_ms=300.0),
        node_program("safety", str(path), 10),
    ]
    rooms = [Background(DOMAIN) for _ in range(2)]
    ended = ExitStack()
    try:
        ros, room = rooms
        witness = Witness(ros, contract)
        ended.enter_context(StackProcesses(nodes, tmp_path / "logs", {"ROS_DOMAIN_ID": str(DOMAIN)}))
        room.add(PolicyNode(lambda *_, **__: Waves(contract), contract=contract, context=room.context)).start()
        operator = SafetyClient(ros, station=contract.namespace)
        operator.wait_ready(60)
        assert witness.commands == [], "nothing is commanded before the arm is armed"
        begun = len(witness.states)
        operator.arm()
        wait_until(lambda: len(witness.commands) > 400 or operator.state != "armed", 30, "four seconds of motion")
        assert operator.state == "armed", operator.reason
        moved = np.array([[found[name] for name in rig.NAMES] for _, _, found in witness.states[begun:]])
        travel = np.ptp(moved, axis=0)
        assert travel[0] > 0.3 and travel[4] > 0.3 and travel[1] > 0.1, "the servos went there"
        assert travel[5] > 0.3, "and the jaw, in the same vector"
        first, jaw = np.array(witness.commands[0]), np.array(witness.commands)[:, 5]
        np.testing.assert_allclose(first[:5], HOME, atol=0.01)
        # The jaw too begins where it is, and is one step on if the policy's first target came before the first command.
        assert abs(jaw[0] - 0.5) <= 0.01 + np.abs(np.diff(jaw)).max() < 0.07
        summary = witness.monitor.summary()
        assert summary["violations"] == 0 and summary["commands"] > 300, summary
        ages = np.array([arrived - stamp for stamp, arrived, _ in witness.states[begun:]])
        assert np.median(ages) < 0.03 and ages.min() > 0.0, "stamped when the servos were read"

        # What the driver is told and what the servos hold are the same numbers.
        operator.release()
        operator.wait_for("latched", 5)
        time.sleep(0.5)
        goals = [servos.get(servo, rig.SERVOS.GOAL) for servo in servos.memory]
        last = witness.commands[-1]
        assert goals == pytest.approx(rig.counts(np.array(last[:5]), last[5]), abs=1)
        written = len(servos.written())
        time.sleep(1.0)
        assert len(servos.written()) == written, "silence: nothing is written"
        assert witness.monitor.summary()["violations"] == 0
    finally:
        ended.close()
        for room in rooms:
            room.close()
        code, result, err = driver.end()
    assert code == 0, err
    assert result["set_points"] > 300 and result["refused"] == 0 and result["torque"], result
    assert all(servos.has_torque(servo) for servo in servos.memory), "an arm that is left holds"


def test_joint_states_that_cannot_be_read_are_not_made_up_and_the_filter_stops(servos, station, tmp_path: Path) -> None:
    path, contract = station
    driver = Running(path, tmp_path)
    with Background(DOMAIN) as ros:
        witness = Witness(ros, contract)
        wait_until(lambda: len(witness.states) > 50, 60, "joint states")
        servos.unplug()
        time.sleep(0.2)
        count = len(witness.states)
        driver.process.wait(30)
        assert len(witness.states) <= count, "the last one is not repeated"
    code, _, err = driver.end()
    assert code == 1 and "the servos have been silent for 1" in err, err


def test_strange_set_points_move_nothing(servos, station, tmp_path: Path) -> None:
    path, contract = station
    driver = Running(path, tmp_path)
    with Background(DOMAIN) as ros:
        witness = Witness(ros, contract)
        wait_until(lambda: len(witness.states) > 20, 60, "joint states")
        publisher = witness.node.create_publisher(Float64MultiArray, contract.command.topic, qos.COMMAND)
        wait_until(lambda: publisher.get_subscription_count() >= 2, 10, "the driver listens")
        begun = list(witness.states[-1][2].values())
        for bad in ([float("nan"), *begun[1:]], begun[:5], [begun[0] + 0.5, *begun[1:]], [*begun[:5], 2.5]):
            for _ in range(5):
                publisher.publish(Float64MultiArray(data=bad))
                time.sleep(0.02)
        goal = [begun[0] + 0.1, *begun[1:]]
        publisher.publish(Float64MultiArray(data=goal))
        wait_until(lambda: abs(witness.pan() - goal[0]) < 0.01, 5, "a right one is followed")
        second = witness.node.create_publisher(Float64MultiArray, contract.command.topic, qos.COMMAND)
        wait_until(lambda: witness.node.count_publishers(contract.command.topic) == 2, 10, "the second publisher")
        time.sleep(0.5)
        for _ in range(5):
            publisher.publish(Float64MultiArray(data=begun))
            time.sleep(0.02)
        assert abs(witness.pan() - goal[0]) < 0.01
        witness.node.destroy_publisher(second)
    code, result, err = driver.end()
    assert code == 0 and result["set_points"] == 1 and result["refused"] == 25, (result, err)


def test_doctor_walks_through_the_station(servos, station, tmp_path: Path) -> None:
    path, _ = station
    driver = Running(path, tmp_path, "--limp")
    doctor = [*PROGRAM, "doctor", "--robot", str(path), "--seconds", "2", "--domain", str(DOMAIN), "--json"]
    try:
        time.sleep(5.0)
        end, found = time.monotonic() + 60, {}
        while time.monotonic() < end:
            done = subprocess.run(doctor, capture_output=True, text=True, timeout=60)
            found = {check["name"]: check for check in json.loads(done.stdout.splitlines()[-1])["checks"]}
            if done.returncode == 0:
                break
        assert done.returncode == 0, found
        assert "/follower/robolearn/servos" in found["joint states topic"]["found"]
        assert "/follower/robolearn/servos listens" in found["arm controller"]["found"]
        assert found["joint names"]["found"] == "all 5 of the arm, 1 more"
    finally:
        code, result, _ = driver.end()
    assert code == 0 and not result["torque"] and not any(servos.has_torque(servo) for servo in servos.memory)


def test_a_contract_without_servos_is_refused(station, tmp_path: Path) -> None:
    for robot in ("fr3", "sim"):
        done = subprocess.run([*PROGRAM, "driver", "--robot", robot], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, done.stderr
        assert f"contract {robot}: it names no servos" in done.stderr.splitlines()[-1]
    assert replace(station[1], servos=None).servos is None


def test_it_says_that_it_holds_the_arm_when_it_does_and_not_before(station, tmp_path: Path) -> None:
    driver = Running(station[0], tmp_path, "--port", str(tmp_path / "no-port"))
    driver.process.wait(30)
    code, _, err = driver.end()
    assert code == 2 and "holds where it is" not in err, err
