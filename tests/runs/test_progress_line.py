"""The progress bar on a real terminal: log lines stand above it, and its times are never cut."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import select
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from robolearn.io.log_lines import DRAWN, LogLines
from robolearn.runs import Progress

Seen = Callable[[str], str]
SHOWN_CURSOR = r"\x1b\[\?25h"  # the last thing that a bar writes
TIMES = re.compile(r"(\d:\d\d:\d\d|-:--:--) < (\d:\d\d:\d\d|-:--:--)")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Seen]]:
    """Standard error as a terminal of so many columns; what is written to it until a pattern is."""
    seen, written = pty.openpty()

    def read(pattern: str) -> str:
        data = b""
        while not re.search(pattern, text := data.decode(errors="ignore")):
            assert select.select([seen], [], [], 30)[0], text
            data += os.read(seen, 1 << 16)
        return text

    with os.fdopen(written, "w") as out:

        def opened(columns: int) -> Seen:
            fcntl.ioctl(written, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            monkeypatch.setattr(sys, "stderr", out)
            for name, value in (("COLUMNS", str(columns)), ("TERM", "xterm")):
                monkeypatch.setenv(name, value)
            return read

        yield opened
    os.close(seen)


def last_drawn(text: str) -> str:
    """The last line that is not empty, without colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [line for line in re.split(r"[\r\n]+", plain) if line.strip()][-1]


def drawn(terminal: Any, columns: int, name: str, total: int, unit: str, metrics: dict[str, float]) -> str:
    seen = terminal(columns)
    with Progress(name, total, unit=unit) as progress:
        progress(total // 3, metrics)
    line = last_drawn(seen(SHOWN_CURSOR))
    assert len(line) <= columns and TIMES.search(line), line
    return line


def test_a_log_line_stands_above_the_bar(terminal) -> None:
    seen, log, handler = terminal(80), logging.getLogger("a test of bars"), LogLines()
    log.addHandler(handler)
    with Progress("walking", 9):
        before = seen("0/9.*-:--:--")
        log.warning("[bold] initial noise 1, %s", "x" * 90)
        after = seen(r"\n.*-:--:--")
    assert not DRAWN
    assert "\n" not in before, "the bar is open where the log line comes"
    above, _, below = after.rpartition(f"[bold] initial noise 1, {'x' * 90}\r\n")
    assert above.endswith("\r\x1b[2K"), "the open line is cleared first"
    assert "walking" in below and TIMES.search(last_drawn(below)), "the bar is drawn again"


def test_the_times_stay_whole_at_80_columns(terminal) -> None:
    line = drawn(terminal, 80, "imitation", 20000, "gradient steps", {"loss": 0.0123, "validation": 0.0234})
    assert " 6666/20000 0:" in line and line.rstrip().endswith("loss 0.0123  validation 0.0234")
    tuning = {"success": 0.0625, "episode_return": 0.0625, "kl": 0.01}
    line = drawn(terminal, 80, "lift with exploration noise", 200000, "control steps", tuning)
    assert line.rstrip().endswith("success 0.0625") and "━" not in line
    narrow = drawn(terminal, 40, "evaluating runs/fine-tuned/policy", 400, "episodes", {"success": 0.5})
    assert narrow.startswith("evaluating ru…") and "133/400" in narrow


def test_a_wide_terminal_shows_bar_and_metrics(terminal) -> None:
    line = drawn(terminal, 120, "imitation", 20000, "gradient steps", {"loss": 0.0123, "validation": 0.0234})
    assert "━" * 8 in line and line.rstrip().endswith("loss 0.0123  validation 0.0234")


def test_a_metric_without_a_value_keeps_its_last_one(caplog: pytest.LogCaptureFixture) -> None:
    nan = float("nan")
    with caplog.at_level(logging.INFO, "robolearn"), Progress("walking", 9, quiet=True, every_s=0.0) as progress:
        for done, success in enumerate((nan, None, 0.5, nan, None), 1):
            progress(done, {"success": success, "kl": 0.1})
    tails = [record.message.partition("left, ")[2] for record in caplog.records]
    assert tails[1:] == ["kl 0.1", *["success 0.5  kl 0.1"] * 3]
