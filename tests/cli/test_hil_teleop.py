"""`robolearn hil run --teleop` in simulation: a real keyboard through a pseudo-terminal, a real browser.

What was stored is read back from the spool and judged by itself: who steered which step, in which frame, and that a
take-over begins at rest.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware" / "teleop"))

sys.path.insert(0, str(Path(__file__).parent))

from browser_driver import Chromium, Hands
from untrained import make_constant

from policies.checkpoint import load_chunk_policy
from robolearn.cli.main import main
from robolearn.data.replay import End, RecordSchema, Step, TransitionLog
from robolearn.runs import read_metrics
from robots import PANDA
from sim.registry import make_env

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
SMALL = (
    "--free 0 --width 16 --depth 1 --critics 2 --batch 16 --warmup 20 --utd 0.2 --proposals 2 --backup-proposals 1"
).split()


class Terminal:
    """A terminal with a person: what they type, and what they see."""

    def __init__(self) -> None:
        self.person, self.program = pty.openpty()
        self.seen, self.past = "", 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                self.seen += os.read(self.person, 4096).decode(errors="replace")
            except OSError:
                return

    def type(self, keys: str) -> None:
        os.write(self.person, keys.encode())

    def hold(self, key: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.type(key)
            time.sleep(0.03)

    def wait(self, word: str, limit_s: float = 90.0) -> None:
        """Until `word` is shown anew."""
        until(lambda: word in self.seen[self.past :], f"{word!r} after {self.seen[-400:]!r}", limit_s)
        self.past = len(self.seen)


def until(condition: Callable[[], Any], what: str, limit_s: float = 90.0) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    os.close(made.person)
    os.close(made.program)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moves sideways above the table: it solves nothing by chance."""
    env = make_env("lift", 1, threads=1)
    return make_constant(tmp_path_factory.mktemp("policy"), env.interface, dy=0.1, gripper=0.9)


def records(out: Path, policy: Path) -> list[Any]:
    """Of the actor's spool."""
    log = TransitionLog(out / "spool", "actor", RecordSchema(load_chunk_policy(policy, "cpu").interface))
    found = list(log.read())
    log.close()
    return found


def rotation(step: Step) -> np.ndarray:
    """(3, 3) of the tcp in the base frame before the step, from what was observed."""
    x, y = step.observation["proprio"][11:14].astype(float), step.observation["proprio"][14:17].astype(float)
    return np.stack([x, y, np.cross(x, y)], -1)


def runs_of(steps: list[Step]) -> list[list[Step]]:
    """Each intervention's steps."""
    found: list[list[Step]] = []
    for before, step in zip([None, *steps], steps, strict=False):
        if step.intervention and not (before and before.intervention and before.episode == step.episode):
            found.append([])
        if step.intervention:
            found[-1].append(step)
    return found


@pytest.mark.realtime
def test_a_keyboard_teaches(policy: Path, demos: Path, tmp_path: Path, terminal: Terminal) -> None:
    out = tmp_path / "run"
    command = [*PROGRAM, "hil", "run", "--policy", policy, "--task", "lift", "--demos", demos, "--teleop", "keyboard",
               "--out", out, *SMALL, "--json"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [str(word) for word in command], env=env, stdin=terminal.program, stderr=terminal.program,
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        terminal.wait("press START")
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
        terminal.type("q")
        terminal.wait("once more")
        time.sleep(0.8)
        terminal.type("q")
        result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
    assert process.returncode == 0, result
    assert result["finished"] is False and result["env_steps"] > 60
    found = records(out, policy)
    ends = {record.episode: record for record in found if isinstance(record, End)}
    assert [(e.terminated, e.success) for e in ends.values()] == [(True, True), (True, False), (False, False)]
    steps = [record for record in found if isinstance(record, Step)]
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


BANNER = "document.querySelector('[data-robolearn-hil]')"
WINDOW = (640, 480)


@pytest.mark.realtime
def test_a_browser_and_the_console_s_buttons_drive_the_same_hand(policy: Path, demos: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    command = [*PROGRAM, "hil", "run", "--policy", policy, "--task", "lift", "--demos", demos, "--teleop", "browser",
               "--port", 0, "--console", 0, "--episodes", 2, "--out", out, *SMALL, "--json"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(word) for word in command], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file,
            text=True, start_new_session=True,
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
            assert hands.state == "waiting"
            hands.button("Start")
            tab.wait("document.querySelector('#robolearn').dataset.state === 'recording'")
            console = chromium.open(page, (1000, 1400), sharpness=0.25)
            console.wait(f"{BANNER}?.dataset.inControl === 'policy'", 60.0)
            # The cube that is to be lifted stands on the person's page.
            until(lambda: any(colour.startswith(("d9", "d8")) for colour, _ in tab.meshes()), "the red cube")

            hands.hold()
            hands.drag("z", -0.06)
            console.wait(f"{BANNER}.dataset.inControl === 'person'")
            time.sleep(1.0)
            hands.release()
            console.wait(f"{BANNER}.dataset.inControl === 'policy'")
            # The same hand by the page's buttons: it has the arm though the switch is off.
            console.press("button", "Take over")
            console.wait(f"{BANNER}.dataset.inControl === 'person'")
            time.sleep(0.6)
            console.press("button", "Hand back")
            console.wait(f"{BANNER}.dataset.inControl === 'policy'")
            console.press("button", "Success")
            console.wait(f"{BANNER}.innerText.includes('episode 2 ·')")
            hands.button("Failure")
            result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
        print(log.read_text()[-2000:])
    assert process.returncode == 0, result
    assert result["finished"] and result["episodes"] == 2
    found = records(out, policy)
    ends = [record for record in found if isinstance(record, End)]
    assert [(e.terminated, e.success) for e in ends] == [(True, True), (True, False)]
    first, held = runs_of([r for r in found if isinstance(r, Step) and r.episode == 0])
    assert not first[0].action[:6].any() and max(np.abs(step.action[2]) for step in first) > 0.5, "the drag is stored"
    assert len(held) >= 8 and not any(step.action[:6].any() for step in held), "the arm rests in a hand that rests"
    assert "token=" not in (out / "logs" / "actor.log").read_text()


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
