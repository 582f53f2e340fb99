"""The common part of the off-policy algorithms: the base, the policy that acts, the order of updates, resuming.

An algorithm's own page has what is done next, `next_chunk`, how its actor learns, `improve`, and how it explores. Soft
actor-critic, whatever its actions are (chunks, or noise):

    L_π = α log π(a | s) − 1/E Σ_e Q_e(s, a),     a ~ π(· | s)
    L_α = −log α · (log π(a | s) + H̄),            H̄ = −target_entropy · |A|

Haarnoja et al. 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from policies.kinds.gaussian import SquashedGaussian
from policies.networks.ensemble import EnsembleMlp
from policies.policy import ChunkPolicy, FeaturePolicy
from robolearn.core import Interface, Observation
from robolearn.core.specs import is_image
from robolearn.data.replay import PlayedEpisode, ReplayBatch
from robolearn.rl.ensemble_critic import EnsembleCritic
from robolearn.rl.off_policy_settings import OffPolicyConfig, SoftConfig
from robolearn.runs.checkpoint import pack_optimizer, prefixed, unpack_optimizer, unprefixed
from robots.chunk_execution import Delayed


def make_critics(config: OffPolicyConfig, inputs: int) -> EnsembleMlp:
    """The ensemble that the settings ask for; its weights come from torch's global generator."""
    size = {"width": config.width, "depth": config.depth}
    return EnsembleMlp(config.critics, inputs, 1, **size, batch_norm=config.cross_q)


class OffPolicy:
    """A policy and critics that learn from replayed windows, around a `base` whose weights stay as they are.

    Chunks have H = Ta steps of the base's, in the world's units [-1, 1] throughout: what is executed, stored and judged
    is one thing. Observations are normalised by the base's statistics.

    Args:
      base: a trained policy for the world.
      policy: what acts, and what is exported.
      critics: of (features, chunk).
      seed: of noise and of what is drawn for targets.

    Attributes:
      chunk: H; size: H · Da; plan: Tp, steps of the base's predictions.
      updates: of the critics, so far.
      online: it has learned from episodes that were added while it acted, not from stored ones alone.
      unsure: the last chunk to learn from was chosen in doubt: a person should watch.
    """

    policy: FeaturePolicy

    def __init__(
        self, base: ChunkPolicy, policy: FeaturePolicy, critics: EnsembleMlp, config: OffPolicyConfig, *, seed: int
    ) -> None:
        self.base, self.policy, self.config, self.device = base.eval(), policy, config, base.device
        self.chunk, self.components, self.size = policy.execute_steps, policy.components, policy.size
        self.plan = int(base.net.config.horizon)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.critic = EnsembleCritic(critics.to(self.device), config, self.generator)
        self.order = torch.Generator().manual_seed(seed)
        self.updates, self.online = 0, False
        self.unsure = False

    # --- what an algorithm says -----------------------------------------------------------------------------------

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        """(N, H · Da) chunks to learn from."""
        raise NotImplementedError

    def explore_delayed(self, then: dict[str, Tensor], delayed: Delayed, observation: dict[str, Tensor]) -> Tensor:
        """As `explore`, where proposing takes time: with what was seen `then`. Of algorithms with `delay_steps`."""
        raise NotImplementedError

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        """(features (B, F), a' (B, H · Da), what is added to its value (B,)) of what is done next."""
        raise NotImplementedError

    def penalty(self, features: Tensor, batch: ReplayBatch) -> Callable[[Tensor], Tensor] | None:
        """Of values (E, B) of what was done: what is added to the critics' loss."""
        return None

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        """One gradient step of the actor."""
        raise NotImplementedError

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """All optimisers by name."""
        return {"critic": self.critic.adam}

    def modules(self) -> dict[str, nn.Module]:
        """All that learns, and what follows it, by name."""
        found: dict[str, nn.Module] = {"policy": self.policy, "critic": self.critic.net}
        return found if self.critic.target is None else {**found, "target": self.critic.target}

    # --- what is kept of episodes ---------------------------------------------------------------------------------

    @property
    def kept(self) -> Interface:
        """The base's, with what its encoder makes of a picture in the picture's place."""
        interface = self.base.interface
        seen = {key: spec for key, spec in interface.observation.items() if not is_image(spec)}
        return replace(interface, observation=seen | dict(self.base.net.encoder.encoded_specs))

    @torch.no_grad()
    def keep(self, episode: PlayedEpisode) -> PlayedEpisode:
        """`episode` as a replay of `kept` takes it: each frame is encoded once."""
        if not self.base.net.encoder.images:
            return episode
        seen = {key: torch.tensor(value, device=self.device) for key, value in episode.observation.items()}
        encoded = self.policy.encoded(seen)
        return replace(episode, observation={key: value.cpu().numpy() for key, value in encoded.items()})

    # --- the rest -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, observation: Observation, *, explore: bool, delayed: Delayed | None = None) -> np.ndarray:
        """(N, H, Da) chunks in [-1, 1] for the N worlds of `observation`; to learn from, those of a policy that is
        `delayed` too."""
        seen = self._encoded(observation)
        if delayed is not None:
            chunk = self.explore_delayed(self._encoded(delayed.before), delayed, seen)
        elif explore:
            chunk = self.explore(seen)
        else:
            count = len(next(iter(seen.values())))
            chunk = self.policy.decide(seen, self.draw(count, *self.policy.noise.shape))
        return chunk.view(-1, self.chunk, self.components).cpu().numpy()

    def _encoded(self, observation: Observation) -> dict[str, Tensor]:
        keys = self.base.interface.observation
        return self.policy.encoded({key: torch.tensor(observation[key], device=self.device) for key in keys})

    def update(self, batch: ReplayBatch) -> dict[str, Tensor]:
        """One update of the critics, and now and then one of the actor; named scalars."""
        features, actions = self.policy.encode(batch.observation), batch.action.flatten(1)
        if self.critic.target is None:
            with torch.no_grad():
                *after, bonus = self.next_chunk(batch.next_observation)
            metrics = self.critic.fit_jointly(
                (features, actions), (after[0], after[1]), batch.reward, batch.discount, bonus, self.order, self.updates
            )
        else:
            with torch.no_grad():
                # y = R + d · V(s')
                target = batch.reward + batch.discount * self.next_value(batch.next_observation)
            metrics = self.critic.fit(features, actions, target, self.penalty(features, batch))
        self.updates += 1
        if self.updates % self.config.actor_every == 0:
            metrics |= self.improve(features, batch)
        return metrics

    def next_value(self, observation: dict[str, Tensor]) -> Tensor:
        """(B,) V(s') = min_{e ∈ S} Q'_e(s', a') + bonus."""
        features, chunk, bonus = self.next_chunk(observation)
        return self.critic.pessimistic(features, chunk[:, None], self.order)[:, 0] + bonus

    def draw(self, *shape: int) -> Tensor:
        """Standard normal noise."""
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def acting(self) -> dict[str, Tensor]:
        """The tensors that `act` needs, for the actors of a learner."""
        return {key: value.detach() for key, value in self.policy.state_dict().items()}

    def load_acting(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `acting`."""
        self.policy.load_state_dict(tensors)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next update depends on, the replay apart."""
        tensors = {"generator": self.generator.get_state(), "order": self.order.get_state()}
        meta: dict[str, Any] = {"updates": self.updates, "online": self.online}
        for name, module in self.modules().items():
            tensors |= prefixed(name, module.state_dict())
        for name, optimizer in self.optimizers().items():
            packed, meta[name] = pack_optimizer(optimizer)
            tensors |= prefixed(f"{name}_opt", packed)
        return {key: value.detach().clone() for key, value in tensors.items()}, meta

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        for name, module in self.modules().items():
            module.load_state_dict(unprefixed(name, tensors))
        for name, optimizer in self.optimizers().items():
            unpack_optimizer(optimizer, unprefixed(f"{name}_opt", tensors), meta[name])
        self.generator.set_state(tensors["generator"])
        self.order.set_state(tensors["order"])
        self.updates, self.online = int(meta["updates"]), bool(meta.get("online", False))


class SoftActor:
    """One squashed Gaussian in training. `actor`: trained in place. `size`: |A|."""

    def __init__(self, actor: SquashedGaussian, config: SoftConfig, size: int) -> None:
        self.actor, self._goal = actor, -config.target_entropy * size
        self.log_alpha = nn.Parameter(
            torch.tensor(math.log(config.temperature), device=next(actor.parameters()).device)
        )
        self.adam = torch.optim.Adam(actor.parameters(), lr=config.lr, fused=True)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=config.lr, fused=True)

    @property
    def alpha(self) -> Tensor:
        """α."""
        return self.log_alpha.detach().exp()

    def improve(
        self, features: Tensor, value: Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """One gradient step; `value` gives Q(s, a) (B,) of actions (B, |A|)."""
        action, log_prob = self.actor.sample(features, generator)
        # L_π = α log π − mean_e Q_e
        loss = (self.alpha * log_prob - value(action)).mean()
        self.adam.zero_grad(set_to_none=True)
        loss.backward(inputs=list(self.actor.parameters()))
        self.adam.step()
        # L_α = −log α (log π + H̄)
        alpha_loss = -self.log_alpha * (log_prob.detach().mean() + self._goal)
        self.alpha_adam.zero_grad(set_to_none=True)
        alpha_loss.backward()
        self.alpha_adam.step()
        return {"entropy": -log_prob.detach().mean(), "alpha": self.alpha}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """By name."""
        return {"actor": self.adam, "alpha": self.alpha_adam}

    def modules(self) -> dict[str, nn.Module]:
        """The modules that are no part of the policy."""
        return {"alpha": nn.ParameterList([self.log_alpha])}
