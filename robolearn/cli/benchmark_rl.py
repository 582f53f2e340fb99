"""``robolearn benchmark rl``: success of fine-tuning against environment steps and seconds, over settings and seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robolearn.cli.command import Command

if TYPE_CHECKING:
    from robolearn.cli.quickstart import Quickstart

FLOWS = ("rectified", "shortcut")
RESULT = "quickstart.json"  # in a run's folder: it is finished


@dataclass(frozen=True, kw_only=True)
class BenchmarkRl(Command):
    """Demonstrations, imitation, fine-tuning and evaluation for every setting and seed; judges the last checkpoint."""

    tasks: tuple[str, ...] = ("lift",)
    """Embedded tasks."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; each has demonstrations, weights, starts and noise of its own."""
    flows: tuple[Literal["rectified", "shortcut"], ...] = ("rectified",)
    """Kinds of flow."""
    denoise_steps: tuple[int, ...] = (4,)
    """Numbers K of denoising steps."""
    env_steps: int | None = None
    """Budget of fine-tuning; by default what the task's preset says."""
    episodes: int | None = None
    """Episodes of each evaluation; by default what the task's preset says."""
    out: Path = field(default_factory=lambda: Path("runs/benchmark-rl"))
    """Folder for the runs; finished ones are not done again, stopped ones go on."""

    def run(self) -> dict[str, Any]:
        from robolearn.core import BadInput
        from robolearn.presets import preset

        for kind in self.flows:
            if kind not in FLOWS:
                raise BadInput("flow", got=kind, available=FLOWS)
        for flag in ("tasks", "seeds", "flows", "denoise_steps"):
            if not getattr(self, flag):
                raise BadInput(f"--{flag.replace('_', '-')}", got="nothing", expected="at least one")
        for task in self.tasks:
            preset(task)
        settings = list(itertools.product(self.tasks, self.flows, self.denoise_steps))
        for task, kind, steps in settings:
            for seed in self.seeds:  # all of them, before the first begins
                self._check(self._quickstart(task, kind, steps, seed))
        rows = []
        for task, kind, steps in settings:
            runs = [self._one(self._quickstart(task, kind, steps, seed)) for seed in self.seeds]
            rows.append({"task": task, "flow": kind, "denoise_steps": steps, "runs": runs, **_summary(runs)})
        return {"settings": rows}

    def _quickstart(self, task: str, flow: str, denoise_steps: int, seed: int) -> Quickstart:
        from robolearn.cli.quickstart import Quickstart

        folder = self.out / f"{task}-{flow}-k{denoise_steps}-seed{seed}"
        return Quickstart(
            task=task,
            seed=seed,
            out=folder,
            flow=flow,  # type: ignore[arg-type]  (checked by the caller)
            denoise_steps=denoise_steps,
            env_steps=self.env_steps,
            eval_episodes=self.episodes,
            videos=False,
            deploy_episodes=0,
            resume=folder.is_dir() and any(folder.iterdir()),
            json=True,
        )

    def _check(self, quickstart: Quickstart) -> None:
        """Refuse what cannot work, and a run in its place that had other settings than what is asked for now."""
        from robolearn.io.json_files import read_json
        from robolearn.runs.run import check_same

        plan = quickstart.plan()
        if (quickstart.out / RESULT).exists():
            done = read_json(quickstart.out / RESULT, what=f"benchmark {quickstart.out}")
            episodes = done["bc"]["success"]["episodes"]
            check_same({"episodes": episodes}, {"episodes": plan.eval_episodes}, f"benchmark {quickstart.out}")

    def _one(self, quickstart: Quickstart) -> dict[str, Any]:
        from robolearn.io.json_files import read_json, write_json

        stored = quickstart.out / RESULT
        if not stored.exists():
            # The clock of a resumed quickstart has seen its second part only.
            write_json(stored, {**quickstart.run(), "resumed": quickstart.resume})
        what = f"benchmark {quickstart.out}"
        done = read_json(stored, what=what)
        calibration = read_json(quickstart.out / "rl" / "result.json", what=what)["calibration"]
        return {
            "seed": quickstart.seed,
            "bc": done["bc"]["success"],
            "chosen_start_success": calibration["success"][0],
            "rl": done["rl"]["success"],
            "env_steps": done["env_steps"],
            "finetune_s": done["finetune_wall_s"]["total"],
            "simulation_share": done["finetune_wall_s"]["simulation"] / done["finetune_wall_s"]["total"],
            "total_s": None if done.get("resumed") else done["wall_s"]["total"],
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from rich.table import Table

        table = Table(title="success in %, with its 95% interval", title_justify="left")
        for heading in ("task", "flow"):
            table.add_column(heading)
        for heading in (
            "K",
            "seed",
            "imitation",
            "start",
            "after RL",
            "episodes",
            "env steps",
            "RL, s",
            "all, s",
            "sim.",
        ):
            table.add_column(heading, justify="right")
        for row in result["settings"]:
            for run in row["runs"]:
                table.add_row(
                    row["task"],
                    row["flow"],
                    str(row["denoise_steps"]),
                    str(run["seed"]),
                    _percent(run["bc"]),
                    f"{100 * run['chosen_start_success']:.0f}",
                    _percent(run["rl"]),
                    str(run["rl"]["episodes"]),
                    f"{run['env_steps']:,}",
                    f"{run['finetune_s']:.0f}",
                    "-" if run["total_s"] is None else f"{run['total_s']:.0f}",
                    f"{run['simulation_share']:.0%}",
                )
            table.add_section()
        console.print(table)


def _percent(rate: dict[str, Any]) -> str:
    return f"{100 * rate['rate']:.1f} ({100 * rate['low']:.1f}–{100 * rate['high']:.1f})"


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the seeds of one setting: medians, and how many reach 97% with a lower bound of at least 93%."""
    from statistics import median

    return {
        "bc_median": median(run["bc"]["rate"] for run in runs),
        "rl_median": median(run["rl"]["rate"] for run in runs),
        "reliable_seeds": sum(run["rl"]["rate"] >= 0.97 and run["rl"]["low"] >= 0.93 for run in runs),
        "seeds": len(runs),
    }
