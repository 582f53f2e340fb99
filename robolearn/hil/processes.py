"""Actor and learner as processes of one machine: started, restarted and ended together, and their end within."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robolearn.core import BadInput, RobolearnError
from robolearn.data.replay.records import SUFFIX
from robolearn.deploy.processes import NodeDied, Program, StackProcesses
from robolearn.io.append_only import records
from robolearn.io.wire.security import TOKEN_VARIABLE
from robolearn.runs import read_metrics

log = logging.getLogger(__name__)

LOGS, SPOOL = "logs", "spool"  # folders beside a run, of the processes and of the actor's outbox
BESIDE = (LOGS, SPOOL)
ARM, QUIT = "arm.json", "quit"  # in the outbox's folder: the arm's result; a sign that the operator quit
TELEOP, CONSOLE = "teleop", "console"  # and the addresses of the device's page and of the console
SHOWN = ("success", "interventions", "updates")  # metrics beside the progress bar
NICE = 15  # of a learner beside an actor that keeps its rate
POLL_S = 0.2
PARENT_S = 0.5  # between two looks at the parent
STOP_S = 30.0  # for the learner to write its checkpoint
OVER_S = 60.0  # for the actor to end, once the learner has
SOON_S = 20.0  # a process that is killed more than `MOST_DEATHS` times within it is not started again
MOST_DEATHS = 3
PROGRAM = (
    sys.executable, "-P", "-c",
    "from robolearn.cli.main import main; from robolearn.core.machine import leave; leave(main())",
)  # fmt: skip
"""The program `robolearn` of processes whose end is waited for."""
ERROR = "robolearn: error: "  # begins the one sentence of a command's error


def run_processes(
    programs: Sequence[Program],
    out: Path,
    environment: Mapping[str, str],
    progress: Callable[[int, dict[str, float]], None],
) -> bool:
    """Run learner and actor of the run folder `out` until they end; true where the operator quit before the budget was
    spent. StackProcesses that are killed by a signal are started again.

    Raises:
      RobolearnError: a process has failed; a refused input leaves the folder as it was.
    """
    quit_, logs = out / SPOOL / QUIT, out / LOGS
    pages = {name: out / SPOOL / name for name in (CONSOLE, TELEOP)}
    deaths: dict[str, list[float]] = {program.name: [] for program in programs}
    row, over, withheld = -1, float("inf"), False
    with tidied(out), StackProcesses(programs, logs, dict(environment)) as processes:
        try:
            quit_.unlink(missing_ok=True)
            while len(done := processes.codes) < len(programs) or any(done.values()):
                for name, code in done.items():
                    if code >= 0 or _too_often(deaths[name]):
                        if code:
                            raise process_error(name, code, logs)
                        continue
                    log.warning("the %s was killed by signal %d: it is started again", name, -code)
                    processes.restart(name)
                for page in [name for name, path in pages.items() if path.exists()]:
                    print(f"{page}: {pages.pop(page).read_text().strip()}", file=sys.stderr, flush=True)
                if done.get("learner") == 0:
                    over = min(over, time.monotonic() + OVER_S)
                if (quit_.exists() and "actor" in done) or time.monotonic() > over:
                    break
                if (rows := list(read_metrics(out))) and rows[-1]["step"] != row:
                    row = rows[-1]["step"]
                    if not withheld and (withheld := any(r.get("withheld") for r in rows)):
                        said = f"a reward is withheld: the model gave no score, see {logs / 'learner.log'}"
                        print(said, file=sys.stderr, flush=True)
                    progress(rows[-1]["env_steps"], {key: rows[-1][key] for key in SHOWN})
                time.sleep(POLL_S)
        finally:
            processes.stop(STOP_S)
    return quit_.exists()


def free_address() -> str:
    """HOST:PORT of loopback, free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def learner_program(words: Sequence[str], address: str, *, realtime: bool) -> Program:
    """A learner that listens at `address`, of the flags `words`; beside an actor that keeps its rate it is nice."""
    nice = ("--nice", str(NICE)) if realtime else ()
    return Program("learner", (*PROGRAM, "hil", "learner", *words, "--listen", address, "--go-on", "--json", *nice))


def shared_environment(token: str) -> dict[str, str]:
    """Environment of actor and learner, with the learner's token."""
    return {TOKEN_VARIABLE: token, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def _too_often(deaths: list[float]) -> bool:
    deaths.append(time.monotonic())
    return len(deaths) > MOST_DEATHS and deaths[-1] - deaths[-1 - MOST_DEATHS] < SOON_S


def process_error(name: str, code: int, logs: Path) -> RobolearnError:
    """The error of the process `name`, which ended with `code`: its own sentence where its log has one."""
    try:
        lines = [line for line in (logs / f"{name}.log").read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    own = [line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)]
    error = RobolearnError(own[-1]) if own and code > 0 else NodeDied(name, code, lines[-1] if lines else "")
    if code == BadInput.exit_code:
        error.exit_code = code
    else:
        error.add_note(f"logs: {logs}")
    return error


@contextlib.contextmanager
def tidied(out: Path) -> Iterator[None]:
    """Within, input that is refused before anything was played leaves the run folder `out` as it was."""
    there = set(os.listdir(out)) if out.is_dir() else None
    try:
        yield
    except RobolearnError as error:
        if error.exit_code == BadInput.exit_code and out.is_dir() and not _has_transitions(out):
            for name in set(os.listdir(out)) - (there or set()):
                path = out / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if there is None:
                out.rmdir()
        raise


def _has_transitions(out: Path) -> bool:
    outboxes = (out / SPOOL).glob(f"*{SUFFIX}")
    return any(True for _ in read_metrics(out)) or any(True for path in outboxes for _ in records(path))


@contextlib.contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Within, the first SIGTERM or Ctrl-C only turns the yielded function true; a second one raises.

    The process also stops with the one of `ROBOLEARN_PARENT` in its environment.
    """
    asked = threading.Event()

    def note(signum: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    parent = os.environ.get("ROBOLEARN_PARENT", "")
    if parent.isdecimal():
        threading.Thread(target=_stop_with, args=(int(parent),), daemon=True).start()
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os.kill(os.getpid(), signal.SIGTERM)
