"""``robolearn hil run``: actor and learner on one machine, started and ended together."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from robolearn.cli.hil.acting import ARM, QUIT
from robolearn.cli.hil.halves import ended, tidied
from robolearn.cli.hil.hands import CONSOLE, TELEOP
from robolearn.cli.hil.learner import BESIDE, LOGS, SPOOL, Teaching
from robolearn.cli.hil.playing import OWN_DELAY, Playing
from robolearn.cli.hil.preflight import check_policy_fits, check_terminal
from robolearn.cli.hil.shown import lines, print_lines
from robolearn.core import BadInput, check_compatible
from robolearn.rewards.choice import KEY
from robolearn.runs.command import Command
from robolearn.runs.command_line import PROGRAM, words_of

log = logging.getLogger(__name__)

LOOK_S = 0.2
STOP_S = 30.0  # for the learner to write its checkpoint
OVER_S = 60.0  # for the actor to end, once the learner has
SOON_S = 20.0  # a half that dies so soon after its start, again and again, is not started any more
MOST_DEATHS = 3
NICE = 15  # of a learner beside an actor that keeps its rate


@dataclass(frozen=True, kw_only=True)
class HilRun(Teaching, Playing):
    """Teach a policy in a world or on an arm: an actor tries, an operator takes over where it fails, a learner learns
    from both.

    Starts both halves as processes, starts a half again that was killed, and ends them together. What they say is in
    <out>/logs.
    """

    def run(self) -> dict[str, Any]:
        from policies.storage.loading import needed_by
        from robolearn.data import Dataset
        from robolearn.deploy.processes import Processes, Program
        from robolearn.hil.wire.security import TOKEN_VARIABLE, new_token
        from robolearn.io.json_files import read_json
        from robolearn.runs import Progress, read_metrics
        from robolearn.runs.run import RESULT, check_new
        from sim.registry import WorldConfig

        self.check()
        self.check_playing()
        WorldConfig(self.task).check()
        if self.live and self.pace != "realtime":
            raise BadInput("--pace", got=self.pace, expected="realtime beside a person or an arm")
        if self.robot and (delay := getattr(self.settings, "delay_steps", 0)):
            raise BadInput("--delay-steps", got=f"{delay} beside --robot", expected=f"0: {OWN_DELAY}")
        if self.reward == KEY and not self.teleop and self.console is None:
            raise BadInput("--reward", got=KEY, expected="somebody who presses it: --teleop or --console")
        check_new(self.out, self.resume, BESIDE)
        needed = needed_by(self.policy)
        if self.demos:  # what is no data set, or of another arm or task, is refused before anything is started
            check_compatible(needed, Dataset.open(self.demos).interface, what=f"--demos {self.demos}")
        check_policy_fits(self, self.policy)
        check_terminal(self.teleop)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        programs = (
            Program("learner", (*PROGRAM, "hil", "learner", *self._learner(address))),
            Program("actor", (*PROGRAM, "hil", "actor", *self._actor(address)), terminal=self.screen),
        )
        environment = {TOKEN_VARIABLE: new_token(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        keys = ("success", "interventions", "updates")
        begun = time.monotonic()
        quiet = self.json or (self.screen and sys.stdin.isatty())  # the device shows how things are
        bar = Progress("teaching", total=self.env_steps, unit="control steps", show=keys, quiet=quiet)
        with tidied(self.out), Processes(programs, self.out / LOGS, environment) as processes, bar as progress:
            try:
                deaths, shown, quit_, over = _Deaths(), -1, self.out / SPOOL / QUIT, float("inf")
                quit_.unlink(missing_ok=True)
                pages = {CONSOLE: self.out / SPOOL / CONSOLE, TELEOP: self.out / SPOOL / TELEOP}
                while len(done := processes.codes) < len(programs) or any(done.values()):
                    for name, code in done.items():
                        if code >= 0 or deaths.too_often(name):
                            if code:
                                raise ended(name, code, self.out / LOGS)
                            continue
                        log.warning("the %s was killed by signal %d: it is started again", name, -code)
                        processes.restart(name)
                    for page in [name for name, path in pages.items() if path.exists()]:
                        print(f"{page}: {pages.pop(page).read_text().strip()}", file=sys.stderr, flush=True)
                    if done.get("learner") == 0:
                        over = min(over, time.monotonic() + OVER_S)
                    if (quit_.exists() and "actor" in done) or time.monotonic() > over:
                        break
                    if (rows := list(read_metrics(self.out))) and rows[-1]["step"] != shown:
                        shown = rows[-1]["step"]
                        progress(rows[-1]["env_steps"], {key: rows[-1][key] for key in keys})
                    time.sleep(LOOK_S)
            finally:
                processes.stop(STOP_S)
        wall_s = {"run": time.monotonic() - begun}
        arm = {"arm": read_json(path, what="the arm")} if (path := self.out / SPOOL / ARM).exists() else {}
        if quit_.exists():  # the person has ended it before the budget was spent
            known = {key: value for row in list(read_metrics(self.out))[-1:] for key, value in row.items()}
            steps = {key: known.get(key, 0) for key in ("env_steps", "updates")}
            return {"run": str(self.out), "policy": str(self.out / "policy"), "finished": False, **steps, **arm,
                    "task": self.task, "wall_s": wall_s}  # fmt: skip
        result = read_json(self.out / RESULT, what=f"run {self.out}")
        return {**result, **arm, "finished": True, "task": self.task, "wall_s": result["wall_s"] | wall_s}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        print_lines(lines(self, self, result), console)

    def _learner(self, address: str) -> list[str]:
        own = {f.name for f in fields(Teaching)} - {"resume", "json", "verbose", "config"}
        words = [*words_of(self, own), "--listen", address, "--go-on", "--json"]
        return words + (["--nice", str(NICE)] if self.pace == "realtime" else [])

    def _actor(self, address: str) -> list[str]:
        own = {f.name for f in fields(Playing)} - {f.name for f in fields(Command)}
        return [
            *words_of(self, own), "--policy", str(self.policy), "--out", str(self.out / SPOOL),
            "--learner", address, "--json",
        ]  # fmt: skip


class _Deaths:
    """Whether a half that dies again and again is to be started once more."""

    def __init__(self) -> None:
        self._at: dict[str, list[float]] = {}

    def too_often(self, name: str) -> bool:
        at = self._at.setdefault(name, [])
        at.append(time.monotonic())
        return len(at) > MOST_DEATHS and at[-1] - at[-1 - MOST_DEATHS] < SOON_S
