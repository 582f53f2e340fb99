"""Measures of benchmarks: a rate over some seconds, several measures in turn, a process that measures.

LeRobot, the rival of some, measures in an interpreter of its own: `lerobot_data` and `lerobot_sac` are run there.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from robolearn.core import BadInput, RobolearnError

log = logging.getLogger(__name__)

Name = TypeVar("Name")


def rate(work: Callable[[], float], seconds: float) -> float:
    """Amount per second that `work` gets done: it is called for `seconds`, and returns how much it did."""
    done, begun = 0.0, time.perf_counter()
    while not done or time.perf_counter() - begun < seconds:
        done += work()
    return done / (time.perf_counter() - begun)


def in_turn(measures: Mapping[Name, Callable[[], float]], rounds: int, warm: int = 1) -> dict[Name, list[float]]:
    """`rounds` values of each measure, after `warm` rounds that do not count.

    In turn, so that a machine whose speed drifts treats all alike.
    """
    found: dict[Name, list[float]] = {name: [] for name in measures}
    for turn in range(warm + rounds):
        log.info("round %d of %d", turn + 1, warm + rounds)
        for name, measure in measures.items():
            found[name].append(measure())
    return {name: values[warm:] for name, values in found.items()}


class MeasuringProcess:
    """A program that measures when it is asked to. It prints JSON: an object when it is ready, then, for each line of
    stdin with a number of seconds, one whose only value is the rate over this time. A context manager.

    Args:
      words: the program.
      failed: makes the error of its last output, where it ends too early.
      options: of `subprocess.Popen`.
    """

    def __init__(self, words: Sequence[str], failed: Callable[[str], RobolearnError], **options: Any) -> None:
        self._failed, self._said = failed, tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with this)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._said}
        self._process = subprocess.Popen(words, text=True, **pipes, **options)

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def answer(self) -> dict[str, Any]:
        """The next object that it prints; what a library of its own prints is passed over."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._said.seek(0)
        raise self._failed(self._said.read())

    def measure(self, seconds: float) -> float:
        """Its rate over this time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        (found,) = self.answer().values()
        return float(found)


SCRIPTS = Path(__file__).parent


@dataclass(frozen=True)
class LeRobot:
    """LeRobot in an interpreter of its own, the rival of a benchmark."""

    python: str

    @classmethod
    def found(cls, given: Path | None) -> LeRobot | None:
        """That of the interpreter `given`, else of this one where LeRobot is installed, else None. Raises `BadInput`:
        the given one is not there."""
        if given is None:
            return cls(sys.executable) if find_spec("lerobot") is not None else None
        if (found := shutil.which(str(given))) is None:
            raise BadInput("--lerobot-python", got=given, expected="a Python interpreter")
        return cls(os.path.abspath(found))  # it is started elsewhere; a link stays one: it says which environment

    def program(self, script: str, task: Mapping[str, Any]) -> list[str]:
        """The command line that runs `script` with `task`. The script goes there as text, so that the modules beside it
        are not in the way of LeRobot's own imports."""
        return [self.python, "-c", (SCRIPTS / script).read_text(), json.dumps(task)]

    def options(self, work: Path) -> dict[str, Any]:
        """Options of `subprocess` for that process: in `work`, caches below it, one thread, no network."""
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(work / "huggingface"),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return {"cwd": work, "env": environment}

    def failed(self, output: str) -> RobolearnError:
        """The error for a process that ended too early, with the end of its output."""
        return RobolearnError(f"LeRobot in {self.python} failed: {' | '.join(output.strip().splitlines()[-3:])}")
