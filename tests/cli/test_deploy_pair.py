"""`robolearn deploy` on two arms: a policy of two on the simulated pair, over DDS, and what is refused before."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from hardware.safety import SafetyFilter
from robolearn.bench.emulators.rehearsal import rehearsal
from robolearn.cli.main import main
from robolearn.core import BadInput
from robots.stations import CONTRACTS, PairContract, load_contract, load_pair

sys.path.insert(0, str(Path(__file__).parent))
from running import Running
from untrained import make_constant, make_policy

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9
PAIR = load_pair("panda_pair")


def offered(task: str) -> Any:
    from sim.registry import make_env

    return make_env(task, 1, threads=1).interface  # type: ignore[attr-defined]


def deployed(
    tmp_path: Path, task: str, policy: Path, *flags: object, pair: PairContract = PAIR
) -> tuple[int, dict[str, Any]]:
    """Exit code and result of one episode."""
    # Machine code is cached on disk: made here, not while a deployment waits for it.
    SafetyFilter(pair.robot, pair.joints, pair.limits, 1.0 / pair.stream_hz)
    words = ("--robot", pair.path, "--task", task, "--policy", policy, "--episodes", 1, *flags)
    deployment = Running(tmp_path / "logs", "deploy", *words, domain=DOMAIN)
    try:
        code, out, err = deployment.end()
    finally:
        deployment.close()
    assert out and not deployment.left and "Traceback" not in deployment.log(), (err, deployment.log())
    result = json.loads(out.splitlines()[-1])
    assert result["success"]["episodes"] == 1 and result["task"] == task
    assert result["arm"] == pair.robot.name
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p99"]
    return code, result


@pytest.mark.long
@pytest.mark.realtime
def test_an_episode_of_two_arms_ends_with_an_outcome(tmp_path: Path) -> None:
    policy = make_constant(tmp_path / "policy", PAIR.interface, left_dz=-0.05, right_dy=0.02)
    code, result = deployed(tmp_path, "lift_two", policy, "--video", tmp_path / "two.mp4")
    assert code == 0 and result["ended"] is None and result["timed_out"] == [True], result
    with av.open(result["video"]) as container:
        pictures = [frame.to_ndarray(format="rgb24").astype(int) for frame in container.decode(video=0)]
    assert len(pictures) > 0.7 * result["episode_s"][0] * PAIR.control_hz
    moved = np.abs(pictures[-1] - pictures[0]).mean(2) > 40
    half = moved.shape[1] // 2
    assert moved[60:, :half].any() and moved[60:, half:].any(), "both arms have moved, one on either side"
    commands = result["monitor"]["commands"]  # of both arms, where the filter counts those of a tick as one
    assert result["violations"] == 0 and commands > 1.5 * result["filter"]["commands"] > 600, result
    assert 0 < result["monitor"]["peak"]["velocity"] <= 1.0


@pytest.mark.long
@pytest.mark.realtime
def test_an_episode_of_two_arms_on_the_doubles_of_two_drivers(tmp_path: Path) -> None:
    """The judge at each trajectory controller sees its arm's set-points each millisecond."""
    pair = load_pair(two_drivers(tmp_path))
    policy = make_constant(tmp_path / "policy", pair.interface, left_dz=-0.05, right_dy=0.02)
    code, result = deployed(tmp_path, "lift_two", policy, "--rehearse", "--seconds", 3, pair=pair)
    assert code == 0 and result["ended"] is None and result["timed_out"] == [True], result
    assert result["robot"] == "two-rehearsal"
    assert result["violations"] == 0 and result["monitor"]["commands"] > 4000, result["monitor"]
    assert 0.05 < result["monitor"]["peak"]["velocity"] <= 1.0


@pytest.mark.long
@pytest.mark.realtime
def test_an_untrained_policy_of_two_arms_breaks_no_limit(tmp_path: Path) -> None:
    code, result = deployed(tmp_path, "handover", make_policy(tmp_path / "policy", offered("handover")))
    # It knows nothing: a stop of the filter is an outcome of its episode as good as the end of its time.
    assert code == int(result["stopped"]) and bool(result["ended"]) == result["stopped"]
    assert result["violations"] == 0 and result["monitor"]["commands"] > 50, result["monitor"]


def two_drivers(folder: Path) -> Path:
    """A station whose left FR3 is behind franka_ros2, and whose right one behind any other ros2_control."""
    text = (CONTRACTS / "fr3.yaml").read_text().replace("franka_ros2\n", "ros2_control\n", 1)
    text, count = re.subn(r"^  (action|states):.*\n(    .*\n)+", "", text, flags=re.MULTILINE)
    assert count == 2
    (folder / "right.yaml").write_text(text)
    path = folder / "two.yaml"
    path.write_text("robot: fr3_pair\narms: {left: {contract: fr3}, right: {contract: right.yaml}}\n")
    return path


def test_a_rehearsal_of_two_arms_is_their_contracts_with_simulated_arms(tmp_path: Path) -> None:
    real = load_pair(two_drivers(tmp_path))
    with rehearsal(str(tmp_path / "two.yaml")) as robot:
        pair = load_pair(robot)
        assert pair.simulated and pair.name == "two-rehearsal" and pair.objects is not None and not real.simulated
        for name, arm in real.arms.items():
            there = pair.arms[name]
            assert (there.command, there.joint_states, there.driver) == (arm.command, arm.joint_states, arm.driver)
            assert there.simulated and there.namespace == f"/{name}"
        assert [arm.driver for arm in pair.arms.values()] == ["franka_ros2", "ros2_control"]
    assert not Path(robot).exists()
    (tmp_path / "right.yaml").write_text(re.sub(r"driver:.*\n", "", (tmp_path / "right.yaml").read_text()))
    with pytest.raises(BadInput, match=r"contract two: arms\.right: got no driver, expected a real station"):
        rehearsal(str(tmp_path / "two.yaml")).__enter__()


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in ("deploy", *words)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_what_two_arms_do_not_take_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    both = make_constant(tmp_path / "both", PAIR.interface)
    one = make_constant(tmp_path / "one", load_contract("sim").interface)
    pair = ("--robot", "panda_pair", "--policy", both)
    assert "robot of lift: got panda_pair" in refused(capsys, *pair)
    words = "robot of handover: got panda, expected 2 arms that can do it; available: panda_pair"
    assert words in refused(capsys, "--policy", one, "--task", "handover")
    assert "it was made for panda, this is panda_pair" in refused(
        capsys, "--robot", "panda_pair", "--task", "handover", "--policy", one
    )
    assert "it was made for panda_pair, this is panda" in refused(capsys, "--policy", both)
    words = (
        "--rehearse: contract panda_pair: arms.left: got simulated: true, expected a real station with the key driver"
    )
    assert words in refused(capsys, "--rehearse", *pair)
    assert "did you mean panda_pair" in refused(capsys, "--robot", "panda_pai", "--policy", both)
    assert "there is no terminal to ask on" in refused(
        capsys, "--robot", "so101_pair", "--policy", make_constant(tmp_path / "so", load_pair("so101_pair").interface)
    )


@pytest.mark.parametrize("flags", [(), ("--rehearse",)])
def test_a_lesson_on_two_arms_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: tuple[str, ...]
) -> None:
    pair = load_pair("fr3_pair")
    policy = make_constant(tmp_path / "both", pair.interface)
    words = ("--robot", "fr3_pair", "--teleop", "gamepad", "--task", "lift_two", *flags)
    words = ("hil", "run", *words, "--policy", str(policy), "--out", str(tmp_path / "hil"))
    assert main([*words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "fr3_pair.yaml: got a station with two arms, expected a contract of one arm" in line
    assert not (tmp_path / "hil").exists()
