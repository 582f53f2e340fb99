"""``robolearn quickstart``: demonstrations → imitation → evaluation → RL → evaluation → report, in one command."""

from __future__ import annotations

import json
import logging
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from robolearn.cli.command import Command, at_least, check_seed

if TYPE_CHECKING:
    from robolearn.cli.collect import Collect
    from robolearn.cli.finetune import Finetune
    from robolearn.cli.train import Train

log = logging.getLogger(__name__)

SETTINGS = "settings.json"  # in --out: a resumed quickstart has the same


class Plan(NamedTuple):
    """The steps of a quickstart, and the settings that it begins with."""

    collect: Collect
    train: Train
    finetune: Finetune
    eval_episodes: int
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Quickstart(Command):
    """From mediocre demonstrations to a policy that RL has made reliable, with a report that proves it."""

    task: str = "lift"
    """lift, pick_place or peg_insert."""
    out: Path = Path("runs/quickstart")
    """Folder for data/, bc/, rl/, report.html and settings.json."""
    seed: int = 0
    """Of everything."""
    episodes: int | None = None
    """Demonstrations; by default what the task's preset says."""
    env_steps: int | None = None
    """Budget of fine-tuning; by default what the task's preset says."""
    train_steps: int | None = None
    """Gradient steps of imitation; by default what the task's preset says."""
    eval_episodes: int | None = None
    """Episodes of each evaluation; by default what the task's preset says."""
    resume: bool = False
    """Go on with the quickstart in --out where it was stopped."""
    flow: Literal["rectified", "shortcut"] = "rectified"
    """The kind of flow policy."""
    denoise_steps: int = 4
    """K, denoising steps from noise to action."""
    videos: bool = True
    """Record the worst and the best episode of both policies."""
    deploy_episodes: int = 10
    """Episodes of the deployment at the end: on the simulated arm, over ROS 2, in real time; 0: none."""

    def plan(self) -> Plan:
        """The steps, checked: what cannot work is refused before anything is written."""
        from robolearn.cli.collect import Collect
        from robolearn.cli.finetune import Finetune
        from robolearn.cli.train import Train
        from robolearn.presets import preset
        from robolearn.runs.run import is_run

        settings = preset(self.task)
        asked = {
            name: value
            for name in ("episodes", "train_steps", "eval_episodes")
            if (value := getattr(self, name)) is not None
        }
        at_least(1, **asked, **({} if self.env_steps is None else {"env_steps": self.env_steps}))
        at_least(0, deploy_episodes=self.deploy_episodes)
        check_seed(self.seed)
        check_seed(1000 + self.seed)  # of the evaluations and the deployment
        settings = replace(settings, **asked)
        collect = Collect(
            task=self.task,
            episodes=settings.episodes,
            quality=settings.quality,
            out=self.out / "data",
            seed=self.seed,
            resume=self.resume and (self.out / "data").exists(),
            json=self.json,
        )
        train = Train(
            data=self.out / "data",
            out=self.out / "bc",
            flow=self.flow,
            denoise_steps=self.denoise_steps,
            steps=settings.train_steps,
            seed=self.seed,
            resume=self.resume and is_run(self.out / "bc"),
            json=self.json,
        )
        finetune = Finetune(
            policy=self.out / "bc",
            task=self.task,
            out=self.out / "rl",
            env_steps=settings.rl.env_steps if self.env_steps is None else self.env_steps,
            seed=self.seed,
            resume=self.resume and is_run(self.out / "rl"),
            json=self.json,
        )
        policy = train.policy_config()
        if self.env_steps is not None:
            finetune.check_budget(policy.execute)
        begun = {"task": self.task, "seed": self.seed, "episodes": collect.episodes, "quality": collect.quality,
                 "train_steps": train.steps, "flow": self.flow, "denoise_steps": self.denoise_steps,
                 "env_steps": finetune.env_steps}  # fmt: skip
        self._check_out(begun)
        return Plan(collect, train, finetune, settings.eval_episodes, begun)

    def _check_out(self, begun: dict[str, Any]) -> None:
        """--out is new; or it holds a quickstart that began with the same settings, to be resumed."""
        from robolearn.core import BadInput
        from robolearn.runs.files import check_folder, read_json
        from robolearn.runs.run import check_same

        check_folder(self.out, f"--out {self.out}")
        content = {path.name for path in self.out.iterdir()} if self.out.is_dir() else set()
        if not self.resume and content:
            raise BadInput(
                f"--out {self.out}",
                got="a folder that is not empty",
                expected="a new folder",
                hint="--resume goes on with a run",
            )
        if content - {f".{SETTINGS}.tmp"}:  # what a kill before everything else may leave
            check_same(read_json(self.out / SETTINGS, what=f"quickstart {self.out}"), begun, f"quickstart {self.out}")

    def run(self) -> dict[str, Any]:
        from robolearn.runs.files import write_json

        collect, train, finetune, n, begun = self.plan()
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(self.out / SETTINGS, begun)
        clock = _Clock(quiet=self.json)
        results: dict[str, Any] = {
            "collect": clock("demonstrations", collect.run),
            "train": clock("imitation", train.run),
        }
        bc = clock("evaluation of imitation", lambda: self._evaluate("bc", n))
        results["finetune"] = clock("fine-tuning", finetune.run)
        rl = clock("evaluation after RL", lambda: self._evaluate("rl", n))
        results["deploy"] = clock("deployment", self._deploy) if self.deploy_episodes else None
        report = clock("report", lambda: self._report(collect, train, finetune, bc, rl, results, clock.seconds))
        return {
            "task": self.task,
            "seed": self.seed,
            "bc": bc.to_json(),
            "rl": rl.to_json(),
            "env_steps": results["finetune"]["env_steps"],
            "finetune_wall_s": results["finetune"]["wall_s"],
            "deploy": results["deploy"],
            "report": str(report),
            "wall_s": {**clock.seconds, "total": clock.total},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from robolearn.cli.command import rate_text

        console.print(f"imitation  {rate_text(result['bc']['success'])}")
        console.print(f"after RL   {rate_text(result['rl']['success'])}, {result['env_steps']:,} environment steps")
        deploy = result["deploy"]
        if deploy:
            console.print(f"deployed   {_deployed(deploy)}")
        console.print(f"report     {result['report']}  ({result['wall_s']['total']:.0f} s in total)")

    def _evaluate(self, name: str, episodes: int) -> Any:
        from policies.checkpoint import load_policy
        from robolearn.cli.evaluate import evaluate_policy
        from robolearn.presets import WORLDS
        from sim.registry import make_env

        env = make_env(self.task, WORLDS)
        try:
            policy = load_policy(self.out / name)
            return evaluate_policy(env, policy, episodes, 1000 + self.seed, self.json, name)
        finally:
            env.close()

    def _deploy(self) -> dict[str, Any]:
        """`robolearn deploy` as a process of its own: its result, or ``{"error": …}`` on a machine that cannot."""
        command = ["deploy", "--policy", str(self.out / "rl"), "--task", self.task, "--json"]
        command += ["--episodes", str(self.deploy_episodes), "--seed", str(1000 + self.seed)]
        code = "import sys; from robolearn.cli.main import main; sys.exit(main(sys.argv[1:]))"
        done = subprocess.run([sys.executable, "-P", "-c", code, *command], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("robolearn: error: ")
        log.warning("the deployment failed: %s", last)
        return {"error": last}

    def _report(
        self, collect: Any, train: Any, finetune: Any, bc: Any, rl: Any, results: Any, seconds: dict[str, float]
    ) -> Path:
        from robolearn import __version__
        from robolearn.eval import compare
        from robolearn.eval.report import write_report
        from robolearn.eval.report_data import Outcome, ReportData

        tuned = results["finetune"]
        verdict = compare(bc, rl, names=("imitation", "after RL"))
        videos = self._videos(bc, rl) if self.videos else []
        n = bc.episodes
        commands = [
            f"robolearn collect --task {self.task} --episodes {collect.episodes} --quality {collect.quality} "
            f"--seed {self.seed} --out data/{self.task}",
            f"robolearn train --data data/{self.task} --flow {self.flow} --denoise-steps {self.denoise_steps} "
            f"--steps {train.steps} --seed {self.seed} --out runs/bc",
            f"robolearn finetune --policy runs/bc --task {self.task} --env-steps {finetune.env_steps} "
            f"--seed {self.seed} --out runs/rl",
            f"robolearn evaluate --policy runs/bc --against runs/rl --task {self.task} --episodes {n} "
            f"--seed {1000 + self.seed}",
        ]
        if self.deploy_episodes:
            commands.append(
                f"robolearn deploy --policy runs/rl --task {self.task} --episodes {self.deploy_episodes} "
                f"--seed {1000 + self.seed}"
            )
        calibration = tuned["calibration"]
        notes = [f"Exploration noise up to {tuned['sigma_max']:.2f} of the normalised action."]
        if calibration:
            notes = [f"{notes[0][:-1]}, chosen by measurement: {calibration['reason']}."]
        if results["deploy"]:
            notes.append(
                f"On the simulated arm behind the safety filter, in real time: {_deployed(results['deploy'])}."
            )
        return write_report(
            self.out / "report.html",
            ReportData(
                title=f"{self.task}: from demonstrations to a reliable policy",
                subtitle=f"{collect.episodes} scripted demonstrations ({results['collect']['expert_success']:.0%} of "
                f"them succeed), a flow policy by imitation, then {tuned['env_steps']:,} control steps of ReinFlow.",
                outcomes=[
                    Outcome.of("imitation", bc, note=f"{results['collect']['episodes']} demonstrations"),
                    Outcome.of("after RL", rl, note=f"{tuned['env_steps']:,} environment steps"),
                ],
                verdicts=[verdict],
                curves=learning_curves(self.out),
                wall_s={**seconds, "total": sum(seconds.values())},
                wall_detail={"Fine-tuning": tuned["wall_s"]},
                videos=videos,
                commands=commands,
                settings={
                    "demonstrations": {"task": self.task, "episodes": collect.episodes, "quality": collect.quality},
                    "imitation": _config(self.out / "bc")["imitation"],
                    "reinflow": _config(self.out / "rl")["reinflow"],
                },
                notes=notes,
                footer=f"robolearn {__version__}, Python {platform.python_version()}, {platform.machine()}, "
                f"seed {self.seed}",
            ),
        )

    def _videos(self, bc: Any, rl: Any) -> list[Any]:
        from policies.checkpoint import load_policy
        from robolearn.core import RobolearnError
        from robolearn.eval.video import record_episodes
        from robolearn.presets import WORLDS
        from sim.registry import make_env

        env = make_env(self.task, WORLDS)
        try:
            return [
                video
                for name, title, evaluation in (("bc", "imitation", bc), ("rl", "after RL", rl))
                for video in record_episodes(
                    env, load_policy(self.out / name), evaluation, self.out / "videos" / name, title=title
                )
            ]
        except RobolearnError as error:
            # A machine that cannot draw still gets its report.
            log.warning("no videos: %s", error)
            return []
        finally:
            env.close()


class _Clock:
    """Runs the parts, says which one is next, and keeps their wall times."""

    def __init__(self, quiet: bool) -> None:
        self.seconds: dict[str, float] = {}
        self._begun = time.perf_counter()
        self._quiet = quiet

    @property
    def total(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._begun

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        if not self._quiet:
            from rich.console import Console

            Console(stderr=True, highlight=False).print(f"[bold]{name}[/bold]")
        begun = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - begun
        return result


def learning_curves(out: Path) -> list[Any]:
    """Pictures of a quickstart folder's two trainings."""
    from robolearn.eval.plots import Curve, Series, success_series
    from robolearn.runs.run import read_metrics

    bc, rl = list(read_metrics(out / "bc")), list(read_metrics(out / "rl"))
    episodes = [int(row["episodes"]) for row in rl]
    successes = [round((row["success"] or 0.0) * n) for row, n in zip(rl, episodes, strict=True)]
    caption = (
        "Rollouts with exploration noise, counted as they end: early in a curve quick successes come before slow "
        "failures. The evaluation without noise over a fixed number of episodes is the result."
    )
    steps, wall = [row["env_steps"] for row in rl], [row["wall_s"] for row in rl]
    return [
        Curve(
            "Success of training rollouts",
            "environment steps",
            "success [%]",
            [success_series("rollouts", steps, successes, episodes)],
            percent=True,
            caption=caption,
        ),
        Curve(
            "Success against time",
            "wall time of fine-tuning [s]",
            "success [%]",
            [success_series("rollouts", wall, successes, episodes)],
            percent=True,
        ),
        Curve(
            "Imitation loss",
            "gradient steps",
            "flow matching loss [-]",
            [Series("training", [50 * (row["step"] + 1) for row in bc], [row["loss"] for row in bc])],
        ),
        Curve(
            "Critic",
            "environment steps",
            "explained variance [-]",
            [Series("critic", steps, [row["explained_variance"] for row in rl])],
        ),
    ]


def _deployed(result: Mapping[str, Any]) -> str:
    """A deployment in words."""
    from robolearn.cli.command import rate_text

    if "error" in result:
        return f"failed: {result['error']}"
    latency = result["latency_ms"]
    return (
        f"{rate_text(result['success'])}, {result['violations']} limit violations, "
        f"{latency['p50']:.0f} ms from observation to command (p99 {latency['p99']:.0f})"
    )


def _config(run: Path) -> dict[str, Any]:
    return json.loads((run / "config.json").read_text())
