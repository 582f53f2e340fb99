"""`robolearn hil run --teleop` with a gamepad, a SpaceMouse and a leader arm.

The devices are emulated below the libraries that read them. What was stored is read back from the spool: who steered
which step, along which axis, how the tcp went, and what became of an episode whose device was unplugged.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arm_listener import Listener
from emulated_devices import Hands
from teaching import SMALL, Terminal, records, rotation, runs_of, until
from untrained import make_constant

from hardware.ros2.background import Background
from hardware.safety import SafetyFilter
from robolearn.data.replay import End, Step
from robots import SO101
from robots.stations import load_contract
from sim.registry import make_env

pytestmark = [pytest.mark.realtime, pytest.mark.long]


DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9


@pytest.fixture
def listener() -> Iterator[Listener]:
    c = load_contract("sim")
    SafetyFilter(c.robot, c.joints, c.limits, 1.0 / c.stream_hz)  # its machine code is made before an arm waits for it
    with Background(DOMAIN) as ros:
        node = Listener(context=ros.context)
        node.start()
        ros.add(node)
        yield node


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def policy_of(folder: Path, robot: str = "panda", **parts: float) -> Path:
    return make_constant(folder, make_env("lift", 1, robot=robot, threads=1).interface, **parts)


def taught(
    device: str, policy: Path, out: Path, terminal: Terminal, teach: Callable[[Hands], None], *words: object
) -> list[Any]:
    """The records of a run that `teach` ends by QUIT."""
    hands = Hands(device, out)
    process = hands.run(
        "hil", "run", "--policy", policy, "--task", "lift", "--teleop", device, "--out", out, *words, *SMALL, "--json",
        log=terminal.program, stdin=terminal.program,
    )  # fmt: skip
    try:
        until(lambda: hands.there or process.poll() is not None, "an actor with the device")
        teach(hands)
        result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
        hands.close()
        print(terminal.seen[-3000:], *(p.read_text()[-2000:] for p in sorted((out / "logs").glob("*.log"))))
    assert process.returncode == 0 and result["finished"] is False, result
    return records(out, policy)


def ends_of(found: list[Any]) -> list[tuple[bool, bool, bool]]:
    """(terminated, truncated, success) of each episode."""
    return [(r.terminated, r.truncated, r.success) for r in found if isinstance(r, End)]


def steps_of(found: list[Any], episode: int) -> list[Step]:
    return [r for r in found if isinstance(r, Step) and r.episode == episode]


def check_moved(run: list[Step], axis: int, least: float) -> None:
    """The hand begins at rest; what was asked for and how the tcp went are along one axis of the base."""
    assert not run[0].action[:6].any(), "the first action of the hand is no motion"
    asked = np.array([rotation(step) @ step.action[:3] for step in run])
    assert asked[:, axis].max() > 0.3 and np.abs(np.delete(asked, axis, 1)).max() < 1e-4
    tcp = np.array([step.observation["proprio"][8:11] for step in run], np.float64)
    way = tcp[-1] - tcp[0]
    assert way[axis] > least and np.abs(np.delete(way, axis)).max() < 0.3 * way[axis], way


def test_a_gamepad_teaches(tmp_path: Path, terminal: Terminal) -> None:
    def teach(pad: Hands) -> None:
        terminal.wait("press START")
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
        terminal.wait("press START")
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
    success, lost, failure = (True, False, True), (False, True, False), (True, False, False)
    assert ends_of(found)[:3] == [success, lost, failure]
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
        terminal.wait("press START")
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
        terminal.wait("press START")
        time.sleep(1.5)
        terminal.type("\r")
        terminal.wait("recording · episode 3 ")
        time.sleep(0.5)
        mouse("push", -350, 0, 0)
        terminal.wait("you move the arm")
        time.sleep(0.6)
        mouse("push")
        terminal.type("q")
        terminal.wait("once more")
        time.sleep(0.8)
        terminal.type("q")

    out = tmp_path / "run"
    policy = policy_of(tmp_path / "policy", dy=0.1, gripper=0.9)
    found = taught("spacemouse", policy, out, terminal, teach)
    assert ends_of(found) == [(True, False, True), (False, True, False), (False, True, False)]
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
        terminal.wait("press START")
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
        terminal.wait("press START")
        time.sleep(1.5)
        terminal.type("\r")
        terminal.wait("recording · episode 3 ")
        time.sleep(0.5)
        terminal.type("q")
        terminal.wait("once more")
        time.sleep(0.8)
        terminal.type("q")

    out = tmp_path / "run"
    # Near home, so that a leader at home is where the arm is.
    offered = make_env("lift", 1, robot="so101", threads=1).interface
    middle = 2.0 * (np.array(SO101.home) - SO101.lower) / (SO101.upper - SO101.lower) - 1.0
    parts = dict(zip(offered.action.names, (*map(float, middle), 0.5), strict=True))
    policy = make_constant(tmp_path / "policy", offered, **parts)
    found = taught("leader", policy, out, terminal, teach)
    assert ends_of(found) == [(True, False, True), (False, True, False), (False, True, False)]
    (run,) = runs_of(steps_of(found, 0))
    pan = np.array([step.observation["proprio"][0] for step in run], np.float64)
    asked = np.array([step.action[0] for step in run], np.float64)
    led = (asked + 1.0) / 2.0 * (SO101.upper[0] - SO101.lower[0]) + SO101.lower[0]
    assert abs(led[0] - pan[0]) < 0.03, "it begins where the arm is"
    assert np.degrees(led[-1] - SO101.home[0]) == pytest.approx(30.0, abs=1.0), "what is stored is where it led"
    assert np.degrees(pan[-1] - SO101.home[0]) == pytest.approx(30.0, abs=4.0), "the arm went there"
    second = steps_of(found, 1)
    assert runs_of(second)[-1][-1].index == second[-1].index, "nothing is handed to the policy"


def begin(pad: Hands, terminal: Terminal, listener: Listener) -> None:
    """START, until an episode is recorded."""
    for _ in range(4):
        terminal.wait("START", 120.0)
        pad("tap", "start")
        with suppress(AssertionError):
            until(lambda: listener.state == "armed", "an armed arm", 15.0)
            terminal.wait("recording · ", 6.0)
            return
    raise AssertionError("no episode begins")


def end(pad: Hands, terminal: Terminal, button: str) -> None:
    """Label the episode, and end it all."""
    pad("tap", button)
    terminal.wait("START", 20.0)
    with suppress(OSError):  # twice, should an episode run; else the first has ended it all
        pad("tap", "back")
        time.sleep(1.0)
        pad("tap", "back")


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
    assert (True, False, True) in ends_of(found)
    pictures = np.array([r.observation["images.front"] for r in found if isinstance(r, Step)])
    assert len(pictures) > 20 and pictures.shape[1:] == (48, 48, 3) and pictures.dtype == np.uint8
    assert pictures[0].std() > 10.0 and (pictures[0] != pictures[-1]).any(), "of an arm that moves"


def test_a_gamepad_on_the_simulated_arm(tmp_path: Path, terminal: Terminal, listener: Listener) -> None:
    """Over ROS 2, behind the safety node; judged by what passes between the nodes, too."""

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
    ends = ends_of(found)
    whole = ends.index((True, False, True))
    assert (False, True, False) in ends[whole + 1 :] and (True, False, False) in ends[whole + 1 :]
    (run,) = runs_of(steps_of(found, whole))
    assert np.abs(run[0].action[:6]).max() < 0.3, "taken over without a jerk"
    asked = np.array([rotation(step) @ step.action[:3] for step in run])
    tcp = np.array([step.observation["proprio"][8:11] for step in run], np.float64)
    assert asked[:, 2].max() > 0.5 and tcp[-1, 2] - tcp[0, 2] > 0.02, "up, as the stick"
    lost = max(k for k, end in enumerate(ends) if end == (False, True, False))
    assert runs_of(steps_of(found, lost)), "the hand had it"
    assert steps_of(found, lost)[-1].intervention, "nothing is handed to the policy"
