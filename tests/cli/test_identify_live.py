"""``robolearn identify`` on an arm that runs by itself: over DDS, in real time, behind its driver's emulator."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from running import Running

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.motion_node import MotionNode
from hardware.ros2.process import Background
from hardware.ros2.safety_client import SafetyClient
from robolearn.core import BadInput, RobolearnError
from robots import ROBOTS
from robots.motion_log import load_log

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8
HIDDEN = "parameters: {command_delay: 0.1, gain: 0.8, joint_noise: 0.0002}\n"


def command(out: Path, seconds: int, *more: object) -> tuple[object, ...]:
    return ("identify", "--robot", "ur5e", "--rehearse", "--seconds", seconds, "--held-out", 0.4, "--out", out, *more)


# Of a machine that stands still for a tenth of a second within half a minute: the arm is stopped, as it must.
STOOD_STILL = ("did not run for", "joint state is", "target is", "targets are late", "heartbeat is")


def stood_still(err: str) -> bool:
    return any(words in err for words in STOOD_STILL)


def moving(running: Running, seconds: float) -> None:
    """Return when the arm has been armed for so long."""
    end = time.monotonic() + 90.0
    while "armed" not in running.log().partition("== safety")[2] and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(seconds)


def lag(path: Path) -> float:
    """Delay [s] of what was measured behind what was commanded, by cross-correlation of speeds: no model of an arm."""
    log = load_log(path, ROBOTS["ur5e"])
    commanded, measured = (np.diff(one, axis=0) for one in (log.commanded, log.measured))
    most = round(0.25 / log.period)
    found = [float((commanded[: -k or None] * measured[k:]).sum()) for k in range(most)]
    k = int(np.argmax(found))
    a, b, c = found[k - 1], found[k], found[k + 1]
    return (k + 0.5 * (a - c) / (a - 2 * b + c)) * log.period


def test_an_arm_behind_its_driver_is_identified(tmp_path: Path) -> None:
    """Its hidden delay is seen in the motion without any model, softer motors lag a little more; and the fit predicts
    what it has not seen better than the model as it is."""
    (tmp_path / "hidden.yaml").write_text(HIDDEN)
    out, words = tmp_path / "out", ("--dynamics", tmp_path / "hidden.yaml")
    for attempt in range(3):
        code, answer, err = Running(tmp_path / f"logs-{attempt}", *command(out, 16, *words), domain=DOMAIN).end()
        if code == 0 or not stood_still(err):
            break
    assert code == 0, err
    result = json.loads(answer.splitlines()[-1])
    assert result["log"] == str(out / "motion.npz")
    late = lag(out / "motion.npz")
    assert 0.09 < late < 0.14
    assert result["held_out"]["ratio"] < 0.15
    assert result["parameters"]["command_delay.0"]["value"] == pytest.approx(late, abs=0.03)


def test_what_was_moved_before_a_stop_is_used_and_said(tmp_path: Path) -> None:
    """After half a minute another program presses the emergency stop."""
    for attempt in range(3):
        running = Running(tmp_path / f"logs-{attempt}", *command(tmp_path / "out", 60), domain=DOMAIN)
        try:
            moving(running, 32.0)
            with Background(DOMAIN) as ros, SafetyClient(ros, name="passer_by") as client:
                client.wait_ready(policy=False)
                client.estop()
        except RobolearnError:  # it has ended before
            pass
        finally:
            code, answer, err = running.end()
        if not stood_still(err):
            break
    assert code == 0, err
    assert "the safety filter has stopped the arm: " in err and "s until then are used" in err
    assert "e-stop" in json.loads(answer.splitlines()[-1])["stopped"]
    motion = load_log(tmp_path / "out" / "motion.npz", ROBOTS["ur5e"])
    assert 28.0 < motion.seconds < 45.0
    assert json.loads(answer.splitlines()[-1])["motion_s"]["fit"] == pytest.approx(0.6 * motion.seconds, abs=0.1)


@pytest.mark.parametrize("node", ["motion", "safety"])
def test_a_node_that_is_killed_ends_it_with_its_name(tmp_path: Path, node: str) -> None:
    running = Running(tmp_path / "logs", *command(tmp_path / "out", 30), domain=DOMAIN)
    try:
        moving(running, 2.0)
        os.kill(running.pid(node), signal.SIGKILL)
    finally:
        code, _, err = running.end()
    assert code == 1 and f"the {node} node was killed by SIGKILL" in err, err
    assert not (tmp_path / "out").exists() and not running.left


def test_ctrl_c_disarms_and_leaves_nothing(tmp_path: Path) -> None:
    running = Running(tmp_path / "logs", *command(tmp_path / "out", 30), domain=DOMAIN)
    try:
        moving(running, 2.0)
        running.process.send_signal(signal.SIGINT)
    finally:
        code, _, err = running.end()
    assert code == 130, err
    assert "LATCHED" not in running.log().upper().replace("UNLATCHED", ""), "disarmed as planned, not stopped"
    assert not (tmp_path / "out").exists() and not running.left


def test_bad_motions_are_refused(tmp_path: Path) -> None:
    with Background(DOMAIN) as ros:
        for number, (way, said) in enumerate(
            ((np.zeros((5, 3)), "shape (5, 3)"), (np.full((5, 7), np.nan), "finite"), (None, "expected an .npy"))
        ):
            path = tmp_path / f"{number}.npy"
            if way is not None:
                np.save(path, way)
            given = {"way": str(path), "out": str(tmp_path / "log.npz")}
            node = MotionNode(overrides=given, context=ros.context)
            with pytest.raises(BadInput, match=said.replace("(", r"\(").replace(")", r"\)")):
                node.start()
            node.destroy_node()
