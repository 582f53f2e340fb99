"""The operator's terminal: keys against a switch that keeps a diary, and against the real safety node."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from hardware.observing.timing import SafetySilent
from hardware.ros2.process import Background
from hardware.ros2.safety_client import SafetyClient
from robolearn.cli.main import main
from robolearn.core import RobolearnError
from robolearn.deploy.operate import operate
from robolearn.deploy.processes import may_be_realtime


class Fake:
    """Switch and keys in one. `script`: what is pressed at each look; the terminal hangs up after it if `hangs`."""

    def __init__(self, *script: str, hangs: bool = False) -> None:
        self.script, self.hangs = list(script), hangs
        self.diary: list[str] = []
        self.state, self.reason, self.gone = "disarmed", "", False
        self.refuses = ""
        self.hangs_node = False
        self.answers: list[str] = []  # to a verdict, one a look; none: nobody takes it

    def check_heard(self) -> None:
        if self.hangs_node:
            raise SafetySilent("the safety node is silent")

    def poll(self) -> list[tuple[str, bool]]:
        if not self.script:
            self.gone = self.hangs
            return [] if self.hangs else [("q", True)]
        return [(key, True) for key in self.script.pop(0).split()]

    def arm(self, timeout_s: float = 1.0) -> None:
        if self.refuses:
            raise RobolearnError(self.refuses)
        self.diary.append("arm")
        self.state = "armed"

    def disarm(self, timeout_s: float = 1.0) -> None:
        self.diary.append("disarm")
        self.state = "disarmed"

    def reset(self, timeout_s: float = 1.0) -> None:
        self.diary.append("reset")
        self.state = "disarmed"

    def estop(self, timeout_s: float = 1.0) -> None:
        self.diary.append("estop")
        self.state = "latched"

    def release(self) -> None:
        self.diary.append("release")

    def judge(self, success: bool, timeout_s: float = 1.0) -> Callable[[], str]:
        self.diary.append(f"judge {success}")

        def answer() -> str:
            if not self.answers:
                raise RobolearnError("no policy node takes a verdict")
            said = self.answers.pop(0)
            self.state = "disarmed" if said and self.state == "armed" else self.state
            return said

        return answer


def play(fake: Fake) -> tuple[dict, list[str]]:
    lines: list[str] = []
    return operate(fake, fake, lines.append, sleep=lambda _: None), lines


def test_keys_do_what_they_say_and_quitting_disarms() -> None:
    fake = Fake("a", "", "d", "a", "space", "r", "a")
    result, _ = play(fake)
    assert fake.diary == ["arm", "disarm", "release", "arm", "estop", "reset", "arm", "disarm", "release"]
    assert result == {"armed": 3, "stopped": 1, "state": "disarmed"}


def test_a_stop_comes_before_everything_pressed_with_it() -> None:
    fake = Fake("a", "q r space")
    play(fake)
    assert fake.diary[:3] == ["arm", "estop", "reset"], "and Q beside it does not quit"


def test_a_terminal_that_hangs_up_lets_the_dead_man_go() -> None:
    fake = Fake("a", hangs=True)
    result, _ = play(fake)
    assert fake.diary == ["arm", "release"] and result["state"] == "armed"


def test_a_refusal_is_told_and_the_program_goes_on() -> None:
    fake = Fake("a", "")
    fake.refuses = "not armed: no fresh joint state"
    _, lines = play(fake)
    assert "refused: not armed: no fresh joint state" in lines and fake.diary == ["release"]


def test_a_verdict_is_asked_for_beside_everything_else_and_the_dead_man_is_let_go_at_rest() -> None:
    """The answer comes later; a stop that is pressed meanwhile is not kept waiting."""
    fake = Fake("a", "1", "1", "", "", "")
    fake.answers = ["", "", "success"]
    result, lines = play(fake)
    assert fake.diary == ["arm", "judge True", "release", "release"], "once, and once more at the end"
    assert "the episode has ended: success" in lines and result["armed"] == 1
    fake = Fake("a", "-", "space", "")
    fake.answers = ["", "", "failure"]
    play(fake)
    assert fake.diary[:3] == ["arm", "judge False", "estop"]


def test_a_verdict_that_nobody_takes_is_told() -> None:
    fake = Fake("1", "", "a")
    _, lines = play(fake)
    assert "refused: no policy node takes a verdict" in lines and fake.diary[:2] == ["judge True", "arm"]


def test_a_safety_node_that_hangs_is_not_shown_by_what_it_said_last() -> None:
    fake = Fake("a", "", "space", "", "d")
    fake.disarm = fake.estop = lambda timeout_s=1.0: fake.check_heard()  # type: ignore[method-assign]
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        fake.hangs_node = True

    result = operate(fake, fake, say, sleep=lambda _: None)
    assert said[0] == "armed" and said[1] == "the safety node is silent"
    assert "armed" not in said[1:], said
    assert "refused: the safety node is silent" in said and fake.diary[-1] == "release" and result["stopped"] == 1


def test_without_a_terminal_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    assert main(["operate"]) == 2
    assert "no terminal" in capsys.readouterr().err


class Terminal:
    """`robolearn operate` on a pseudo-terminal of its own, killed at the end."""

    def __init__(self, env: dict[str, str]) -> None:
        self._screen, slave = pty.openpty()
        os.set_blocking(self._screen, False)
        self._program = subprocess.Popen(
            [sys.executable, "-c", "from robolearn.cli.main import main; main(['operate', '--wait', '60'])"],
            env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._seen = ""

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def wait(self, word: str, press: str = "") -> None:
        """Until it has said that since it was last waited for, pressing keys again and again."""
        end = time.monotonic() + 60.0
        while not (found := re.search(word, self._seen)):
            assert time.monotonic() < end and self._program.poll() is None, (word, self._seen)
            self.press(press)
            try:
                self._seen += os.read(self._screen, 4096).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.8 if press else 0.05)
        self._seen = self._seen[found.end() :]

    def __enter__(self) -> Terminal:
        self.wait("A arm")
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._program.wait()
        os.close(self._screen)


@dataclass
class Station:
    """Simulated arm, safety node and streamer as processes, and the environment that they are in."""

    env: dict[str, str]
    of: dict[str, subprocess.Popen[bytes]]

    @property
    def domain(self) -> int:
        return int(self.env["ROS_DOMAIN_ID"])


@pytest.fixture
def station() -> Iterator[Station]:
    env = {**os.environ, "ROS_DOMAIN_ID": str(int(os.environ["ROS_DOMAIN_ID"]) + 2), "OMP_NUM_THREADS": "1"}
    priority = str(10 if may_be_realtime() else 0)  # as our commands do: this process is busy when it looks for them
    nodes = {
        words.split()[-1]: subprocess.Popen(
            [sys.executable, "-m", *words.split(), "--contract", "sim", "--realtime-priority", priority],
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for words in (
            "robolearn.bench.emulators.node --task lift", "robolearn.deploy.nodes safety",
            "robolearn.deploy.nodes streamer",
        )
    }  # fmt: skip
    try:
        yield Station(env, nodes)
    finally:
        for process in nodes.values():
            process.kill()
            process.wait()


@pytest.mark.long
@pytest.mark.realtime
@pytest.mark.timeout(300)
def test_the_real_safety_node_armed_by_a_key_and_latched_when_the_program_is_killed(station: Station) -> None:
    for _ in range(3):
        with Terminal(station.env) as terminal:
            terminal.wait(r"\d armed", press="a")
            terminal.press(" ")
            terminal.wait("latched: e-stop")
            terminal.press("r")
            terminal.wait(r"\d disarmed")
            terminal.wait(r"\d armed", press="a")
        with Background(station.domain) as background, SafetyClient(background) as other:
            reason = other.wait_for("latched", 20).reason
            if "the joint state is" not in reason:
                break
            # The machine stood still for 0.1 s just then (one does now and again): the arm stopped for that.
            other.reset()
    assert "dead-man" in reason


@pytest.mark.long
@pytest.mark.realtime
@pytest.mark.timeout(300)
def test_a_safety_node_that_is_halted_is_reported_and_has_latched_when_it_goes_on(station: Station) -> None:
    """Within a second on a machine that has time; not by what it said last."""
    with Terminal(station.env) as terminal:
        terminal.wait(r"\d armed", press="a")
        station.of["safety"].send_signal(signal.SIGSTOP)
        halted = time.monotonic()
        terminal.wait(r"the safety node is silent for more than 0\.6 s")
        took = time.monotonic() - halted
        print(f"reported after {took:.2f} s")
        assert took < 3.0
        station.of["safety"].send_signal(signal.SIGCONT)
        terminal.wait("latched: gap: the safety filter did not run")
