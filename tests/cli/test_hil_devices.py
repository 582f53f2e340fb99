"""`robolearn hil run --teleop` with a gamepad, a SpaceMouse and a leader arm.

The devices are emulated below the libraries that read them. What was stored is read back from the spool: who steered
which step, along which axis, how the tcp went, and what became of an episode whose device was unplugged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from device_lessons import DROPPED, goal_states, steps_of, taught
from emulated_devices import Hands
from teaching import Terminal, rotation, runs_of
from untrained import make_constant

from robolearn.data.replay import ReplayStep
from robots import SO101
from sim.registry import make_env

pytestmark = [pytest.mark.realtime, pytest.mark.long]


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def policy_of(folder: Path, robot: str = "panda", **parts: float) -> Path:
    return make_constant(folder, make_env("lift", 1, robot=robot, threads=1).interface, **parts)


def check_moved(run: list[ReplayStep], axis: int, least: float) -> None:
    """The hand begins at rest; what was asked for and how the tcp went are along one axis of the base."""
    assert not run[0].action[:6].any(), "the first action of the hand is no motion"
    asked = np.array([rotation(step) @ step.action[:3] for step in run])
    assert asked[:, axis].max() > 0.3 and np.abs(np.delete(asked, axis, 1)).max() < 1e-4
    tcp = np.array([step.observation["proprio"][8:11] for step in run], np.float64)
    way = tcp[-1] - tcp[0]
    assert way[axis] > least and np.abs(np.delete(way, axis)).max() < 0.3 * way[axis], way


def test_a_gamepad_teaches(tmp_path: Path, terminal: Terminal) -> None:
    def teach(pad: Hands) -> None:
        terminal.wait("press Start")
        pad("tap", "start")
        terminal.wait("recording · episode 1 ")
        time.sleep(2.0)  # a pad at rest sends nothing; the policy moves
        pad("axis", "left_y", -1.0)
        time.sleep(0.5)  # a stick without the dead-man is nothing
        pad("press", "left_shoulder")
        terminal.wait("you move the arm")
        time.sleep(1.0)
        pad("release", "left_shoulder")
        terminal.wait("the policy moves the arm")
        time.sleep(1.0)
        pad("axis", "left_y", 0.0)
        pad("tap", "a")
        terminal.wait("recording · episode 2 ")
        time.sleep(1.0)
        pad("press", "left_shoulder")
        terminal.wait("you move the arm")
        time.sleep(0.5)
        pad("unplug")
        terminal.wait("waiting")
        terminal.wait("unplugged")
        time.sleep(1.5)
        pad("plug")
        terminal.wait("press Start")
        time.sleep(1.5)
        pad("tap", "start")
        terminal.wait("recording · episode 3 ")
        time.sleep(0.5)
        pad("tap", "b")
        terminal.wait("recording · episode 4 ")
        pad("tap", "back")
        terminal.wait("once more")
        pad("tap", "back")

    out = tmp_path / "run"
    policy = policy_of(tmp_path / "policy", dy=0.1, gripper=0.9)
    found = taught("gamepad", policy, out, terminal, teach)
    success, lost, failure = (True, False, True), DROPPED, (True, False, False)
    assert goal_states(found)[:3] == [success, lost, failure]
    (run,) = runs_of(steps_of(found, 0))
    check_moved(run, 0, 0.02)
    assert 10 <= len(run) <= 50
    alone = [step.action[:3] for step in steps_of(found, 0) if not step.intervention]
    assert np.abs(np.array(alone) - (0.0, 0.1, 0.0)).max() < 0.4, "the policy's own, wherever the stick is"
    second = steps_of(found, 1)
    (run,) = runs_of(second)
    assert run[-1].index == second[-1].index, "nothing is handed to the policy"
    assert not any(step.intervention for step in steps_of(found, 2))


def test_a_spacemouse_teaches(tmp_path: Path, terminal: Terminal) -> None:
    def teach(mouse: Hands) -> None:
        terminal.wait("press Start")
        terminal.type("\r")
        terminal.wait("recording · episode 1 ")
        time.sleep(1.0)
        mouse("push", 0, -350, 0)  # away from the user: along the base's x
        terminal.wait("you move the arm")
        time.sleep(1.0)
        mouse("push")
        terminal.wait("the policy moves the arm")
        time.sleep(0.5)
        terminal.type("1")
        terminal.wait("recording · episode 2 ")
        mouse("push", 0, 0, -350)
        terminal.wait("you move the arm")
        time.sleep(0.5)
        mouse("unplug")
        terminal.wait("waiting")
        terminal.wait("unplugged")
        time.sleep(1.5)
        mouse("plug")
        terminal.wait("press Start")
        time.sleep(1.5)
        terminal.type("\r")
        terminal.wait("recording · episode 3 ")
        time.sleep(0.5)
        mouse("push", -350, 0, 0)
        terminal.wait("you move the arm")
        time.sleep(0.6)
        mouse("push")
        terminal.quit()

    out = tmp_path / "run"
    policy = policy_of(tmp_path / "policy", dy=0.1, gripper=0.9)
    found = taught("spacemouse", policy, out, terminal, teach)
    assert goal_states(found) == [(True, False, True), DROPPED, DROPPED], "lost, and quit: dropped"
    (run,) = runs_of(steps_of(found, 0))
    check_moved(run, 0, 0.02)
    assert not run[-1].action[:6].any(), "it hands back at rest"
    second = steps_of(found, 1)
    (run,) = runs_of(second)
    check_moved(run[:-1], 2, 0.01)
    assert run[-1].index == second[-1].index, "nothing is handed to the policy"
    (run,) = runs_of(steps_of(found, 2))
    check_moved(run, 1, 0.01)


def test_a_leader_arm_teaches(tmp_path: Path, terminal: Terminal) -> None:
    """The leader is brought to where the arm is, and from there on the arm is where the leader is."""
    names = (*SO101.joints, "gripper")
    home = dict(zip(names, (*np.degrees(SO101.home), 50.0), strict=True))

    def sweep(arm: Hands, seconds: float, **to: float) -> None:
        """Move joints there from home, as a hand does."""
        began = time.monotonic()
        while (share := (time.monotonic() - began) / seconds) < 1.0:
            arm("move", {name: home[name] + share * (goal - home[name]) for name, goal in to.items()})
            time.sleep(0.02)
        arm("move", to)

    def teach(arm: Hands) -> None:
        terminal.wait("press Start")
        terminal.type("\r")
        terminal.wait("recording · episode 1 ")
        time.sleep(1.0)
        sweep(arm, 2.0, shoulder_pan=home["shoulder_pan"] + 30.0)
        terminal.wait("you move the arm")
        time.sleep(0.8)
        terminal.wait("the policy moves the arm")
        time.sleep(0.5)
        terminal.type("1")
        terminal.wait("recording · episode 2 ")
        arm("move", home)
        sweep(arm, 1.0, elbow_flex=home["elbow_flex"] + 15.0)
        arm("unplug")
        terminal.wait("waiting")
        terminal.wait("leader")
        time.sleep(1.5)
        arm("plug")
        terminal.wait("press Start")
        time.sleep(1.5)
        terminal.type("\r")
        terminal.wait("recording · episode 3 ")
        time.sleep(0.5)
        terminal.quit()

    out = tmp_path / "run"
    # Near home, so that a leader at home is where the arm is.
    offered = make_env("lift", 1, robot="so101", threads=1).interface
    middle = 2.0 * (np.array(SO101.home) - SO101.lower) / (SO101.upper - SO101.lower) - 1.0
    parts = dict(zip(offered.action.names, (*map(float, middle), 0.5), strict=True))
    policy = make_constant(tmp_path / "policy", offered, **parts)
    found = taught("leader", policy, out, terminal, teach)
    assert goal_states(found) == [(True, False, True), DROPPED, DROPPED], "lost, and quit: dropped"
    (run,) = runs_of(steps_of(found, 0))
    pan = np.array([step.observation["proprio"][0] for step in run], np.float64)
    asked = np.array([step.action[0] for step in run], np.float64)
    led = (asked + 1.0) / 2.0 * (SO101.upper[0] - SO101.lower[0]) + SO101.lower[0]
    assert abs(led[0] - pan[0]) < 0.03, "it begins where the arm is"
    assert np.degrees(led[-1] - SO101.home[0]) == pytest.approx(30.0, abs=1.0), "what is stored is where it led"
    assert np.degrees(pan[-1] - SO101.home[0]) == pytest.approx(30.0, abs=4.0), "the arm went there"
    second = steps_of(found, 1)
    assert runs_of(second)[-1][-1].index == second[-1].index, "nothing is handed to the policy"
