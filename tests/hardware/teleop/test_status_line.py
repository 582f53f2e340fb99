"""The line at the bottom of a real terminal of 80 columns, and log lines above it."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from hardware.teleop.device import WAITING, Status
from hardware.teleop.terminal import StatusLine
from robolearn.io.log_lines import DRAWN, LogLines

COLUMNS = 80


@pytest.fixture
def ends() -> Iterator[tuple[int, TextIO]]:
    """What is seen, and what is written to."""
    seen, written = pty.openpty()
    fcntl.ioctl(written, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with os.fdopen(written, "w") as out:
        yield seen, out
    os.close(seen)


def shown(ends: tuple[int, TextIO], clock, message: str) -> str:
    line = StatusLine(ends[1], clock)
    line.show(Status(WAITING, message, 1, 10, 0, 0.0))
    line.close()
    return os.read(ends[0], 4096).decode().removeprefix("\r\x1b[K").removesuffix("\r\n")


def test_what_fits_is_shown_as_it_is(ends, clock) -> None:
    assert shown(ends, clock, "press Start") == "waiting · episode 2 of 10 · 0.0 s · press Start"


def test_a_long_line_keeps_what_the_operator_can_do(ends, clock) -> None:
    why = "episode 2 dropped: stop: joint states on /joint_states: silent for 0.17 s. Press Start to go on"
    line = shown(ends, clock, why)
    assert len(line) == COLUMNS - 1, "one more and the terminal begins another line"
    assert (
        line.startswith("waiting · episode 2 of 10") and "…" in line and line.endswith("0.17 s. Press Start to go on")
    )


def test_a_log_line_stands_above_the_status(ends, clock) -> None:
    seen, out = ends
    log, line = logging.getLogger("a test of status lines"), StatusLine(out, clock)
    log.addHandler(LogLines())
    line.show(Status(WAITING, "press START", 1, 10, 0, 0.0))
    status = os.read(seen, 4096).decode().removeprefix("\r\x1b[K")
    log.warning("episode 1 stored")
    assert os.read(seen, 4096).decode() == f"\r\x1b[Kepisode 1 stored\r\n{status}"
    line.close()
    assert not DRAWN
