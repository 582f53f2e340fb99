"""Faults of processes and of the simulated arm's sensors, over real DDS with wide margins: one station for them all."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background, wait_until
from hardware.ros2.runtime import realtime
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.senders import sent_at
from hardware.safety import SafetyFilter
from robolearn.core import RobolearnError
from robolearn.core.machine import make_ordinary
from robolearn.deploy.deployment import wait_ready
from robots.stations import load_contract

pytestmark = [pytest.mark.realtime, pytest.mark.long]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from stopping import at_rest, silence  # noqa: E402

CONTRACT = load_contract("sim")
DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 6
PRIORITY = "10"
START_S = 90.0
NODE = [sys.executable, "-m", "robolearn.deploy.nodes"]
STATION = [sys.executable, str(HERE / "ros_station.py")]
COMMANDS = {
    "policy": [*STATION, "policy", "--ros-args", "-p", f"realtime_priority:={PRIORITY}"],
    # A simulated arm may stand still for a moment on a busy machine.
    "streamer": [*NODE, "streamer", "--grace-ms", "150", "--realtime-priority", PRIORITY],
    "safety": [*NODE, "safety", "--realtime-priority", PRIORITY],
    "sim_arm": [sys.executable, "-m", "robolearn.bench.emulators.node", "--realtime-priority", PRIORITY],
}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ROS_DOMAIN_ID": str(DOMAIN)}


def start(name: str) -> subprocess.Popen[bytes]:
    """A node as a program, by somebody who has no real-time priority to hand on to it while it loads (see `heard`)."""
    return subprocess.Popen(["chrt", "--other", "0", *COMMANDS[name]], env=ENVIRONMENT)


class Station:
    """Policy, streamer, safety node and simulated arm as processes; the operator and a witness of commands here."""

    def __init__(self, background: Background) -> None:
        self.of = {name: start(name) for name in COMMANDS}
        self.operator = SafetyClient(background)
        self.commands: list[tuple[float, np.ndarray]] = []
        self.monitor: dict[str, Any] = {}
        node = self.operator.node
        kind = messages.message_type(CONTRACT.command.type)
        node.create_subscription(kind, CONTRACT.command.topic, self._on_command, qos.stream(lease_s=None, depth=200))
        self.operator.subscribe_json(topics.SIM_MONITOR, lambda summary: setattr(self, "monitor", summary))
        self._faults = node.create_client(SetParameters, "/robolearn/sim_arm/set_parameters")

    def start(self, name: str) -> None:
        """Once more; what its predecessor sent does not count."""
        sent: dict[str, tuple[str, Any]] = {
            "policy": ("policy", {}), "streamer": ("streamer", {}), "safety": ("report", None)
        }  # fmt: skip
        if name == "sim_arm":
            self.monitor = {}
        else:
            setattr(self.operator, *sent[name])
        self.of[name] = start(name)

    def check(self) -> None:
        """Raise where a process has ended: nobody waits for what it will not do any more."""
        for name, process in self.of.items():
            if process.poll() is not None:
                raise RobolearnError(f"the {name} node has ended with code {process.returncode}; stderr says why")

    def signal(self, name: str, *numbers: int) -> float:
        """Send signals; when."""
        for number in numbers:
            self.of[name].send_signal(number)
        return time.monotonic()

    def fault(self, what: str) -> float:
        """Switch a fault of the simulated arm on, or off with an empty name; when."""
        wait_until(self._reaches_faults, START_S, "the parameters of the simulated arm")
        request = SetParameters.Request(parameters=[Parameter("fault", value=what).to_parameter_msg()])
        future = self._faults.call_async(request)
        began = time.monotonic()
        wait_until(future.done, 10, "an answer of the simulated arm")
        assert future.result().results[0].successful
        return began

    def calm(self) -> None:
        """Disarmed, nothing broken, everything running."""
        ended = [name for name, process in self.of.items() if process.poll() is not None]
        for name in ended:
            self.start(name)
        if "sim_arm" not in ended:  # a new one has no fault
            self.fault("")
        operator = self.operator
        wait_ready(operator, self, simulated=True, start_s=START_S)  # type: ignore[arg-type]
        if operator.state in ("armed", "braking"):
            operator.estop()
            operator.wait_for("latched")
        if operator.state == "latched":
            operator.reset()

    def travel(self, since: float) -> float:
        """How far a joint was commanded since then [rad]."""
        found = [q for at, q in self.commands if at > since]
        return float(np.ptp(found, axis=0).max()) if found else 0.0

    def move(self) -> None:
        """Armed and in motion; what the fault before has left behind may stop it once more."""
        end = time.monotonic() + 30.0
        begun = time.monotonic()
        while not self.travel(begun) > 0.01:
            assert time.monotonic() < end, self.operator.reports[-3:]
            self.check()
            if self.operator.state == "latched":
                self.operator.reset()
                time.sleep(0.5)
            if self.operator.state == "disarmed":
                self.operator.arm(20)
                begun = time.monotonic()
            time.sleep(0.02)

    def within_limits(self) -> None:
        """The monitor in the simulated arm has counted nothing up to now."""
        seen = self.monitor.get("commands", 0)
        self.monitor = {}
        wait_until(lambda: self.monitor.get("commands", -1) >= seen, 10, "the monitor's summary")
        assert self.monitor["violations"] == 0, str(self.monitor)

    def expect_latched(self, since: float, *why: str) -> None:
        """Stopped soon, latched with one of the reasons, silent, and moving again only by reset and arm."""
        report = self.operator.wait_for("latched", 5)
        assert any(word in report.reason for word in why), report.reason
        sent = silence(self.commands)
        assert self.commands[-1][0] - since < 1.5, "stopped within its bound"
        time.sleep(0.3)
        done, _ = self.operator.call(topics.ARM)
        assert not done
        assert self.operator.state == "latched" and len(self.commands) == sent
        self.within_limits()

    def close(self) -> None:
        for process in self.of.values():
            process.kill()
            process.wait(10)

    def _reaches_faults(self) -> bool:
        self.check()
        return self._faults.service_is_ready()

    def _on_command(self, message: Any, info: Any) -> None:
        self.commands.append((sent_at(info), np.array(message.data)))


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """This process holds the dead-man's switch: with real-time priority, where permitted, as `robolearn deploy`."""
    realtime(int(PRIORITY))
    try:
        yield
    finally:
        make_ordinary()


@pytest.fixture(scope="module")
def the_station() -> Iterator[Station]:
    SafetyFilter(CONTRACT.robot, CONTRACT.joints, CONTRACT.limits, 1.0 / CONTRACT.stream_hz)  # compiles, once
    with Background(DOMAIN) as background:
        station = Station(background)
        try:
            with heard():
                yield station
        finally:
            station.close()


@pytest.fixture
def station(the_station: Station) -> Station:
    the_station.calm()
    the_station.move()
    return the_station


@pytest.mark.parametrize(
    ("process", "why"),
    [("policy", ("ran out", "gone")), ("streamer", ("late", "freshness", "gone")), ("safety", ("gap",))],
)
def test_halted_and_continued(station: Station, process: str, why: tuple[str, ...]) -> None:
    since = station.signal(process, signal.SIGSTOP)
    time.sleep(0.8)
    sent = len(station.commands)
    if process != "safety":
        assert station.operator.wait_for("latched", 5)
    assert station.commands[-1][0] - since < 1.0
    station.signal(process, signal.SIGCONT)
    station.expect_latched(since, *why)
    assert len(station.commands) == sent, "nothing moves by itself again"
    station.operator.reset()
    station.move()


def test_a_safety_node_that_stalls_starts_the_arm_from_rest(station: Station) -> None:
    """By the times of sending: after a stall the arm, which stands, is asked for no more than it can accelerate."""
    most = np.array(CONTRACT.robot.acceleration)
    stalls = 0
    for _ in range(8):
        station.signal("safety", signal.SIGSTOP)
        time.sleep(0.12)
        station.signal("safety", signal.SIGCONT)
        time.sleep(0.4)
        if station.operator.state != "armed":  # other inputs were too old by then
            station.calm()
            station.move()
    commands = list(station.commands)
    for k in range(1, len(commands) - 3):
        (before, q), (at, _) = commands[k - 1 : k + 1]
        if not 0.1 < at - before < 0.25:
            continue
        stalls += 1
        for later, there in commands[k : k + 4]:
            assert (np.abs(there - q) <= 0.5 * most * (later - at + 0.006) ** 2 + 1e-6).all(), (k, later - at)
    assert stalls >= 2
    station.within_limits()


# All of these, and more, on a fake clock: `test_faults_in_time`.
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("joint_states:freeze", ("frozen",)),
        ("joint_states:nan", ("joint state",)),
        ("clock:10", ("future", "too late", "ran out")),
    ],
)
def test_sensors_that_fail(station: Station, fault: str, why: tuple[str, ...]) -> None:
    since = station.fault(fault)
    station.expect_latched(since, *why)


def test_joint_states_in_another_order_are_the_same(station: Station) -> None:
    station.fault("joint_states:reorder")
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 0.8, 5, "some time")
    assert station.operator.state == "armed" and station.travel(begun) > 0.01, station.operator.reason
    station.within_limits()


def test_a_policy_that_is_killed_and_comes_back(station: Station) -> None:
    since = station.signal("policy", signal.SIGKILL)
    station.expect_latched(since, "ran out", "gone")
    assert at_rest(station.commands, CONTRACT), station.commands[-3:]
    sent = len(station.commands)
    station.calm()  # starts it again, and resets
    time.sleep(0.3)
    assert station.operator.state == "disarmed" and len(station.commands) == sent
    station.move()
    station.within_limits()


def test_an_arm_that_is_killed_and_comes_back(station: Station) -> None:
    since = station.signal("sim_arm", signal.SIGKILL)
    assert "joint state" in station.operator.wait_for("latched", 5).reason, station.operator.reason
    sent = silence(station.commands)
    assert station.commands[-1][0] - since < 1.5, "stopped within its bound"
    assert at_rest(station.commands, CONTRACT), station.commands[-3:]
    station.calm()
    time.sleep(0.3)
    assert station.operator.state == "disarmed" and len(station.commands) == sent
    station.move()
    station.within_limits()


def test_a_streamer_that_is_killed_and_comes_back(station: Station) -> None:
    since = station.signal("streamer", signal.SIGKILL)
    station.expect_latched(since, "gone", "late", "freshness")
    assert station.commands[-1][0] - since < 1.0
    assert at_rest(station.commands, CONTRACT), station.commands[-3:]
    sent = len(station.commands)
    station.calm()
    time.sleep(0.3)
    assert station.operator.state == "disarmed" and len(station.commands) == sent
    station.move()
    station.within_limits()


def test_a_safety_node_that_is_killed_and_comes_back(station: Station) -> None:
    since = station.signal("safety", signal.SIGKILL)
    time.sleep(0.5)
    sent = len(station.commands)
    assert station.commands[-1][0] - since < 0.5, "nobody else commands the arm"
    station.calm()
    time.sleep(0.3)
    assert station.operator.state == "disarmed" and len(station.commands) == sent
    station.move()
    station.within_limits()


def test_a_burst_of_signals_ends_a_node_well_and_once(station: Station) -> None:
    since = station.signal("safety", *[signal.SIGINT, signal.SIGTERM] * 100)
    assert station.of["safety"].wait(10) == 0
    silence(station.commands)
    assert station.commands[-1][0] - since < 1.5
    assert at_rest(station.commands, CONTRACT), station.commands[-3:]
    station.within_limits()
    station.signal("streamer", signal.SIGTERM)
    assert station.of["streamer"].wait(10) == 0


def test_a_node_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from robolearn.deploy import Program, StackProcesses
command = (sys.executable, "-m", "robolearn.deploy.nodes", "streamer")
with StackProcesses([Program("streamer", command)], Path({str(tmp_path)!r})) as nodes:
    print(nodes.pids["streamer"], flush=True)
    nodes.wait(60)
"""
    domain = {"ROS_DOMAIN_ID": str(DOMAIN + 100)}
    with Background(DOMAIN + 100) as background:
        operator = SafetyClient(background)
        parent = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, env={**ENVIRONMENT, **domain}, text=True
        )
        assert parent.stdout is not None
        node = Path(f"/proc/{int(parent.stdout.readline())}/cmdline")
        wait_until(lambda: operator.streamer, START_S, "the streamer")
        assert node.read_bytes()
        parent.kill()
        parent.wait()
        # Nobody may be there to bury it: then its command line is empty.
        wait_until(lambda: not (node.exists() and node.read_bytes()), 10, "the streamer's end")
        parent.stdout.close()
