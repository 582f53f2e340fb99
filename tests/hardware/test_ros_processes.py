"""The nodes as processes over real DDS, killed, halted and told to end in mid-motion, with wide margins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hardware.ros2.background import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from robots.stations import load_contract

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from ros_station import Arm  # noqa: E402
from stopping import silence  # noqa: E402

pytestmark = pytest.mark.realtime

CONTRACT = load_contract("sim")
DOMAIN = 1 + (os.getpid() + 1) % 100  # apart from whatever else runs here


class Processes:
    """Policy, streamer and safety as processes; the arm and the operator here."""

    def __init__(self) -> None:
        self.background = Background(DOMAIN)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ROS_DOMAIN_ID": str(DOMAIN)}
        self.of = {
            role: subprocess.Popen([sys.executable, str(HERE / "ros_station.py"), role], env=env)
            for role in ("policy", "streamer", "safety")
        }
        self.arm = self.background.add(Arm(CONTRACT, context=self.background.context))
        self.arm.start()
        self.operator = SafetyClient(self.background)
        self.operator.wait_ready(60)

    def move(self) -> None:
        self.operator.arm()
        begun = len(self.arm.commands)
        wait_until(lambda: self.arm.moved(begun) > 0.01, 10, "motion")

    def close(self) -> None:
        for process in self.of.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(10)
        self.background.close()


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.close()


def test_killed_policy_then_stopped_streamer_then_told_to_end(processes: Processes) -> None:
    operator, arm = processes.operator, processes.arm
    processes.move()
    processes.of["streamer"].send_signal(signal.SIGSTOP)
    operator.wait_for("latched", 5)
    commands = silence(arm.commands)
    processes.of["streamer"].send_signal(signal.SIGCONT)
    time.sleep(0.3)
    assert operator.state == "latched" and len(arm.commands) == commands  # nothing moves by itself again

    operator.reset()
    arm.monitor.new_motion()
    processes.move()
    processes.of["policy"].kill()
    killed = time.monotonic()
    operator.wait_for("latched", 5)
    # A lease of 0.1 s, and a brake; at most 0.25 s on a machine that has time.
    assert arm.commands[-1][0] - killed < 1.0
    assert "gone" in operator.reason or "ran out" in operator.reason
    assert arm.monitor.summary()["violations"] == 0, arm.monitor.summary()

    # Told to end while armed: brakes first, then ends well. SIGINT twice, as launch does.
    operator.reset()
    operator.arm()
    safety = processes.of["safety"]
    safety.send_signal(signal.SIGINT)
    safety.send_signal(signal.SIGINT)
    assert safety.wait(10) == 0
    processes.of["streamer"].send_signal(signal.SIGTERM)
    assert processes.of["streamer"].wait(10) == 0


def test_the_safety_node_told_to_end_in_mid_motion_brakes(processes: Processes) -> None:
    arm = processes.arm
    processes.move()
    safety = processes.of["safety"]
    safety.send_signal(signal.SIGTERM)
    assert safety.wait(10) == 0
    wait_until(lambda: time.monotonic() - arm.commands[-1][0] > 0.3, 5, "silence")
    steps = np.abs(np.diff([q for _, q in arm.commands[-40:]], axis=0)).max(1)
    assert steps[-1] < 1e-4 and arm.monitor.summary()["violations"] == 0, (steps, arm.monitor.summary())
