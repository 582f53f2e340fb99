"""ReinFlow: online fine-tuning of flow policies with PPO (Zhang et al., "ReinFlow", NeurIPS 2025).

One iteration:
  1. collect T action chunks in N worlds with the stochastic flow (`rollout`),
  2. advantages by GAE with the final observations (`gae`),
  3. several epochs of PPO on the chains' likelihood (`stochastic_flow`, `ppo`):

     L = L_clip(θ, φ) − α H(σ_φ) + β D(π_θ, π_BC) + ½ E[(V_ψ − R)²]

The critic learns alone for the first iterations: an actor that follows an untrained critic forgets its
demonstrations at once. What is exported is an exponential average of the weights over the iterations.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from policies.checkpoint import save_policy
from policies.ema import Ema
from policies.flow import FlowPolicy
from policies.networks.encoder import ObservationEncoder
from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Env, NonFinite, Observation, check_compatible
from robolearn.rl.calibrate import CANDIDATES, STARTS, Calibration, calibrate_noise
from robolearn.rl.config import ReinFlowConfig
from robolearn.rl.critic import Critic
from robolearn.rl.gae import gae
from robolearn.rl.noise import NoiseConfig
from robolearn.rl.ppo import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    explained_variance,
    standardise,
    value_loss,
)
from robolearn.rl.reward_scale import RewardScale
from robolearn.rl.rollout import Rollout, Running, collect
from robolearn.rl.shards import Means, Shards
from robolearn.rl.stochastic_flow import StochasticFlow, sample_with_noise
from robolearn.rl.trust import Anchor
from robolearn.runs.checkpoint import prefixed, unprefixed
from robolearn.runs.optimizer_state import pack_optimizer, unpack_optimizer
from robolearn.runs.threads import torch_threads

log = logging.getLogger(__name__)

LR_RANGE = (1e-5, 2e-3)  # of the actor
FURTHEST = 4.0  # times the target: the KL divergence that an iteration may end with
EPISODES_BETWEEN = 2  # two states of worlds that cannot tell theirs


class ReinFlowTrainer:
    """Fine-tunes `policy` in `env`; a trainer for `robolearn.runs.run_loop`.

    Args:
      policy: a flow policy; its network is trained in place.
      env: the worlds, not yet reset.
      config: settings.

    Raises:
      BadInput: the policy is no flow, does not fit the world, or the budget is too small for one iteration.
    """

    def __init__(self, policy: ChunkPolicy, env: Env, config: ReinFlowConfig) -> None:
        if not isinstance(policy.net, FlowPolicy):
            raise BadInput("policy for reinflow", got=type(policy.net).__name__, expected="a flow policy")
        check_compatible(policy.interface, env.interface, what=f"policy in {env.task}")
        if policy.net.config.observe > 1:
            raise BadInput("policy for reinflow", got=f"To = {policy.net.config.observe}", expected="To = 1")
        if env.num_envs * config.decisions < 2:
            raise BadInput("worlds x decisions", got=env.num_envs * config.decisions, expected="at least 2")
        self.policy, self.env, self.config = policy, env, config
        self.net = policy.net
        self._execute = policy.execute_steps
        self.iterations = iterations_within(config, env, self._execute)
        self.shards = Shards(config.threads)
        self.generator = torch.Generator().manual_seed(config.seed)
        torch.manual_seed(config.seed)
        self.critic = Critic(ObservationEncoder(policy.interface.observation))
        self.average = Ema(self.net, config.average)
        self.scale = RewardScale(env.num_envs, config.gamma)
        self.running = Running(env.num_envs)
        self.calibration: Calibration | None = None
        self.env_steps = 0
        if config.noise.sigma_max:
            self._build(config.noise)

    def _build(self, noise: NoiseConfig) -> None:
        """Make what depends on the noise."""
        if noise.start is not None:
            for net in (self.net, self.average.module):
                net.config = replace(net.config, start_noise=noise.start)
        self.actor = StochasticFlow(self.net, noise)
        trained = [p for p in self.actor.parameters() if p.requires_grad]
        self.actor_optimizer = torch.optim.Adam(trained, lr=self.config.actor_lr, eps=1e-5, fused=True)
        self.critic_optimizer = torch.optim.Adam(
            self.critic.parameters(), lr=self.config.critic_lr, eps=1e-5, fused=True
        )

    # --- one iteration -------------------------------------------------------------------------------------

    def iterate(self, i: int) -> dict[str, float]:
        """Collect and learn once; returns the metrics."""
        if i == 0:
            self._begin()
        self.actor.noise.schedule(i / self.iterations)
        start = time.perf_counter()
        with torch.no_grad(), torch_threads(1):
            rollout, self.observation = collect(
                self.env,
                self.observation,
                self.running,
                decisions=self.config.decisions,
                execute=self._execute,
                chunk_shape=self.actor.chunk_shape,
                sampler=lambda o: self.actor.sample(self.policy.normalizer.observation(o), self.generator),
                to_tensors=self._to_tensors,
                to_action=self._to_action,
                scale=self.scale,
            )
        collected = time.perf_counter()
        self.env_steps += rollout.env_steps
        target_kl = self._target_kl(i / self.iterations) if i >= self.config.critic_warmup else None
        with torch_threads(1):
            metrics = self._learn(rollout, target_kl)
        self.average.update(self.net)
        return {
            "env_steps": float(self.env_steps),
            "success": rollout.success / rollout.episodes if rollout.episodes else math.nan,
            "episodes": float(rollout.episodes),
            "wall_simulation_s": rollout.simulation_s,
            "wall_inference_s": collected - start - rollout.simulation_s,
            "wall_update_s": time.perf_counter() - collected,
            **metrics,
        }

    def _begin(self) -> None:
        """Choose the noise range, then start the worlds."""
        start = time.perf_counter()
        noise = self.config.noise
        if not noise.sigma_max:
            self.calibration = calibrate_noise(self._act_with_noise, self._execute, self.env, noise, self.config.seed)
            self.env_steps += self.calibration.env_steps
            noise = self.calibration.noise
            self._build(noise)
            log.info(
                "start %g, noise %.3f to %.3f (%s)",
                noise.start,
                noise.sigma_min,
                noise.sigma_max,
                self.calibration.reason,
            )
        self._restart(self.config.seed)
        self.calibration_wall_s = time.perf_counter() - start

    def _to_tensors(self, observation: Observation) -> dict[str, Tensor]:
        return {key: torch.tensor(observation[key]) for key in self.policy.interface.observation}

    def _to_action(self, chunk: Tensor) -> NDArray[np.float32]:
        return self.policy.normalizer.action_back(chunk).numpy()

    @torch.inference_mode()
    def _act_with_noise(
        self, observation: Observation, start: float, sigma: float, generator: torch.Generator
    ) -> Tensor:
        features = self.policy.normalizer.observation(self._to_tensors(observation))
        chunk = sample_with_noise(self.net, features, sigma, self.config.noise.steps, generator, start)
        return self.policy.normalizer.action_back(chunk)

    def _target_kl(self, progress: float) -> float:
        return self.config.target_kl * (0.5 + 0.5 * 0.5 * (1 + math.cos(math.pi * progress)))

    def _adapt_lr(self, kl: float, target: float) -> None:
        for group in self.actor_optimizer.param_groups:
            if kl > 2 * target:
                group["lr"] = max(group["lr"] / 1.5, LR_RANGE[0])
            elif kl < target / 2:
                group["lr"] = min(group["lr"] * 1.5, LR_RANGE[1])

    def _learn(self, rollout: Rollout, target_kl: float | None) -> dict[str, float]:
        c = self.config
        shape = rollout.reward.shape
        normalise = self.policy.normalizer.observation
        observation, chain = rollout.observation, rollout.chain
        left = rollout.left
        value = self._values(observation, left).reshape(shape)
        next_value = self._values(rollout.next_observation, rollout.next_left).reshape(shape)
        advantage, target = gae(rollout.reward, value, next_value, rollout.terminated, rollout.ended, c.gamma, c.lam)
        advantage, target = advantage.flatten(), target.flatten()

        def log_prob() -> Tensor:
            return self.shards.rows(
                lambda part: self.actor.evaluate(normalise(_rows(observation, part)), chain[part]).log_prob, len(chain)
            )

        # The old likelihood is the training network's own: every ratio is 1 before the first step.
        old = log_prob()
        reference = self.actor.reference_mean(normalise(observation), chain) if c.regulariser == "kl" else None

        metrics = self._mean_over_batches(
            len(chain),
            c.critic_epochs,
            lambda index: self._critic_step(normalise(_rows(observation, index)), left[index], target[index]),
        )
        if target_kl is not None:
            furthest = FURTHEST * target_kl
            anchor = Anchor(self.actor)
            metrics |= self._mean_over_batches(
                len(chain),
                c.epochs,
                lambda index: self._actor_step(
                    normalise(_rows(observation, index)),
                    chain[index],
                    old[index],
                    standardise(advantage[index]),
                    None if reference is None else reference[index],
                ),
                # The clip bounds one step; this bounds what many steps on the same data add up to.
                until=lambda step: step["kl"] > furthest,
            )

            log_ratio = old

            def kl() -> float:
                nonlocal log_ratio
                log_ratio = log_prob() - old
                return approximate_kl(log_ratio).item()

            found = kl()
            metrics["actor_lr"] = self.actor_optimizer.param_groups[0]["lr"]
            self._adapt_lr(found, target_kl)
            metrics["step_kept"] = anchor.within(found, kl, furthest, target_kl)
            metrics["kl"] = approximate_kl(log_ratio).item()
            metrics["clip_fraction"] = clip_fraction(log_ratio, c.clip).item()
        metrics["explained_variance"] = explained_variance(value.flatten(), target).item()
        metrics["return"] = target.mean().item()
        metrics["sigma"] = math.exp(0.5 * float(self.actor.noise.log_var_max))
        return metrics

    def _values(self, observation: dict[str, Tensor], left: Tensor) -> Tensor:
        """(B,) what the critic expects from observations as the worlds give them."""
        normalise = self.policy.normalizer.observation
        return self.shards.rows(lambda part: self.critic(normalise(_rows(observation, part)), left[part]), len(left))

    def _mean_over_batches(
        self,
        size: int,
        epochs: int,
        step: Callable[[Tensor], dict[str, float]],
        until: Callable[[dict[str, float]], bool] = lambda _: False,
    ) -> dict[str, float]:
        """Call `step` with shuffled indices, minibatch by minibatch; returns the mean of what it returns."""
        seen: list[dict[str, float]] = []
        for _ in range(epochs):
            order = torch.randperm(size, generator=self.generator)
            for index in order.split(self.config.minibatch):
                if len(index) < 2:
                    continue  # a single sample has no standard deviation
                seen.append(step(index))
                if until(seen[-1]):
                    return _mean(seen)
        return _mean(seen)

    def _critic_step(self, observation: dict[str, Tensor], left: Tensor, target: Tensor) -> dict[str, float]:
        def loss(part: slice) -> tuple[Tensor, Means]:
            value = value_loss(self.critic(_rows(observation, part), left[part]), target[part])
            return value, {"value_loss": value.detach()}

        return self._step(self.critic_optimizer, loss, len(target))

    def _actor_step(
        self, observation: dict[str, Tensor], chain: Tensor, old: Tensor, advantage: Tensor, reference: Tensor | None
    ) -> dict[str, float]:
        c = self.config

        def loss(part: slice) -> tuple[Tensor, Means]:
            seen, path = _rows(observation, part), chain[part]
            stats = self.actor.evaluate(seen, path)
            log_ratio = stats.log_prob - old[part]
            surrogate = clipped_surrogate(log_ratio, advantage[part], c.clip)
            entropy = stats.entropy.mean()
            distance = torch.zeros(())
            if c.regulariser == "kl":
                assert reference is not None
                distance = self.actor.kl_to_reference(stats, reference[part])
            elif c.regulariser == "w2":
                distance = self.actor.w2_to_reference(seen, path[:, 0])
            return surrogate - c.entropy * entropy + c.regularisation * distance, {
                "policy_loss": surrogate.detach(),
                "kl": approximate_kl(log_ratio.detach()),
                "entropy": entropy.detach(),
                "distance_to_bc": distance.detach(),
            }

        return self._step(self.actor_optimizer, loss, len(chain))

    def _step(
        self, optimizer: torch.optim.Optimizer, loss: Callable[[slice], tuple[Tensor, Means]], size: int
    ) -> dict[str, float]:
        """One step of `optimizer` on the mean loss over `size` rows; returns the means."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        means = self.shards.backward(loss, size, parameters)
        trained = [p for p in parameters if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(trained, self.config.max_grad_norm, foreach=True)
        if not torch.isfinite(norm):  # it would stay in Adam's moments for ever
            raise NonFinite("fine-tuning: a gradient became NaN or infinite; try a smaller --actor-lr")
        optimizer.step()
        return {key: float(value) for key, value in means.items()}

    # --- exact resume --------------------------------------------------------------------------------------

    def iterations_between_states(self, asked: int) -> int:
        """How many iterations to leave between two calls of `state`: `asked`, or more.

        To save the state of worlds that cannot tell theirs ends their episodes. Between two times there is room for
        `EPISODES_BETWEEN` of the longest, or what happens late in an episode would never be seen.
        """
        if self.env.snapshot() is not None:
            return asked
        longest = EPISODES_BETWEEN * self.env.max_episode_steps
        return max(asked, math.ceil(longest / (self.config.decisions * self._execute)))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iteration depends on.

        Worlds that cannot tell their state are started anew here, with a seed of their own, so that a resumed run and
        an uninterrupted one go on alike where both saved at the same iterations (see `iterations_between_states`).
        """
        snapshot = self.env.snapshot()
        if snapshot is None:
            self._restart(self._restart_seed())
        tensors: dict[str, Tensor] = {}
        tensors |= prefixed("actor", self.actor.state_dict())
        tensors |= prefixed("critic", self.critic.state_dict())
        tensors |= prefixed("average", self.average.module.state_dict())
        meta: dict[str, Any] = {"env_steps": self.env_steps, "calibration_wall_s": self.calibration_wall_s}
        meta["average_updates"] = self.average.updates
        for name, optimizer in (("actor_opt", self.actor_optimizer), ("critic_opt", self.critic_optimizer)):
            packed, meta[name] = pack_optimizer(optimizer)
            tensors |= prefixed(name, packed)
        tensors["generator"] = self.generator.get_state()
        tensors["scale"] = torch.from_numpy(self.scale.state())
        noise = self.actor.noise.config
        meta["noise"] = {"sigma_min": noise.sigma_min, "sigma_max": noise.sigma_max, "start": noise.start}
        meta["calibration"] = None if self.calibration is None else self.calibration.to_json()
        if snapshot is not None:
            tensors |= prefixed("env", {key: torch.from_numpy(value) for key, value in snapshot.items()})
            tensors["elapsed"] = torch.from_numpy(self.running.elapsed.copy())
            tensors["solved"] = torch.from_numpy(self.running.solved.copy())
        return tensors, meta

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self._build(replace(self.config.noise, **meta["noise"]))
        if meta["calibration"] is not None:
            self.calibration = Calibration.from_json(meta["calibration"])
        self.actor.load_state_dict(unprefixed("actor", tensors))
        self.critic.load_state_dict(unprefixed("critic", tensors))
        self.average.module.load_state_dict(unprefixed("average", tensors))
        self.average.updates = int(meta["average_updates"])
        unpack_optimizer(self.actor_optimizer, unprefixed("actor_opt", tensors), meta["actor_opt"])
        unpack_optimizer(self.critic_optimizer, unprefixed("critic_opt", tensors), meta["critic_opt"])
        self.generator.set_state(tensors["generator"])
        self.scale.load(tensors["scale"].numpy())
        self.env_steps = int(meta["env_steps"])
        self.calibration_wall_s = float(meta["calibration_wall_s"])
        env = unprefixed("env", tensors)
        if env:
            self.observation = self.env.restore({key: value.numpy() for key, value in env.items()})
            self.running.elapsed[:] = tensors["elapsed"].numpy()
            self.running.solved[:] = tensors["solved"].numpy()
        else:
            self._restart(self._restart_seed())

    def export(self, path: Path) -> None:
        """Write the averaged policy to the checkpoint folder `path`."""
        net = self.average.module
        save_policy(ChunkPolicy(net, self.policy.normalizer, self.policy.interface), path)

    def _restart(self, seed: int) -> None:
        """All worlds begin anew."""
        self.observation, _ = self.env.reset(seed=seed)
        self.running.begin()
        self.scale.begin()

    def _restart_seed(self) -> int:
        return self.config.seed * 1_000_003 + self.env_steps


def _rows(observation: dict[str, Tensor], index: Tensor | slice) -> dict[str, Tensor]:
    return {key: value[index] for key, value in observation.items()}


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}


def iterations_within(config: ReinFlowConfig, env: Env, execute: int) -> int:
    """How many iterations of a policy that executes Ta = `execute` steps the budget `config.env_steps` pays for.

    Raises:
      BadInput: too few for the actor to learn anything.
    """
    starts = len(STARTS) if config.noise.start is None else 1
    episodes = 0 if config.noise.sigma_max else (len(CANDIDATES) + starts) * env.num_envs
    calibration = episodes * env.max_episode_steps
    each = env.num_envs * config.decisions * execute
    iterations = (config.env_steps - calibration) // each
    if iterations <= config.critic_warmup:
        least = calibration + (config.critic_warmup + 1) * each
        raise BadInput("env_steps", got=config.env_steps, expected=f"at least {least}")
    return iterations
