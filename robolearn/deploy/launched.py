"""The nodes of a deployment started by `ros2 launch`: those of a site's launch file, with what it adds and remaps.

`ros2 launch` is one process, its nodes are its children. It gets SIGINT when this program has been killed, and ends
them then; of SIGTERM it would die alone. That a node has ended is read in its output: launch files let most others go
on.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from robolearn.core import BadInput
from robolearn.deploy.processes import NodeDied, Program, StackProcesses, last_words, may_be_realtime, undisturbed
from robots.stations import AnyContract

LAUNCH = "launch"  # the process, and its log
OWN = Path("share/robolearn/launch/deploy.launch.py")  # under a prefix of AMENT_PREFIX_PATH
STOP_S = 90.0  # a launch file waits as long as its nodes may need, 70 s where an episode is written
LEFT_S = 5.0  # from SIGINT to SIGKILL for what a launch that has ended leaves behind
SHOW_S = 60.0  # for a launch file to list its arguments
# In the format that is asked for below; launch counts its processes, and our programs are called <node>_node.
DIED = re.compile(r"\[ERROR\] \[((.+?)(?:_node)?-\d+)\]: process has died \[pid \d+, exit code (-?\d+),.*")
STARTED = re.compile(r"\[INFO\] \[.+-\d+\]: process started with pid .*")
FAILED = re.compile(r"\[ERROR\] \[launch\]: Caught exception in launch[^:]*: (.*)")
ARGUMENT = re.compile(r"    '(.+)':\*?")  # a line of ros2 launch FILE --show-args
FORMAT = {"OVERRIDE_LAUNCH_SCREEN_FORMAT": "", "OVERRIDE_LAUNCH_PROCESS_OUTPUT": "both"}


def own_launch_file() -> Path | None:
    """Our deploy.launch.py as `ros2 launch` finds it; None where it finds none, or there is no `ros2`."""
    if shutil.which("ros2") is None:
        return None
    prefixes = os.environ.get("AMENT_PREFIX_PATH", sys.prefix).split(os.pathsep)
    return next((path for prefix in prefixes if (path := Path(prefix) / OWN).is_file()), None)


@cache
def arguments_of(file: Path) -> tuple[str, ...]:
    """The arguments of a launch file and of those that it includes. Raises `BadInput`: it cannot be read, or there is
    no `ros2`."""
    if not file.is_file():
        raise BadInput("--launch", got=f"no file {file}", expected="a launch file")
    if shutil.which("ros2") is None:
        raise BadInput("--launch", got="no ros2 on the PATH", expected="a ROS 2 that has been sourced")
    try:
        shown = subprocess.run(
            ["ros2", "launch", str(file), "--show-args"], capture_output=True, text=True, timeout=SHOW_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        got = f"no answer of ros2 launch --show-args within {SHOW_S:g} s"
        raise BadInput(f"--launch {file}", got=got, expected="a launch file that only describes") from None
    if shown.returncode:
        got = _reason((shown.stderr.strip() or shown.stdout.strip() or "nothing").splitlines())
        raise BadInput(f"--launch {file}", got=got, expected="a launch file that ros2 launch can read")
    return tuple(found[1] for line in shown.stdout.splitlines() if (found := ARGUMENT.fullmatch(line)))


def _reason(lines: list[str]) -> str:
    """The error in the last lines of `ros2`: the first of a list of them, which one of each format of files is."""
    listed = [line.removeprefix(" - ") for line in lines if line.startswith(" - ")]
    return [*listed, lines[-1]][0]


def launch_program(file: Path, contract: AnyContract, robot: str, priority: int, **flags: Any) -> Program:
    """`ros2 launch` of `file`, for the contract `robot`; `flags`: argument → value. Raises `BadInput`: `file` cannot be
    read, or does not know one of the arguments, which launch would pass over in silence."""
    from hardware.ros2.topics import namespace_of_nodes

    given = {"robot": robot, **flags}
    if contract.namespace:
        given["namespace"] = namespace_of_nodes(contract.namespace).lstrip("/")
    if priority and may_be_realtime():
        given["realtime_priority"] = priority
    known = arguments_of(file)
    if unknown := [name for name in given if name not in known]:
        hint = "Declare it there, or include a file that has it and can be loaded"
        got = f"a file without {unknown[0]}:="
        raise BadInput(f"--launch {file}", got=got, expected="it", available=known, hint=hint)
    words = [f"{name}:={str(v).lower() if isinstance(v, bool) else v}" for name, v in given.items()]
    # Our nodes would take the process of ROBOLEARN_PARENT for their parent, which launch is.
    command = ("setpriv", "--pdeathsig", "INT", "env", "-u", "ROBOLEARN_PARENT", "ros2", "launch", "--noninteractive")
    return Program(LAUNCH, (*command, str(file), *words))


class LaunchedNodes(StackProcesses):
    """The program of `launch_program`, and others, as `StackProcesses` has them; see there."""

    def __init__(self, programs: list[Program], logs: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(programs, logs, {**FORMAT, **(environment or {})})
        self._read, self._rest = 0, b""
        self._died: dict[str, tuple[str, int]] = {}  # node → its process at launch, and its exit code
        self._started, self._failed = False, ""

    def check(self) -> None:
        """Raise `NodeDied` if a node of the launch file has died or another program ended, `BadInput` if launch could
        not start the file."""
        died, ended = self._hear(), super().codes.get(LAUNCH)
        if ended is not None and ended >= 0 and not self._started:
            self._failed = self._failed or self._tail(LAUNCH)
        if self._failed:  # what it had started then dies, too
            raise BadInput("ros2 launch", got=self._failed, expected="a launch file that starts")
        for name, (process, code) in died.items():
            raise NodeDied(name, code, last_words(self._lines(process)))
        super().check()

    @property
    def codes(self) -> dict[str, int]:
        """Name → exit code, of the programs that have ended and of the nodes that have died."""
        return {name: code for name, (_, code) in self._hear().items()} | super().codes

    def stop(self, limit_s: float = STOP_S) -> None:
        """End all of them: launch by SIGINT, which it passes on, then what it has left behind, then the others."""
        with undisturbed():
            launch = self._running.get(LAUNCH)
            if launch is not None:
                if launch.poll() is None:
                    launch.send_signal(signal.SIGINT)  # its group would get a second one from launch
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        launch.wait(limit_s)
                _end_group(launch)
            super().stop()

    def _hear(self) -> dict[str, tuple[str, int]]:
        """Read on in the output of launch."""
        with contextlib.suppress(OSError), (self._logs / f"{LAUNCH}.log").open("rb") as log:
            log.seek(self._read)
            new = log.read()
            self._read += len(new)
            *lines, self._rest = (self._rest + new).split(b"\n")
            text = [line.decode(errors="replace") for line in lines]
            for i, line in enumerate(text):
                self._started = self._started or STARTED.fullmatch(line) is not None
                if found := FAILED.fullmatch(line):
                    self._failed = self._failed or _reason([*text[i + 1 : i + 2], found[1]])
                elif found := DIED.fullmatch(line):
                    self._died.setdefault(found[2], (found[1], int(found[3])))
        return self._died

    def _lines(self, process: str) -> list[str]:
        """The output of a process of launch."""
        lines, mark = (self._logs / f"{LAUNCH}.log").read_text(errors="replace").splitlines(), f"[{process}] "
        return [line.removeprefix(mark) for line in lines if line.startswith(mark)]


def _end_group(launch: subprocess.Popen[bytes]) -> None:
    """End what is left of the process group of `launch`, and launch itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(launch.pid, signal.SIGINT)
        end = time.monotonic() + LEFT_S
        while time.monotonic() < end:
            launch.poll()
            os.killpg(launch.pid, 0)
            time.sleep(0.05)
        os.killpg(launch.pid, signal.SIGKILL)
    launch.wait()
