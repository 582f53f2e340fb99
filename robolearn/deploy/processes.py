"""The nodes of a deployment as processes: started together, watched, ended together.

Each has a process group of its own, so that a Ctrl-C in the terminal reaches this program alone, which then ends them
in order: first what asks for motion, the safety node when the arm is at rest, the arm last. When this program is
killed they end as well: `ROBOLEARN_PARENT` in their environment is the id of the process that they depend on.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from robolearn.core import BadInput, RobolearnError

TAIL_LINES = 6  # of a dead node's log that an error quotes
SAID = re.compile(r"(?:robolearn: )?error: (.*)")  # the one sentence of a node, or of a command


@dataclass(frozen=True)
class Program:
    """One process.

    Attributes:
      name: what errors call it, e.g. ``"safety"``; its log is ``<name>.log``.
      command: executable and arguments.
      terminal: it reads the terminal that this program was started in; others have no standard input.
    """

    name: str
    command: tuple[str, ...]
    terminal: bool = False


class NodeDied(RobolearnError):
    """A node ended without being asked to.

    Attributes:
      name: which one.
      code: its exit code; negative: the signal that killed it.
    """

    def __init__(self, name: str, code: int, tail: str) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        super().__init__(f"the {name} node {how}" + (f": {tail}" if tail else ""))
        self.name, self.code = name, code
        if code == 2:
            self.exit_code = 2  # it refused its input


class Processes:
    """Several programs, started and ended together; a context manager.

    Args:
      programs: in the order of starting; they end in this order too, one after the other.
      logs: folder for ``<name>.log``.
      environment: added to that of this process.

    Raises:
      BadInput: when entered: logs cannot be written there.
    """

    def __init__(self, programs: Sequence[Program], logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self._programs, self._logs = tuple(programs), logs
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", "ROBOLEARN_PARENT": str(os.getpid())}
        self._environment.update(environment or {})
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        try:
            for program in self._programs:
                self._start(program)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Name → process id, of those that run."""
        return {name: p.pid for name, p in self._running.items() if p.poll() is None}

    def check(self) -> None:
        """Raise `NodeDied` if one of them has ended."""
        for name, process in self._running.items():
            code = process.poll()
            if code is not None:
                raise NodeDied(name, code, self._tail(name))

    @property
    def codes(self) -> dict[str, int]:
        """Name → exit code, of those that have ended."""
        return {name: code for name, p in self._running.items() if (code := p.poll()) is not None}

    def stop(self, limit_s: float = 5.0) -> None:
        """End all of them, one after the other: SIGINT and `limit_s`, then SIGKILL; a second Ctrl-C changes nothing."""
        with _undisturbed():
            for process in self._running.values():
                if process.poll() is None:
                    _signal(process, signal.SIGINT)
                    try:
                        process.wait(limit_s)
                    except subprocess.TimeoutExpired:
                        _signal(process, signal.SIGKILL)
                        process.wait()

    def signal(self, name: str, number: int) -> None:
        """Send a signal to one of them and what it has started; one that kills it is waited for."""
        _signal(self._running[name], number)
        if number == signal.SIGKILL:
            self._running[name].wait()

    def restart(self, name: str) -> None:
        """Start one again that has ended."""
        self._running[name].wait()
        self._start(next(program for program in self._programs if program.name == name))

    def wait(self, seconds: float) -> None:
        """Let `seconds` pass; raises `NodeDied` as soon as one ends."""
        end = time.monotonic() + seconds
        while True:
            self.check()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(0.02, left))

    def _start(self, program: Program) -> None:
        with self._log(program.name) as log:
            self._running[program.name] = subprocess.Popen(
                program.command,
                stdin=None if program.terminal else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def _log(self, name: str) -> IO[bytes]:
        """A new log in its folder, which is made."""
        path = self._logs / f"{name}.log"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("wb")
        except OSError as error:
            raise BadInput(f"logs {self._logs}", got=error.strerror, expected="a folder to write to") from error

    def _tail(self, name: str) -> str:
        try:
            text = (self._logs / f"{name}.log").read_text(errors="replace")
        except OSError:
            return ""
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [found[1] for line in lines if (found := SAID.fullmatch(line))]
        return errors[-1] if errors else " | ".join(lines[-TAIL_LINES:])


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    # Its whole group, so that what it has started ends too.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore SIGINT: children that are not waited for would be left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
