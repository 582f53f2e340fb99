"""``robolearn sweep``: one training over seeds and settings, and one report with intervals over the seeds.

With ``--runner ray`` each run is a task of Ray, as many at a time as it has CPUs. Without RAY_ADDRESS Ray is started
here, on the loopback interface, and ended; with it the cluster that it names runs them, whose machines have to have
this folder and the data under the same paths.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from robolearn.cli.console import make_console
from robolearn.cli.registry import find
from robolearn.core import BadInput, RobolearnError
from robolearn.io.json_files import read_json, write_json
from robolearn.runs import Progress, is_run
from robolearn.runs.command import Command, check_seed, check_seeds, command_text, print_table, reported
from robolearn.runs.ray_cluster import need_ray, start_ray
from robolearn.runs.run import RESULT, check_same

if TYPE_CHECKING:
    from robolearn.eval.sweep_report import SweepRun


TRAININGS = ("train", "finetune", "distill")
TABLE = "sweep.json"
PLAN = "plan.json"  # what a resumed sweep has to have been, too


@dataclass(frozen=True, kw_only=True)
class Sweep(Command):
    """Run a training once for every combination of settings and seeds: one after the other in this process, or side by
    side with --runner ray.

    The training and its flags stand behind two dashes, without --seed and --out. A sweep that was stopped goes on with
    --resume: what is finished is not done again.

    Example: robolearn sweep --vary lr=0.001,0.0003 --out runs/lr -- train --data data/lift --eval-task lift
    """

    command: tyro.conf.Positional[tuple[str, ...]] = ()
    """train, finetune or distill, and its flags."""
    vary: tuple[str, ...] = ()
    """Flags and their values, as in --vary lr=0.001,0.0003 batch=64,256: every combination is run."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of each combination."""
    out: Path = Path("runs/sweep")
    """Folder for the runs, report.html and sweep.json."""
    runner: Literal["process", "ray"] = "process"
    """process, this one, or ray: a task of Ray for each run (extra ray), on the cluster that RAY_ADDRESS names or on
    this machine. Runs, files and report are the same."""
    resume: bool = False
    """Go on with the sweep in --out."""

    def run(self) -> dict[str, Any]:
        if self.runner == "ray":
            need_ray("--runner ray")
        from robolearn.eval.sweep_report import summary, write

        ones = list(self.plan())
        self._check_out()
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(self.out / PLAN, {"command": list(self.command)})
        begun = time.perf_counter()
        if self.runner == "ray":
            self._side_by_side([one for one in ones if not (one.path / RESULT).exists()])
        else:
            self._one_by_one(ones)
        results = [read_json(one.path / RESULT, what=f"run {one.path}") for one in ones]
        settings = summary(ones, results)
        result: dict[str, Any] = {"command": list(self.command), "settings": settings}
        write_json(self.out / TABLE, result)
        result |= reported(lambda: write(self.out, ones, results, settings, command_text("sweep", self)))
        result["wall_s"] = {"total": time.perf_counter() - begun}
        return result

    def _one_by_one(self, ones: Sequence[SweepRun]) -> None:
        for i, one in enumerate(ones):
            if not self.json:
                text = f"[bold]{i + 1} of {len(ones)}[/bold]: {one.path.relative_to(self.out)}"
                make_console(stderr=True).print(text)
            if not (one.path / RESULT).exists():
                replace(one.command, resume=is_run(one.path)).run()

    def _side_by_side(self, ones: Sequence[SweepRun]) -> None:
        from robolearn.cli.sweep import run_all

        lines = [(*one.line, "--json", *(["--resume"] if is_run(one.path) else [])) for one in ones]
        with Progress("sweep", total=len(lines), unit="runs", quiet=self.json) as progress:
            run_all(lines, str(Path.cwd()), lambda done: progress(done))

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from robolearn.eval.sweep_report import text_of

        metrics = list(dict.fromkeys(name for row in result["settings"] for name in row["metrics"]))
        heads, rows = ("setting", "seeds", *(name.replace("_", " ") for name in metrics)), []
        for row in result["settings"]:
            values = [(name, row["metrics"].get(name)) for name in metrics]
            cells = ("–" if value is None else text_of(name, value) for name, value in values)
            rows.append((row["name"], str(len(row["runs"])), *cells))
        print_table(console, heads, rows, title="mean over the seeds, with its 95% interval")
        console.print(f"report: {result['report'] or result['report_error']}")

    def plan(self) -> Iterator[SweepRun]:
        """The trainings, in order. Raises `BadInput`: something in the command line of one of them; all are looked at
        before the first is run."""
        from robolearn.cli.main import parse
        from robolearn.eval.sweep_report import SweepRun

        if not self.command or self.command[0] not in TRAININGS:
            got = self.command[0] if self.command else "nothing"
            raise BadInput("training behind --", got=got, available=TRAININGS)
        check_seeds(self.seeds)
        for word in self.command[1:]:
            if word.split("=")[0] in ("--seed", "--out", "--resume"):
                raise BadInput("training behind --", got=word, expected="neither --seed, --out nor --resume: the sweep "
                               "takes --seeds, --out and --resume")  # fmt: skip
        varied = dict(_varied(word) for word in self.vary)
        if len(varied) < len(self.vary):
            raise BadInput("--vary", got=" ".join(self.vary), expected="each flag once, with all its values")
        entry, flags = find(list(self.command))
        ones = []
        for values in itertools.product(*varied.values()):
            setting = dict(zip(varied, values, strict=True))
            for seed in self.seeds:
                check_seed(seed)
                path = self.out / (_folder(setting) or "as-given") / f"seed{seed}"
                words = [*flags, *(word for name, value in setting.items() for word in (f"--{name}", value))]
                words += ["--seed", str(seed), "--out", str(path)]
                command = replace(parse(entry, words), json=self.json)
                ones.append(SweepRun(setting, seed, path, command, (*entry.name.split(), *words)))
        yield from ones

    def _check_out(self) -> None:
        if not self.resume and self.out.is_dir() and any(self.out.iterdir()):
            hint = "--resume goes on with a sweep"
            raise BadInput(f"--out {self.out}", got="a folder that is not empty", expected="a new one", hint=hint)
        if self.resume:
            stored = read_json(self.out / PLAN, what=f"sweep {self.out}")
            check_same(stored, {"command": list(self.command)}, f"sweep {self.out}")


def _varied(word: str) -> tuple[str, tuple[str, ...]]:
    """``lr=0.001,0.0003`` → (``lr``, its values)."""
    name, equals, values = word.removeprefix("--").partition("=")
    found = tuple(value for value in values.split(",") if value)
    if not name or not equals or not found:
        raise BadInput("--vary", got=word, expected="a flag and its values, as in lr=0.001,0.0003")
    if name in ("seed", "out"):
        raise BadInput("--vary", got=word, expected="another flag: --seeds and --out set these")
    if len(set(found)) < len(found):
        raise BadInput("--vary", got=word, expected="different values")
    return name, found


def _folder(setting: Mapping[str, str]) -> str:
    """A name for a folder: ``lr=0.001,batch=64``."""
    return re.sub(r"[^\w=,.+-]", "_", ",".join(f"{name}={value}" for name, value in setting.items()))


def run_all(lines: Sequence[Sequence[str]], folder: str, done: Callable[[int], None]) -> None:
    """Run each of the command lines, in any order.

    Args:
      folder: the working directory that their paths begin at.
      done: called with how many have ended.

    Raises:
      RobolearnError: one failed; those that had begun are stopped, and go on from their last state when resumed.
    """
    ray = start_ray()
    try:
        task = ray.remote(run_one)
        left = {task.remote(list(line), folder): line for line in lines}
        while left:
            (ended, *_), _ = ray.wait(list(left), num_returns=1)
            line = left.pop(ended)
            if error := ray.get(ended):
                raise RobolearnError(f"robolearn {' '.join(line)}: {error}")
            done(len(lines) - len(left))
    finally:
        ray.shutdown()


def run_one(line: list[str], folder: str) -> str:
    """Run one command line, in a worker of Ray; its error, or nothing."""
    os.chdir(folder)
    from robolearn.cli.main import parse

    try:
        entry, flags = find(line)
        parse(entry, flags).run()
    except RobolearnError as error:
        return str(error)
    return ""
