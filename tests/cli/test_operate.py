"""The operator's terminal: keys against a switch that keeps a diary, and against the real safety node."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from hardware.ros2.environment import prepare
from robolearn.cli.main import main
from robolearn.cli.operate import operate
from robolearn.cli.station import may_be_realtime
from robolearn.core import RobolearnError

pytestmark = pytest.mark.realtime


class Fake:
    """Switch and keys in one. `script`: what is pressed at each look; the terminal hangs up after it if `hangs`."""

    def __init__(self, *script: str, hangs: bool = False) -> None:
        self.script, self.hangs = list(script), hangs
        self.diary: list[str] = []
        self.state, self.reason, self.gone = "disarmed", "", False
        self.refuses = ""

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


def test_without_a_terminal_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    assert main(["operate"]) == 2
    assert "no terminal" in capsys.readouterr().err


@pytest.mark.timeout(180)
def test_the_real_safety_node_armed_by_a_key_and_latched_when_the_program_is_killed() -> None:
    """The simulated arm and the safety node as processes, this command on a pseudo-terminal, and SIGKILL to it."""
    domain = str(1 + (os.getpid() + 50) % 100)
    env = {**os.environ, "ROS_DOMAIN_ID": domain, "OMP_NUM_THREADS": "1"}
    priority = str(10 if may_be_realtime() else 0)  # as our commands do: this process is busy when it looks for them
    run = lambda *words: subprocess.Popen(  # noqa: E731
        [sys.executable, "-m", *words, "--realtime-priority", priority],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    nodes = [
        run("robolearn.cli.node_sim_arm", "--contract", "sim", "--task", "lift"),
        run("robolearn.cli.nodes", "safety", "--contract", "sim"),
        run("robolearn.cli.nodes", "streamer", "--contract", "sim"),
    ]
    master, slave = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", "from robolearn.cli.main import main; main(['operate', '--wait', '60'])"],
        env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    seen = ""

    def wait(word: str, seconds: float = 60.0, press: str = "") -> None:
        nonlocal seen
        end = time.monotonic() + seconds
        os.set_blocking(master, False)
        while not re.search(word, seen):
            assert time.monotonic() < end and program.poll() is None, (word, seen)
            if press:
                os.write(master, press.encode())
            try:
                seen += os.read(master, 4096).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.8 if press else 0.05)

    try:
        wait("A arm")
        wait(r"\d armed", press="a")
        seen = ""
        os.write(master, b" ")
        wait("latched: e-stop")
        os.write(master, b"r")
        wait(r"\d disarmed")
        seen = ""
        wait(r"\d armed", press="a")
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        prepare()
        from hardware.ros2.background import Background
        from hardware.ros2.operator import Operator

        with Background(int(domain)) as background, Operator(background) as other:
            assert "dead-man" in other.wait_for("latched", 20).reason
    finally:
        for process in (program, *nodes):
            process.kill()
            process.wait()
        os.close(master)
