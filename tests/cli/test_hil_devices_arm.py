"""`robolearn hil run --robot --teleop` with a gamepad and a leader arm, emulated below the libraries that read them.

Over ROS 2, behind the safety node; judged by the spool, by what passes between the nodes, and by the arm's own monitor.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arm_listener import Listener
from device_lessons import DROPPED, goal_states, steps_of, taught
from emulated_devices import Hands
from teaching import Terminal, rotation, runs_of, until
from untrained import make_constant

from hardware.ros2.process import Background
from hardware.safety import SafetyFilter
from robolearn.bench.emulators.rehearsal import rehearsal
from robolearn.data.replay import ReplayStep
from robots import SO101
from robots.stations import Contract, load_contract

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9


@contextmanager
def listening(c: Contract) -> Iterator[Listener]:
    SafetyFilter(c.robot, c.joints, c.limits, 1.0 / c.stream_hz)  # its machine code is made before an arm waits for it
    with Background(DOMAIN) as ros:
        node = Listener(context=ros.context, contract=c)
        node.start()
        ros.add(node)
        yield node


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening(load_contract("sim")) as node:
        yield node


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def begin(pad: Hands, terminal: Terminal, listener: Listener) -> None:
    """START, until an episode is recorded."""
    for _ in range(4):
        terminal.wait("ress Start", 120.0)
        pad("tap", "start")
        with suppress(AssertionError):
            until(lambda: listener.state == "armed", "an armed arm", 15.0)
            terminal.wait("recording · ", 6.0)
            return
    raise AssertionError("no episode begins")


def end(pad: Hands, terminal: Terminal, button: str) -> None:
    """Label the episode, and end it all."""
    pad("tap", button)
    terminal.wait("ress Start", 20.0)
    with suppress(OSError):  # twice, should an episode run; else the first has ended it all
        pad("tap", "back")
        time.sleep(1.0)
        pad("tap", "back")


def recorded(terminal: Terminal, presses: int) -> None:
    """START at the terminal, until an episode is recorded: the first may only arm."""
    for _ in range(presses):
        terminal.type("\r")
        with suppress(AssertionError):
            terminal.wait("recording · ", 8.0)
            return
    raise AssertionError("no episode begins")


def failed(terminal: Terminal) -> None:
    """Label the episode a failure, and end it all."""
    terminal.type("-")
    terminal.wait("ress Start", 20.0)
    terminal.type("q")
    with suppress(OSError):
        time.sleep(1.0)
        terminal.type("q")


def test_a_station_whose_pictures_are_of_another_size(tmp_path: Path, terminal: Terminal, listener: Listener) -> None:
    def teach(pad: Hands) -> None:
        begin(pad, terminal, listener)
        time.sleep(2.0)
        end(pad, terminal, "a")

    station = load_contract("sim").with_cameras(("front",))
    offered = station.interface
    learned = {"images.front": replace(offered.observation["images.front"], shape=(48, 48, 3))}
    offered = replace(offered, observation={**offered.observation, **learned})
    policy = make_constant(tmp_path / "policy", offered, ("front",), dy=0.2, gripper=0.9)
    assert station.cameras["front"].size != (48, 48)
    found = taught("gamepad", policy, tmp_path / "run", terminal, teach, "--robot", "sim", "--domain", DOMAIN)
    assert (True, False, True) in goal_states(found)
    pictures = np.array([r.observation["images.front"] for r in found if isinstance(r, ReplayStep)])
    assert len(pictures) > 20 and pictures.shape[1:] == (48, 48, 3) and pictures.dtype == np.uint8
    assert pictures[0].std() > 10.0 and (pictures[0] != pictures[-1]).any(), "of an arm that moves"


def test_a_gamepad_on_the_simulated_arm(tmp_path: Path, terminal: Terminal, listener: Listener) -> None:
    """It takes over while its dead-man is held; unplugged in the hand it stops the arm, and comes back before START."""

    def teach(pad: Hands) -> None:
        begin(pad, terminal, listener)
        time.sleep(2.5)  # a pad at rest sends nothing, and the policy moves the arm
        assert listener.state == "armed"
        pad("axis", "right_y", -1.0)
        pad("press", "left_shoulder")
        terminal.wait("you move the arm")
        time.sleep(0.8)
        pad("release", "left_shoulder")
        pad("axis", "right_y", 0.0)
        terminal.wait("the policy moves the arm")
        time.sleep(1.0)
        pad("tap", "a")
        begin(pad, terminal, listener)
        time.sleep(1.0)
        pad("axis", "left_y", -0.3)
        pad("press", "left_shoulder")
        terminal.wait("you move the arm")
        time.sleep(0.3)
        pad("unplug")
        until(lambda: listener.state != "armed", "the arm stops", 2.0)
        time.sleep(1.5)
        since = time.time()
        pad("plug")
        time.sleep(2.5)
        assert listener.state != "armed" and listener.moved(since) < 1e-6, "nothing moves by itself"
        pad("release", "left_shoulder")
        pad("axis", "left_y", 0.0)
        begin(pad, terminal, listener)
        time.sleep(1.0)
        end(pad, terminal, "b")

    out = tmp_path / "run"
    contract = load_contract("sim").with_cameras(())
    policy = make_constant(tmp_path / "policy", contract.interface, dy=0.2, gripper=0.9)
    found = taught("gamepad", policy, out, terminal, teach, "--robot", "sim", "--domain", DOMAIN)
    arm = json.loads((out / "spool" / "arm.json").read_text())
    assert arm["violations"] == 0 and arm["monitor"]["commands"] > 100 and arm["stops"] >= 1
    ends = goal_states(found)
    whole = ends.index((True, False, True))
    assert DROPPED in ends[whole + 1 :] and (True, False, False) in ends[whole + 1 :]
    (run,) = runs_of(steps_of(found, whole))
    assert np.abs(run[0].action[:6]).max() < 0.3, "taken over without a jerk"
    asked = np.array([rotation(step) @ step.action[:3] for step in run])
    tcp = np.array([step.observation["proprio"][8:11] for step in run], np.float64)
    assert asked[:, 2].max() > 0.5 and tcp[-1, 2] - tcp[0, 2] > 0.02, "up, as the stick"
    lost = max(k for k, end in enumerate(ends) if end == DROPPED and runs_of(steps_of(found, k)))
    assert steps_of(found, lost)[-1].intervention, "nothing is handed to the policy"


def test_a_second_policy_brings_things_back(tmp_path: Path, terminal: Terminal, listener: Listener) -> None:
    """Two policies, one to each side: the second moves the arm between two episodes, the person's key ends its turn,
    and the next episode begins by itself. Nothing of its turn is in the outbox."""
    sides: list[float] = []

    def teach(pad: Hands) -> None:
        begin(pad, terminal, listener)
        time.sleep(2.5)
        since = time.time()
        pad("tap", "a")
        terminal.wait("a policy brings things back", 10.0)
        time.sleep(2.0)
        sides.append(listener.moved(since))
        assert listener.state == "armed"
        pad("tap", "a")
        terminal.wait("things are back", 10.0)
        terminal.wait("recording · ", 30.0)  # without START
        time.sleep(2.0)
        end(pad, terminal, "b")

    contract = load_contract("sim").with_cameras(())
    there = make_constant(tmp_path / "there", contract.interface, dy=0.2, gripper=0.9)
    back = make_constant(tmp_path / "back", contract.interface, dy=-0.2, gripper=0.9)
    found = taught(
        "gamepad", there, tmp_path / "run", terminal, teach, "--robot", "sim", "--domain", DOMAIN, "--reward", "key",
        "--reset", "policy", "--reset-policy", back,
    )  # fmt: skip
    arm = json.loads((tmp_path / "run" / "spool" / "arm.json").read_text())
    assert arm["violations"] == 0 and sides[0] > 0.05
    ends = goal_states(found)
    assert ends[0] == (True, False, True) and (True, False, False) in ends[1:]
    for number in range(2):
        steps = steps_of(found, number)
        asked = np.array([rotation(step) @ step.action[:3] for step in steps[2:]])
        assert len(steps) > 20 and np.median(np.abs(asked[:, 1])) > 0.1
        assert len(np.unique(np.sign(np.array([step.action[1] for step in steps[5:]])))) == 1, "of one policy alone"
        assert steps[-1].action[1] > 0.1, "the one that is taught"


def test_a_leader_arm_on_a_double_of_its_follower(tmp_path: Path, terminal: Terminal) -> None:
    """Joint positions through the safety node: the follower goes where the leader is, within its limits."""
    with rehearsal("so101") as robot:
        contract = load_contract(robot).with_cameras(())
    home = dict(zip((*SO101.joints, "gripper"), (*np.degrees(SO101.home), 50.0), strict=True))

    def sweep(arm: Hands, joint: str, by: float, seconds: float) -> None:
        began = time.monotonic()
        while (share := (time.monotonic() - began) / seconds) < 1.0:
            arm("move", {joint: home[joint] + share * by})
            time.sleep(0.02)

    def teach(arm: Hands) -> None:
        terminal.wait("ress Start", 120.0)
        recorded(terminal, 6)
        time.sleep(1.0)
        sweep(arm, "shoulder_pan", 20.0, 2.0)
        terminal.wait("you move the arm")
        terminal.wait("the policy moves the arm")
        time.sleep(1.5)
        terminal.type("1")
        terminal.wait("ress Start", 20.0)
        arm("move", home)
        time.sleep(2.0)
        recorded(terminal, 6)
        time.sleep(0.5)
        sweep(arm, "elbow_flex", 10.0, 1.0)
        arm("unplug")
        until(lambda: listener.state != "armed", "the arm stops", 3.0)
        terminal.wait("waiting")
        arm("plug")
        arm("move", home)
        time.sleep(3.0)
        assert listener.state != "armed", "nothing moves by itself"
        recorded(terminal, 6)
        time.sleep(0.5)
        failed(terminal)

    middle = 2.0 * (np.array(SO101.home) - SO101.lower) / (SO101.upper - SO101.lower) - 1.0
    parts = dict(zip(contract.interface.action.names, (*map(float, middle), 0.5), strict=True))
    policy, out = make_constant(tmp_path / "policy", contract.interface, **parts), tmp_path / "run"
    words = ("--robot", "so101", "--rehearse", "--domain", DOMAIN)
    with listening(contract) as listener:
        found = taught("leader", policy, out, terminal, teach, *words)
    arm = json.loads((out / "spool" / "arm.json").read_text())
    assert arm["violations"] == 0 and arm["monitor"]["commands"] > 100 and arm["stops"] >= 1
    ends = goal_states(found)
    whole = ends.index((True, False, True))
    run = runs_of(steps_of(found, whole))[0]
    pan = np.array([step.observation["proprio"][0] for step in run], np.float64)
    led = (np.array([step.action[0] for step in run], np.float64) + 1.0) / 2.0 * (SO101.upper[0] - SO101.lower[0])
    led += SO101.lower[0]
    before = steps_of(found, whole)[run[0].index - 1].action[0]
    assert run[0].action[0] == pytest.approx(before, abs=0.02), "it begins at rest: where the policy sent the arm last"
    assert np.degrees(pan[-1]) == pytest.approx(20.0, abs=4.0) and np.degrees(led[-1]) == pytest.approx(20.0, abs=2.0)
    lost = max(k for k, end in enumerate(ends) if end == DROPPED and runs_of(steps_of(found, k)))
    assert steps_of(found, lost)[-1].intervention, "nothing is handed to the policy"
    assert (True, False, False) in ends[lost:]


def test_a_spacemouse_on_the_simulated_arm(tmp_path: Path, terminal: Terminal, listener: Listener) -> None:
    """Whoever moves the cap takes over; unplugged while it is pushed it stops the arm, and the terminal stays open."""

    def teach(mouse: Hands) -> None:
        terminal.wait("press Start", 120.0)
        recorded(terminal, 4)
        time.sleep(1.5)
        mouse("push", 0, 0, -250)
        terminal.wait("you move the arm")
        time.sleep(0.8)
        mouse("push")
        terminal.wait("the policy moves the arm")
        time.sleep(1.0)
        terminal.type("1")
        terminal.wait("ress Start", 20.0)
        time.sleep(1.0)
        recorded(terminal, 4)
        time.sleep(0.5)
        mouse("push", 0, 0, -100)
        terminal.wait("you move the arm")
        time.sleep(0.5)  # the newest steps are in no log yet: they wait for what was executed
        mouse("unplug")
        until(lambda: listener.state != "armed", "the arm stops", 3.0)
        terminal.wait("dropped", 20.0)  # what is shown as recorded from here on is another one
        time.sleep(1.5)
        since = time.time()
        mouse("plug")
        time.sleep(2.5)
        assert listener.state != "armed" and listener.moved(since) < 1e-6, "nothing moves by itself"
        recorded(terminal, 4)
        time.sleep(0.5)
        failed(terminal)

    offered, out = load_contract("sim").with_cameras(()).interface, tmp_path / "run"
    policy = make_constant(tmp_path / "policy", offered, dy=0.2, gripper=0.9)
    found = taught("spacemouse", policy, out, terminal, teach, "--robot", "sim", "--domain", DOMAIN)
    arm = json.loads((out / "spool" / "arm.json").read_text())
    assert arm["violations"] == 0 and arm["monitor"]["commands"] > 100 and arm["stops"] >= 1
    ends = goal_states(found)
    whole = ends.index((True, False, True))
    (run,) = runs_of(steps_of(found, whole))
    tcp = np.array([step.observation["proprio"][8:11] for step in run], np.float64)
    assert np.abs(run[0].action[:6]).max() < 0.3 and tcp[-1, 2] - tcp[0, 2] > 0.02, "up, as the cap"
    lost = max(k for k, end in enumerate(ends) if end == DROPPED and runs_of(steps_of(found, k)))
    assert steps_of(found, lost)[-1].intervention and (True, False, False) in ends[lost:]
