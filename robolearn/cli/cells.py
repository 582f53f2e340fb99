"""Cells of benchmarks of learners: folders of finished work, whose runs go on where they were stopped.

A cell is a folder with ``cell.json``, written when it is finished; what is finished is not done again, and a run in it
that was stopped goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robolearn.cli.evaluator import AT_THE_END
from robolearn.cli.registry import find
from robolearn.io.json_files import read_json, write_json
from robolearn.presets import WORLDS
from robolearn.runs.run import RESULT, check_same, is_run
from sim.registry import WorldConfig

log = logging.getLogger(__name__)

CELL = "cell.json"  # in a cell's folder: it is finished


@dataclass(frozen=True, kw_only=True)
class CellFolder:
    """All cells of a benchmark, by task and seed.

    Attributes:
      out: folder for them.
      train_steps: gradient steps of each imitation.
      eval_episodes: that judge each policy.
      device: of all trainings.
      quiet: without progress bars.
    """

    out: Path
    train_steps: int
    eval_episodes: int
    device: str
    quiet: bool

    def place(self, task: str, seed: int) -> Path:
        """The folder of a task and seed."""
        return self.out / task.replace(":", "-").replace("/", "-") / f"seed{seed}"

    def collected(self, out: Path, task: str, quality: str, episodes: int, seed: int) -> Path:
        """The data set `out` of so many demonstrations of `quality` by the world's own expert."""
        from robolearn.cli.collect import Collect

        Collect(
            world=WorldConfig(task), episodes=episodes, quality=quality, out=out, seed=seed, resume=out.exists(),
            json=self.quiet,
        ).run()  # fmt: skip
        return out

    def command(self, *words: object, seed: int) -> Any:
        """The command of ours with these words, this seed and the device of all."""
        from robolearn.cli.main import parse

        return parse(*find([*map(str, words), "--seed", str(seed), "--device", self.device]))

    def go_on(self, command: Any) -> dict[str, Any]:
        """The result of a training that goes on where it was stopped; one that is finished, with as large a budget of
        control steps, returns what it wrote."""
        run = command.out
        if (run / RESULT).exists():
            result = read_json(run / RESULT, what=f"run {run}")
            if result.get("budget", 0) >= getattr(command, "env_steps", 0):
                return result
        return replace(command, json=self.quiet, resume=is_run(run)).run()

    def judged_cell(
        self, out: Path, task: str, seed: int, settings: Mapping[str, Any], learn: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The result of `learn`, with its seconds, the success of the policy in ``run``, and the seconds of both."""
        from policies.storage.loading import open_policy
        from robolearn.bench.baselines import judged

        def work() -> dict[str, Any]:
            begun = time.perf_counter()
            done = learn()
            seconds = {"tuned": time.perf_counter() - begun}
            policy = open_policy(out / "run")
            found = judged(WorldConfig(task), policy, self.eval_episodes, AT_THE_END + seed, WORLDS)
            return done | {"success": found["success"], "seconds": seconds}

        return kept(out, {**settings, **self.judging()}, work)

    def judging(self) -> dict[str, int]:
        """Settings that all cells share."""
        return {"train_steps": self.train_steps, "eval_episodes": self.eval_episodes}


def kept(out: Path, settings: Mapping[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The cell in `out`; `work` does it, where it is not finished.

    Returns:
      what `work` returned, with ``wall_s`` and ``cpu_s``, of this part of the work alone where it had been stopped.

    Raises:
      BadInput: it was finished with other settings.
    """
    if not (out / CELL).exists():
        resumed, begun, cpu = out.exists(), time.perf_counter(), time.process_time()
        log.info("%s", out)
        done = work()
        spent = {"wall_s": {"total": time.perf_counter() - begun}, "cpu_s": {"total": time.process_time() - cpu}}
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / CELL, {"settings": dict(settings), **done, **spent, "resumed": resumed})
    cell = read_json(out / CELL, what=f"cell {out}")
    check_same(cell["settings"], dict(settings), f"cell {out}")
    return cell
