"""``robolearn evaluate``: how often does a policy succeed, and how sure is that?"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.cli.command import Command, at_least, cameras_for, check_seed, world_action_kind

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Run exactly n episodes and say the success rate with its 95% interval; compare two policies on equal starts."""

    policy: Path
    """A run folder, a checkpoint folder, or lerobot:FOLDER for a policy of LeRobot's."""
    against: Path | None = None
    """A second policy: it meets the same starts, and the verdict says which is better and how sure that is."""
    task: str = "lift"
    """lift, pick_place, peg_insert, robosuite:<Name> or gym:<module>:<Id-v0>."""
    episodes: int = 200
    """Number of episodes, of each policy."""
    worlds: int = 64
    """Worlds side by side."""
    seed: int = 1000
    """Of starts and of the policy's noise."""
    out: Path | None = None
    """Write report.html, with videos of the worst and the best episode, into this folder."""

    def run(self) -> dict[str, Any]:
        from policies.loading import open_policy
        from robolearn.core import BadInput, bind_policy
        from robolearn.eval import compare
        from robolearn.io.paths import check_folder
        from sim.registry import make_env

        at_least(1, episodes=self.episodes, worlds=self.worlds)
        check_seed(self.seed)
        if self.out is not None:
            check_folder(self.out, f"--out {self.out}")
            if (self.out / "report.html").exists():
                raise BadInput(f"--out {self.out}", got="a folder with a report", expected="a new one")
        begun = time.perf_counter()
        paths = [self.policy] + ([self.against] if self.against else [])
        policies = [open_policy(path) for path in paths]
        for path in paths:
            warn_of_trained_starts(path, self.seed)
        worlds, kind = min(self.worlds, self.episodes), world_action_kind(policies[0])
        env = make_env(self.task, worlds, action_kind=kind, **cameras_for(self.task, policies))
        try:
            for path, policy in zip(paths, policies, strict=True):
                bind_policy(policy, env.interface, what=f"policy {path} in {self.task}")
            if self.out is not None:
                # A machine that cannot draw says so now, not after the episodes.
                env.reset(seed=self.seed)
                env.frame()
            done = [evaluate_policy(env, p, self.episodes, self.seed, self.json, str(path))
                    for p, path in zip(policies, paths, strict=True)]  # fmt: skip
            result = {"policy": str(self.policy), **done[0].to_json()}
            verdict = None
            if self.against:
                names = (str(self.policy), str(self.against))
                verdict = compare(done[0], done[1], names=names)
                result["against"] = {"policy": str(self.against), **done[1].to_json()}
                result["verdict"] = verdict.to_json()
            if self.out is not None:
                result["report"] = str(self._report(env, policies, done, verdict))
        finally:
            env.close()
        result["wall_s"] = {**result["wall_s"], "total": time.perf_counter() - begun}
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from rich.table import Table

        from robolearn.cli.command import rate_text

        table = Table(
            "policy", "success", "cycle time of successes, s", title=f"{result['task']}, seed {result['seed']}"
        )
        for row in (result, result.get("against")):
            if row:
                time_s = row["cycle_time_s"]
                span = "-" if time_s["mean"] is None else f"{time_s['mean']:.2f}"
                if time_s["low"] is not None:  # one success has no interval
                    span += f" ({time_s['low']:.2f}–{time_s['high']:.2f})"
                table.add_row(row["policy"], rate_text(row["success"]), span)
        console.print(table)
        if "verdict" in result:
            console.print(result["verdict"]["sentence"])
        if "report" in result:
            console.print(f"report: {result['report']}")

    def _report(self, env: Any, policies: list[Any], done: list[Any], verdict: Any) -> Path:
        from robolearn.eval.report import Outcome, ReportData, write_report
        from robolearn.eval.video import record_episodes

        assert self.out is not None
        videos = []
        for i, (policy, evaluation) in enumerate(zip(policies, done, strict=True)):
            name = str(self.policy if i == 0 else self.against)
            videos += record_episodes(env, policy, evaluation, self.out / f"videos-{i}", title=name)
        names = [str(self.policy), str(self.against)]
        return write_report(
            self.out / "report.html",
            ReportData(
                title=f"{self.task}: evaluation",
                subtitle=f"{self.episodes} episodes of each policy, from the same starts (seed {self.seed}).",
                outcomes=[Outcome.of(name, e) for name, e in zip(names, done, strict=False)],
                verdict=verdict,
                videos=videos,
                settings={"task": self.task, "episodes": self.episodes, "seed": self.seed, "worlds": env.num_envs},
                commands=[self._command()],
            ),
        )

    def _command(self) -> str:
        """What does it again; the starts depend on the number of worlds, too."""
        words = ["robolearn", "evaluate", "--policy", self.policy]
        words += ["--against", self.against] if self.against else []
        words += ["--task", self.task, "--episodes", self.episodes, "--worlds", self.worlds, "--seed", self.seed]
        return shlex.join(map(str, words))


def warn_of_trained_starts(path: Path, seed: int) -> None:
    """Log a warning where the run folder `path` was fine-tuned with `seed`: on these very starts it has learned."""
    from robolearn.io.json_files import read_json
    from robolearn.runs.run import CONFIG, is_run

    run = path if is_run(path) else path.parent  # a run's checkpoint folder is its policy/
    if not is_run(run):
        return
    config = read_json(run / CONFIG, what=f"run {run}")
    if config.get("command") == "finetune" and config.get("seed") == seed:
        log.warning("%s was fine-tuned with --seed %d and met these starts in training: take another --seed", run, seed)


def evaluate_policy(env: Any, policy: Any, episodes: int, seed: int, quiet: bool, name: str = "") -> Any:
    """One evaluation with a progress bar."""
    from robolearn.eval import evaluate
    from robolearn.runs import Progress

    with Progress(f"evaluating {name}".strip(), total=episodes, unit="episodes", quiet=quiet) as progress:
        return evaluate(env, policy, episodes, seed, progress=lambda done, total: progress(done))
