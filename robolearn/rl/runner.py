"""The runner: worlds, budget, snapshots and timings around an algorithm; a trainer for `robolearn.runs.run_loop`.

One iteration: collect what the algorithm's quota says, let it update. Before the first one it may calibrate, from the
same budget.
"""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from policies.storage.checkpoint import save_policy
from robolearn.core import BadInput, Env, RewardModel, bind_policy
from robolearn.core.machine import torch_threads
from robolearn.rl.adversary import AdversaryConfig
from robolearn.rl.algorithms.on_policy import OnPolicy
from robolearn.rl.along import AlongConfig, Starts
from robolearn.rl.buffer import ReturnTracker, collect, unscaled
from robolearn.rl.calibrate import NoiseCalibration
from robolearn.rl.model_reward import ModelReward
from robolearn.rl.settings import UNKNOWN_EPISODE, OnPolicyConfig
from robolearn.rollout import Engine
from robolearn.rollout.told_worlds import success_of_tasks
from robolearn.runs.checkpoint import prefixed, unprefixed

log = logging.getLogger(__name__)

EPISODES_BETWEEN = 2  # two states of worlds whose own state cannot be read
FEWEST_WORLDS = 4  # that learning is advised with
CALIBRATION_SHARE = 4  # calibration spends at most this part of the budget, 1/4


class Runner:
    """Fine-tunes `policy` in `env`.

    Args:
      policy: a flow or diffusion policy; its network is trained in place, on its device.
      env: the worlds, not yet reset.
      env_steps: budget of control steps, calibration included; the last iteration stays within it.
      seed: of starts, noise and everything else.
      name: of the policy, for messages: where it lies.
      model: whose rewards are learned from, in the place of the world's.
      altered: episodes that are not as the task has them, in an `env` that can; None: all are.

    Raises:
      BadInput: a policy that does not fit the world or the algorithm, or a budget too small for one iteration.
    """

    def __init__(
        self, policy: ChunkPolicy, env: Env, config: OnPolicyConfig, env_steps: int, seed: int, name: str = "",
        model: RewardModel | None = None, altered: AlongConfig | AdversaryConfig | None = None,
    ) -> None:  # fmt: skip
        bind_policy(policy, env.interface, what=f"{f'policy {name}' if name else 'policy'} in {env.task}")
        if env.num_envs != config.num_envs:
            raise BadInput("worlds", got=env.num_envs, expected=config.num_envs)
        if config.by_success and (model is not None or not env.reports_success):
            got = "a reward model" if model is not None else f"{env.task}, which reports no success"
            raise BadInput(config.title, got=got, expected="the world's success, which is all that it learns from")
        self.env, self.config, self.budget, self.seed = env, config, env_steps, seed
        self.execute = policy.execute_steps
        check_budget(config, env.max_episode_steps, self.execute, env_steps)
        self._each = config.iteration_cost(env.max_episode_steps, self.execute)
        self._done = 0
        infinite = config.looks_beyond_the_time_limit(
            reports_success=env.reports_success, max_episode_steps=env.max_episode_steps
        )
        self.algorithm: OnPolicy = config.build(policy, seed=seed, infinite=infinite, offered=env.interface)
        self.device = policy.device
        self.reward = (
            None
            if model is None
            else ModelReward(model, env, config.gamma, self.algorithm.needed, config.reward_shaping)
        )
        if model is not None and not config.noise.sigma_max:
            expected = "--sigma-max and --initial-noise beside it: choosing them counts the world's successes"
            raise BadInput("--reward", got="noise that is chosen by measurement", expected=expected)
        self.engine = Engine(env)
        self.returns = ReturnTracker(env.num_envs)
        self.starts = Starts() if altered is None else altered.build(env)
        self._steps_before = 0  # of earlier parts of a resumed run

    @property
    def env_steps(self) -> int:
        """Control steps so far."""
        return self._steps_before + self.engine.env_steps

    @property
    def iterations(self) -> int:
        """Those done, and those that the rest of the budget pays for; episodes that end early leave more of it."""
        return self._done + max(self.budget - self.env_steps, 0) // self._each

    @property
    def calibration(self) -> NoiseCalibration | None:
        """Measurements before the first iteration."""
        return self.algorithm.calibration

    # --- a trainer: see `robolearn.runs.loop.Trainer` ----------------------------------------------------------

    def iterate(self, i: int) -> dict[str, float]:
        """Collect and learn once; returns the metrics."""
        if i == 0:
            self.algorithm.prepare(self.engine, self.budget // CALIBRATION_SHARE)
            self._check_rest()
        progress = min(self.env_steps / self.budget, 1.0)
        self.starts.schedule(progress)
        if i == 0:
            self._restart(self.seed)
        elif (options := self.algorithm.reset_options()) is not None:
            self._restart(self.seed * 1_000_003 + i, options)
        algorithm = self.algorithm
        algorithm.begin_iteration(progress)
        with torch.no_grad(), torch_threads(1):
            batch = collect(
                self.engine,
                algorithm.act,
                algorithm.quota,
                algorithm.features,
                device=self.device,
                scale=algorithm.scale if self.reward is None else unscaled,
                returns=self.returns,
                starts=self.starts,
            )
            judged: dict[str, float] = {}
            if self.reward is not None:
                batch, judged = self.reward.fill(batch, algorithm.scale)
        collected = time.perf_counter()
        with torch_threads(1):
            metrics = algorithm.update(batch, i, progress)
        self._done = i + 1
        finished = batch.episodes > 0
        success = batch.success / batch.episodes if finished and self.engine.success_reported else math.nan
        return {
            "env_steps": float(self.env_steps),
            "success": success,
            "episode_return": float(batch.returns.mean()) if finished else math.nan,
            "episodes": float(batch.episodes),
            **success_of_tasks(self.env),
            "rewarded": float(np.count_nonzero(batch.returns) + np.count_nonzero(batch.altered)),
            **self.starts.metrics(len(batch.altered)),
            "wall_simulation_s": batch.simulation_s,
            "wall_inference_s": batch.acting_s,
            "wall_update_s": time.perf_counter() - collected,
            **judged,
            **metrics,
        }

    def export(self, path: Path) -> None:
        """Write the policy to the checkpoint folder `path`."""
        save_policy(self.algorithm.policy(), path)

    # --- exact resume ------------------------------------------------------------------------------------------

    def iterations_between_states(self, asked: int) -> int:
        """Number of iterations between two calls of `state`: `asked`, or more.

        To save worlds whose state cannot be read ends their episodes. Between two times there is room for
        `EPISODES_BETWEEN` of the longest, or what happens late in an episode would never be seen.
        """
        anew = self.algorithm.reset_options() is not None  # every rollout is: a state ends nothing
        return asked if anew else iterations_apart(self.env, self._each, asked)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iteration depends on.

        Worlds whose state cannot be read are started anew here, with a seed of their own, so that a resumed run and
        an uninterrupted one go on alike where both saved at the same iterations (see `iterations_between_states`).
        """
        snapshot = self.engine.snapshot()
        if snapshot is None:
            self._restart(self._restart_seed())
        tensors, meta = self.algorithm.state()
        tensors |= prefixed("starts", {key: torch.from_numpy(value) for key, value in self.starts.state().items()})
        if snapshot is not None:
            tensors |= prefixed("engine", {key: torch.from_numpy(value) for key, value in snapshot.items()})
            tensors["returns"] = torch.from_numpy(self.returns.now.copy())
            if self.reward is not None:
                tensors |= prefixed("reward", self.reward.state())
        return tensors, {"algorithm": meta, "env_steps": self.env_steps, "done": self._done}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self.algorithm.load_state(tensors, meta["algorithm"])
        self._steps_before, self._done = int(meta["env_steps"]) - self.engine.env_steps, int(meta["done"])
        if starts := unprefixed("starts", tensors):
            self.starts.load_state({key: value.numpy() for key, value in starts.items()})
        snapshot = unprefixed("engine", tensors)
        if snapshot:
            self.engine.restore({key: value.numpy() for key, value in snapshot.items()})
            self.returns.now[:] = tensors["returns"].numpy()
            if self.reward is not None:
                self.reward.load_state(unprefixed("reward", tensors))
        else:
            self._restart(self._restart_seed())

    def _restart(self, seed: int, options: dict[str, Any] | None = None) -> None:
        """All worlds begin anew."""
        if options is None:
            options = self.algorithm.reset_options()
        self.engine.reset(seed, options)
        self.returns.now[:] = 0.0
        if self.reward is not None:
            self.reward.begin()
        self.algorithm.begin()

    def _check_rest(self) -> None:
        """Raise `BadInput` where calibration left too little: the worlds' episodes are longer than the budget bears."""
        alone = self.config.warmup_iterations
        least = self.env_steps + (alone + 1) * self._each
        if self.budget < least:
            raise BadInput(
                "--env-steps",
                got=self.budget,
                expected=f"at least {least}: choosing the noise took {self.env_steps}, and {alone + 1} x {self._each} "
                "are to learn from",
                hint="Fewer --worlds need less, and --sigma-max with --initial-noise leaves nothing to choose",
            )

    def _restart_seed(self) -> int:
        return self.seed * 1_000_003 + self.env_steps


def iterations_apart(env: Env, each: int, asked: int) -> int:
    """Iterations of `each` control steps between two saved states: `asked`, or time for `EPISODES_BETWEEN` of the
    longest episodes where the worlds' state cannot be read and a saved one ends theirs."""
    if env.snapshot() is not None:
        return asked
    longest = EPISODES_BETWEEN * (env.max_episode_steps or UNKNOWN_EPISODE)
    return max(asked, math.ceil(longest * env.num_envs / each))


def check_budget(config: OnPolicyConfig, max_episode_steps: int, execute: int, env_steps: int) -> None:
    """Raise `BadInput` unless the budget pays for one iteration of the actor, beside the share of calibration."""
    alone = config.warmup_iterations
    each = config.iteration_cost(max_episode_steps, execute)
    least = (alone + 1) * each
    if not config.noise.sigma_max:
        least = math.ceil(least * CALIBRATION_SHARE / (CALIBRATION_SHARE - 1))
    if env_steps < least:
        count = f"{alone + 1} iteration{'s' if alone else ''}"
        steps = f"{config.num_envs} worlds x {each // config.num_envs} steps"
        raise BadInput(
            "--env-steps",
            got=env_steps,
            expected=f"at least {least}, for {count} of {each} ({steps})",
            hint=_cheaper(config, env_steps, least),
        )


def _cheaper(config: OnPolicyConfig, env_steps: int, least: int) -> str:
    """The flag that brings what is needed, `least`, down to a budget of `env_steps`."""
    group = config.group_size
    worlds = config.num_envs * env_steps // least // group * group  # what is needed is proportional to the worlds
    if worlds >= max(group, FEWEST_WORLDS):
        return f"--worlds {worlds} are as many as that pays for"
    flags = " and ".join((f"--worlds (now {config.num_envs})", *config.cheaper[1:]))
    return f"A lower {flags} makes an iteration cheaper; --env-steps pays for more"
