"""``robolearn benchmark rl``: success of fine-tuning against control steps and seconds, over settings and seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from policies.settings import denoising_kinds
from robolearn.cli.choices import AnyAlgorithm, DemoQuality, DenoisingKind, Device, Dynamics, SimRobot
from robolearn.core import BadInput, check_choice
from robolearn.core.switches import Count, NotNegative
from robolearn.io.json_files import read_json, write_json
from robolearn.presets import algorithm_preset, preset, rl_env_steps, tuning_preset
from robolearn.rl.algorithms import OnPolicyConfig, ReplayConfig, algorithms
from robolearn.rl.settings import ReinFlowConfig
from robolearn.runs.command import Command, check_seeds, peek, words_of
from robolearn.runs.run import check_same
from sim.registry import WorldConfig

if TYPE_CHECKING:
    from robolearn.cli.quickstart import Quickstart

FLOWS = ("rectified", "shortcut")
RESULT = "quickstart.json"  # in a run's folder: it is finished
BASELINES = "baselines.json"  # there: what was judged beside it
Baseline = Literal["more-demos", "tempo"]
UNNAMED = ("reinflow", "panda")  # in the names of runs' folders


@dataclass(frozen=True, kw_only=True)
class BenchmarkRl(Command):
    """Demonstrations, imitation, fine-tuning and evaluation for every setting and seed; judges the last checkpoint.

    --algo chooses the algorithm, and with it which of the settings below there are. What is not given comes from the
    preset of each task. --baselines judges beside it what costs no RL, from the same starts: more-demos, imitation
    again with further demonstrations from all starts; tempo, the imitated policy with its displacements times the best
    constant, chosen on other starts.
    """

    tasks: tuple[str, ...] = ("lift",)
    """Embedded tasks."""
    robot: SimRobot = "panda"
    """The arm."""
    dynamics: Dynamics = "none"
    """Dynamics that differ from world to world, in demonstrations, training and evaluations: a level or a file."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; each has demonstrations, weights, starts and noise of its own."""
    policy: DenoisingKind = "flow"
    """The kind of policy."""
    flows: tuple[Literal["rectified", "shortcut"], ...] = ("rectified",)
    """Kinds of flow, of flow policies."""
    denoise_steps: tuple[int, ...] = (4,)
    """Numbers K of denoising steps."""
    demos: DemoQuality = ""
    """Quality of the demonstrations."""
    episodes: int | None = None
    """Demonstrations."""
    train_steps: int | None = None
    """Gradient steps of imitation."""
    env_steps: int | None = None
    """Budget of fine-tuning in control steps."""
    minutes: NotNegative = 0.0
    """End each fine-tuning after so many minutes, if its budget is not used up before: algorithms at equal time; 0:
    never."""
    eval_episodes: int | None = None
    """Episodes of each evaluation."""
    baselines: tuple[Baseline, ...] = ()
    """Baselines: more-demos, tempo."""
    more_demos: Count = 50
    """Further demonstrations of the baseline more-demos."""
    algo: AnyAlgorithm = "reinflow"
    """The algorithm."""
    settings: OnPolicyConfig | ReplayConfig = field(default_factory=ReinFlowConfig)
    device: Device = "auto"
    out: Path = Path("runs/benchmark-rl")
    """Folder for the runs; finished ones are not done again, stopped ones go on."""

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        algo = peek(args, "--algo", "reinflow")
        plain = algorithms(OnPolicyConfig).get(algo)
        return {"settings": tuning_preset(algo, "") if plain is None else plain()}

    def goes_on(self) -> bool:
        return True

    def run(self) -> dict[str, Any]:
        for kind in self.flows:
            check_choice("flow", kind, FLOWS)
        check_choice("--policy", self.policy, denoising_kinds())
        check_seeds(self.seeds)
        for flag in ("tasks", "flows", "denoise_steps"):
            if not getattr(self, flag):
                raise BadInput(f"--{flag.replace('_', '-')}", got="nothing", expected="at least one")
        for task in self.tasks:
            preset(task)
        kinds = self.flows if self.policy == "flow" else (self.policy,)
        settings = list(itertools.product(self.tasks, kinds, self.denoise_steps))
        for task, kind, steps in settings:
            for seed in self.seeds:  # all of them, before the first begins
                self._check(self.quickstart_of(task, kind, steps, seed))
        rows = []
        for task, kind, steps in settings:
            quickstarts = [self.quickstart_of(task, kind, steps, seed) for seed in self.seeds]
            runs = [self._one(quickstart) | self._baselines(quickstart) for quickstart in quickstarts]
            which = {
                "task": task,
                "robot": self.robot,
                "dynamics": self.dynamics,
                "policy": self.policy,
                "flow": kind,
                "denoise_steps": steps,
            }
            rows.append({**which, "algorithm": self.algo, "runs": runs, **_summary(runs)})
        return {"settings": rows}

    def quickstart_of(self, task: str, kind: str, denoise_steps: int, seed: int) -> Quickstart:
        """The quickstart that imitates and fine-tunes this policy."""
        from robolearn.cli.quickstart import Quickstart

        words = [task, kind, f"k{denoise_steps}", *(word for word in (self.algo, self.robot) if word not in UNNAMED)]
        folder = self.out / "-".join((*words, f"seed{seed}"))
        given = {
            name: value
            for name in ("demos", "episodes", "train_steps", "env_steps", "eval_episodes")
            if (value := getattr(self, name)) not in (None, "")
        }
        flow = {"kind": kind} if self.policy == "flow" else {}
        values: dict[str, Any] = (
            Quickstart.defaults(["--task", task]) | {"env_steps": rl_env_steps(task, self.algo)} | given
        )
        return Quickstart(
            **values
            | {
                "policy_settings": denoising_kinds()[self.policy](steps=denoise_steps, **flow),
                "settings": self._settings(task),
            },
            world=WorldConfig(task, robot=self.robot, dynamics=self.dynamics),
            seed=seed,
            out=folder,
            policy=self.policy,
            algo=self.algo,
            minutes=self.minutes,
            device=self.device,
            videos=False,
            deploy_episodes=0,
            resume=folder.is_dir() and any(folder.iterdir()),
            json=True,
        )

    def _settings(self, task: str) -> OnPolicyConfig | ReplayConfig:
        """The preset of `task` for the algorithm, and on top of it what was asked for."""
        if isinstance(self.settings, ReplayConfig):
            return self.settings
        own = self.settings
        values, usual = ({f.name: getattr(one, f.name) for f in fields(one)} for one in (own, type(own)()))
        changed = {name: value for name, value in values.items() if value != usual[name]}
        return algorithm_preset(self.algo, task, **changed)

    def _check(self, quickstart: Quickstart) -> None:
        """Refuse what cannot work, and a run in its place that had other settings than what is asked for now."""
        quickstart.plan()
        if (quickstart.out / RESULT).exists():
            done = read_json(quickstart.out / RESULT, what=f"benchmark {quickstart.out}")
            had = {"episodes": done["bc"]["success"]["episodes"], "minutes": done.get("minutes", 0.0)}
            wanted = {"episodes": quickstart.eval_episodes, "minutes": quickstart.minutes}
            check_same(had, wanted, f"benchmark {quickstart.out}")

    def _one(self, quickstart: Quickstart) -> dict[str, Any]:
        stored = quickstart.out / RESULT
        if not stored.exists():
            # The clock of a resumed quickstart has seen its second part only.
            write_json(stored, {**quickstart.run(), "resumed": quickstart.resume, "minutes": self.minutes})
        done = read_json(stored, what=f"benchmark {quickstart.out}")
        return {
            "seed": quickstart.seed,
            "bc": done["bc"]["success"],
            "chosen_initial_noise": done["chosen_initial_noise"]["initial_noise"],
            "chosen": done["chosen_initial_noise"]["success"],
            "rl": done["rl"]["success"],
            "env_steps": done["env_steps"],
            "finetune_s": done["finetune_wall_s"]["total"],
            "simulation_share": done["finetune_wall_s"]["simulation"] / done["finetune_wall_s"]["total"],
            "total_s": None if done.get("resumed") else done["wall_s"]["total"],
        }

    def _baselines(self, quickstart: Quickstart) -> dict[str, Any]:
        """The baselines that are asked for; those that were judged are not judged again."""
        from policies.storage.loading import open_policy
        from policies.wrappers.wrapper import at_tempo
        from robolearn.bench.baselines import best_tempo, judged, more_demonstrations

        q, stored = quickstart, quickstart.out / BASELINES
        known = read_json(stored, what=f"benchmark {stored}") if stored.exists() else {}
        for name in self.baselines:
            which = name if name == "tempo" else f"{name} {self.more_demos}"
            if which in known:
                continue
            if name == "tempo":
                policy = open_policy(q.out / "bc")
                found = best_tempo(q.world, policy, q.eval_episodes, q.seed, q.eval_worlds)
                policy = at_tempo(policy, found["tempo"])
            else:
                found = more_demonstrations(
                    q.world.words(),
                    ["--policy", q.policy, *words_of(q.policy_settings, changed=True)],
                    q.out / "data",
                    self.more_demos,
                    q.train_steps,
                    q.seed,
                    q.out / which.replace(" ", "-"),
                )
                policy = open_policy(found.pop("policy"))
            known[which] = found | judged(q.world, policy, q.eval_episodes, 1000 + q.seed, q.eval_worlds)
            write_json(stored, known)
        return {"baselines": known} if known else {}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from rich.table import Table

        table = Table(title=f"success in %, with its 95% interval; {self.algo}", title_justify="left")
        for heading in ("task", "policy"):
            table.add_column(heading)
        for heading in ("K", "seed", "imitation", "at initial noise", "after RL", "episodes", "control steps", "RL, s",
                        "all, s", "sim."):  # fmt: skip
            table.add_column(heading, justify="right")
        for row in result["settings"]:
            which = (row["task"], row["flow"], str(row["denoise_steps"]))
            for run in row["runs"]:
                table.add_row(
                    *which, str(run["seed"]), _percent(run["bc"]),
                    f"{_percent(run['chosen'])} at {run['chosen_initial_noise']:g}", _percent(run["rl"]),
                    str(run["rl"]["episodes"]), f"{run['env_steps']:,}", f"{run['finetune_s']:.0f}",
                    "-" if run["total_s"] is None else f"{run['total_s']:.0f}", f"{run['simulation_share']:.0%}",
                )  # fmt: skip
            if len(row["runs"]) > 1:
                rates = (_over(row["over_seeds"][key]) for key in ("bc", "chosen", "rl"))
                table.add_row(*which, f"{row['seeds']} seeds", *rates)
            table.add_section()
        console.print(table)
        for row in result["settings"]:
            for name, rates in row["baselines"].items():
                console.print(f"{row['task']}, {name}, no RL: {_over(rates)}")
        console.print("Of several seeds: the mean, with Student's t interval over the seeds; the median")


def _percent(rate: dict[str, Any]) -> str:
    return f"{100 * rate['rate']:.1f} ({100 * rate['low']:.1f}–{100 * rate['high']:.1f})"


def _over(rate: dict[str, Any]) -> str:
    if rate["low"] is None:
        return f"{100 * rate['mean']:.1f}, one seed"
    return f"{100 * rate['mean']:.1f} ({100 * rate['low']:.1f}–{100 * rate['high']:.1f}); {100 * rate['median']:.1f}"


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the seeds of one setting: success with its interval, and how many reach 97% with a lower bound of at least
    93%."""
    from robolearn.eval import over_seeds

    over = {key: over_seeds([run[key]["rate"] for run in runs], rates=True).to_json() for key in ("bc", "chosen", "rl")}
    shared = set.intersection(*(set(run.get("baselines", {})) for run in runs))
    beside = {
        name: over_seeds([run["baselines"][name]["success"]["rate"] for run in runs], rates=True).to_json()
        for name in sorted(shared)
    }
    return {
        "over_seeds": over,
        "baselines": beside,
        **{f"{key}_median": rate["median"] for key, rate in over.items()},
        "reliable_seeds": sum(run["rl"]["rate"] >= 0.97 and run["rl"]["low"] >= 0.93 for run in runs),
        "seeds": len(runs),
    }
