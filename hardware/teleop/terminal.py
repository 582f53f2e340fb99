"""The terminal as an input device and a screen: keys without waiting for Enter, one status line.

A terminal reports presses and auto-repeats, never releases: a key counts as held for `HOLD_S` after its last report.
Auto-repeat begins after a quarter to half a second, so a tap is a small step, a long press moves a little, rests, and
then moves on, and of two keys only the one pressed last repeats. A toggle must not flip again when auto-repeat begins,
and yet a key that is pressed twice within half a second is pressed twice. What tells them apart comes later:
auto-repeat goes on every few hundredths of a second, a second press does not. A second report less than `APART_S` after
the first is therefore a press of its own if no third follows within `HOLD_S`, and is taken for one that much later.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import logging
import math
import os
import re
import select
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Collection
from typing import Any, TextIO

from hardware.teleop.device import Clock, EpisodeEvent, Status
from robolearn.core.errors import BadInput
from robolearn.io.log_lines import DRAWN

log = logging.getLogger(__name__)

HOLD_S = 0.15
APART_S = 0.7  # longer than the delay before auto-repeat: reports further apart are presses without doubt
REFRESH_S = 0.2  # of the status line

# Keys of an episode, the same for every device that listens to the terminal. Verdicts cannot be undone: their keys lie
# apart from those that move the arm. `ConfirmTwice` asks for T and Q again.
EPISODE_KEYS = {
    "enter": EpisodeEvent.START, "1": EpisodeEvent.SUCCESS, "-": EpisodeEvent.FAILURE,
    "backspace": EpisodeEvent.DISCARD, "t": EpisodeEvent.REDO, "q": EpisodeEvent.QUIT,
}  # fmt: skip
EPISODE_HELP = "Enter start · 1 success · - failure · Backspace discard · T try again · Q quit (T, Q: twice)"

_NAMED = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", " ": "space", "\x1b": "escape"}
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Z])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;]*|O)?$")


class Keys:
    """Keys of a terminal in cbreak mode; Ctrl-C stays what it is. The terminal is restored however the program ends.

    Args:
      fd: of the terminal; by default standard input.

    Attributes:
      gone: the terminal was hung up.
    """

    def __init__(self, fd: int | None = None, clock: Clock = time.monotonic) -> None:
        self._wanted, self._clock, self._saved = fd, clock, list[Any]()
        self._fd: int | None = None
        self._guard: subprocess.Popen[Any] | None = None
        self._guard_pipe = -1
        self._reset()

    def _reset(self) -> None:
        self.gone = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # an escape sequence whose end has not come yet
        self._seen: dict[str, float] = {}
        self._doubtful: dict[str, float] = {}  # second reports, that may be presses or the beginning of auto-repeat
        self._repeating: set[str] = set()

    @staticmethod
    def available(fd: int | None = None) -> bool:
        """True if there is a terminal to read keys from."""
        try:
            return os.isatty(sys.stdin.fileno() if fd is None else fd)
        except (OSError, ValueError, AttributeError):
            return False

    def open(self) -> None:
        """Begin to listen.

        Raises:
          BadInput: standard input is no terminal, or the program runs in the background of one.
        """
        if not self.available(self._wanted):
            hint = "Start the program in a terminal, or choose another device"
            raise BadInput("keyboard", got="a standard input that is no terminal", expected="a terminal", hint=hint)
        fd = sys.stdin.fileno() if self._wanted is None else self._wanted
        with contextlib.suppress(OSError):  # no controlling terminal: no job control stops us
            if os.tcgetpgrp(fd) != os.getpgrp():
                raise BadInput("keyboard", got="a program in the background", expected="one in the foreground")
        self._reset()
        self._saved = termios.tcgetattr(fd)
        self._start_guard(fd)
        tty.setcbreak(fd, termios.TCSADRAIN)
        self._fd = fd
        atexit.register(self.close)

    def close(self) -> None:
        """Restore the terminal."""
        if self._fd is None:
            return
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)
        self._fd = None
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            os.close(self._guard_pipe)
            self._guard = None
        atexit.unregister(self.close)

    def _start_guard(self, fd: int) -> None:
        """A shell that waits until this process is gone, even by SIGKILL, and puts the terminal right again."""
        read, write = os.pipe()
        try:
            saved = subprocess.run(["stty", "-g"], stdin=fd, capture_output=True, text=True, check=True).stdout.strip()
            command = ["/bin/sh", "-c", f'cat <&{read} >/dev/null; exec stty "$0"', saved]
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            # In a session of its own: Ctrl-C is not for it.
            self._guard = subprocess.Popen(command, stdin=fd, pass_fds=(read,), start_new_session=True, **quiet)
            self._guard_pipe = write
        except (OSError, subprocess.CalledProcessError) as error:
            log.debug("no guard for the terminal: %s", error)
            os.close(write)
        finally:
            os.close(read)

    def poll(self) -> list[tuple[str, bool]]:
        """The reports since the last call, in order: the key, and whether this is a new press. Never blocks.

        A second press soon after the first is reported twice: at once as no new press, and as one when that is sure.
        Keys are named by their character in lower case, or ``enter``, ``space``, ``backspace``, ``escape``, ``up``, ….
        """
        if self._fd is None or self.gone:
            return []
        data = bytearray()
        try:
            while select.select([self._fd], [], [], 0)[0]:
                piece = os.read(self._fd, 1024)
                if not piece:
                    self.gone = True
                    break
                data += piece
        except OSError:
            self.gone = True
        now = self._clock()
        reports = []
        for key in self._split(self._decoder.decode(bytes(data)), fresh=bool(data)):
            reports.append((key, self._is_press(key, now)))
            self._seen[key] = now
        for key in [key for key, at in self._doubtful.items() if now - at > HOLD_S]:
            del self._doubtful[key]
            reports.append((key, True))
        return reports

    def _is_press(self, key: str, now: float) -> bool:
        """True if a report of `key` is a press without doubt; doubtful ones are noted."""
        since = now - self._seen.get(key, -math.inf)
        if since <= HOLD_S:
            self._repeating.add(key)
            self._doubtful.pop(key, None)
        elif since > APART_S:
            self._repeating.discard(key)
            return True
        elif key not in self._repeating and key not in self._doubtful:
            self._doubtful[key] = now
        return False

    def held(self, key: str) -> bool:
        """True if `key` was reported within the last `HOLD_S`."""
        return not self.gone and self._clock() - self._seen.get(key, -HOLD_S - 1.0) <= HOLD_S

    def _split(self, text: str, *, fresh: bool) -> list[str]:
        text, self._rest = self._rest + text, ""
        keys = []
        while text:
            if found := _SEQUENCE.match(text):
                text = text[found.end() :]
                if name := _ARROWS.get(found.group()[-1]):
                    keys.append(name)
            elif _UNFINISHED.fullmatch(text) and fresh:
                self._rest, text = text, ""
            else:
                keys.append(_NAMED.get(text[0], text[0].lower()))
                text = text[1:]
        return keys


def episode_events(reports: Collection[tuple[str, bool]]) -> tuple[EpisodeEvent, ...]:
    """The events among key reports, new presses only."""
    return tuple(EPISODE_KEYS[key] for key, new in reports if new and key in EPISODE_KEYS)


def fitted(line: str, width: int) -> str:
    """`line`, its middle left out where it is longer than `width`: what to press stands at its end."""
    if len(line) <= width:
        return line
    end = width // 2
    return f"{line[: width - end - 1]}…{line[len(line) - end :]}"


class StatusLine:
    """One line at the bottom of a terminal that is overwritten in place; nothing where there is no terminal."""

    def __init__(self, out: TextIO | None = None, clock: Clock = time.monotonic) -> None:
        self._out = out if out is not None else sys.stderr
        self._clock = clock
        self._shown = ("", -REFRESH_S - 1.0)
        self._line = ""  # that is on the screen

    def print(self, line: str) -> None:
        """A line that stays, above the one that is overwritten."""
        if self._out.isatty():
            self._write(f"\r\x1b[K{line}\n{self._line}")

    def show(self, status: Status) -> None:
        """The state of the recording, at most every `REFRESH_S`; a change of state at once."""
        state, at = self._shown
        if not self._out.isatty() or (state == status.state and self._clock() - at < REFRESH_S):
            return
        self._shown = status.state, self._clock()
        many = f" of {status.episodes}" if status.episodes else ""
        line = f"{status.state} · episode {status.episode + 1}{many} · {status.seconds:.1f} s"
        line += f" · {status.message}" if status.message else ""
        width = os.get_terminal_size(self._out.fileno()).columns or 80
        if not self._line:
            DRAWN.append(self.print)
        self._line = fitted(line, width - 1)
        self._write(f"\r\x1b[K{self._line}")

    def close(self) -> None:
        """Leave the line."""
        if self._line:
            DRAWN.remove(self.print)
            self._write("\n")
            self._line = ""

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # that the terminal is gone is seen by `Keys`
            self._out.write(text)
            self._out.flush()
