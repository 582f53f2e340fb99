"""``robolearn quickstart``: demonstrations → imitation → evaluation → RL → evaluation → report, in one command."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from policies.settings import DenoisingConfig, FlowConfig, denoising_kinds
from robolearn.cli.choices import DemoQuality, DenoisingKind, Device, OnPolicyAlgorithm
from robolearn.cli.console import make_console
from robolearn.cli.quickstart_report import Bars, compile_ahead, deploy, deployed, videos, write
from robolearn.core import BadInput, check_choice
from robolearn.core.machine import resolve_device
from robolearn.core.switches import Count, NotNegative, Seed, Within, switch
from robolearn.io.json_files import plain, read_json, write_json
from robolearn.io.paths import check_folder
from robolearn.presets import PRESETS, WORLDS, algorithm_preset, preset
from robolearn.rl.algorithms import OnPolicyConfig, ReplayConfig, algorithm_name
from robolearn.runs.command import Command, check_seed, peek, rate_text, reported
from robolearn.runs.loop import KeepConfig
from robolearn.runs.run import check_same, is_run
from sim.registry import WorldConfig

if TYPE_CHECKING:
    from robolearn.cli.collect import Collect
    from robolearn.cli.distill import Distill
    from robolearn.cli.finetune import Finetune
    from robolearn.cli.train import Train

_LIFT = PRESETS["lift"]


SEEING = "seeing"  # the run of the visuomotor policy
SETTINGS = "settings.json"  # in --out: a resumed quickstart has the same


class Steps(NamedTuple):
    """The steps of a quickstart, and the settings that it begins with."""

    collect: Collect
    train: Train
    finetune: Finetune
    distill: Distill | None
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Quickstart(Command):
    """From demonstrations to a policy that RL has made reliable, with a report that proves it.

    --policy and --algo choose the kind of policy and the algorithm, and with them which of the settings below there
    are; --task chooses the defaults.
    """

    world: WorldConfig = field(default_factory=WorldConfig)
    out: Path = Path("runs/quickstart")
    """Folder for data/, bc/, rl/, perhaps seeing/, report.html and settings.json."""
    seed: Seed = 0
    """Of everything."""
    demos: DemoQuality = _LIFT.quality
    """Quality of the demonstrations; see robolearn collect --help."""
    episodes: Count = _LIFT.episodes
    """Demonstrations."""
    train_steps: Count = _LIFT.train_steps
    """Gradient steps of imitation."""
    env_steps: Count = _LIFT.env_steps
    """Budget of fine-tuning in control steps."""
    minutes: NotNegative = 0.0
    """End fine-tuning after so many minutes, if its budget is not used up before; 0: never."""
    eval_episodes: Count = _LIFT.eval_episodes
    """Episodes of each evaluation."""
    policy: DenoisingKind = "flow"
    """The kind of policy."""
    policy_settings: DenoisingConfig = field(default_factory=FlowConfig)
    algo: OnPolicyAlgorithm = "reinflow"
    """The algorithm."""
    settings: OnPolicyConfig | ReplayConfig = field(default_factory=lambda: algorithm_preset("reinflow", "lift"))
    observe: Literal["state", "images"] = "state"
    """images: the tuned policy is distilled to two cameras, and that one is evaluated and deployed; state: all policies
    observe the simulator's state."""
    distill_steps: Count = 2000
    """Gradient steps of the visuomotor policy."""
    device: Device = "auto"
    videos: Annotated[bool, switch("videos")] = True
    """Record the worst and the best episode of both policies."""
    deploy_episodes: Annotated[int, Within(0)] = 10
    """Episodes of the deployment at the end: on the simulated arm, where there is one of --robot, over ROS 2, in real
    time; 0: none."""
    resume: bool = False
    """Go on with the quickstart in --out where it was stopped."""

    @property
    def eval_worlds(self) -> int:
        """Worlds side by side of an evaluation: those of `robolearn evaluate`, which otherwise meets other starts."""
        return min(WORLDS, self.eval_episodes)

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        task, algo = peek(args, "--task", "lift"), peek(args, "--algo", "reinflow")
        policy, own = peek(args, "--policy", "flow"), preset(task)
        check_choice("--policy", policy, denoising_kinds())
        same = {name: getattr(own, name) for name in ("episodes", "train_steps", "env_steps", "eval_episodes")}
        settings = {"policy_settings": denoising_kinds()[policy](), "settings": algorithm_preset(algo, task)}
        return {"demos": own.quality, **same, **settings}

    def plan(self) -> Steps:
        """The steps, checked: what cannot work is refused before anything is written."""
        from robolearn.cli.collect import Collect
        from robolearn.cli.finetune import Finetune
        from robolearn.cli.train import Train
        from robolearn.train.settings import ImitationConfig
        from sim.experts import named_quality

        preset(self.world.task)
        named_quality(self.demos)
        check_seed(1000 + self.seed)  # of the evaluations and the deployment
        resolve_device(self.device)
        collect = Collect(
            world=self.world,
            episodes=self.episodes,
            quality=self.demos,
            out=self.out / "data",
            seed=self.seed,
            resume=self.resume and (self.out / "data").exists(),
            json=self.json,
        )
        train = Train(
            data=(str(self.out / "data"),),
            policy=self.policy,
            settings=ImitationConfig(policy=self.policy_settings, steps=self.train_steps, seed=self.seed),
            **self._training("bc"),
        )
        finetune = Finetune(
            policy=self.out / "bc",
            world=self.world,
            algo=self.algo,
            data=(self.out / "data",) if self.settings.takes_demonstrations else (),
            settings=self.settings,
            env_steps=self.env_steps,
            minutes=self.minutes,
            seed=self.seed,
            keep=KeepConfig(episodes=0),  # it is evaluated on its own
            **self._training("rl"),
        )
        finetune.check_budget(self.policy_settings.execute)
        distill = self._distill() if self.observe == "images" else None
        begun = {"task": self.world.task, "robot": self.world.arm, "seed": self.seed, "episodes": self.episodes,
                 **self.world.drawn(), "quality": self.demos, "train_steps": self.train_steps, "policy": self.policy,
                 "policy_settings": self.policy_settings, "algorithm": algorithm_name(self.settings),
                 "settings": self.settings.stored(), "env_steps": self.env_steps}  # fmt: skip
        if distill is not None:
            begun |= {"observe": self.observe, "distill": distill.settings}
        begun = plain(begun)
        self._check_out(begun)
        return Steps(collect, train, finetune, distill, begun)

    def _training(self, name: str) -> dict[str, Any]:
        """Flags that every training has: it goes to the folder `name`."""
        out = self.out / name
        return {"out": out, "device": self.device, "resume": self.resume and is_run(out), "json": self.json}

    def _distill(self) -> Distill:
        from robolearn.cli.distill import Distill
        from robolearn.train.settings import DistillConfig

        usual = DistillConfig()
        imitation = replace(usual.imitation, steps=self.distill_steps, seed=self.seed)
        rounds = min(usual.rounds, imitation.iterations)
        settings = replace(usual, imitation=imitation, rounds=rounds)
        return Distill(teacher=self.out / "rl", world=self.world, settings=settings, **self._training(SEEING))

    def _check_out(self, begun: dict[str, Any]) -> None:
        """--out is new; or it holds a quickstart that began with the same settings, to be resumed."""
        check_folder(self.out, f"--out {self.out}")
        content = {path.name for path in self.out.iterdir()} if self.out.is_dir() else set()
        if not self.resume and content:
            hint = "--resume goes on with a run"
            raise BadInput(f"--out {self.out}", got="a folder that is not empty", expected="a new folder", hint=hint)
        if content - {f".{SETTINGS}.tmp"}:  # what a kill before everything else may leave
            stored = read_json(self.out / SETTINGS, what=f"quickstart {self.out}")
            check_same({"robot": "panda", **stored}, begun, f"quickstart {self.out}")  # none is named: the default

    def run(self) -> dict[str, Any]:
        collect, train, finetune, distill, begun = self.plan()
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(self.out / SETTINGS, begun)
        clock = Clock(quiet=self.json)
        if self.deploy_episodes:
            compile_ahead(self.world.arm)
        results: dict[str, Any] = {
            "collect": clock("demonstrations", collect.run),
            "train": clock("imitation", train.run),
            "finetune": clock("fine-tuning", finetune.run),
        }
        if distill is not None:
            results["distill"] = clock("distillation to cameras", distill.run)
        with ThreadPoolExecutor(1) as beside:  # the deployment has its own processes, and mostly waits for its clock
            running = beside.submit(self.deploy_policy) if self.deploy_episodes else None
            bars = self.evaluations(clock, seeing=distill is not None)
            shown = clock("videos", lambda: videos(self, bars)) if self.videos else []
            results["deploy"] = clock("rest of the deployment", running.result) if running is not None else None
        report = clock("report", lambda: reported(lambda: write(self, bars, results, clock.seconds, shown)))
        return {
            "task": self.world.task,
            "robot": self.world.arm,
            "seed": self.seed,
            "bc": bars.bc.to_json(),
            "chosen_initial_noise": {"initial_noise": bars.initial, **bars.chosen.to_json()},
            "rl": bars.rl.to_json(),
            **({"seeing": bars.seeing.to_json()} if bars.seeing is not None else {}),
            "env_steps": results["finetune"]["env_steps"],
            "finetune_wall_s": results["finetune"]["wall_s"],
            "deploy": results["deploy"],
            **report,
            "wall_s": {**clock.seconds, "total": clock.total},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        chosen = result["chosen_initial_noise"]
        console.print(f"imitation            {rate_text(result['bc']['success'])}")
        console.print(f"  initial noise {chosen['initial_noise']:<4g} {rate_text(chosen['success'])}, no RL")
        steps = f"{result['env_steps']:,} control steps"
        console.print(f"after RL             {rate_text(result['rl']['success'])}, {steps}")
        if "seeing" in result:
            console.print(f"by cameras           {rate_text(result['seeing']['success'])}, distilled from that policy")
        deploy = result["deploy"]
        if deploy:
            console.print(f"deployed             {deployed(deploy)}")
        report = result["report"] or result["report_error"]
        console.print(f"report               {report}  ({result['wall_s']['total']:.0f} s in total)")

    def evaluations(self, clock: Clock, seeing: bool) -> Bars:
        """The evaluations of all policies, from the same starts."""
        bc = clock("evaluation of imitation", lambda: self._evaluate("bc"))
        # What the initial noise that fine-tuning chose does without any learning.
        initial, chosen = self._initial_noise(), bc
        if initial != self.policy_settings.initial_noise_std:
            chosen = clock("imitation at the chosen initial noise", lambda: self._evaluate("bc", initial))
        bars = Bars(bc, chosen, initial, clock("evaluation after RL", lambda: self._evaluate("rl")))
        if seeing:
            bars = bars._replace(seeing=clock("evaluation of the visuomotor policy", lambda: self._evaluate(SEEING)))
        return bars

    def _initial_noise(self) -> float:
        from policies.storage.config_file import CONFIG, policy_folder, read_config

        tuned = read_config(policy_folder(self.out / "rl") / CONFIG)["settings"]
        return tuned.get("initial_noise_std", self.policy_settings.initial_noise_std)

    def _evaluate(self, name: str, initial: float | None = None) -> Any:
        from policies.storage.checkpoint import load_chunk_policy
        from policies.storage.loading import open_policy
        from robolearn.cli.evaluator import evaluate_policy

        device = resolve_device(self.device)
        policy = open_policy(self.out / name, device)
        if initial is not None:
            policy = load_chunk_policy(self.out / name, device).with_initial_noise(initial)
        with closing(self.world.matching(policy.interface).build(self.eval_worlds)) as env:
            return evaluate_policy(env, policy, self.eval_episodes, 1000 + self.seed, self.json, name)

    def deploy_policy(self) -> dict[str, Any]:
        name = SEEING if self.observe == "images" else "rl"
        return deploy(self.out / name, self.world.arm, self.world.task, self.deploy_episodes, 1000 + self.seed)


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
            make_console(stderr=True).print(f"[bold]{name}[/bold]")
        begun = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - begun
        return result
