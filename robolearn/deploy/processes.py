"""The nodes of a deployment as processes: started together, watched, ended together.

Each has a process group of its own, so that a Ctrl-C in the terminal reaches this program alone, which then ends them
in order: first what asks for motion, the safety node when the arm is at rest, the arm last. When this program is
killed they end as well: `ROBOLEARN_PARENT` in their environment is the id of the process that they depend on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from robolearn.core import BadInput, RobolearnError
from robots.own import check_confirmed
from robots.stations import AnyContract

log = logging.getLogger(__name__)


READY_S = 120.0  # on a busy machine the imports of a node alone take half a minute
END_S = 10.0  # from SIGINT to SIGKILL: on a busy machine torch alone takes some of it
POLL_S = 0.05
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


@dataclass
class LogFolder:
    """The folder `path` of a command's logs; `kept`: it is there after the command, too."""

    path: Path
    kept: bool


@contextlib.contextmanager
def log_folder(command: str, asked: Path | None) -> Iterator[LogFolder]:
    """Folder of the logs of a command's nodes: `asked`, or a temporary one, which is removed in the end unless it was
    set to be kept. An error of any sort keeps it, and names it in a note; Ctrl-C is none."""
    logs = LogFolder(asked or Path(tempfile.mkdtemp(prefix=f"robolearn-{command}-")), asked is not None)
    try:
        yield logs
    except Exception as error:
        logs.kept = True
        error.add_note(f"logs: {logs.path}")
        raise
    finally:
        if not logs.kept:
            shutil.rmtree(logs.path, ignore_errors=True)


class NodeDied(RobolearnError):
    """A node ended without being asked to: its name, and its exit code, negative for the signal that killed it."""

    def __init__(self, name: str, code: int, tail: str) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        super().__init__(f"the {name} node {how}" + (f": {tail}" if tail else ""))
        self.name, self.code = name, code
        if code == 2:
            self.exit_code = 2  # it refused its input


class StackProcesses:
    """Several programs, started and ended together in their order, one after the other; a context manager.

    Args:
      logs: folder for ``<name>.log``; `BadInput` when entered where they cannot be written.
      environment: added to that of this process.
    """

    def __init__(self, programs: Sequence[Program], logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self._programs, self._logs = tuple(programs), logs
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", "ROBOLEARN_PARENT": str(os.getpid())}
        self._environment.update(environment or {})
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> StackProcesses:
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
        for name, code in self.codes.items():
            raise NodeDied(name, code, self._tail(name))

    @property
    def codes(self) -> dict[str, int]:
        """Name → exit code, of those that have ended."""
        return {name: code for name, p in self._running.items() if (code := p.poll()) is not None}

    def stop(self, limit_s: float = END_S) -> None:
        """End all of them, one after the other: SIGINT and `limit_s`, then SIGKILL; a second Ctrl-C changes nothing."""
        with undisturbed():
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
        return last_words(text.splitlines())


def last_words(output: Sequence[str]) -> str:
    """Why a program ended, by the lines of its `output`: its error, else the last ones."""
    lines = [line for line in output if line.strip()]
    errors = [found[1] for line in lines if (found := SAID.fullmatch(line))]
    return errors[-1] if errors else " | ".join(lines[-TAIL_LINES:])


class Companion:
    """A program beside the nodes of a deployment, see `beside`."""

    def __init__(self, process: StackProcesses, log: Path) -> None:
        self._process, self._log_file = process, log
        self.check = process.check

    def log(self) -> str:
        """Its output so far."""
        return self._log_file.read_text(errors="replace")

    def finish(self, limit_s: float) -> str:
        """End it, in `limit_s` at most; returns why it failed, or nothing."""
        self._process.stop(limit_s)
        try:
            if any(self._process.codes.values()):
                self.check()
        except NodeDied as error:
            return str(error)
        return ""


@contextlib.contextmanager
def beside(program: Program, ready: str, flag: str) -> Iterator[Companion]:
    """Run `program` inside, entered when its output has the line `ready`. Raises `RobolearnError` when entered: it
    ended, or is not ready in time; `flag` is named then."""
    with (
        tempfile.TemporaryDirectory(prefix=f"robolearn-{program.name}-") as folder,
        StackProcesses([program], Path(folder), {"OMP_NUM_THREADS": "1"}) as process,
    ):
        companion = Companion(process, Path(folder) / f"{program.name}.log")
        end = time.monotonic() + READY_S
        while ready not in companion.log():
            process.check()
            if time.monotonic() > end:
                raise RobolearnError(f"{flag}: not ready after {READY_S:g} s")
            time.sleep(POLL_S)
        yield companion


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    # Its whole group, so that what it has started ends too.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore SIGINT: children that are not waited for would be left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


# --- how nodes are started: in which ROS domain, with which priority, by which command line ------------------------

LAST_DOMAIN = 232  # of DDS: each domain has UDP ports of its own


def choose_domain(domain: int | None, simulated: bool) -> None:
    """Set ROS_DOMAIN_ID: as asked for, else as it is, else one that is likely to be free for a simulated arm. Raises
    `BadInput`: there is no such domain."""
    check_domain(domain)
    if domain is not None:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
    elif "ROS_DOMAIN_ID" not in os.environ:
        # Two deployments on one machine must not hear each other.
        os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100) if simulated else "0"


def check_domain(domain: int | None) -> None:
    """Raise `BadInput` unless ROS has the domain; None: none is asked for."""
    if domain is not None and not 0 <= domain <= LAST_DOMAIN:
        raise BadInput("--domain", got=domain, expected=f"0 to {LAST_DOMAIN}")


def may_be_realtime() -> bool:
    """True where this process may give its children real-time priority."""
    return os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_RTPRIO)[0] != 0


def warn_of_enclaves(wanted: bool) -> None:
    """Log that enclaves keep nobody out where DDS Security is off."""
    if wanted and (os.environ.get("ROS_SECURITY_ENABLE") != "true" or not os.environ.get("ROS_SECURITY_KEYSTORE")):
        log.warning(
            "--enclaves: nothing is secured: ROS_SECURITY_ENABLE=true and ROS_SECURITY_KEYSTORE are not both set"
        )


def enclave(contract: AnyContract, node: str, wanted: bool) -> tuple[str, ...]:
    """ROS arguments that put a node into its enclave of `robolearn permissions`; none unless that is `wanted`."""
    from hardware.ros2.topics import namespace_of_nodes

    return ("--ros-args", "--enclave", f"{namespace_of_nodes(contract.namespace)}/{node}") if wanted else ()


def node_program(
    name: str, robot: str, priority: int, module: tuple[str, ...] = (), secured: tuple[str, ...] = (), **flags: Any
) -> Program:
    """A node of the contract `robot` as a program, with its parameters as `flags`.

    Args:
      name: for errors; one of those in `robolearn.deploy.nodes`, unless another `module` is given, with its arguments.
      priority: of SCHED_FIFO, where this machine permits it.
      secured: see `enclave`.
    """
    flags = {"contract": robot, "realtime_priority": priority if may_be_realtime() else 0, **flags}
    words = [w for key, value in flags.items() for w in (f"--{key.replace('_', '-')}", str(value))]
    # -P: with -m alone a file of the current folder that is called hardware.py would be imported in place of ours.
    return Program(name, (sys.executable, "-P", "-m", *(module or ("robolearn.deploy.nodes", name)), *words, *secured))


def arm_programs(
    contract: AnyContract,
    robot: str,
    priority: int,
    enclaves: bool,
    task: str,
    seed: int,
    module: tuple[str, ...] = ("robolearn.bench.emulators.node",),
    dry_run: bool = False,
    dynamics: str = "none",
) -> list[Program]:
    """The nodes of a station, in the order in which they end: safety node, gripper, the arm where it is simulated.

    Args:
      robot: the contract's name or file.
      priority, enclaves: of SCHED_FIFO, where this machine permits it; each is put into its enclave.
      task, seed, dynamics: of the simulated arm.
      module: of its simulation, with its first arguments; empty: it runs elsewhere.
      dry_run: nothing is sent to the arm.

    Raises:
      BadInput: a real arm would move by guesses of its contract (`robots.own`).
    """
    if not (contract.simulated or dry_run):
        for part in contract.robot.parts:
            check_confirmed(part.robot)
    secured = partial(enclave, contract, wanted=enclaves)
    programs = [node_program("safety", robot, priority, secured=secured("safety"), dry_run=str(dry_run).lower())]
    acting = [arm for arm in contract.arms.values() if arm.gripper is not None and arm.gripper.action is not None]
    if acting and not dry_run:
        from hardware.ros2.gripper_node import has_actions

        # Each is asked: a real arm's has to be installed. Without priority: it may not take a core from the filter.
        if any([has_actions(arm) for arm in acting]):
            programs.append(node_program("gripper", robot, 0, secured=secured("gripper")))
    if contract.simulated and module:
        arm: dict[str, Any] = {"task": task, "seed": seed, "dynamics": dynamics}
        # Before all others: an arm's own computer takes a command when it comes, whatever is busy here.
        first = min(priority + 1, 99) if priority > 0 else 0
        programs.append(node_program("sim_arm", robot, first, module, secured("sim_arm"), **arm))
    return programs
