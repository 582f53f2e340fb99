"""The keyboard through a real pseudo-terminal; its modes survive whatever ends the program."""

from __future__ import annotations

import array
import contextlib
import fcntl
import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hardware.teleop import EpisodeEvent, Status
from hardware.teleop.keyboard import CONFIG, MOVES, Keyboard, KeyboardConfig
from hardware.teleop.terminal import EPISODE_KEYS
from robolearn.core import BadInput, Interface
from robots import PANDA

ROOT = Path(__file__).parents[3]


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: (what a person types into, what the program reads)."""
    person, program = pty.openpty()
    yield person, program
    for end in (person, program):
        with contextlib.suppress(OSError):  # a test hung up
            os.close(end)


@pytest.fixture
def keyboard(interface: Interface, terminal: tuple[int, int], clock) -> Iterator[Keyboard]:
    device = Keyboard(interface, PANDA, fd=terminal[1], out=io.StringIO(), clock=clock)
    device.open()
    yield device
    device.close()


def press(terminal: tuple[int, int], text: str) -> None:
    data = text.encode()
    os.write(terminal[0], data)
    waiting, deadline = array.array("i", [0]), time.monotonic() + 5
    while waiting[0] < len(data) and time.monotonic() < deadline:  # through the line discipline
        fcntl.ioctl(terminal[1], termios.FIONREAD, waiting)
        time.sleep(0.001)


def flags(fd: int) -> int:
    return termios.tcgetattr(fd)[3] & (termios.ICANON | termios.ECHO)


def test_a_key_moves_until_its_repeats_end(keyboard: Keyboard, terminal, clock, observe) -> None:
    still = keyboard.sample(observe())
    assert still.engaged and still.action is not None and not still.action[:6].any() and not still.events
    press(terminal, "w")
    _, rot = PANDA.chain.forward(np.asarray(PANDA.home)[None])
    for _ in range(3):
        sample = keyboard.sample(observe())
        assert sample.action is not None
        np.testing.assert_allclose(rot[0] @ sample.action[:3], [CONFIG.speed, 0, 0], atol=1e-6)
        clock.now += 0.05
        press(terminal, "w")
    clock.now += 0.06  # 0.06 s after the last report at most 0.15 s old
    assert keyboard.sample(observe()).action[0:3].any()
    clock.now += 0.2
    released = keyboard.sample(observe())
    assert not released.action[:6].any() and released.stamp < clock.now


def test_opposite_keys_cancel_and_arrows_are_keys(keyboard: Keyboard, terminal, observe) -> None:
    press(terminal, "a\x1b[C")
    assert not keyboard.sample(observe()).action[:3].any()
    press(terminal, "\x1b[A\x1bOA\x1b[1;2A")
    _, rot = PANDA.chain.forward(np.asarray(PANDA.home)[None])
    moved = rot[0] @ keyboard.sample(observe()).action[:3]
    assert moved[0] > 0.3 and abs(moved[1]) < 1e-6


def test_an_escape_sequence_may_come_in_pieces(keyboard: Keyboard, terminal, observe) -> None:
    press(terminal, "\x1b")
    assert not keyboard.sample(observe()).action[:3].any()
    press(terminal, "[")
    keyboard.sample(observe())
    press(terminal, "A")
    assert keyboard.sample(observe()).action[:3].any()


def test_the_gripper_flips_once_a_press(keyboard: Keyboard, terminal, clock, observe) -> None:
    grips = []
    for wait in (0.0, 0.5, 0.03, 0.03, 2.0):  # a press, its auto-repeat, and another press
        clock.now += wait
        press(terminal, " ")
        grips.append(float(keyboard.sample(observe()).action[6]))
    assert grips == [-1, -1, -1, -1, 1]


@pytest.mark.parametrize("apart", [0.2, 0.3, 0.45, 0.6])
def test_two_quick_presses_are_two(keyboard: Keyboard, terminal, clock, observe, apart: float) -> None:
    """Nothing follows the second press; auto-repeat would go on."""
    press(terminal, " ")
    assert keyboard.sample(observe()).action[6] == -1
    clock.now += apart
    press(terminal, " ")
    grips = []
    for _ in range(8):  # control steps
        grips.append(float(keyboard.sample(observe()).action[6]))
        clock.now += 0.05
    assert grips[:3] == [-1, -1, -1] and grips[4:] == [1] * 4


def test_a_double_press_drops_the_running_episode(keyboard: Keyboard, terminal, clock) -> None:
    keyboard.show(Status("recording", "", 0, 5, 0, 0.0))
    press(terminal, "q")
    assert keyboard.sample(None).events == ()
    said = []
    clock.now += 0.4
    press(terminal, "q")
    for _ in range(6):
        said += keyboard.sample(None).events
        clock.now += 0.05
    assert said == [EpisodeEvent.QUIT]


def test_a_key_that_is_held_down_is_no_double_press(keyboard: Keyboard, terminal, clock) -> None:
    keyboard.show(Status("recording", "", 0, 5, 0, 0.0))
    said = []
    for wait in (0.0, 0.5, *[0.03] * 30):  # pressed, the delay of auto-repeat, its reports
        clock.now += wait
        press(terminal, "q")
        said += keyboard.sample(None).events
    for _ in range(30):
        clock.now += 0.05
        said += keyboard.sample(None).events
    assert said == []


def test_episode_keys_are_events_in_order_once_a_press(keyboard: Keyboard, terminal, clock, observe) -> None:
    press(terminal, "\r-1t\x7fq\x1b[B?ü")
    assert keyboard.sample(observe()).events == (
        EpisodeEvent.START,
        EpisodeEvent.FAILURE,
        EpisodeEvent.SUCCESS,
        EpisodeEvent.REDO,
        EpisodeEvent.DISCARD,
        EpisodeEvent.QUIT,
    )
    for wait in (0.5, 0.03):
        clock.now += wait
        press(terminal, "1")
        assert keyboard.sample(None).events == (), "held down"
    clock.now += 1.0
    press(terminal, "1")
    sample = keyboard.sample(None)
    assert sample.events == (EpisodeEvent.SUCCESS,) and sample.action is None and sample.engaged


def test_what_drops_a_running_episode_is_asked_back(keyboard: Keyboard, terminal, clock) -> None:
    def say(keys: str) -> tuple[EpisodeEvent, ...]:
        clock.now += 1.0  # apart: not one key that repeats
        press(terminal, keys)
        return keyboard.sample(None).events

    keyboard.show(Status("recording", "", 0, 5, 0, 0.0))
    assert say("q") == () and keyboard.sample(None).note == "once more drops this episode: quit"
    assert say("t") == () and "try again" in keyboard.sample(None).note, "another question"
    assert say("t") == (EpisodeEvent.REDO,) and not keyboard.sample(None).note
    assert say("q") == ()
    clock.now += 3.5
    assert say("q") == () and keyboard.sample(None).note, "too late: asked again"
    assert say("w") == () and say("q") == (EpisodeEvent.QUIT,), "keys that move change nothing"
    assert say("q") == ()
    assert say("1") == (EpisodeEvent.SUCCESS,) and say("q") == (), "a verdict is an answer, too"
    keyboard.show(Status("waiting", "", 1, 5, 0, 0.0))
    assert not keyboard.sample(None).note and say("q") == (EpisodeEvent.QUIT,), "nothing to lose"
    keyboard.show(Status("recording", "", 1, 5, 0, 0.0))
    assert say("\x7f") == (EpisodeEvent.DISCARD,)


def test_no_key_that_ends_an_episode_for_good_lies_beside_one_that_moves() -> None:
    rows = ("1234567890-", "qwertyuiop", "asdfghjkl", "zxcvbnm")
    place = {key: (column + 0.5 * row, row) for row, line in enumerate(rows) for column, key in enumerate(line)}
    verdicts = (EpisodeEvent.SUCCESS, EpisodeEvent.FAILURE)
    for verdict in (key for key, event in EPISODE_KEYS.items() if event in verdicts):
        for key in MOVES.keys() & place.keys():
            (x, y), (u, v) = place[verdict], place[key]
            assert np.hypot(x - u, y - v) > 1.2, (verdict, key)


def test_a_terminal_that_hangs_up_disengages_for_good(keyboard: Keyboard, terminal, observe) -> None:
    press(terminal, "w")
    assert keyboard.sample(observe()).engaged
    os.close(terminal[0])
    sample = keyboard.sample(observe())
    assert not sample.engaged and sample.action is None and sample.note == "keyboard: the terminal is gone"


def test_the_terminal_is_as_it_was_and_opens_again(keyboard: Keyboard, terminal, observe) -> None:
    assert flags(terminal[1]) == 0
    keyboard.close()
    assert flags(terminal[1]) == termios.ICANON | termios.ECHO
    keyboard.close()
    sample = keyboard.sample(observe())
    assert not sample.engaged and sample.note == "keyboard: closed"
    keyboard.open()
    assert flags(terminal[1]) == 0
    press(terminal, "w")
    assert keyboard.sample(observe()).action[:3].any()


def test_the_screen_is_one_line(interface: Interface, terminal, clock) -> None:
    person, program = terminal
    with os.fdopen(os.dup(program), "w", encoding="utf-8") as out:
        device = Keyboard(interface, PANDA, fd=program, out=out, clock=clock)
        device.open()
        device.show(Status("recording", "press 1 when it is solved", 1, 5, 20, 1.0))
        device.show(Status("recording", "too early to be shown", 1, 5, 21, 1.05))
        device.show(Status("waiting", "", 2, 5, 0, 0.0))
        device.close()
        told = b""
        while b"episode 3 of 5" not in told:  # a terminal hands over in pieces
            assert select.select([person], [], [], 5.0)[0], told
            told += os.read(person, 4096)
        shown = told.decode()
    assert "W/S forward/back" in shown and "Enter start" in shown
    assert "recording · episode 2 of 5 · 1.0 s · press 1 when it is solved" in shown
    assert "too early" not in shown and "waiting · episode 3 of 5" in shown


def test_every_key_that_moves_is_in_the_help() -> None:
    for key in MOVES:
        assert len(key) > 1 or key.upper() in KeyboardConfig.help


def test_no_terminal_is_said_in_one_line(interface: Interface) -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(BadInput, match=r"^keyboard: got a standard input that is no terminal, expected a terminal"):
            Keyboard(interface, PANDA, fd=read).open()
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, None])
def test_the_terminal_is_restored_however_the_program_ends(terminal, end: signal.Signals | None) -> None:
    # Only what the keyboard is made of: the arms' kinematics take seconds to import.
    program = """
        import time
        from hardware.teleop.terminal import Keys
        keys = Keys()
        keys.open()
        print("open", flush=True)
        while not keys.poll():
            time.sleep(0.02)
        raise RuntimeError("a fault")
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=terminal[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"open\n" and flags(terminal[1]) == 0
        if end is None:
            press(terminal, "x")
        else:
            process.send_signal(end)
        process.wait(20)
    finally:
        process.kill()
        process.stdout.close()
    deadline = time.monotonic() + 10
    while flags(terminal[1]) == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert flags(terminal[1]) == termios.ICANON | termios.ECHO
