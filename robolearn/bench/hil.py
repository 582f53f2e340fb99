"""``robolearn benchmark hil``: what a human in the loop is worth, without a human, over arms, algorithms and seeds."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from policies.settings import FlowConfig
from robolearn.bench.baselines import best_tempo, more_demonstrations, run_program
from robolearn.core import BadInput, bind_policy
from robolearn.core.switches import Count
from robolearn.hil.settings import CurriculumConfig
from robolearn.io.json_files import plain, read_json, write_json
from robolearn.presets import preset
from robolearn.rl.algorithms import OffPolicyConfig, algorithm
from robolearn.rl.off_policy_settings import ProposalsConfig
from robolearn.runs.command import Command, check_seeds, print_table, words_of
from robolearn.runs.run import RESULT as TRAINED
from sim.registry import WorldConfig

if TYPE_CHECKING:
    from rich.console import Console

log = logging.getLogger(__name__)

Arm = Literal["none", "demos", "demos+interventions", "bc", "more-demos", "tempo"]
ONCE = ("bc", "more-demos", "tempo")  # arms without critics: the same whichever the algorithm is
STARTS, WATCHED, DOUBTED = 1_000, 2_000, 3_000  # seeds of the episodes that judge
WITHIN = 40  # control steps, in which a doubt is to foretell a failure
RESULT = "benchmark.json"  # in a run's folder: it is finished and judged


@dataclass(frozen=True, kw_only=True)
class BenchmarkHil(Command):
    """Demonstrations, imitation, the loop through its real actor and learner in lockstep, and its judgement: episodes
    that nobody helps, and episodes that the scripted operator watches.

    Arms: none: neither demonstrations nor an operator; demos: demonstrations alone; demos+interventions; bc: as the
    one before, but nothing except imitation learns from it (proposals whose critics never choose, without twins).
    Two arms have no loop: more-demos, imitation again with further demonstrations from all starts; tempo, the imitated
    policy with its displacements times a constant that was chosen on other starts.
    """

    tasks: tuple[str, ...] = ("peg_insert_tight",)
    """Embedded tasks."""
    arms: tuple[Arm, ...] = ("none", "demos", "demos+interventions", "bc")
    """Conditions: what the learner gets."""
    algo: tuple[str, ...] = ("proposals",)
    """Algorithms, as of `robolearn hil learner`. The arms bc, more-demos and tempo are run once, whichever they are."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Seeds; each has demonstrations, an imitated policy, starts and noise of its own."""
    demos: Count = 20
    """Demonstrations, all of which succeed."""
    start_range: float = 0.4
    """Share of the starts, about the middle, that they come from; the loop and its judgement meet all."""
    more_demos: Count = 30
    """Further demonstrations of the arm more-demos; compare their control steps with the operator's."""
    train_steps: Count = 1500
    """Gradient steps of imitation."""
    train_batch: Count = 256
    """Windows per gradient step of imitation; 64 is plenty for pictures."""
    env_steps: Count = 24_000
    """Control steps of the loop; 24,000 are twenty minutes at 20 Hz."""
    eval_episodes: Count = 100
    """Episodes of each judgement."""
    lanes: Count = 2
    """Runs side by side."""
    observe: tuple[str, ...] = ()
    """Observations of the policy, as for `robolearn train`: proprio images.front images.wrist, for instance, whose
    pictures are collected then. By default all numbers of the task."""
    out: Path = Path("runs/benchmark-hil")
    """Folder for the runs; finished ones are not done again, stopped ones go on."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    settings: OffPolicyConfig | None = field(default_factory=ProposalsConfig)

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        """The settings of the one algorithm are flags; several have those of their own, as they are."""
        algos = _after(args, "--algo") or ("proposals",)
        return {"settings": algorithm(algos[0], OffPolicyConfig)() if len(algos) == 1 else None}

    def goes_on(self) -> bool:
        return True

    def run(self) -> dict[str, Any]:
        check_seeds(self.seeds)
        for flag in ("tasks", "arms", "algo"):
            if not getattr(self, flag):
                raise BadInput(f"--{flag}", got="nothing", expected="at least one")
        for task in self.tasks:
            preset(task)
        for algo in self.algo:
            algorithm(algo, OffPolicyConfig)
        with ThreadPoolExecutor(self.lanes) as lanes:
            list(lanes.map(lambda pair: self._imitate(*pair), itertools.product(self.tasks, self.seeds)))
            runs = list(lanes.map(lambda row: self._one(*row), self._rows()))
        return {"rows": [summary(runs, *which) for which in dict.fromkeys(_which(run) for run in runs)], "runs": runs}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        heads = ("task", "arm", "algorithm", "imitation", "success", "cycle", "operator", "UTD", "α₀")
        rows = [
            (row["task"], row["arm"], row["algo"], *(_seeds_text(row["over_seeds"][key]) for key in ("bc", "success")),
             *(_text(row[key], "{:.2f}") for key in ("cycle_ratio", "intervention_rate_end", "utd")),
             _text(row["initial_temperature"], "{:g}"))
            for row in result["rows"]
        ]  # fmt: skip
        print_table(console, heads, rows, title="median seed (95% over seeds); cycle time over imitation's")

    @property
    def delay(self) -> int:
        """Control steps of inference delay, which imitation predicts further and a second judgement has."""
        return self.settings.acting_delay if self.settings else 0

    def _rows(self) -> Iterator[tuple[str, Arm, str, int]]:
        for task, arm in itertools.product(self.tasks, self.arms):
            for algo in ("proposals",) if arm in ONCE else self.algo:
                for seed in self.seeds:
                    yield task, arm, algo, seed

    def _base(self, task: str, seed: int) -> tuple[Path, Path]:
        return self.out / f"{task}-seed{seed}-demos", self.out / f"{task}-seed{seed}-bc"

    def _imitate(self, task: str, seed: int) -> None:
        demos, bc = self._base(task, seed)
        if (bc / TRAINED).exists():
            return
        collecting, training = self._flags(task)
        if not demos.exists():
            run_program("collect", *collecting, "--quality", "narrow", "--start-range", self.start_range,
                        "--episodes", self.demos, "--seed", seed, "--out", demos)  # fmt: skip
        resume = ("--resume",) if bc.exists() else ()
        run_program(
            "train", *training, "--data", demos, "--steps", self.train_steps, "--seed", seed, "--out", bc, *resume
        )

    def _flags(self, task: str) -> tuple[list[Any], list[Any]]:
        """Of `robolearn collect` and `robolearn train`, for whichever demonstrations."""
        cameras = [name.partition(".")[2] for name in self.observe if name.startswith("images.")]
        collecting = ["--task", task, "--worlds", 1, *(("--cameras", *cameras) if cameras else ())]
        reach = ("--horizon", FlowConfig().horizon + self.delay) if self.delay else ()
        seen = ("--observe", *self.observe) if self.observe else ()
        return collecting, ["--batch", self.train_batch, *reach, *seen]

    def _without_loop(self, task: str, arm: Arm, seed: int, folder: Path) -> dict[str, Any]:
        """The arms more-demos and tempo, judged as those that learn in the loop."""
        from policies.storage.loading import open_policy
        from policies.wrappers.wrapper import at_tempo
        from robots import CONTROL_HZ

        demos, bc = self._base(task, seed)
        if arm == "more-demos":
            collecting, training = self._flags(task)
            made = more_demonstrations(collecting, training, demos, self.more_demos, self.train_steps, seed, folder)
            return _measure_policy(task, open_policy(made["policy"]), self.eval_episodes, self.delay) | {
                "env_steps": made["control_steps"], "robot_minutes": made["control_steps"] / CONTROL_HZ / 60
            }  # fmt: skip
        policy = open_policy(bc)
        chosen = best_tempo(WorldConfig(task, threads=1), policy, self.eval_episodes, seed, self.eval_episodes)
        found = _measure_policy(task, at_tempo(policy, chosen["tempo"]), self.eval_episodes, self.delay)
        return {**found, **chosen, "env_steps": 0, "robot_minutes": 0.0}

    def _one(self, task: str, arm: Arm, algo: str, seed: int) -> dict[str, Any]:
        from policies.storage.loading import open_policy

        _, bc = self._base(task, seed)
        folder = self.out / f"{task}-seed{seed}-{arm}-{algo}"
        settings = self._settings(arm, algo)
        asked = {"algorithm": asdict(settings), "curriculum": asdict(self.curriculum), "demos": self.demos,
                 "observe": list(self.observe), "train_batch": self.train_batch, "start_range": self.start_range,
                 **({"more_demos": self.more_demos} if arm == "more-demos" else {}),
                 **{key: getattr(self, key) for key in ("train_steps", "env_steps", "eval_episodes")}}  # fmt: skip
        if (folder / RESULT).exists():
            known = read_json(folder / RESULT, what=f"benchmark {folder}")
            if known.get("asked") != asked:
                raise BadInput("--out", got=f"{folder}, of other settings", expected="a folder of its own for these")
            return known
        begun = time.perf_counter()
        log.info("%s", folder.name)
        if arm in ("more-demos", "tempo"):
            learned = self._without_loop(task, arm, seed, folder)
        else:
            learned = self._loop(task, arm, algo, seed, folder, settings)
        imitated = _measure_policy(task, open_policy(bc), self.eval_episodes, self.delay)
        equal = _ratio_of_equals(learned.pop("starts_s"), imitated.pop("starts_s"))
        result = {
            "task": task, "arm": arm, "algo": algo, "seed": seed, "bc": imitated, **learned,
            "cycle_ratio": _ratio(learned["cycle_s"], imitated["cycle_s"]), "cycle_ratio_equal_starts": equal,
            "wall_s": time.perf_counter() - begun, "asked": asked,
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)  # that no loop has made
        write_json(folder / RESULT, result)
        return plain(result)

    def _loop(
        self, task: str, arm: Arm, algo: str, seed: int, folder: Path, settings: OffPolicyConfig
    ) -> dict[str, Any]:
        """The loop and its judgement."""
        from policies.storage.loading import open_policy

        demos, bc = self._base(task, seed)
        words: list[Any] = ["--policy", bc, "--task", task, "--algo", algo, "--seed", seed]
        words += ["--env-steps", self.env_steps]
        words += [word for part in (settings, self.curriculum) for word in words_of(part)]
        words += ["--demos", demos] if arm != "none" else []
        words += ["--operator", "scripted"] if arm in ("demos+interventions", "bc") else []
        run_program("hil", "run", *words, "--out", folder, *(("--resume",) if folder.exists() else ()))
        told = read_json(folder / "result.json", what=f"run {folder}")
        kept = ("env_steps", "robot_minutes", "utd", "operator_steps")
        return _measure_policy(task, open_policy(folder), self.eval_episodes, self.delay) | {
            **{key: told.get(key) for key in kept}, "initial_temperature": settings.initial_temperature
        }  # fmt: skip

    def _settings(self, arm: Arm, algo: str) -> OffPolicyConfig:
        kind = algorithm(algo, OffPolicyConfig)
        settings = self.settings if isinstance(self.settings, kind) else kind()
        return settings.without_critics() if arm == "bc" else settings


def _measure_policy(task: str, policy: Any, episodes: int, delay: int) -> dict[str, Any]:
    """Success without help, its cycle time, and that of each start (None: not solved); the share of steps that an
    operator steers who watches; success with `delay` control steps of inference delay, from the same starts; AUROC of
    each doubt for failure within 40 steps."""
    import torch

    from policies.wrappers.best_of_n import BestOfNPolicy
    from policies.wrappers.wrapper import DelayedPolicy
    from robolearn.eval import evaluate
    from robolearn.hil.evaluation import measure_help, predict_failures
    from sim.experts import make_operator

    torch.set_num_threads(1)
    with closing(WorldConfig(task, threads=1).matching(policy.interface).build(episodes)) as env:
        bind_policy(policy, env.interface, what=f"policy in {task}")
        alone = evaluate(env, policy, episodes, STARTS)
        helped = measure_help(env, policy, make_operator(task, env.interface, episodes, 0), WATCHED)
        late = evaluate(env, DelayedPolicy(policy, delay), episodes, STARTS).to_json() if delay else None
        doubts = None
        if isinstance(policy, BestOfNPolicy):
            signs, failures = predict_failures(env, policy, DOUBTED, within=WITHIN)
            doubts = {"failures": failures, "within_steps": WITHIN} | {key: asdict(one) for key, one in signs.items()}
    found, order = alone.to_json(), np.argsort(alone.world)
    starts = zip(alone.succeeded[order], alone.cycle_time_s[order].tolist(), strict=True)
    return {
        "success": found["success"],
        "cycle_s": found["cycle_time_s"]["mean"] if found["cycle_time_s"] else None,
        "starts_s": [seconds if solved else None for solved, seconds in starts],
        "intervention_rate_end": helped["intervention_rate"],
        "delayed": {"success": late["success"], "delay_steps": delay} if late else None,
        "doubts": doubts,
    }


def _after(args: Sequence[str], flag: str) -> list[str]:
    """The words after `flag`, up to the next flag, before they are parsed."""
    words = [part for word in args for part in (word.split("=", 1) if word.startswith(f"{flag}=") else [word])]
    if flag not in words:
        return []
    rest = words[words.index(flag) + 1 :]
    return list(itertools.takewhile(lambda word: not word.startswith("-"), rest))


def _which(run: dict[str, Any]) -> tuple[str, str, str]:
    return run["task"], run["arm"], run["algo"]


def summary(runs: list[dict[str, Any]], task: str, arm: str, algo: str) -> dict[str, Any]:
    """One row: its seeds with Student's t interval over them (`over_seeds`); the headline is the median seed.

    A success of several seeds has the bounds of that interval, of one seed those over its episodes.
    """
    from robolearn.eval.intervals import over_seeds

    mine = [run for run in runs if _which(run) == (task, arm, algo)]

    def seeds(results: list[dict[str, Any]]) -> dict[str, Any]:
        return over_seeds([result["success"]["rate"] for result in results], rates=True).to_json()

    def success(results: list[dict[str, Any]]) -> dict[str, Any]:
        first, *others = (result["success"] for result in results)
        if not others:
            return first
        found, episodes = seeds(results), sum(result["success"]["episodes"] for result in results)
        return {"rate": found["mean"], "low": found["low"], "high": found["high"], "episodes": episodes}

    def mean(key: str) -> float | None:
        known = [run[key] for run in mine if run.get(key) is not None]
        return float(np.mean(known)) if known else None

    return {
        "task": task, "arm": arm, "algo": algo, "bc": success([run["bc"] for run in mine]), "success": success(mine),
        "rates": [run["success"]["rate"] for run in mine],
        "over_seeds": {"success": seeds(mine), "bc": seeds([run["bc"] for run in mine])},
        **({"delayed": success([run["delayed"] for run in mine]),
            "bc_delayed": success([run["bc"]["delayed"] for run in mine])} if mine[0]["delayed"] else {}),
        **{key: mean(key) for key in ("utd", "operator_steps", "initial_temperature", "env_steps", "robot_minutes",
                                      "intervention_rate_end", "cycle_s", "cycle_ratio", "cycle_ratio_equal_starts",
                                      "wall_s")},
    }  # fmt: skip


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _seeds_text(estimate: Mapping[str, Any]) -> str:
    """``99.0% (98.3–99.9, 5 seeds)``; of one seed its rate alone."""
    rate = f"{100 * estimate['median']:.1f}%"
    if estimate["low"] is None:
        return f"{rate} (1 seed)"
    return f"{rate} ({100 * estimate['low']:.1f}–{100 * estimate['high']:.1f}, {estimate['count']} seeds)"


def _ratio(mine: float | None, theirs: float | None) -> float | None:
    return mine / theirs if mine and theirs else None


def _ratio_of_equals(mine: list[float | None], theirs: list[float | None]) -> float | None:
    """Of the mean cycle times over the starts that both solved: who solves only what is near looks quick."""
    both = [(a, b) for a, b in zip(mine, theirs, strict=True) if a is not None and b is not None]
    return sum(a for a, _ in both) / sum(b for _, b in both) if both else None
