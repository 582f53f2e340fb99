"""A person at `robolearn hil run`: the program, a terminal to type into, and what its spool says afterwards."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from policies.storage.checkpoint import load_chunk_policy
from robolearn.data.replay import RecordSchema, ReplayStep, TransitionLog

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
WORDS = "--free 0 --width 16 --depth 1 --critics 2 --batch 16 --warmup 20 --utd 0.2 --proposals 2 --backup-proposals 1"
SMALL = tuple(WORDS.split())


def hil_run(*words: object, log: Any, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """The command, in a process group of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*PROGRAM, "hil", "run", *map(str, words), *SMALL, "--json"], env=env, stdin=stdin, stdout=subprocess.PIPE,
        stderr=log, text=True, start_new_session=True,
    )  # fmt: skip


class Terminal:
    """A terminal with a person: what they type, and what they see."""

    def __init__(self) -> None:
        self.person, self.program = pty.openpty()
        termios.tcsetwinsize(self.program, (24, 200))  # whole lines
        self.seen, self.past = "", 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                self.seen += os.read(self.person, 4096).decode(errors="replace")
            except OSError:
                return

    def close(self) -> None:
        os.close(self.person)
        os.close(self.program)

    def type(self, keys: str) -> None:
        os.write(self.person, keys.encode())

    def hold(self, key: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.type(key)
            time.sleep(0.03)

    def quit(self) -> None:
        """The person has had enough: Q, and once more."""
        self.type("q")
        self.wait("once more")
        time.sleep(0.8)
        self.type("q")

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


def records(out: Path, policy: Path) -> list[Any]:
    """Of the actor's spool."""
    log = TransitionLog(out / "spool", "actor", RecordSchema(load_chunk_policy(policy, "cpu").interface))
    found = list(log.read())
    log.close()
    return found


def rotation(step: ReplayStep) -> np.ndarray:
    """(3, 3) of the tcp in the base frame before the step, from what was observed."""
    x, y = step.observation["proprio"][11:14].astype(float), step.observation["proprio"][14:17].astype(float)
    return np.stack([x, y, np.cross(x, y)], -1)


def runs_of(steps: list[ReplayStep]) -> list[list[ReplayStep]]:
    """Each intervention's steps."""
    found: list[list[ReplayStep]] = []
    for before, step in zip([None, *steps], steps, strict=False):
        if step.intervention and not (before and before.intervention and before.episode == step.episode):
            found.append([])
        if step.intervention:
            found[-1].append(step)
    return found
