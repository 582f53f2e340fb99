"""`robolearn hil run --teleop` in simulation: a real keyboard through a pseudo-terminal, a real browser.

What was stored is read back from the spool and judged by itself: who steered which step, in which frame, and that a
take-over begins at rest.
"""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware" / "teleop"))
sys.path.insert(0, str(Path(__file__).parent))

from browser_driver import Chromium, Hands, Tab
from teaching import Terminal, hil_run, records, rotation, runs_of, until
from untrained import make_constant

from robolearn.cli.main import main
from robolearn.data.replay import End, ReplayStep
from robolearn.runs import read_metrics
from robots import PANDA
from sim.registry import make_env

pytestmark = pytest.mark.long

BANNER = "document.querySelector('[data-robolearn-hil]')"
WINDOW = (640, 480)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moves sideways above the table: it solves nothing by chance."""
    env = make_env("lift", 1, threads=1)
    return make_constant(tmp_path_factory.mktemp("policy"), env.interface, dy=0.1, gripper=0.9)


@pytest.mark.realtime
def test_a_keyboard_teaches(policy: Path, demos: Path, tmp_path: Path, terminal: Terminal) -> None:
    out = tmp_path / "run"
    process = hil_run(
        "--policy", policy, "--task", "lift", "--demos", demos, "--teleop", "keyboard", "--out", out,
        log=terminal.program, stdin=terminal.program,
    )  # fmt: skip
    try:
        terminal.wait("press Start")
        terminal.type("\r")
        terminal.wait("recording · episode 1 ")
        time.sleep(1.0)  # the policy alone
        terminal.hold("w", 1.2)
        terminal.wait("you move the arm")
        terminal.wait("the policy moves the arm")
        time.sleep(0.5)
        terminal.hold("a", 0.6)
        time.sleep(0.4)  # the key is up, and it is still the person's turn
        terminal.type("1")
        terminal.wait("recording · episode 2 ")
        time.sleep(1.0)
        terminal.type("-")
        terminal.wait("recording · episode 3 ")
        time.sleep(0.5)
        terminal.quit()
        result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
    assert process.returncode == 0, result
    assert result["finished"] is False and result["env_steps"] > 60
    found = records(out, policy)
    ends = {record.episode: record for record in found if isinstance(record, End)}
    assert [(e.terminated, e.success) for e in ends.values()] == [(True, True), (True, False)]
    steps = [record for record in found if isinstance(record, ReplayStep)]
    first, second = runs_of([step for step in steps if step.episode == 0])
    assert len(first) >= 30 and not any(step.intervention for step in steps if step.episode)
    for run, axis in ((first, 0), (second, 1)):
        assert not run[0].action[:6].any(), "the first action of the hand is no motion"
        moved = np.array([rotation(step) @ step.action[:3] for step in run])
        assert moved[:, axis].max() > 0.3 and np.abs(np.delete(moved, axis, 1)).max() < 1e-4, "along the key's axis"
    assert not first[-1].action[:6].any(), "it hands back at rest"
    rows = list(read_metrics(out))
    assert rows[0]["interventions"] == len(first) + len(second) and rows[0]["takeovers"] == 2
    # No success crosses the edge of an intervention: the policy's own steps before the last one earn nothing.
    (last,) = [step for step in steps if step.episode == 0 and step.reward]
    assert last.intervention and last.index == ends[0].length - 1


@pytest.mark.realtime
def test_a_browser_and_the_console_s_buttons_drive_the_same_hand(policy: Path, demos: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    with log.open("w") as file:
        process = hil_run(
            "--policy", policy, "--task", "lift", "--demos", demos, "--teleop", "browser", "--port", 0,
            "--console", 0, "--seconds", 120, "--out", out, log=file,
        )  # fmt: skip
    try:
        with Chromium() as chromium:
            url, page = (
                until(lambda name=name: re.search(rf"{name}: (http\S+)", log.read_text()), f"address of {name}")[1]
                for name in ("teleop", "console")
            )
            tab = chromium.open(url, WINDOW, sharpness=0.25)
            hands = Hands(tab, PANDA)
            hands.wait_ready()
            drag(hands)
            # The cube that is to be lifted stands on the person's page.
            until(lambda: any(colour.startswith(("d9", "d8")) for colour, _ in tab.meshes()), "the red cube")
            console = chromium.open(page, (1000, 1400), sharpness=0.25)
            console.wait(f"{BANNER}?.dataset.inControl === 'policy'", 60.0)
            # The same hand by the page's buttons: it has the arm though its switch is off.
            click(console, "Take over", f"{BANNER}.dataset.inControl === 'person'")
            time.sleep(0.6)
            click(console, "Hand back", f"{BANNER}.dataset.inControl === 'policy'")
            number = int(console.js(f"{BANNER}.innerText.match(/episode (\\d+) ·/)[1]"))
            click(console, "Success", f"{BANNER}.innerText.includes('episode {number + 1} ·')")
            hands.button("Failure")
            console.wait(f"{BANNER}.innerText.includes('episode {number + 2} ·')")
            hands.quit()
            result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
        print(log.read_text()[-2000:])
    assert process.returncode == 0, result
    found = records(out, policy)
    ends = {record.episode: (record.terminated, record.success) for record in found if isinstance(record, End)}
    assert list(ends.values())[-2:] == [(True, True), (True, False)], ends
    first = list(ends)[-2]
    held = runs_of([r for r in found if isinstance(r, ReplayStep) and r.episode == first])[-1]
    runs = runs_of([r for r in found if isinstance(r, ReplayStep)])
    assert not any(run[0].action[:6].any() for run in runs), "each take-over begins at rest"
    assert max(abs(step.action[2]) for run in runs for step in run) > 0.5, "the drag is stored"
    assert len(held) >= 8 and not any(step.action[:6].any() for step in held), "the arm rests in a hand that rests"
    assert "token=" not in (out / "logs" / "actor.log").read_text()


def click(page: Tab, label: str, then: str) -> None:
    """Press a button of the console until it is so: one that is still being laid out may be missed."""
    for _ in range(5):
        page.press("button", label)
        with suppress(TimeoutError):
            page.wait(then, 4.0)
            return
    raise AssertionError(f"{label}: {page.js('document.body.innerText')[:600]}")


def drag(hands: Hands) -> None:
    """Take over, drag the target, hand back. A page that is silent for 0.3 s has let go, on a machine that stands still
    for a moment: that ends the episode, and START begins the next."""
    for _ in range(5):
        until(lambda: hands.state in ("waiting", "recording"), "an episode")
        if hands.state == "waiting":
            hands.button("Start")
            until(lambda: hands.state == "recording", "the episode")
        time.sleep(0.5)
        hands.hold()
        hands.drag("z", -0.06)
        time.sleep(1.0)
        if hands.engaged and hands.state == "recording":
            hands.release()
            time.sleep(0.3)
            return
        time.sleep(0.5)
    raise AssertionError("the page is silent again and again")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--teleop", "mouse"], "keyboard"),
        (["--teleop", "scripted"], "keyboard"),
        (["--teleop", "keyboard", "--operator", "scripted"], "--operator"),
        (["--teleop", "keyboard", "--pace", "lockstep"], "realtime"),
        (["--robot", "sim"], "--teleop"),
        (["--rehearse"], "--robot"),
        (["--teleop", "keyboard", "--seconds", "0"], "--seconds"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["hil", "run", "--policy", str(tmp_path), "--out", str(tmp_path / "out"), *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("robolearn: error:") and said in line
