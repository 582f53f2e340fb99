"""The simulated arm as a process of its own, and the room for pictures that it asks for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rclpy.node import Node

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import environment, messages, qos
from hardware.ros2.process import Background, wait_until

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9
WAIT_S = 30.0


def start(*flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "robolearn.bench.emulators.node", *flags],
        env={**os.environ, "ROS_DOMAIN_ID": str(DOMAIN), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
@pytest.mark.realtime
def test_it_runs_from_flags_and_ends_as_told() -> None:
    process = start("--task", "pick_place", "--seed=3", "--ros-args", "-p", "fault:=objects:stop")
    try:
        with Background(DOMAIN) as ros:
            heard: dict[str, list] = {"/joint_states": [], "/task/objects": []}
            client = Node("client", context=ros.context)
            for topic, messages_ in heard.items():
                client.create_subscription(messages.JointState, topic, messages_.append, qos.sensor())
            ros.add(client)
            wait_until(lambda: len(heard["/joint_states"]) > 20, WAIT_S, "joint states")
            assert not heard["/task/objects"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
@pytest.mark.parametrize(("flags", "says"), [(("--task", "lifd"), "lift"), (("--tusk", "lift"), "--task")])
def test_bad_input_ends_it_with_2_and_a_line(flags: tuple[str, ...], says: str) -> None:
    process = start(*flags)
    _, error = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert error.splitlines()[-1].startswith("error: ") and says in error and "Traceback" not in error


def texts(profiles: str, ending: str) -> list[str | None]:
    """What stands in a file of profiles under the names that end so."""
    return [e.text for e in ElementTree.parse(profiles).iter() if e.tag.endswith(ending)]


def test_room_for_pictures_is_made_where_there_is_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(environment.PROFILES, environment.OURS)
    assert not environment.make_room_for_pictures(tmp_path / "nowhere")
    with monkeypatch.context() as full:
        full.setattr(environment.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 2**20})())
        assert not environment.make_room_for_pictures(tmp_path)
    assert os.environ[environment.PROFILES] == environment.OURS
    assert environment.make_room_for_pictures(tmp_path)
    profiles = os.environ[environment.PROFILES]
    assert texts(profiles, "segment_size") == [str(environment.SEGMENT)]
    monkeypatch.setenv(environment.PROFILES, "mine.xml")
    assert environment.make_room_for_pictures(tmp_path) and os.environ[environment.PROFILES] == "mine.xml"
