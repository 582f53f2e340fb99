"""``robolearn quickstart``: demonstrations → imitation → evaluation → RL → evaluation → report, in one command."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from policies.settings import POLICIES, FlowConfig, PolicyConfig
from robolearn.cli.command import Command, at_least, check_seed, peek, rate_text
from robolearn.core import BadInput
from robolearn.presets import PRESETS, algorithm_preset, preset
from robolearn.rl.settings import ALGORITHMS, AlgorithmConfig, algorithm_name

if TYPE_CHECKING:
    from robolearn.cli.collect import Collect
    from robolearn.cli.finetune import Finetune
    from robolearn.cli.train import Train

log = logging.getLogger(__name__)

SETTINGS = "settings.json"  # in --out: a resumed quickstart has the same
_LIFT = PRESETS["lift"]


class Plan(NamedTuple):
    """The steps of a quickstart, and the settings that it begins with."""

    collect: Collect
    train: Train
    finetune: Finetune
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Quickstart(Command):
    """From demonstrations to a policy that RL has made reliable, with a report that proves it.

    --policy and --algo choose the kind of policy and the algorithm, and with them which of the settings below there
    are; --task chooses the defaults.
    """

    task: str = "lift"
    """A task of ours."""
    out: Path = Path("runs/quickstart")
    """Folder for data/, bc/, rl/, report.html and settings.json."""
    seed: int = 0
    """Of everything."""
    demos: str = _LIFT.quality
    """Quality of the demonstrations; see robolearn collect --help."""
    episodes: int = _LIFT.episodes
    """Demonstrations."""
    train_steps: int = _LIFT.train_steps
    """Gradient steps of imitation."""
    env_steps: int = _LIFT.env_steps
    """Budget of fine-tuning in control steps."""
    eval_episodes: int = _LIFT.eval_episodes
    """Episodes of each evaluation."""
    policy: str = "flow"
    """The kind of policy: flow or diffusion."""
    policy_settings: PolicyConfig = field(default_factory=FlowConfig)
    algo: str = "reinflow"
    """The algorithm: reinflow, dppo or grpo."""
    settings: AlgorithmConfig = field(default_factory=lambda: algorithm_preset("reinflow", "lift"))
    device: str = "auto"
    """Where networks live: auto, cpu, cuda or cuda:<i>."""
    videos: bool = True
    """Record the worst and the best episode of both policies."""
    deploy_episodes: int = 10
    """Episodes of the deployment at the end: on the simulated arm, over ROS 2, in real time; 0: none."""
    resume: bool = False
    """Go on with the quickstart in --out where it was stopped."""

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        task, algo = peek(args, "--task", "lift"), peek(args, "--algo", "reinflow")
        policy, own = peek(args, "--policy", "flow"), preset(task)
        if algo not in ALGORITHMS:
            raise BadInput("--algo", got=algo, available=ALGORITHMS)
        if policy not in POLICIES:
            raise BadInput("--policy", got=policy, available=POLICIES)
        return {
            "demos": own.quality,
            "episodes": own.episodes,
            "train_steps": own.train_steps,
            "env_steps": own.env_steps,
            "eval_episodes": own.eval_episodes,
            "policy_settings": POLICIES[policy](),
            "settings": algorithm_preset(algo, task),
        }

    def plan(self) -> Plan:
        """The steps, checked: what cannot work is refused before anything is written."""
        from robolearn.cli.collect import Collect
        from robolearn.cli.finetune import Finetune
        from robolearn.cli.train import Train
        from robolearn.core.device import resolve_device
        from robolearn.io.json_files import plain
        from robolearn.runs.run import is_run
        from robolearn.train.settings import ImitationConfig

        preset(self.task)
        at_least(1, episodes=self.episodes, train_steps=self.train_steps, eval_episodes=self.eval_episodes)
        at_least(1, env_steps=self.env_steps)
        at_least(0, deploy_episodes=self.deploy_episodes)
        check_seed(self.seed)
        check_seed(1000 + self.seed)  # of the evaluations and the deployment
        resolve_device(self.device)
        collect = Collect(
            task=self.task,
            episodes=self.episodes,
            quality=self.demos,
            out=self.out / "data",
            seed=self.seed,
            resume=self.resume and (self.out / "data").exists(),
            json=self.json,
        )
        train = Train(
            data=self.out / "data",
            out=self.out / "bc",
            policy=self.policy,
            settings=ImitationConfig(policy=self.policy_settings, steps=self.train_steps, seed=self.seed),
            device=self.device,
            resume=self.resume and is_run(self.out / "bc"),
            json=self.json,
        )
        finetune = Finetune(
            policy=self.out / "bc",
            task=self.task,
            out=self.out / "rl",
            algo=self.algo,
            settings=self.settings,
            env_steps=self.env_steps,
            seed=self.seed,
            device=self.device,
            resume=self.resume and is_run(self.out / "rl"),
            json=self.json,
        )
        finetune.check_budget(self.policy_settings.execute)
        begun = {"task": self.task, "seed": self.seed, "episodes": self.episodes, "quality": self.demos,
                 "train_steps": self.train_steps, "policy": self.policy, "policy_settings": self.policy_settings,
                 "algorithm": algorithm_name(self.settings), "settings": self.settings,
                 "env_steps": self.env_steps}  # fmt: skip
        begun = plain(begun)
        self._check_out(begun)
        return Plan(collect, train, finetune, begun)

    def _check_out(self, begun: dict[str, Any]) -> None:
        """--out is new; or it holds a quickstart that began with the same settings, to be resumed."""
        from robolearn.io.json_files import read_json
        from robolearn.io.paths import check_folder
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
        from robolearn.cli.quickstart_report import Bars, write
        from robolearn.io.json_files import write_json

        collect, train, finetune, begun = self.plan()
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(self.out / SETTINGS, begun)
        clock = Clock(quiet=self.json)
        results: dict[str, Any] = {
            "collect": clock("demonstrations", collect.run),
            "train": clock("imitation", train.run),
        }
        bc = clock("evaluation of imitation", lambda: self._evaluate("bc"))
        results["finetune"] = clock("fine-tuning", finetune.run)
        # What the initial noise that fine-tuning chose does without any learning, from the same starts.
        initial = self._initial_noise()
        bars = Bars(bc, bc, initial, bc)
        if initial != self.policy_settings.initial_noise_std:
            chosen = clock("imitation at the chosen initial noise", lambda: self._evaluate("bc", initial))
            bars = bars._replace(chosen=chosen)
        bars = bars._replace(rl=clock("evaluation after RL", lambda: self._evaluate("rl")))
        results["deploy"] = clock("deployment", self._deploy) if self.deploy_episodes else None
        report = clock("report", lambda: write(self, bars, results, clock.seconds))
        return {
            "task": self.task,
            "seed": self.seed,
            "bc": bars.bc.to_json(),
            "chosen_initial_noise": {"initial_noise": bars.initial, **bars.chosen.to_json()},
            "rl": bars.rl.to_json(),
            "env_steps": results["finetune"]["env_steps"],
            "finetune_wall_s": results["finetune"]["wall_s"],
            "deploy": results["deploy"],
            "report": str(report),
            "wall_s": {**clock.seconds, "total": clock.total},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        chosen = result["chosen_initial_noise"]
        console.print(f"imitation            {rate_text(result['bc']['success'])}")
        console.print(f"  initial noise {chosen['initial_noise']:<4g} {rate_text(chosen['success'])}, no RL")
        steps = f"{result['env_steps']:,} control steps"
        console.print(f"after RL             {rate_text(result['rl']['success'])}, {steps}")
        deploy = result["deploy"]
        if deploy:
            console.print(f"deployed             {deployed(deploy)}")
        console.print(f"report               {result['report']}  ({result['wall_s']['total']:.0f} s in total)")

    def _initial_noise(self) -> float:
        from policies.checkpoint import load_policy

        return load_policy(self.out / "rl").net.initial_noise_std

    def _evaluate(self, name: str, initial: float | None = None) -> Any:
        from policies.checkpoint import load_policy
        from robolearn.cli.evaluate import evaluate_policy
        from robolearn.core.device import resolve_device
        from robolearn.presets import WORLDS
        from sim.registry import make_env

        env = make_env(self.task, WORLDS)
        try:
            policy = load_policy(self.out / name, resolve_device(self.device))
            if initial is not None:
                policy = policy.with_initial_noise(initial)
            return evaluate_policy(env, policy, self.eval_episodes, 1000 + self.seed, self.json, name)
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


class Clock:
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


def deployed(result: Mapping[str, Any]) -> str:
    """A deployment in words."""
    if "error" in result:
        return f"failed: {result['error']}"
    latency = result["latency_ms"]
    return (
        f"{rate_text(result['success'])}, {result['violations']} limit violations, "
        f"{latency['p50']:.0f} ms from observation to command (p99 {latency['p99']:.0f})"
    )
