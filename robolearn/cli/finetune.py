"""``robolearn finetune``: RL that starts from a trained policy, in worlds or from stored episodes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from robolearn.cli.choices import AnyAlgorithm, Device, Tracker, rewarded, task_of
from robolearn.cli.config_file import write_flags
from robolearn.cli.dataset.common import opened_for
from robolearn.cli.evaluator import Evaluator
from robolearn.cli.finetune_numbers import (
    last_success,
    last_success_of_tasks,
    rewarded_episodes,
    show_finetuned,
    standing,
    switched,
    wall_profile,
    withheld_episodes,
)
from robolearn.cli.suite import build_worlds, run_suite, show_suite
from robolearn.cli.view import WorkView, check_watched, noting, watched
from robolearn.core import BadInput
from robolearn.core.machine import resolve_device
from robolearn.core.switches import Count, NotNegative, Seed
from robolearn.eval import Success
from robolearn.io.hashes import sha256_file, sha256_weights
from robolearn.io.json_files import plain
from robolearn.presets import RL_ENV_STEPS, rl_env_steps, tuning_preset
from robolearn.rl.adversary import AdversaryConfig
from robolearn.rl.algorithms import (
    OffPolicyConfig,
    OnPolicyConfig,
    ReplayConfig,
    algorithm_name,
    algorithms,
)
from robolearn.rl.along import AlongConfig
from robolearn.rl.audit import AuditConfig, Audited
from robolearn.rl.settings import BACKWARD, ReinFlowConfig
from robolearn.runs import Progress, Run
from robolearn.runs.command import Command, peek
from robolearn.runs.loop import KeepConfig, Kept, run_loop
from robolearn.runs.trackers import check_tracker
from sim.registry import WorldConfig, tasks_of

if TYPE_CHECKING:
    from robolearn.eval import Success

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Finetune(Command):
    """Fine-tune a flow or diffusion policy by RL. Can be killed at any moment and resumed exactly.

    In simulated worlds, or offline from a data set alone: --env-steps 0 --updates N, for algorithms that replay.

    --algo chooses the algorithm, and with it which of the settings below there are; --task chooses their defaults.

    With a reward model as --reward its rewards stand in the place of the world's, whose success is then only shown, and
    audits it (--audit). It scores what the policy sees. On-policy algorithms want --sigma-max and --initial-noise with
    it, which are otherwise chosen by success.
    """

    former: ClassVar[Mapping[str, str]] = {"--reward-model": "--reward"}

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
    back_reward: str = ""
    """A reward model of the way back, beside one as --reward: each says when the other policy's turn is, and gives the
    rewards of its own. The world's success is then only shown."""
    env_steps: int = RL_ENV_STEPS
    """Budget of control steps, the calibration of the noise included; 0: no world takes a step, for --updates."""
    minutes: NotNegative = 0.0
    """End after so many minutes of learning, over all resumptions, if the budget is not used up before; 0: never. Of a
    suite whose tasks are learned one by one: for each."""
    seed: Seed = 0
    """Of starts, noise and everything else."""
    device: Device = "auto"
    checkpoint_every: Count = 5
    """Iterations between two saved states; more for gym: and robosuite: worlds, whose episodes end there."""
    log: Tracker = "none"
    view: WorkView = "none"
    resume: bool = False
    """Go on with the run in --out, exactly; with more --env-steps than it had, also with a finished one."""
    settings: OnPolicyConfig | ReplayConfig = field(default_factory=ReinFlowConfig)
    along: AlongConfig = field(default_factory=AlongConfig)
    pushing: AdversaryConfig = field(default_factory=AdversaryConfig)
    keep: KeepConfig = field(default_factory=KeepConfig)
    auditing: AuditConfig = field(default_factory=AuditConfig)

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        algo, task = peek(args, "--algo", "reinflow"), peek(args, "--task", "lift")
        return {"settings": tuning_preset(algo, task), "env_steps": rl_env_steps(task, algo)}

    def run(self) -> dict[str, Any]:
        import torch

        from policies.storage.loading import load_base
        from robolearn.cli.finetune_altered import altered_training
        from robolearn.rewards.asking import LoggedScores
        from robolearn.rewards.choice import make_reward_model
        from robolearn.rewards.first_frames import beginnings, warn_if_strange
        from robolearn.rewards.stored import model_name, scores_file
        from robolearn.rl.actors import check_tunable

        together = self._tasks_together()
        if not together and (suite := run_suite(self, _success)) is not None:
            return suite
        updates, (own, named) = self._updates(), rewarded(self.world)
        check_tracker(self.log)
        check_watched(self.view, own)
        torch.set_num_threads(1)
        config = self.settings
        policy = load_base(
            self.policy, resolve_device(self.device), sampled=config.samples_base, words=lambda: task_of(own)
        )
        check_tunable(policy)
        sets, given = self._demonstrations(policy)
        backward = self._backward(policy, given)
        stored = {
            "command": "finetune",
            "policy": str(self.policy),  # may move before a resumption, but not change
            "sha256": sha256_weights(policy),
            "interface": policy.interface.to_json(),
            "task": self.world.task,
            "worlds": config.num_envs,
            "reward": own.reward,
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
        if self._by_stored():
            stored["scores"] = [sha256_file(scores_file(found)) for found in sets]
        model, back = None, self._back_model(policy, named)
        if named and not self._by_stored():
            model = make_reward_model(named, policy.interface, resolve_device(self.device), "--reward")
        if back is not None and backward is not None:
            given["judges"] = model, back  # of running episodes: what they say on the way is not kept
            backward["reward_model"] = name = model_name(self.back_reward, back)
            given["back_model"] = back = LoggedScores(back, name, self.out / "log" / BACKWARD)
        critic = model
        if model is not None:
            stored["reward_model"] = name = model_name(named, model)
            given["model"] = model = LoggedScores(model, name, self.out / "log")
        shaping = config.step_discount(policy.execute_steps)
        stored |= own.drawn() | ({"keep": plain(self.keep)} if self.keep.every else {})
        world = replace(own.matching(policy.interface), shaping_gamma=shaping, two_way=backward is not None)
        altered = altered_training(self, world, policy, bool(named))
        world, stored, given = altered.world, stored | altered.stored, given | altered.given
        evaluator = Evaluator(replace(own, reward="sparse"), self.keep.episodes, self.seed, self.json)
        worlds: Any = nullcontext()
        if self.env_steps:
            built = build_worlds(world, policy.interface, config.num_envs)
            made: Any = watched(built, self.view, "learning", "The fine-tuning is over.")
            altered.prepare(made)
            worlds = closing(made)
        asked = [closing(one) if one is not None else nullcontext() for one in (model, back)]
        with worlds as env, closing(evaluator), asked[0], asked[1]:
            note = noting(env)
            runner = config.runner(policy, env, self.env_steps, self.seed, str(self.policy), **given)
            if critic is not None and env is not None:
                warn_if_strange(critic, beginnings(env, self.seed), f"worlds of {world.task}")
            every = runner.iterations_between_states(self.checkpoint_every)
            if (
                env is not None and env.snapshot() is None
            ):  # to save ends episodes there, so it belongs to what the run is
                stored["checkpoint_every"] = every
            if every != self.checkpoint_every:
                log.info("the state of %s cannot be read: it is saved every %d iterations", world.task, every)
            may_differ = (
                "policy",
                "policy_settings.folder",
                "demonstrations.path",
                "back.policy",
                "back.data",
                "begin_along.path",
            )
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
                    back_audited = Audited(audited, self.auditing, f"{BACKWARD}_") if back is not None else None
                    kept = Kept(back_audited or audited, run, self.keep, evaluator)
                    done = run_loop(run, kept, checkpoint_every=every, progress=report, minutes=self.minutes)
                calibration = runner.calibration
                result = {
                    "run": str(self.out),
                    "policy": str(run.policy_dir),
                    "task": world.task,
                    "algorithm": algorithm_name(config),
                    "env_steps": runner.env_steps,
                    "budget": self.env_steps,
                    **({"updates_offline": updates} if updates else {}),
                    **({"switch": switch} if (switch := switched(self.out)) else {}),
                    "iterations": done["iterations"],
                    "out_of_time": done["out_of_time"],
                    "sigma_max": calibration.noise.sigma_max if calibration else config.sigma_max,
                    "calibration": calibration.to_json() if calibration else None,
                    "training_success": last_success(self.out),
                    **({"training_success_of_tasks": tasks} if (tasks := last_success_of_tasks(self.out)) else {}),
                    "rewarded_episodes": None if model is not None else rewarded_episodes(self.out),
                    "unchanged": isinstance(config, OnPolicyConfig)
                    and sha256_weights(runner.algorithm.policy()) == stored["sha256"],
                    "wall_s": wall_profile(self.out, calibration) | {"total": done["wall_s"]},
                }
                if backward is not None:
                    result["back"] = {"policy": str(run.policy_dir / BACKWARD), "helped": runner.helped}
                if model is not None:
                    result |= {"audit": audited.to_json(), "withheld": withheld_episodes(self.out)}
                if back_audited is not None:
                    result["back"]["audit"] = back_audited.to_json()
                if self.keep.episodes:
                    result |= evaluator.outcomes(run, kept)
                run.finish(result)
        return result

    def exit_code(self, result: Mapping[str, Any]) -> int:
        audits = result.get("audit", {}), (result.get("back") or {}).get("audit", {})
        return 1 if any(audit.get("stopped") for audit in audits) else 0

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        if "suite" in result:
            show_suite(result, console, _success)
        else:
            show_finetuned(self, result, console)

    def _tasks_together(self) -> bool:
        """True for a policy of words and a suite, whose tasks it learns all at once. Raises `BadInput`: with what has a
        single task."""
        from policies.storage.loading import takes_words

        if len(tasks := tasks_of(self.world.task)) == 1 or not takes_words(self.policy):
            return False
        single = {"--data": bool(self.data), "--back-policy": self.back_policy is not None,
                  "--begin-along": self.along.begin_along is not None, "--adversary": self.pushing.adversary != "none",
                  "--reward": bool(rewarded(self.world)[1]), "--view": self.view != "none"}  # fmt: skip
        for flag in (flag for flag, given in single.items() if given):
            raise BadInput(flag, got=f"it with {self.world.task} and a policy of words", expected="a single task",
                           available=tasks)  # fmt: skip
        if self.keep.episodes % len(tasks):
            expected = f"a multiple of {len(tasks)}: as many of each task of {self.world.task}"
            raise BadInput("--eval-episodes", got=self.keep.episodes, expected=expected)
        return True

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
        with closing(rewarded(self.world)[0].build(1)) as env:
            self.settings.check_budget(env.max_episode_steps, execute, self.env_steps)

    def _demonstrations(self, policy: Any) -> tuple[list[Any], dict[str, Any]]:
        """The data sets, and the runner's argument that holds their episodes."""
        from robolearn.data.replay.recorded import recorded
        from robolearn.rewards.stored import relabelled, stored_scores

        if not self.data:
            if getattr(getattr(self.settings, "algorithm", None), "needs_data", False):
                raise BadInput(
                    "--data", got=f"none for --algo {self.algo}", expected="recorded episodes of the real arm"
                )
            return [], {}
        self._check_replays("--data")
        sets = opened_for(policy, self.data, "--data")
        if self._updates():
            found = recorded(sets, scored=bool(rewarded(self.world)[1]))
            if self._by_stored():
                found = relabelled(found, stored_scores(sets)[0], self.settings.step_discount(1))
            return sets, {"demonstrations": found}
        return sets, {"demonstrations": self._shown(sets, "--data")}

    def _back_model(self, policy: Any, named: str) -> Any:
        """The model of --back-reward, or None without one, beside the one `named` by --reward."""
        from robolearn.rewards.choice import make_reward_model

        if not self.back_reward:
            return None
        for flag, missing in (("--back-policy", self.back_policy is None), ("reward model as --reward", not named)):
            if missing:
                raise BadInput("--back-reward", got=f"no {flag}", expected="both: a policy and a critic for each way")
        return make_reward_model(self.back_reward, policy.interface, resolve_device(self.device), "--back-reward")

    def _by_stored(self) -> bool:
        """True where the scores beside the steps are the rewards. Raises `BadInput`: a world takes steps, too."""
        from robolearn.rewards.choice import reward_config

        stored = reward_config(self.world.reward).is_offline
        if stored and self.env_steps:
            expected = "--env-steps 0 with --updates: what worlds show has no stored score, name the model for it"
            raise BadInput("--reward", got=f"{self.world.reward} with --env-steps {self.env_steps}", expected=expected)
        return stored

    def _shown(self, sets: Sequence[Any], flag: str) -> Iterator[Any]:
        """The demonstrations of `sets`, which `flag` gave."""
        from robolearn.data.replay.recorded import demonstrated

        return (episode for _, episode in demonstrated(sets, flag, scored=bool(rewarded(self.world)[1])))

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
        sets = opened_for(backward, self.back_data, "--back-data")
        given |= {"backward": backward, "shown": self._shown(sets, "--back-data")}
        return {
            "policy": str(self.back_policy),
            "sha256": sha256_weights(backward),
            "data": [str(path) for path in self.back_data],
            "frames": sum(found.frames for found in sets),
        }


def _success(result: Mapping[str, Any]) -> Success | None:
    """Success in the result of a task: without noise, or else of the last rollouts."""
    found = result["evaluation"]["success"] if "evaluation" in result else result["training_success"]
    return Success(**found) if found else None
