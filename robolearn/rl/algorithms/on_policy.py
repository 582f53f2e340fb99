"""The common part of the on-policy algorithms: a denoising actor, its calibration, its average; an actor-critic on top.

An algorithm's own page has its loss, `loss(batch, advantage, old, reference)`, and where its advantages come
from; everything that would be the same on each page is here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from policies.networks.ema import Ema
from policies.networks.encoder import ObservationEncoder
from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Interface, Observation
from robolearn.rl.actors import ChainStats, DenoisingActor, NoiseConfig, check_tunable
from robolearn.rl.actors.denoising import explore, kl_nats, kl_to_reference, w2_to_reference
from robolearn.rl.buffer import RolloutBatch, unscaled
from robolearn.rl.calibrate import NoiseCalibration, calibrate_noise
from robolearn.rl.critic import Baseline, Critic, CriticInput
from robolearn.rl.policy_step import Loss, Means, MinibatchOptimizer, PolicyStep, Shards, rows, target_at
from robolearn.rl.returns import RewardScale, clip_fraction
from robolearn.rl.settings import ActorCriticConfig, OnPolicyConfig
from robolearn.rollout import Decision, Decisions, Engine
from robolearn.rollout.engine import Quota
from robolearn.runs.checkpoint import pack_optimizer, prefixed, unpack_optimizer, unprefixed

log = logging.getLogger(__name__)


class OnPolicy:
    """A denoising policy that learns from its own last rollout.

    Args:
      policy: a flow or diffusion policy; its network is trained in place.
      config: settings, the number of worlds N among them.
      seed: of the weights that are new and of the noise.

    Attributes:
      quota: of a rollout.
      scale: of its rewards.
      calibration: what `prepare` measured, if it did.

    Raises:
      BadInput: one that is no denoising policy or has To > 1, or a diffusion policy with η > 0.
    """

    quota: Quota
    scale: Any = staticmethod(unscaled)

    def __init__(self, policy: ChunkPolicy, config: Any, *, seed: int) -> None:
        check_tunable(policy)
        settings = policy.net.config
        if getattr(settings, "eta", 0.0) != 0.0:
            raise BadInput("policy for fine-tuning", got=f"eta = {settings.eta}", expected="eta = 0 (DDIM)")
        self.base, self.net, self.num_envs = policy, policy.net, config.num_envs
        self.net.requires_grad_(True)  # an averaged network, as imitation hands out, is frozen
        self.device = policy.device
        self.needed = tuple(policy.interface.observation)
        self._config: OnPolicyConfig = config
        self.seed = seed
        self.shards = Shards(config.threads if self.device.type == "cpu" else 1)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.order = self.generator if self.device.type == "cpu" else torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self._before_average()
        self.average = Ema(self.net, config.average)
        self.calibration: NoiseCalibration | None = None
        if config.noise.sigma_max:
            self._build(config.noise)

    def _before_average(self) -> None:
        """Make the modules that draw from torch's generator before the noise network."""

    def _build(self, noise: NoiseConfig) -> None:
        """Make what depends on the noise."""
        if noise.initial is not None:
            for net in (self.net, self.average.module):
                net.config = replace(net.config, initial_noise_std=noise.initial)
        with torch.device("cpu"):  # one seed gives the same weights on any device
            actor = DenoisingActor(self.net, noise)
        self.actor = actor.to(self.device)
        self.policy_step = PolicyStep(self.actor, self._optimizer(self.actor, self._config.actor_lr))

    def _optimizer(self, module: torch.nn.Module, lr: float) -> MinibatchOptimizer:
        return MinibatchOptimizer(
            module,
            lr,
            minibatch=self._config.minibatch or max(2, self.decisions_per_rollout // 2),
            max_grad_norm=self._config.max_grad_norm,
            shards=self.shards,
            generator=self.order,
        )

    @property
    def decisions_per_rollout(self) -> int:
        """About how many decisions a rollout has."""
        raise NotImplementedError

    # --- the seam that the runner drives an algorithm by -------------------------------------------------------

    def prepare(self, engine: Engine, most: int) -> None:
        """Before the first rollout: choose the noise where it is not given; the engine's worlds may be moved by about
        `most` control steps."""
        noise = self._config.noise
        if not noise.sigma_max:
            self.calibration = calibrate_noise(
                self._explore, self.base.execute_steps, engine, noise, self.seed, self.device, most
            )
            noise = self.calibration.noise
            self._build(noise)
            low, high = noise.sigma_range
            log.info("initial noise %g, noise %.3f to %.3f (%s)", noise.initial, low, high, self.calibration.reason)

    def begin_iteration(self, progress: float) -> None:
        """Set the noise and the learning rates for the share `progress` of the budget."""
        self.actor.noise.schedule(progress)
        if (share := self._lr_share(progress)) is not None:
            self.policy_step.optimizer.set_lr(self._config.actor_lr * share)

    def _lr_share(self, progress: float) -> float | None:
        """Of the learning rates at the beginning; None where they follow no schedule."""
        if self._config.lr_schedule != "cosine":
            return None
        end = self._config.lr_end
        return end + (1.0 - end) * 0.5 * (1.0 + math.cos(math.pi * progress))

    def act(self, observation: dict[str, Tensor]) -> Decision:
        """Features (N, …) as the worlds give them → chunks with the noise that explores, and their chains."""
        chain = self.actor.sample(self._normalise(observation), self.generator)
        chunk = chain[:, -1].reshape(-1, *self.net.noise_shape).clamp(-1, 1)
        actions = self.base.normalizer.action_back(chunk).cpu().numpy()
        return Decision(actions[:, : self.base.execute_steps], {"chain": chain})

    def update(self, batch: RolloutBatch, i: int, progress: float) -> dict[str, float]:
        """Learn from the rollout of iteration `i`, after the share `progress` of the budget; returns metrics."""
        raise NotImplementedError

    def policy(self) -> ChunkPolicy:
        """The policy that is exported, with the averaged weights."""
        return ChunkPolicy(self.average.module, self.base.normalizer, self.base.interface)

    def begin(self) -> None:
        """All worlds begin new episodes."""

    def reset_options(self) -> dict[str, Any] | None:
        """The options that a rollout's worlds are reset with, or None where they go on where they are."""
        return None

    # --- one update --------------------------------------------------------------------------------------------

    def _improve(self, batch: RolloutBatch, advantage: Tensor, progress: float) -> dict[str, float]:
        """Move the policy by about the target of the divergence, along `loss` with (B,) advantages."""
        c, chain = self._config, batch.aux["chain"]

        def stats() -> ChainStats:
            parts = self.shards.each(
                lambda part: self.actor.evaluate(self._normalise(rows(batch.observation, part)), chain[part]),
                len(batch),
            )
            return ChainStats(*(torch.cat(column) for column in zip(*(part for _, part in parts), strict=True)))

        # The old likelihood is the training network's own: every ratio is 1 before the first step.
        with torch.no_grad():
            old = stats()
        reference = None
        if c.regulariser == "kl":
            reference = self.actor.reference_mean(self._normalise(batch.observation), chain)
        now = old

        def kl() -> float:
            nonlocal now
            with torch.no_grad():
                now = stats()
            return kl_nats(old, now).mean().item()

        def loss(index: Tensor) -> Loss:
            seen, path = self._normalise(rows(batch.observation, index)), chain[index]
            before = old.rows(index)
            scores = self.surrogate(before, advantage[index])
            held = None if reference is None else reference[index]

            def share(part: slice) -> tuple[Tensor, Means]:
                found = self.actor.evaluate(rows(seen, part), path[part])
                surrogate = scores(found, part)
                entropy, distance = found.entropy.mean(), torch.zeros((), device=self.device)
                if held is not None:
                    distance = kl_to_reference(found, held[part])
                elif c.regulariser == "w2":
                    distance = w2_to_reference(self.net, self.actor.reference, rows(seen, part), path[part][:, 0])
                # L = L_clip(θ, φ) − α H(σ_φ) + β D(π_θ, π_BC)
                return surrogate - c.entropy * entropy + c.regularisation * distance, {
                    "policy_loss": surrogate.detach(),
                    "kl": kl_nats(before.rows(part), found).mean().detach(),
                    "entropy": entropy.detach(),
                    "distance_to_bc": distance.detach(),
                }

            return share

        target = target_at(c.target_kl, progress) * len(self.actor.noised) if c.lr_schedule == "kl" else None
        metrics = self.policy_step.improve(len(batch), c.epochs, loss, kl, target)
        metrics["clip_fraction"] = clip_fraction(now.joint(c.exponent) - old.joint(c.exponent), c.clip).item()
        return metrics

    def surrogate(self, old: ChainStats, advantage: Tensor) -> Callable[[ChainStats, slice], Tensor]:
        """For a minibatch with (b,) advantages and the likelihoods before: (those now, rows of it) → the loss to be
        minimised."""
        raise NotImplementedError

    def _end_update(self) -> dict[str, float]:
        self.average.update(self.net)
        return {"sigma": math.exp(0.5 * float(self.actor.noise.log_var_max))}

    def _normalise(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.base.normalizer.observation(observation)

    def features(self, observation: Observation) -> dict[str, Tensor]:
        """Copies of the features that policy and critic need, on their device."""
        return {key: torch.tensor(observation[key], device=self.device) for key in self.needed}

    @torch.inference_mode()
    def _explore(self, observation: Observation, initial: float, sigma: float, generator: torch.Generator) -> Tensor:
        features = self._normalise(self.features(observation))
        chunk = explore(self.net, self._config.noise, features, initial, sigma, generator)
        return self.base.normalizer.action_back(chunk).cpu()

    # --- exact resume ------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next update depends on."""
        tensors = prefixed("actor", self.actor.state_dict()) | prefixed("average", self.average.module.state_dict())
        packed, optimizer = pack_optimizer(self.policy_step.optimizer.adam)
        tensors |= prefixed("actor_opt", packed)
        tensors["generator"] = self.generator.get_state()
        tensors["order"] = self.order.get_state()
        noise = self.actor.noise.config
        return tensors, {
            "average_updates": self.average.updates,
            "actor_opt": optimizer,
            "noise": {"sigma_min": noise.sigma_min, "sigma_max": noise.sigma_max, "initial": noise.initial},
            "calibration": None if self.calibration is None else self.calibration.to_json(),
        }

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self._build(replace(self._config.noise, **meta["noise"]))
        if meta["calibration"] is not None:
            self.calibration = NoiseCalibration.from_json(meta["calibration"])
        self.actor.load_state_dict(unprefixed("actor", tensors))
        self.average.module.load_state_dict(unprefixed("average", tensors))
        self.average.updates = int(meta["average_updates"])
        unpack_optimizer(self.policy_step.optimizer.adam, unprefixed("actor_opt", tensors), meta["actor_opt"])
        self.generator.set_state(tensors["generator"])
        self.order.set_state(tensors["order"])


class ActorCritic(OnPolicy):
    """PPO with a critic: T decisions a world and rollout, advantages by GAE.

    The critic learns alone for the first iterations: an actor that follows an untrained critic forgets its
    demonstrations at once.
    """

    def __init__(
        self, policy: ChunkPolicy, config: ActorCriticConfig, *, seed: int, infinite: bool,
        offered: Interface | None = None,
    ) -> None:  # fmt: skip
        self.config, self.infinite = config, infinite
        self.critic_input: CriticInput | None = None
        if config.critic_observe:
            sees = (offered or policy.interface).seeing(config.critic_observe, what="the critic's worlds")
            self.critic_input = CriticInput(sees, policy.device)
        self.scale = RewardScale(config.num_envs, config.gamma)
        self.quota = Decisions(config.chunks_per_rollout)
        super().__init__(policy, config, seed=seed)
        normalise = self._normalise if self.critic_input is None else self.critic_input
        if self.critic_input is not None:
            self.needed = tuple(dict.fromkeys((*self.needed, *self.critic_input.sees.observation)))
        optimizer = self._optimizer(self.critic, config.critic_lr)
        self.baseline = Baseline(self.critic, optimizer, config, self.shards, normalise)

    def _before_average(self) -> None:
        with torch.device("cpu"):
            sees = self.base.interface if self.critic_input is None else self.critic_input.sees
            encoder = ObservationEncoder(sees.observation)
            critic = Critic(encoder, ends_with_the_time=not self.infinite)
        self.critic = critic.to(self.device)

    @property
    def decisions_per_rollout(self) -> int:
        """T · N."""
        return self.config.chunks_per_rollout * self.num_envs

    def begin_iteration(self, progress: float) -> None:
        super().begin_iteration(progress)
        if (share := self._lr_share(progress)) is not None:
            self.baseline.optimizer.set_lr(self.config.critic_lr * share)

    def begin(self) -> None:
        """The discounted returns of the running episodes are forgotten."""
        self.scale.begin()

    def update(self, batch: RolloutBatch, i: int, progress: float) -> dict[str, float]:
        if self.critic_input is not None:
            self.critic_input.fit(batch.observation)
        advantage, target, metrics = self.baseline.advantages(batch)
        metrics |= self.baseline.fit(batch, target)
        if i >= self.config.critic_warmup:
            metrics |= self._improve(batch, advantage, progress)
        return metrics | self._end_update()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, meta = super().state()
        packed, optimizer = pack_optimizer(self.baseline.optimizer.adam)
        tensors |= prefixed("critic", self.critic.state_dict()) | prefixed("critic_opt", packed)
        tensors["scale"] = torch.from_numpy(self.scale.state())
        if self.critic_input is not None:
            tensors |= prefixed("critic_input", self.critic_input.normalizer.state_dict())
        return tensors, meta | {"critic_opt": optimizer}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        super().load_state(tensors, meta)
        self.critic.load_state_dict(unprefixed("critic", tensors))
        unpack_optimizer(self.baseline.optimizer.adam, unprefixed("critic_opt", tensors), meta["critic_opt"])
        self.scale.load(tensors["scale"].numpy())
        if self.critic_input is not None:
            self.critic_input.normalizer.load_state_dict(unprefixed("critic_input", tensors))
            self.critic_input.fitted = True
