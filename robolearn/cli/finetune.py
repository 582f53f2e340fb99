"""``robolearn finetune``: RL that starts from a trained policy, in worlds or from stored episodes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robolearn.cli.choices import AnyAlgorithm, Device, Tracker
from robolearn.cli.config_file import write_flags
from robolearn.cli.evaluator import show_outcomes
from robolearn.cli.view import WorkView
from robolearn.core import BadInput, Interface, RewardModel
from robolearn.io.hashes import sha256_weights
from robolearn.presets import RL_ENV_STEPS, rl_env_steps, tuning_preset
from robolearn.rl.algorithms import (
    ALGORITHMS,
    OffPolicyConfig,
    OnPolicyConfig,
    ReplayConfig,
    algorithm_name,
    algorithms,
)
from robolearn.rl.audit import AuditConfig, Audited
from robolearn.rl.settings import BACKWARD, ReinFlowConfig
from robolearn.runs.command import Command, at_least, check_seed, peek, rate_text
from robolearn.runs.loop import KeepConfig
from robolearn.runs.trackers import check_tracker
from sim.registry import WorldConfig

log = logging.getLogger(__name__)

LAST = 5  # iterations whose rollouts are counted together at the end


@dataclass(frozen=True, kw_only=True)
class Finetune(Command):
    """Fine-tune a flow or diffusion policy by RL. Can be killed at any moment and resumed exactly.

    In simulated worlds, or offline from a data set alone: --env-steps 0 --updates N, for algorithms that replay.

    --algo chooses the algorithm, and with it which of the settings below there are; --task chooses their defaults.
    """

    policy: Path
    """A run folder or a checkpoint folder."""
    world: WorldConfig = field(default_factory=WorldConfig)
    out: Path
    """The run folder; the tuned policy goes to its policy/."""
    algo: AnyAlgorithm = "reinflow"
    """The algorithm."""
    data: tuple[Path, ...] = ()
    """Data sets, of which off-policy algorithms draw a share of each batch (--demo-share): demonstrations, or with
    --updates whatever was recorded."""
    back_policy: Path | None = None
    """A second policy, of the task's way back (--task lift_back), which learns, too: the two take turns in worlds that
    nobody resets (off-policy algorithms). It goes to policy/back of --out."""
    back_data: tuple[Path, ...] = ()
    """As --data, of the way back."""
    env_steps: int = RL_ENV_STEPS
    """Budget of control steps, the calibration of the noise included; 0: no world takes a step, for --updates."""
    seed: int = 0
    """Of starts, noise and everything else."""
    device: Device = "auto"
    checkpoint_every: int = 5
    """Iterations between two saved states; more for gym: and robosuite: worlds, whose episodes end there."""
    log: Tracker = "none"
    view: WorkView = "none"
    resume: bool = False
    """Go on with the run in --out, exactly; with more --env-steps than it had, also with a finished one."""
    reward_model: str = ""
    """A critic's folder, a vision-language model (robometer:<model>), or <module>:<Class>: its rewards in the place of
    the world's, whose success is then only shown (on-policy algorithms, visuomotor policies of its cameras; with
    --sigma-max and --initial-noise, which are otherwise chosen by success). The world audits it: --audit."""
    settings: OnPolicyConfig | ReplayConfig = field(default_factory=ReinFlowConfig)
    keep: KeepConfig = field(default_factory=KeepConfig)
    auditing: AuditConfig = field(default_factory=AuditConfig)

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        algo, task = peek(args, "--algo", "reinflow"), peek(args, "--task", "lift")
        return {"settings": tuning_preset(algo, task), "env_steps": rl_env_steps(task, algo)}

    def run(self) -> dict[str, Any]:
        import torch

        from policies.storage.checkpoint import load_chunk_policy
        from robolearn.cli.evaluator import Evaluator
        from robolearn.cli.view import check_watched, noting, watched
        from robolearn.core.machine import resolve_device
        from robolearn.io.json_files import plain
        from robolearn.rewards.asking import LoggedScores
        from robolearn.rewards.stored import model_name
        from robolearn.rl.actors import check_tunable
        from robolearn.runs import Progress, Run
        from robolearn.runs.loop import Kept, run_loop

        at_least(1, checkpoint_every=self.checkpoint_every)
        updates = self._updates()
        check_tracker(self.log)
        check_seed(self.seed)
        check_watched(self.view, self.world)
        torch.set_num_threads(1)
        policy = load_chunk_policy(self.policy, resolve_device(self.device))
        check_tunable(policy)
        config, (sets, given) = self.settings, self._demonstrations(policy)
        backward = self._backward(policy, given)
        stored = {
            "command": "finetune",
            "policy": str(self.policy),  # may move before a resumption, but not change
            "sha256": sha256_weights(policy),
            "interface": policy.interface.to_json(),
            "task": self.world.task,
            "worlds": config.num_envs,
            "reward": self.world.reward,
            "env_steps": self.env_steps,
            "seed": self.seed,
            "policy_settings": plain(policy.net.config),
            "algorithm": algorithm_name(config),
            "settings": config.stored(),
        }
        if sets:
            paths, frames = [str(path) for path in self.data], sum(found.frames for found in sets)
            stored["demonstrations"] = {"path": paths, "frames": frames}
        if backward is not None:
            stored["back"] = backward
        model = self._model(policy.interface, resolve_device(self.device))
        if model is not None:
            stored["reward_model"] = name = model_name(self.reward_model, model)
            given["model"] = model = LoggedScores(model, name, self.out / "log")
        shaping = config.step_discount(policy.execute_steps)
        stored |= self.world.drawn() | ({"keep": plain(self.keep)} if self.keep.every else {})
        world = replace(self.world.matching(policy.interface), shaping_gamma=shaping, two_way=backward is not None)
        evaluator = Evaluator(replace(self.world, reward="sparse"), self.keep.episodes, self.seed, self.json)
        worlds: Any = nullcontext()
        if self.env_steps:
            made = watched(world.build(config.num_envs), self.view, "learning", "The fine-tuning is over.")
            worlds = closing(made)
        with worlds as env, closing(evaluator), nullcontext() if model is None else closing(model):
            note = noting(env)
            runner = config.runner(policy, env, self.env_steps, self.seed, str(self.policy), **given)
            every = runner.iterations_between_states(self.checkpoint_every)
            if (
                env is not None and env.snapshot() is None
            ):  # to save ends episodes there, so it belongs to what the run is
                stored["checkpoint_every"] = every
            if every != self.checkpoint_every:
                log.info("the state of %s cannot be read: it is saved every %d iterations", world.task, every)
            may_differ = ("policy", "demonstrations.path", "back.policy", "back.data")
            with Run.create(self.out, stored, resume=self.resume, may_differ=may_differ, longer="env_steps") as run:
                write_flags(self, "finetune", run.path)
                run.track(self.log)
                unit = " and ".join(["updates"] * bool(updates) + ["control steps"] * bool(self.env_steps))
                label = f"{world.task} with exploration noise" if self.env_steps else f"fine-tuning {world.task}"
                with Progress(label, total=updates + self.env_steps, unit=unit,
                              show=("success", "episode_return", "kl"), quiet=self.json) as progress:  # fmt: skip

                    def report(i: int, row: Mapping[str, float]) -> None:
                        progress(int(row["env_steps"] + min(updates, row.get("updates", 0))), row)
                        note(standing(i, row))

                    audited = Audited(runner, self.auditing)
                    kept = Kept(audited, run, self.keep, evaluator)
                    done = run_loop(run, kept, checkpoint_every=every, progress=report)
                calibration = runner.calibration
                result = {
                    "run": str(self.out),
                    "policy": str(run.policy_dir),
                    "task": world.task,
                    "algorithm": algorithm_name(config),
                    "env_steps": runner.env_steps,
                    "budget": self.env_steps,
                    **({"updates_offline": updates} if updates else {}),
                    "iterations": done["iterations"],
                    "sigma_max": calibration.noise.sigma_max if calibration else config.sigma_max,
                    "calibration": calibration.to_json() if calibration else None,
                    "training_success": last_success(self.out),
                    "rewarded_episodes": None if model is not None else rewarded_episodes(self.out),
                    "unchanged": isinstance(config, OnPolicyConfig)
                    and sha256_weights(runner.algorithm.policy()) == stored["sha256"],
                    "wall_s": wall_profile(self.out, calibration) | {"total": done["wall_s"]},
                }
                if backward is not None:
                    result["back"] = {"policy": str(run.policy_dir / BACKWARD), "helped": runner.helped}
                if model is not None:
                    result |= {"audit": audited.to_json(), "withheld": withheld_episodes(self.out)}
                if self.keep.episodes:
                    result |= evaluator.outcomes(run, kept)
                run.finish(result)
        return result

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return 1 if result.get("audit", {}).get("stopped") else 0

    def _model(self, interface: Interface, device: str) -> RewardModel | None:
        """The model of --reward-model, or None without one."""
        from robolearn.rewards.choice import make_reward_model

        if not self.reward_model:
            return None
        return make_reward_model(self.reward_model, interface, device, "--reward-model")

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        r = result
        console.print(f"policy       {r['policy']}")
        if r.get("updates_offline"):
            console.print(f"offline      {r['updates_offline']:,} updates from {', '.join(map(str, self.data))} alone")
        iterations = f"{r['iterations']} iteration{'' if r['iterations'] == 1 else 's'}"
        steps = f"{r['env_steps']:,} of {r['budget']:,} control steps, {iterations}"
        title = ALGORITHMS[r["algorithm"]].title
        console.print(f"fine-tuned   {steps} of {title}, in {r['wall_s']['total']:.0f} s")
        if r["calibration"]:
            noise, reason = r["calibration"]["noise"], r["calibration"]["reason"]
            console.print(
                f"noise        begins at {noise['initial']:g}, explores up to {noise['sigma_max']:.2f}: {reason}"
            )
        if r["training_success"]:
            console.print(
                f"success      {rate_text(r['training_success'])} of the last rollouts, with exploration noise"
            )
        if back := r.get("back"):
            console.print(f"way back     {back['policy']}; a person put things in their place {back['helped']} times")
        if r.get("withheld"):
            console.print(f"withheld     {r['withheld']} episodes have no reward, and were not learned from")
        if (found := r.get("audit")) and found["rule"] != "off":
            shown = {"solved, of those called done": "precision", "called done, of those failed": "false_positives"}
            for words, key in shown.items():
                console.print(f"audit        {words}: {rate_text(found[key]) if found[key] else 'none'}")
            console.print(f"audit        {found['parted'] or 'the reward model and the world have not parted'}")
        show_outcomes(result, console, " " * 13)
        self._show_rewarded(r, console)
        if not r["unchanged"]:
            again = f"robolearn evaluate --policy {self.policy} --against {r['run']} --task {self.world.task}"
            console.print(f"next         {again} : a verdict on what it gained")

    def _show_rewarded(self, r: Mapping[str, Any], console: Any) -> None:
        """A line where no reward was found, or nothing was learned from those that were."""
        weights = "every weight of the policy is as it was"
        if r["rewarded_episodes"] == 0:
            by_success = isinstance(self.settings, OnPolicyConfig) and self.settings.by_success
            dense = self.world.family.has_progress and self.world.reward == "sparse" and not by_success
            ways = "a better policy, more demonstrations or --reward dense" if dense else "a better policy"
            same = f": {weights}" if r["unchanged"] else ""
            console.print(f"rewarded     no episode of the run{same}; begin with {ways}")
        elif r["unchanged"]:
            console.print(f"unchanged    {weights}")

    def _updates(self) -> int:
        """Updates offline; raises `BadInput` where there is nothing to do, or nothing to do it with."""
        updates = self.settings.updates if isinstance(self.settings, ReplayConfig) else 0
        if self.env_steps < 1 and not (self.env_steps == 0 and updates):
            raise BadInput("--env-steps", got=self.env_steps, expected="at least 1; or 0 with --updates, and --data")
        if updates and not self.data:
            raise BadInput("--updates", got=f"{updates} without --data", expected="a data set to learn from offline")
        if self.view != "none" and not self.env_steps:
            raise BadInput("--view", got=f"{self.view} with --env-steps 0", expected="none: no world takes a step")
        return updates

    def check_budget(self, execute: int) -> None:
        """Raise `BadInput` if the budget does not pay for fine-tuning a policy that executes `execute` steps."""
        with closing(self.world.build(1)) as env:
            self.settings.check_budget(env.max_episode_steps, execute, self.env_steps)

    def _demonstrations(self, policy: Any) -> tuple[list[Any], dict[str, Any]]:
        """The data sets, and the runner's argument that holds their episodes."""
        from robolearn.data.replay.recorded import recorded

        if not self.data:
            return [], {}
        self._check_replays("--data")
        sets = opened(self.data, policy, "--data")
        if self._updates():
            return sets, {"demonstrations": recorded(sets, scored=bool(self.reward_model))}
        return sets, {"demonstrations": self._shown(sets, "--data")}

    def _shown(self, sets: Sequence[Any], flag: str) -> Iterator[Any]:
        """The demonstrations of `sets`, which `flag` gave."""
        from robolearn.data.replay.recorded import demonstrated

        return (episode for _, episode in demonstrated(sets, flag, scored=bool(self.reward_model)))

    def _check_replays(self, flag: str) -> None:
        if not self.settings.takes_demonstrations:
            raise BadInput(flag, got=f"--algo {self.algo}", expected="an off-policy algorithm",
                           available=algorithms(OffPolicyConfig))  # fmt: skip

    def _backward(self, policy: Any, given: dict[str, Any]) -> dict[str, Any] | None:
        """For the run's config.json: the policy of --back-policy and its data, None without one. They are added to
        `given`, the runner's arguments."""
        from policies.storage.checkpoint import load_chunk_policy
        from robolearn.rl.actors import check_tunable

        if self.back_policy is None:
            if self.back_data:
                raise BadInput("--back-data", got="no --back-policy", expected="the policy that learns from it")
            return None
        self._check_replays("--back-policy")
        if not self.env_steps or self._updates():
            raise BadInput("--back-policy", got="it offline", expected="--env-steps alone: nobody resets a world")
        backward = load_chunk_policy(self.back_policy, policy.device)
        check_tunable(backward)
        sets = opened(self.back_data, backward, "--back-data")
        given |= {"backward": backward, "shown": self._shown(sets, "--back-data")}
        return {
            "policy": str(self.back_policy),
            "sha256": sha256_weights(backward),
            "data": [str(path) for path in self.back_data],
            "frames": sum(found.frames for found in sets),
        }


def opened(paths: Sequence[Path], policy: Any, flag: str) -> list[Any]:
    """The data sets at `paths`; raises `BadInput` where one does not fit `policy`."""
    from robolearn.core import check_compatible
    from robolearn.data import Dataset
    from robolearn.data.mixture import check_actions

    sets = [Dataset.open(path) for path in paths]
    for path, found in zip(paths, sets, strict=True):
        check_compatible(policy.interface, found.interface, what=f"{flag} {path}", subject="the policy")
        check_actions(found)
    return sets


def standing(iteration: int, row: Mapping[str, Any]) -> str:
    """The iteration and the success of its rollouts, which explore, in a line."""
    success = float(row.get("success", math.nan))
    said = f": {100 * success:.0f}% success with exploration noise" if math.isfinite(success) else ""
    return f"iteration {iteration}{said}"


def last_success(run: Path) -> dict[str, Any] | None:
    """Success of the rollouts of a run's last `LAST` iterations; None where the world reports none."""
    from robolearn.eval import Success
    from robolearn.runs.run import read_metrics

    rows = [row for row in list(read_metrics(run))[-LAST:] if row.get("success") is not None]
    episodes = round(sum(row["episodes"] for row in rows))
    if not episodes:
        return None
    return Success.of(round(sum(row["success"] * row["episodes"] for row in rows)), episodes).to_json()


def rewarded_episodes(run: Path) -> int | None:
    """Episodes of a run whose return was not 0; None where none ended, or where an older version began the run."""
    from robolearn.runs.run import read_metrics

    rows = [row for row in read_metrics(run) if row.get("episodes")]
    known = bool(rows) and all("rewarded" in row for row in rows)
    return round(sum(row["rewarded"] for row in rows)) if known else None


def withheld_episodes(run: Path) -> int:
    """Episodes of a run that a reward model did not score."""
    from robolearn.runs.run import read_metrics

    return round(sum(row.get("withheld", 0.0) for row in read_metrics(run)))


def wall_profile(run: Path, calibration: Any) -> dict[str, float]:
    """The parts of the wall time of fine-tuning [s], from the run's metrics.

    Args:
      run: the run folder.
      calibration: of the noise, or None; what the worlds took of it counts as simulation, the rest as calibration.
    """
    from robolearn.runs.run import read_metrics

    rows = list(read_metrics(run))
    parts = ("simulation", "inference", "update")
    wall_s = {part: sum(row.get(f"wall_{part}_s", 0.0) for row in rows) for part in parts} | {"calibration": 0.0}
    if calibration is not None:
        wall_s["simulation"] += calibration.simulation_s
        wall_s["calibration"] = calibration.wall_s - calibration.simulation_s
    return wall_s
