"""One worker process: started, asked, awaited, and named in one line where it fails."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import subprocess
import threading
import time
from collections import deque
from pathlib import Path

from robolearn.core import BadInput, RobolearnError
from sim.bridge.far import errors, serve
from sim.bridge.far.facts import WorldArrays
from sim.child import Child, own_paths, own_python

log = logging.getLogger(__name__)

START_S = 600.0  # [s] a world may take to start
STEP_S = 120.0  # [s] one world may take for a chunk or a reset
TELL_S = 10.0  # [s] between two lines about a world that is still starting
OLDEST = (3, 9)  # Python of a world


class WorldDied(RobolearnError):
    """The process of a world has ended."""


# A world's interpreter gets the folder of `sim.bridge.far` under another name and nothing else of robolearn.
BOOT = """
import sys
if sys.version_info < {oldest!r}:
    sys.exit("it is Python %d.%d" % sys.version_info[:2])
sys.path[:] = [path for path in sys.path if path]
import importlib.util
spec = importlib.util.spec_from_file_location("robolearn_far", {init!r}, submodule_search_locations=[{folder!r}])
package = sys.modules["robolearn_far"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from robolearn_far.serve import main
main()
"""


def check_python(python: str) -> None:
    """Raise `BadInput` unless `python` is a program."""
    path = Path(python)
    if not path.is_file() or not os.access(path, os.X_OK):
        got = "a folder" if path.is_dir() else "a file that cannot be run" if path.exists() else "no such file"
        hint = f"In an environment it is {path / 'bin/python'}" if (path / "bin/python").exists() else ""
        raise BadInput(f"--world-python {python}", got=got, expected="a Python interpreter", hint=hint)


def _is_python(program: str) -> bool:
    """True where `program` runs a line of Python."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run([program, "-c", "print(2 + 3)"], capture_output=True, timeout=10, check=False)
        return said.stdout.strip() == b"5"
    return False


def command_of(python: str) -> tuple[list[str], dict[str, str]]:
    """The command of a worker process in the interpreter `python`, "" for this one, and its environment.

    Another interpreter finds its packages by itself: PYTHONPATH and PYTHONHOME are those of this one.
    """
    environment = {"OMP_NUM_THREADS": "1", **os.environ}  # one thread each: there are as many workers as cores
    if not python:
        return own_python("sim.bridge.far.serve"), environment | own_paths()
    check_python(python)
    folder = Path(serve.__file__).parent
    boot = BOOT.format(oldest=OLDEST, init=str(folder / "__init__.py"), folder=str(folder))
    environment = {key: value for key, value in environment.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    return [python, "-u", "-c", boot], environment


class WorkerProcess(Child):
    """A process that hosts `worlds` of a task; see `serve` for what is said.

    Attributes:
      block: the rows of its worlds, once there is memory for them.
    """

    def __init__(self, task: str, python: str, memory: int, worlds: range) -> None:
        self.worlds, self.block = worlds, None  # type: ignore[assignment]
        self.block: WorldArrays | None
        self._task, self._python = task, python
        command, environment = command_of(python)
        theirs, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        life, self._life = os.pipe()
        given = (theirs, answers, life, memory)
        try:
            super().__init__(
                [*command, *map(str, given)], environment, pass_fds=given, stderr=subprocess.STDOUT, bufsize=0
            )
        except OSError as error:
            for end in (self._requests, self._answers, self._life):
                os.close(end)
            got = f"a file that cannot be run ({error.strerror})"
            raise BadInput(f"--world-python {python}", got=got, expected="a Python interpreter") from error
        finally:
            for end in given[:3]:
                os.close(end)
        self._ready = select.poll()
        self._ready.register(self._answers, select.POLLIN)
        self._lines: deque[str] = deque(maxlen=20)
        self._printed = 0
        self._reader = threading.Thread(target=self._read_lines, name="world-output", daemon=True)
        self._reader.start()

    def _read_lines(self) -> None:
        """Keep the last of what the worlds print: their output must not mix with ours, and a full pipe stops them."""
        with contextlib.suppress(OSError, ValueError):
            for line in self.replies:
                self._printed += 1
                text = line.decode(errors="replace").rstrip()
                if text and not text[0].isspace():  # not the source line below a warning
                    self._lines.append(text)
                    log.debug("%s prints: %s", self._task, text)

    def send(self, kind: bytes, number: int = 0, payload: bytes = b"") -> None:
        """Ask for something; a process that is gone is reported by the `receive` that follows."""
        with contextlib.suppress(OSError):
            serve.send(self._requests, kind, number, payload)

    def receive(self) -> bytes:
        """The payload of the answer.

        Raises:
          BadInput: the world refuses what it was asked for.
          RobolearnError: it failed, its process ended, or it took too long; which world, in one line.
        """
        self._wait()
        try:
            kind, world, payload = serve.receive(self._answers)
        except EOFError:
            raise self._gone() from None
        if kind == serve.BAD_INPUT:
            raise errors.from_parts(payload)
        if kind == serve.FAILED:
            summary, _, trace = payload.decode().partition("\n")
            log.debug("world %d of %s:\n%s", world, self._task, trace)
            raise RobolearnError(f"world {max(world, self.worlds.start)} of {self._task} failed: {summary}")
        return payload

    def _wait(self) -> None:
        """Return when there is an answer, or no process any more."""
        if self._ready.poll(1000):
            return
        begun = moved = time.monotonic()
        told, count = 0, self._progress()
        while not self._ready.poll(1000):
            now = time.monotonic()
            if self._progress() != count:
                count, moved = self._progress(), now
            limit = START_S if self.block is None else STEP_S
            if now - moved > limit:
                self.process.kill()
                raise RobolearnError(
                    f"world {self._at_work()} of {self._task} hangs: no answer within {limit:.0f} s{self._last()}"
                )
            if self.block is None and now - begun > TELL_S * (told + 1) and self.worlds.start == 0:
                told += 1
                log.info("%s is still starting: %.0f s%s", self._task, now - begun, self._last())

    def _progress(self) -> int:
        return 0 if self.block is None else int(self.block.progress.sum())

    def _at_work(self) -> int:
        busy = [] if self.block is None else self.block.busy.nonzero()[0].tolist()
        return self.worlds.start + (busy[0] if busy else 0)

    def _last(self) -> str:
        return f'; its last words: "{self._lines[-1]}"' if self._lines else ""

    def _gone(self) -> RobolearnError:
        """The error of a process that ended."""
        ending = self.ending()
        self._reader.join(timeout=1)
        line = self._lines[-1] if self._lines else ""
        if self._python and self.block is None:
            of = f"--world-python {self._python}"
            if line.startswith("it is Python"):
                oldest = ".".join(map(str, OLDEST))
                return BadInput(of, got=line.removeprefix("it is "), expected=f"Python {oldest} or later")
            for module in ("numpy", "gymnasium"):
                if line.startswith("ModuleNotFoundError") and f"'{module}'" in line:
                    hint = f"Run: {self._python} -m pip install numpy gymnasium"
                    return BadInput(of, got=f"no {module} there", expected="numpy and gymnasium", hint=hint)
            if not _is_python(self._python):
                return BadInput(of, got="another program", expected="a Python interpreter")
        doing = " while it started" if self.block is None else ""
        world = self._at_work()
        return WorldDied(f"world {world} of {self._task}: its worker process {ending}{doing}{self._last()}")

    def started(self) -> None:
        """Say in one line that the world printed while it started."""
        if self._lines and self.worlds.start == 0:
            more = f" and {self._printed - 1} lines before" if self._printed > 1 else ""
            log.info('%s prints while it starts: "%s"%s', self._task, self._lines[-1], more)

    def hang_up(self) -> None:
        """Ask the process to end; `close` waits for it."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def close(self) -> None:
        """End the process; one that is stuck is killed."""
        self.hang_up()
        if self._life < 0:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5 if self.process.poll() is None else 0)
        for end in (self._answers, self._life):
            os.close(end)
        self._answers = self._life = -1
        self.requests.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(timeout=5)
        self.replies.close()
