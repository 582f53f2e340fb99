"""``robolearn benchmark rivals``: ways to fine-tune, in worlds of other makers, on equal ground."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robolearn.bench.rivals.checkouts import Checkout, CodeFailed, configs_of
from robolearn.cli.choices import Device
from robolearn.cli.registry import find
from robolearn.cli.rival_cells import Cells, Rival, TheirCode, few_enough
from robolearn.core import BadInput
from robolearn.core.machine import resolve_device
from robolearn.core.switches import Count
from robolearn.io.json_files import write_json
from robolearn.presets import RL_ENV_STEPS
from robolearn.runs.command import Command, check_seed, check_seeds, command_text, print_table, reported
from sim.registry import WorldConfig, tasks_of

TASKS = tuple(f"metaworld:{task}-v3" for task in ("push", "pick-place", "peg-insert-side", "drawer-open", "assembly"))
RIVALS: dict[str, Rival] = {
    name: Rival(name, ("--algo", name), "diffusion" if name == "dppo" else "flow")
    for name in ("reinflow", "dppo", "grpo", "rlpd", "dsrl", "proposals")
}
TABLE = "rivals.json"


@dataclass(frozen=True, kw_only=True)
class BenchmarkRivals(Command):
    """Compare ways to fine-tune on equal ground: same worlds, demonstrations, budget of control steps, judge.

    Demonstrations are by the worlds' own experts, and so few that imitation stands within --band: their number is
    halved until it does, with the first seed. Every rival gets the budget --env-steps, in every task and with every
    seed; the last policy is judged, from the same starts. Intervals are over the seeds.

    Can be killed at any moment: the same command with the same --out goes on.

    Example: robolearn benchmark rivals --tasks metaworld:push-v3 --seeds 0 1 2
    """

    tasks: tuple[str, ...] = TASKS
    """Worlds with a demonstrator, as robolearn worlds lists them, or suites of them."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Seeds; each has demonstrations, weights, starts and noise of its own."""
    rivals: tuple[str, ...] = tuple(RIVALS)
    """Rivals: reinflow, dppo, grpo, rlpd, dsrl, proposals, or NAME=FLAGS of robolearn finetune, as in
    "slow=--algo reinflow --actor-lr 1e-4"."""
    env_steps: Count = RL_ENV_STEPS
    """Budget of every rival in control steps."""
    episodes: Count = 40
    """Demonstrations that the search for few enough begins with."""
    band: tuple[float, float] = (0.35, 0.45)
    """Success of imitation that is sought."""
    train_steps: Count = 3000
    """Gradient steps of imitation."""
    eval_episodes: Count = 200
    """Episodes of each evaluation."""
    checkout: tuple[str, ...] = ()
    """Public code to be run beside ours, as reinflow=PATH or dppo=PATH of its checkout: as published, and with the
    repairs that robolearn/bench/README.md lists, made while it runs."""
    checkout_python: Path | None = None
    """The interpreter that has its packages; by default this one."""
    checkout_as: tuple[Literal["published", "repaired"], ...] = ("published", "repaired")
    """The versions of a checkout that run."""
    checkout_configs: tuple[str, ...] = ()
    """Configs of a checkout's imitation and fine-tuning, as NAME=IMITATION,TUNING, in the place of those of Kitchen."""
    device: Device = "auto"
    out: Path = Path("runs/rivals")
    """Folder for the cells, rivals.json and report.html."""

    def goes_on(self) -> bool:
        return True

    def run(self) -> dict[str, Any]:
        """``{"tasks": [{"task", "demonstrations", "tried", "within"}], "rows": [{"rival", "task", "cells",
        "imitation", "success", "env_steps", "tuning_s"}], "means": [{"rival", "imitation", "success", "env_steps",
        "tuning_s"}], "failed": [{"rival", "task", "seed", "why"}], "report", "wall_s"}``; successes, control steps and
        seconds of fine-tuning are as `over_seeds` gives them. Rows and means are of rivals that failed nowhere there;
        what failed is tried again by the next run."""
        from robolearn.eval.rivals_page import write_rivals_page

        begun = time.perf_counter()
        tasks, rivals = self._tasks(), self._rivals()
        cells = Cells(
            out=self.out, env_steps=self.env_steps, train_steps=self.train_steps, eval_episodes=self.eval_episodes,
            device=self.device, quiet=self.json,
        )  # fmt: skip
        self._check(tasks, rivals, cells)
        found, rows, failed = [], [], []
        for task in tasks:
            number, tried = self._number(cells, task)
            within = self.band[0] <= tried[number] <= self.band[1]
            found.append({"task": task, "demonstrations": number, "within": within,
                          "tried": {str(n): rate for n, rate in tried.items()}})  # fmt: skip
            runs: dict[str, list[dict[str, Any]]] = {rival.name: [] for rival in rivals}
            for seed in self.seeds:
                for rival in rivals:
                    try:
                        runs[rival.name].append({"seed": seed, **_shown(rival.run(cells, task, seed, number))})
                    except CodeFailed as error:
                        failed.append({"rival": rival.name, "task": task, "seed": seed, "why": str(error)})
            whole = {name: ran for name, ran in runs.items() if len(ran) == len(self.seeds)}
            rows += [{"rival": name, "task": task, "cells": ran, **_over(ran)} for name, ran in whole.items()]
        result: dict[str, Any] = {"tasks": found, "rows": rows, "means": list(_means(rows, tasks)), "failed": failed}
        write_json(self.out / TABLE, result)
        line = command_text("benchmark rivals", self)
        result |= reported(lambda: write_rivals_page(self.out / "report.html", result, self.settings(), line))
        return result | {"wall_s": {"total": time.perf_counter() - begun}}

    def settings(self) -> dict[str, str]:
        """Settings that were equal for all, in words."""
        return {
            "budget": f"{self.env_steps:,} control steps",
            "imitation": f"{self.train_steps:,} gradient steps",
            "evaluation": f"{self.eval_episodes} episodes",
            "success of imitation sought": f"{self.band[0]:g} to {self.band[1]:g}",
            "seeds": " ".join(map(str, self.seeds)),
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from robolearn.eval.rivals_page import percent

        for one in result["tasks"]:
            where = "" if one["within"] else ", outside of --band"
            rate = one["tried"][str(one["demonstrations"])]
            console.print(f"{one['task']}: {one['demonstrations']} demonstrations, imitation {rate:.1%}{where}")
        rows = [
            (row.get("task", "mean over tasks"), row["rival"], str(row["success"]["count"]), percent(row["imitation"]),
             percent(row["success"]), f"{100 * row['success']['median']:.1f}", f"{row['env_steps']['mean']:,.0f}",
             f"{row['tuning_s']['mean'] / 60:,.1f}")
            for row in (*result["rows"], *(result["means"] if len(result["tasks"]) > 1 else ()))
        ]  # fmt: skip
        heads = ("task", "rival", "seeds", "imitation, %", "after RL, %", "median", "control steps", "minutes of RL")
        print_table(console, heads, rows, title="mean over the seeds, with Student's 95% interval over them")
        for one in result["failed"]:
            console.print(f"failed: {one['rival']}, {one['task']}, seed {one['seed']}: {one['why']}", markup=False)
        console.print(f"report: {result['report'] or result['report_error']}")

    def _tasks(self) -> list[str]:
        return list(dict.fromkeys(one for task in self.tasks for one in tasks_of(task)))

    def _rivals(self) -> list[Rival | TheirCode]:
        """Those asked for, ours first."""
        found: dict[str, Rival | TheirCode] = {}
        for word in self.rivals:
            name, own, flags = word.partition("=")
            if not own and name not in RIVALS:
                expected = "NAME=FLAGS of robolearn finetune, or one of"
                raise BadInput("--rivals", got=word, expected=expected, available=RIVALS)
            if name in found or not name or "/" in name:
                raise BadInput("--rivals", got=word, expected="different names")
            found[name] = _of_flags(name, tuple(shlex.split(flags))) if own else RIVALS[name]
        configs = configs_of(self.checkout_configs)
        if more := configs.keys() - {word.partition("=")[0] for word in self.checkout}:
            raise BadInput("--checkout-configs", got=min(more), expected="configs of a codebase that --checkout names")
        for word in self.checkout:
            checkout = Checkout.of(word, self.checkout_python, configs)
            for version in dict.fromkeys(self.checkout_as):
                code = TheirCode(checkout, repaired=version == "repaired")
                if code.name in found:
                    raise BadInput("--checkout", got=word, expected="each codebase once, and no rival of its name")
                found[code.name] = code
        return list(found.values())

    def _check(self, tasks: Sequence[str], rivals: Sequence[Rival | TheirCode], cells: Cells) -> None:
        """Refuse what cannot work before anything is written."""
        from sim.experts import demonstrator

        check_seeds(self.seeds)
        for flag in ("tasks", "rivals", *(("checkout_as",) if self.checkout else ())):
            if not getattr(self, flag):
                raise BadInput(f"--{flag.replace('_', '-')}", got="nothing", expected="at least one")
        if not 0 <= self.band[0] < self.band[1] <= 1:
            raise BadInput("--band", got=" ".join(map(str, self.band)), expected="two rising shares, as in 0.35 0.45")
        for seed in self.seeds:
            check_seed(seed)
        resolve_device(self.device)
        for task in tasks:
            with closing(WorldConfig(task).build(1)) as env:
                if not env.reports_success:
                    raise BadInput(f"--tasks {task}", got="a world that reports no success", expected="one that does")
                demonstrator(task, env, "expert", 0)
            for rival in rivals:
                rival.check(cells, task)

    def _number(self, cells: Cells, task: str) -> tuple[int, dict[int, float]]:
        """The number of demonstrations of a task, and what was tried, by the first seed."""
        judge = lambda number: cells.imitated(task, self.seeds[0], "flow", number)["success"]["rate"]  # noqa: E731
        return few_enough(self.episodes, self.band, judge)


def _of_flags(name: str, flags: tuple[str, ...]) -> Rival:
    """The rival of a user's own flags. Raises `BadInput`: one that the benchmark sets, or one that does not exist."""
    from robolearn.cli.main import parse

    set_here = ("--policy", "--task", "--env-steps", "--seed", "--out", "--data", "--resume", "--device")
    for flag in flags:
        if flag.split("=")[0] in set_here:
            raise BadInput(
                f"--rivals {name}", got=flag, expected=f"none of {', '.join(set_here)}: set by the benchmark"
            )
    command: Any = parse(*find(["finetune", "--policy", "x", "--out", "x", *flags]))
    kind = RIVALS[command.algo].policy if command.algo in RIVALS else "flow"
    return Rival(name, flags, kind)


def _shown(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell in the result."""
    return {key: value for key, value in cell.items() if key != "settings"}


def _over(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Success and cost of a rival in a task, over the seeds."""
    return _estimates([_values(run) for run in runs])


def _values(cell: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Imitation, success, control steps and seconds of fine-tuning of a cell."""
    return cell["imitation"]["rate"], cell["success"]["rate"], cell["env_steps"], cell["seconds"]["tuned"]


def _means(rows: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The mean over all tasks of each rival: of each seed first, so that the interval is over the seeds."""
    for name in dict.fromkeys(row["rival"] for row in rows):
        own = [row["cells"] for row in rows if row["rival"] == name]
        if len(own) == len(tasks):
            values = [[_values(cell) for cell in one] for one in own]
            yield {"rival": name, **_estimates(np.mean(values, axis=0).tolist())}


def _estimates(values: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Estimates over the seeds, of each of which `values` has what `_values` gives."""
    from robolearn.eval import over_seeds

    imitation, success, steps, seconds = zip(*values, strict=True)
    found = {
        "imitation": over_seeds(imitation, rates=True),
        "success": over_seeds(success, rates=True),
        "env_steps": over_seeds(steps),
        "tuning_s": over_seeds(seconds),
    }
    return {key: value.to_json() for key, value in found.items()}
