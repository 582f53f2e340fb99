"""`robolearn deploy --reset motion`: the arm goes home by itself between episodes, as one who listens sees it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from rclpy.node import Node

sys.path.insert(0, str(Path(__file__).parent))
from running import Running
from untrained import make_constant

from hardware.ros2 import messages, qos
from hardware.ros2.process import Background
from robolearn.bench.emulators.rehearsal import rehearsal
from robolearn.cli.main import main
from robots.stations import load_contract
from sim.tasks import TASKS

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8


@pytest.mark.long
@pytest.mark.realtime
def test_every_episode_begins_at_home(tmp_path: Path) -> None:
    with rehearsal("ur5e") as robot:
        contract = load_contract(robot).with_objects(TASKS["lift"]().observation_names)
    home = np.array(contract.robot.home)
    policy = make_constant(tmp_path / "policy", contract.interface, dz=-0.15, dy=0.15, gripper=-1.0)
    words = ("deploy", "--rehearse", "--robot", "ur5e", "--policy", policy, "--episodes", 2, "--seconds", 1.5)
    armings: dict[str, list[np.ndarray]] = {}
    current = ""
    with Background(DOMAIN) as ros:
        node = ros.add(Node("observer", context=ros.context))

        def on_safety(message: messages.DiagnosticArray) -> None:
            nonlocal current
            report = messages.read_safety_report(message)
            current = report.arming if report else ""

        def on_joints(message: messages.JointState) -> None:
            if current and set(contract.joints) <= set(message.name):
                armings.setdefault(current, []).append(messages.pick(message, contract.joints))

        namespace = "/robolearn/safety_state"
        node.create_subscription(messages.DiagnosticArray, namespace, on_safety, qos.latched())
        node.create_subscription(messages.JointState, contract.joint_states.topic, on_joints, qos.sensor(50))
        code, out, err = Running(tmp_path / "logs", *words, "--reset", "motion", domain=DOMAIN).end()
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["success"]["episodes"] == 2 and result["violations"] == 0 and not result["stopped"]
    assert len(armings) == 4, "home, episode, home, episode"
    ways = [np.array(rows) for rows in armings.values()]
    for number, way in enumerate(ways):
        away = np.abs(way - home).max(1)
        if number % 2 == 0:  # from where the simulated arm's episode begins, home
            assert away[0] > 0.05 and away[-1] < 0.02
        else:  # the policy leads it away from there
            assert away[0] < 0.02 and away[-1] > 0.05


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--robot", "sim"],
            "--reset: got motion on sim, which begins anew, expected person, or --rehearse",
        ),
        (["--robot", "ur5e", "--yes", "--dry-run"], "--dry-run: got it with --reset motion"),
    ],
)
def test_where_nothing_can_bring_it_home_it_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = make_constant(tmp_path / "policy", load_contract("sim").interface)
    assert main(["deploy", "--policy", str(policy), "--reset", "motion", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["record", "--out", "data"], "--reset: got motion on sim, which begins anew, expected person, or a real arm"),
        (["hil", "run", "--policy", "policy", "--out", "run"], "--reset: got motion without a real arm"),
        (
            ["hil", "run", "--policy", "policy", "--out", "run", "--robot", "sim", "--teleop", "keyboard"],
            "--reset: got motion on sim, which begins anew",
        ),
    ],
)
def test_who_records_or_teaches_a_simulated_arm_needs_none(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_constant(tmp_path / "policy", load_contract("sim").interface)
    assert main([*words, "--reset", "motion"]) == 2
    assert said in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"policy"}


ON_SIM = ("--robot", "sim", "--teleop", "keyboard", "--reset", "policy", "--reset-policy", "policy")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reset", "policy"], "--reset policy: got no --robot, expected both"),
        (ON_SIM[:-2], "--reset policy: got no --reset-policy, expected both"),
        (["--reset-policy", "policy"], "--reset-policy: got policy beside --reset person, expected --reset policy"),
        ([*ON_SIM, "--reset-seconds", "0"], "--reset-seconds: got 0.0, expected more than 0"),
        ([*ON_SIM, "--reset-reward", "key"], "--reset-reward: got key; available: robometer"),
        ([*ON_SIM[:-1], "other"], "other"),
        ([*ON_SIM, "--reward", "task"], "--reset policy: got --reward task, expected --reward key, or a reward model"),
    ],
)
def test_a_reset_that_no_policy_can_make_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_constant(tmp_path / "policy", load_contract("sim").interface)
    assert main(["hil", "run", "--policy", "policy", "--out", "run", *words]) == 2
    assert said in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"policy"}
