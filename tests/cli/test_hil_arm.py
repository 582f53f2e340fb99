"""`robolearn hil run --robot`: the loop on the simulated arm and on an emulator of the FR3's driver, over real DDS.

Its own processes, a real Chromium or a real terminal, and a listener on the ROS topics that shares nothing with them:
from the click to the first command at the arm that answers it, what was stored against what the safety filter accepted,
what a killed half does to the arm, and the arm's own monitor of speed, acceleration and jerk.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware" / "teleop"))
sys.path.insert(0, str(Path(__file__).parent))

from arm_listener import Listener, intervene, light_station
from browser_driver import Chromium, Hands
from teaching import Terminal, hil_run, records, runs_of, until
from untrained import make_constant

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.process import Background
from hardware.safety import SafetyFilter
from robolearn.bench.emulators.rehearsal import rehearsal
from robolearn.data.replay import End, ReplayStep
from robots import DELTA_POS, PANDA
from robots.stations import load_contract

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 7
CONTRACT = load_contract("sim").with_cameras(())
WINDOW = (640, 480)
SIDEWAYS = 0.2
TAKE_OVER_S = 0.2


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Machine code is cached on disk: made here, not while an arm waits for it."""
    SafetyFilter(CONTRACT.robot, CONTRACT.joints, CONTRACT.limits, 1.0 / CONTRACT.stream_hz)


@pytest.fixture
def quick() -> Iterator[None]:
    """A page that is not heard for 0.3 s has let go: that must not happen for other work on this machine."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    yield
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Background(DOMAIN) as ros:
        node = Listener(context=ros.context)
        node.start()
        ros.add(node)
        yield node


def sideways(folder: Path) -> Path:
    return make_constant(folder, CONTRACT.interface, dy=SIDEWAYS, gripper=0.9)


def stop(process: Any) -> None:
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=60)


def test_an_intervention_by_browser(tmp_path: Path, quick: None, listener: Listener) -> None:
    policy, out, log = sideways(tmp_path / "policy"), tmp_path / "run", tmp_path / "log"
    with log.open("w") as file:
        process = hil_run(
            "--policy", policy, "--robot", light_station(tmp_path), "--task", "lift", "--teleop", "browser",
            "--port", 0, "--domain", DOMAIN, "--out", out, log=file,
        )  # fmt: skip
    try:
        with Chromium() as chromium:
            url = until(lambda: re.search(r"teleop: (http\S+)", log.read_text()), "the page's address")[1]
            tab = chromium.open(url, WINDOW, sharpness=0.25, few_pictures=True)
            hands = Hands(tab, PANDA)
            hands.wait_ready(120.0)
            clicked = intervene(hands, listener, policy_s=2.0)
            until(lambda: hands.state == "waiting", "the episode's end", 20.0)
            hands.quit()
            result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    finally:
        stop(process)
        for path in (log, *sorted((out / "logs").glob("*.log"))):
            print(f"== {path.name}\n{path.read_text()[-3000:]}")
    assert process.returncode == 0 and result["finished"] is False, result

    found = records(out, policy)
    episode = next(record.episode for record in found if isinstance(record, End) and record.success)
    helped = [step for step in found if isinstance(step, ReplayStep) and step.episode == episode and step.intervention]
    steps = [step for step in found if isinstance(step, ReplayStep) and step.episode == episode]
    (end,) = (record for record in found if isinstance(record, End) and record.episode == episode)
    mine = np.array([step.intervention for step in steps])
    edges = np.flatnonzero(np.diff(mine.astype(int)))
    assert len(edges) == 2 and not mine[0] and not mine[-1], "one intervention, with the policy before and after"
    assert end.terminated and end.success and steps[-1].reward == 1.0
    asked = np.array([step.action[1] for step in steps])
    assert np.abs(asked[~mine][3:] - SIDEWAYS).max() < 0.25, "the policy's own, but for what it took to begin"
    first = steps[edges[0] + 1]
    assert np.abs(first.action[:6]).max() < 0.3, "taken over without a jerk"

    # What is stored leads from the joints measured to what the filter accepted.
    _, once = np.unique([stamp for stamp, _, _ in listener.accepted], return_index=True)
    sent = np.array([listener.accepted[k][1] for k in once])
    accepted = np.array([listener.accepted[k][2] for k in once])
    answers = []
    for step in helped:
        q = step.observation["proprio"][:7].astype(np.float64)
        (at,), (rot,) = PANDA.chain.forward(q[None])
        goals, _ = PANDA.chain.forward(accepted[:, :7])
        off = np.abs((goals - at) @ rot / DELTA_POS - step.action[:3]).max(1)
        near = np.abs(accepted[:, :7] - q).max(1) < 0.1
        answers.append(float(off[near].min()) if near.any() else np.inf)
    assert np.mean(np.array(answers) < 0.03) > 0.95, "what is stored is what the filter accepted"
    times = np.array([at for at, _ in listener.commands])
    # From the click to the first command that answers it. The policy's targets move on with every step; the hand rests
    # for 0.4 s, so its first target is the first that the next four all but repeat (the policy: 0.02 rad).
    holds = np.array([np.ptp(accepted[k : k + 5, :7], axis=0).max() < 4e-3 for k in range(len(accepted) - 5)])
    answer = sent[np.flatnonzero(holds & (sent[: len(holds)] > clicked))[0]]
    took = times[times >= answer][0] - clicked
    print(f"take-over {1e3 * took:.0f} ms; peaks {result['arm']['monitor']['peak']}")
    assert 0.0 < took <= TAKE_OVER_S
    drag = np.array([step.action[2] for step in helped])
    assert np.abs(drag).max() > 0.5, "the drag is in what is stored"
    assert result["arm"]["violations"] == 0 and result["arm"]["monitor"]["commands"] > 100
    peak = result["arm"]["monitor"]["peak"]
    assert max(peak[kind] for kind in ("velocity", "acceleration", "jerk")) <= 1.0 + 1e-6


def test_halves_that_are_killed_stop_the_arm_and_come_back(
    tmp_path: Path, terminal: Terminal, quick: None, listener: Listener
) -> None:
    """By keyboard: the learner is killed, and the arm holds; the actor is killed, and the arm stops by itself."""
    policy, out = sideways(tmp_path / "policy"), tmp_path / "run"
    process = hil_run(
        "--policy", policy, "--robot", "sim", "--task", "lift", "--teleop", "keyboard", "--domain", DOMAIN,
        "--out", out, log=terminal.program, stdin=terminal.program,
    )  # fmt: skip

    def half(name: str) -> int:
        """The process id of one of the halves."""
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (folder / "cmdline").read_text().split("\0")
                if "hil" in words and name in words and str(out) in "\0".join(words):
                    return int(folder.name)
        raise AssertionError(f"no {name}")

    def begin() -> None:
        """START until the policy has moved the arm: in an episode, for the way to its beginning is a motion, too."""

        def pressed() -> bool:
            terminal.type("\r")
            terminal.wait("recording · ", 6.0)
            since = time.time()
            until(lambda: listener.state == "armed" and listener.moved(since) > 0.01, "the policy moves", 3.0)
            time.sleep(0.5)  # the newest two steps are in no log yet: they wait for what they led to
            return True

        def tried() -> bool:
            with suppress(AssertionError):
                return pressed()
            return False

        until(tried, "an episode in which the policy moves", 120.0)

    try:
        terminal.wait("press Start", 120.0)
        begin()
        terminal.hold("w", 1.0)
        terminal.wait("you move the arm")
        os.kill(half("learner"), signal.SIGKILL)
        terminal.wait("the learner does not answer", 10.0)
        time.sleep(1.0)
        since = time.time()
        time.sleep(1.0)
        assert listener.moved(since) < 1e-6, "the arm holds"
        begin()  # `hil run` has started it again
        os.kill(half("actor"), signal.SIGKILL)
        killed = time.time()
        time.sleep(2.0)
        assert listener.moved(killed + 0.6) < 1e-6, "silence means stop"
        begin()
        terminal.type("1")
        time.sleep(1.0)
        terminal.type("q")
        time.sleep(1.0)
        terminal.type("q")
        result = json.loads(process.communicate(timeout=90)[0].splitlines()[-1])
    finally:
        stop(process)
        print(terminal.seen[-3000:], *(p.read_text()[-2000:] for p in sorted((out / "logs").glob("*.log"))))
    assert process.returncode == 0 and result["arm"]["violations"] == 0, result
    found = records(out, policy)
    ends = {record.episode: record for record in found if isinstance(record, End)}
    assert any(end.truncated for end in ends.values()) and list(ends.values())[-1].success
    assert runs_of([r for r in found if isinstance(r, ReplayStep)]), "the keyboard's steps are interventions"
    cut = {r.episode for r in found} - set(ends)
    assert len(cut) == 1, "the episode in which the actor was killed has no end of its own"


def test_the_same_loop_on_a_double_of_the_fr3_s_driver(tmp_path: Path, terminal: Terminal, quick: None) -> None:
    with rehearsal("fr3") as robot:
        contract = load_contract(robot)
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)
    policy = make_constant(tmp_path / "policy", contract.with_cameras(()).interface, dy=SIDEWAYS, gripper=0.9)
    out = tmp_path / "run"
    process = hil_run(
        "--policy", policy, "--robot", "fr3", "--rehearse", "--task", "lift", "--teleop", "keyboard",
        "--domain", DOMAIN + 1, "--out", out, log=terminal.program, stdin=terminal.program,
    )  # fmt: skip
    try:
        terminal.wait("press Start", 120.0)
        for _ in range(4):
            terminal.type("\r")
            with suppress(AssertionError):
                terminal.wait("the policy moves the arm", 15.0)
                break
        time.sleep(1.5)
        terminal.hold("w", 1.0)
        terminal.wait("you move the arm")
        terminal.wait("the policy moves the arm")
        time.sleep(1.0)
        terminal.type("1")
        terminal.wait("ress Start", 10.0)
        terminal.type("q")
        time.sleep(1.0)
        terminal.type("q")
        result = json.loads(process.communicate(timeout=90)[0].splitlines()[-1])
    finally:
        stop(process)
        print(terminal.seen[-3000:], *(p.read_text()[-2000:] for p in sorted((out / "logs").glob("*.log"))))
    assert process.returncode == 0, result
    assert result["arm"]["robot"] == "fr3-rehearsal" and result["arm"]["violations"] == 0, json.dumps(
        result["arm"]["monitor"]
    )
    assert result["arm"]["monitor"]["commands"] > 200
    found = records(out, policy)
    last = [record for record in found if isinstance(record, End)][-1]
    steps = [record for record in found if isinstance(record, ReplayStep) and record.episode == last.episode]
    assert last.success and last.terminated and len(steps) > 40
    (helped,) = runs_of(steps)
    assert len(helped) >= 20 and np.abs(helped[0].action[:6]).max() < 0.3
