"""``robolearn benchmark hil``: what a human in the loop is worth, without a human, over arms, algorithms and seeds."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robolearn.cli.command import Command, at_least
from robolearn.cli.hil.run import PROGRAM
from robolearn.core import BadInput, RobolearnError
from robolearn.hil.settings import HIL_ALGORITHMS
from robolearn.presets import preset

log = logging.getLogger(__name__)

Arm = Literal["none", "demos", "demos+interventions", "bc"]
NEVER = 10**9  # updates until critics choose, in the arm without them
RESULT = "benchmark.json"  # in a run's folder: it is finished and judged
STARTS, WATCHED = 1_000, 2_000  # seeds of the episodes that judge


@dataclass(frozen=True, kw_only=True)
class BenchmarkHil(Command):
    """Demonstrations, imitation, the loop through its real actor and learner in lockstep, and its judgement: episodes
    that nobody helps, and episodes that the scripted operator watches.

    Arms: none: neither demonstrations nor an operator; demos: demonstrations alone; demos+interventions; bc: as the
    one before, but nothing except imitation learns from it (proposals whose critics never choose, without twins).
    """

    tasks: tuple[str, ...] = ("peg_insert_tight",)
    """Embedded tasks."""
    arms: tuple[Arm, ...] = ("none", "demos", "demos+interventions", "bc")
    """What the learner gets."""
    algo: tuple[str, ...] = ("proposals",)
    """Algorithms: proposals, rlpd, dsrl. The arm bc is run once, whichever they are."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Seeds; each has demonstrations, an imitated policy, starts and noise of its own."""
    demos: int = 20
    """Demonstrations, all of which succeed."""
    start_range: float = 0.4
    """Share of the starts, about the middle, that they come from; the loop and its judgement meet all."""
    train_steps: int = 1500
    """Gradient steps of imitation."""
    env_steps: int = 24_000
    """Control steps of the loop; 24,000 are twenty minutes at 20 Hz."""
    eval_episodes: int = 100
    """Episodes of each judgement."""
    lanes: int = 2
    """Runs side by side."""
    out: Path = Path("runs/benchmark-hil")
    """Folder for the runs; finished ones are not done again, stopped ones go on."""

    def run(self) -> dict[str, Any]:
        at_least(1, demos=self.demos, train_steps=self.train_steps, env_steps=self.env_steps,
                 eval_episodes=self.eval_episodes, lanes=self.lanes)  # fmt: skip
        for flag in ("tasks", "arms", "algo", "seeds"):
            if not getattr(self, flag):
                raise BadInput(f"--{flag}", got="nothing", expected="at least one")
        for task in self.tasks:
            preset(task)
        for algo in self.algo:
            if algo not in HIL_ALGORITHMS:
                raise BadInput("--algo", got=algo, available=HIL_ALGORITHMS)
        with ThreadPoolExecutor(self.lanes) as lanes:
            list(lanes.map(lambda pair: self._imitate(*pair), itertools.product(self.tasks, self.seeds)))
            runs = list(lanes.map(lambda row: self._one(*row), self._rows()))
        return {"rows": [_summary(runs, *which) for which in dict.fromkeys(_which(run) for run in runs)], "runs": runs}

    def _rows(self) -> Iterator[tuple[str, Arm, str, int]]:
        for task, arm in itertools.product(self.tasks, self.arms):
            for algo in ("proposals",) if arm == "bc" else self.algo:
                for seed in self.seeds:
                    yield task, arm, algo, seed

    def _base(self, task: str, seed: int) -> tuple[Path, Path]:
        return self.out / f"{task}-seed{seed}-demos", self.out / f"{task}-seed{seed}-bc"

    def _imitate(self, task: str, seed: int) -> None:
        from robolearn.runs.run import RESULT as TRAINED

        demos, bc = self._base(task, seed)
        if (bc / TRAINED).exists():
            return
        if not demos.exists():
            _robolearn("collect", "--task", task, "--quality", "narrow", "--start-range", self.start_range,
                       "--episodes", self.demos, "--worlds", 1, "--seed", seed, "--out", demos)  # fmt: skip
        resume = ("--resume",) if bc.exists() else ()
        _robolearn("train", "--data", demos, "--steps", self.train_steps, "--seed", seed, "--out", bc, *resume)

    def _one(self, task: str, arm: Arm, algo: str, seed: int) -> dict[str, Any]:
        from robolearn.io.json_files import read_json, write_json

        demos, bc = self._base(task, seed)
        folder = self.out / f"{task}-seed{seed}-{arm}-{algo}"
        if (folder / RESULT).exists():
            return read_json(folder / RESULT, what=f"benchmark {folder}")
        begun = time.perf_counter()
        log.info("%s", folder.name)
        words: list[Any] = [
            "--policy",
            bc,
            "--task",
            task,
            "--algo",
            algo,
            "--seed",
            seed,
            "--env-steps",
            self.env_steps,
        ]
        words += ["--demos", demos] if arm != "none" else []
        words += ["--operator", "scripted"] if arm in ("demos+interventions", "bc") else []
        words += ["--trust-after", NEVER] if arm == "bc" else []
        _robolearn("hil", "run", *words, "--out", folder, *(("--resume",) if folder.exists() else ()))
        learned = self._judge(task, folder)
        imitated = self._judge(task, bc)
        told = read_json(folder / "result.json", what=f"run {folder}")
        result = {
            "task": task, "arm": arm, "algo": algo, "seed": seed, "bc": imitated, **learned,
            "env_steps": told["env_steps"], "robot_minutes": told["robot_minutes"], "utd": told["utd"],
            "cycle_ratio": _ratio(learned["cycle_s"], imitated["cycle_s"]), "wall_s": time.perf_counter() - begun,
        }  # fmt: skip
        write_json(folder / RESULT, result)
        return result

    def _judge(self, task: str, policy: Path) -> dict[str, Any]:
        """Success without help and its cycle time; the share of steps that an operator steers who watches."""
        import torch

        from policies.loading import open_policy
        from robolearn.core import bind_policy
        from robolearn.eval import evaluate
        from robolearn.hil.watched import watch
        from sim.experts import make_operator
        from sim.registry import make_env

        torch.set_num_threads(1)
        loaded = open_policy(policy)
        env = make_env(task, self.eval_episodes, threads=1)
        try:
            bind_policy(loaded, env.interface, what=f"policy {policy} in {task}")
            found = evaluate(env, loaded, self.eval_episodes, STARTS).to_json()
            helped = watch(env, loaded, make_operator(task, env.interface, self.eval_episodes, 0), WATCHED)
        finally:
            env.close()
        cycle = found["cycle_time_s"]["mean"] if found["cycle_time_s"] else None
        return {"success": found["success"], "cycle_s": cycle, "intervention_rate_end": helped["intervention_rate"]}


def _which(run: dict[str, Any]) -> tuple[str, str, str]:
    return run["task"], run["arm"], run["algo"]


def _summary(runs: list[dict[str, Any]], task: str, arm: str, algo: str) -> dict[str, Any]:
    """The seeds of one row together: their episodes pooled, their rates one by one."""
    import numpy as np

    from robolearn.eval.intervals import Success

    mine = [run for run in runs if _which(run) == (task, arm, algo)]

    def pooled(results: list[dict[str, Any]]) -> dict[str, Any]:
        counts = [(round(r["success"]["rate"] * r["success"]["episodes"]), r["success"]["episodes"]) for r in results]
        return Success.of(sum(k for k, _ in counts), sum(n for _, n in counts)).to_json()

    def mean(key: str) -> float | None:
        known = [run[key] for run in mine if run[key] is not None]
        return float(np.mean(known)) if known else None

    return {
        "task": task, "arm": arm, "algo": algo, "bc": pooled([run["bc"] for run in mine]), "success": pooled(mine),
        "rates": [run["success"]["rate"] for run in mine],
        **{key: mean(key) for key in ("env_steps", "robot_minutes", "intervention_rate_end", "cycle_s", "cycle_ratio",
                                      "wall_s")},
    }  # fmt: skip


def _ratio(mine: float | None, theirs: float | None) -> float | None:
    return mine / theirs if mine and theirs else None


def _robolearn(*words: Any) -> None:
    """Run a command of ours in a process of its own."""
    program = [*PROGRAM, *map(str, words), "--json"]
    done = subprocess.run(
        program, capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RobolearnError(f"robolearn {' '.join(map(str, words[:2]))} failed: {said[-1] if said else 'no message'}")
