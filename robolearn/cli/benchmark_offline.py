"""``robolearn benchmark offline``: learning from stored demonstrations of all qualities, and online from there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from policies.settings import DenoisingConfig
from robolearn.cli.choices import Device
from robolearn.cli.offline_cells import IMITATIONS, OfflineCells
from robolearn.core import BadInput
from robolearn.core.machine import resolve_device
from robolearn.core.switches import Count, Share
from robolearn.io.json_files import write_json
from robolearn.rl.algorithms import OffPolicyConfig, algorithm
from robolearn.runs.command import Command, check_seed, check_seeds, command_text, print_table, reported
from sim.registry import WorldConfig

TABLE = "offline.json"
PHASES = ("offline", "online")


@dataclass(frozen=True, kw_only=True)
class BenchmarkOffline(Command):
    """Compare algorithms that learn from stored demonstrations of all qualities, and online from there, with imitation.

    For each task and seed: demonstrations that are mixed, as many that fail on purpose, imitation of all and of the
    successes, then each algorithm from the imitation of all: offline, and with --env-steps in worlds. The last policy
    is judged, by the same starts for all. Intervals are over the seeds; dip: the last evaluation before the first
    control step less the least of the first three after it. With one seed nothing is separated.

    Can be killed at any moment: the same command with the same --out goes on.

    Example: robolearn benchmark offline --tasks lift --algos iql cal_ql --seeds 0 1 2
    """

    tasks: tuple[str, ...] = ("lift", "peg_insert", "pick_place")
    """Embedded tasks."""
    algos: tuple[str, ...] = ("iql", "rebrac", "cal_ql")
    """Off-policy algorithms, as --algo of finetune has them."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Seeds; each has demonstrations, weights, starts and noise of its own."""
    episodes: Count = 60
    """Demonstrations that are mixed, and as many that fail."""
    train_steps: Count = 3000
    """Gradient steps of each imitation."""
    updates: Count = 2000
    """Updates of each algorithm offline."""
    env_steps: int = 6144
    """Budget of each algorithm in control steps afterwards; 0: it learns offline alone."""
    eval_every: Count = 4
    """Iterations between two evaluations on the way: offline of 250 updates, the last of them evaluated, too."""
    eval_episodes: Count = 200
    """Episodes of each evaluation."""
    corrupt: Share = 0.0
    """Share of the steps of all demonstrations that is wrong, for all learners alike, as `dataset edit corrupt` writes
    it; who succeeded stays right."""
    corrupt_what: tuple[Literal["rewards", "actions", "observations"], ...] = ("actions", "observations")
    """Columns of them that are wrong: rewards, actions, observations."""
    device: Device = "auto"
    out: Path = Path("runs/benchmark-offline")
    """Folder for the cells, offline.json and report.html."""

    def goes_on(self) -> bool:
        return True

    def run(self) -> dict[str, Any]:
        """``{"rows": [{"task", "learner", "cells", "offline", "online", "dip", "largest_dip", "env_steps",
        "offline_s", "online_s", "cpu_s"}], "best": [{"task", "phase", "best", "ties", "behind", "seeds",
        "sentence"}], "corruption", "report", "wall_s"}``; what is over seeds is as `over_seeds` gives it, or None where
        there is none. Times of cells that were stopped on the way are not counted."""
        from robolearn.eval.offline_page import write_offline_page
        from robolearn.eval.offline_table import best_of, row_of

        begun, cells = time.perf_counter(), self.cells()
        self._check(cells)
        cells.begin()
        rows = []
        for task in self.tasks:
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*IMITATIONS, *self.algos)}
            for seed in self.seeds:
                for name in found:
                    found[name].append({"seed": seed, **self._cell(cells, task, seed, name)})
            rows += [{"task": task, "learner": name, **row_of(own)} for name, own in found.items()]
        phases = PHASES if self.env_steps else PHASES[:1]
        best = [{"task": task, "phase": phase, **best_of(rows, task, phase).to_json()} for task in self.tasks
                for phase in phases]  # fmt: skip
        corruption = None if not self.corrupt else {"share": self.corrupt, "what": list(self.corrupt_what)}
        result: dict[str, Any] = {"rows": rows, "best": best, "corruption": corruption}
        write_json(self.out / TABLE, result)
        line = command_text("benchmark offline", self)
        result |= reported(lambda: write_offline_page(self.out / "report.html", result, self.settings(), line))
        return result | {"wall_s": {"total": time.perf_counter() - begun}}

    def cells(self) -> OfflineCells:
        """Where they are, and what all of them have. Raises `BadInput`: a corruption that is none."""
        from robolearn.data.convert.corrupt import Corruption

        corruption = Corruption(self.corrupt, self.corrupt_what) if self.corrupt else None
        if corruption is not None:
            corruption.check("--corrupt-what")
        return OfflineCells(
            out=self.out, train_steps=self.train_steps, eval_episodes=self.eval_episodes, device=self.device,
            quiet=self.json, episodes=self.episodes, updates=self.updates, env_steps=self.env_steps,
            eval_every=self.eval_every, corruption=corruption,
        )  # fmt: skip

    def settings(self) -> dict[str, str]:
        """Settings that were equal for all, in words."""
        wrong = f"{self.corrupt:.0%} of the steps, {', '.join(self.corrupt_what)}" if self.corrupt else "nothing"
        return {
            "demonstrations": f"{self.episodes} mixed, {self.episodes} that fail",
            "wrong on purpose": wrong,
            "imitation": f"{self.train_steps:,} gradient steps",
            "offline": f"{self.updates:,} updates",
            "online": f"{self.env_steps:,} control steps",
            "evaluation": f"{self.eval_episodes} episodes",
            "seeds": " ".join(map(str, self.seeds)),
        }

    def _cell(self, cells: OfflineCells, task: str, seed: int, name: str) -> dict[str, Any]:
        """The result of a learner with a seed, for the table."""
        if name in IMITATIONS:
            done, then = cells.imitated(task, seed, name), None
        else:
            done = cells.offline(task, seed, name)
            then = cells.online(task, seed, name) if self.env_steps else None
        switch = then["switch"] if then else None
        return {
            "offline": done["success"],
            "online": then["success"] if then else None,
            "switch": switch,
            "env_steps": then["env_steps"] if then else 0,
            "offline_s": _spent(done, "wall_s"),
            "online_s": _spent(then, "wall_s") if then else None,
            "cpu_s": _both(_spent(done, "cpu_s"), _spent(then, "cpu_s") if then else 0.0),
        }

    def _check(self, cells: OfflineCells) -> None:
        """Refuse what cannot work before anything is written."""
        from robolearn.rl.offline_runner import BLOCK
        from sim.experts import demonstrator

        check_seeds(self.seeds)
        for seed in self.seeds:
            check_seed(seed)
        for flag in ("tasks", "algos"):
            given = getattr(self, flag)
            if not given or len(set(given)) < len(given):
                raise BadInput(f"--{flag}", got=" ".join(given) or "nothing", expected="different names, at least one")
        for algo in self.algos:
            try:
                algorithm(algo, OffPolicyConfig)
            except BadInput as error:
                raise BadInput(str(error).replace("--algo", "--algos", 1)) from None
        blocks = -(-self.updates // BLOCK)
        if blocks % self.eval_every:
            got = f"{self.eval_every} for {blocks} iterations of {BLOCK} updates"
            raise BadInput("--eval-every", got=got, expected="a divisor, so that the end of them is evaluated")
        if self.env_steps < 0:
            raise BadInput("--env-steps", got=self.env_steps, expected="0 or more")
        resolve_device(self.device)
        for task in self.tasks:
            with closing(WorldConfig(task).build(1)) as env:
                for quality in ("mixed", "failures"):
                    demonstrator(task, env, quality, 0)
                longest = env.max_episode_steps
            for algo in self.algos if self.env_steps else ():
                command = cells.finetune(task, 0, algo, self.env_steps)
                command.check_budget(DenoisingConfig().execute)
                if self.env_steps < (least := command.settings.num_envs * longest):
                    expected = f"0, or at least {least:,} for {task}: before that no episode need have ended"
                    raise BadInput("--env-steps", got=self.env_steps, expected=expected)

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from robolearn.eval.offline_table import HEADS, shown, shown_seeds

        rows = [line for row in result["rows"] for line in (shown(row), *shown_seeds(row))]
        print_table(console, HEADS, rows, title="mean over the seeds, with Student's 95% interval over them; median")
        if result["corruption"]:
            console.print(f"wrong on purpose: {self.settings()['wrong on purpose']}")
        for one in result["best"]:
            console.print(f"{one['task']}, {one['phase']}: {one['sentence']}")
        console.print(f"report: {result['report'] or result['report_error']}")


def _spent(cell: Mapping[str, Any], clock: str) -> float | None:
    """Seconds of a cell by `clock`; None of one that was stopped on the way: its clock has seen its last part only."""
    return None if cell["resumed"] else cell[clock]["total"]


def _both(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
