"""ReBRAC: an actor that climbs the critics' values and is held near what was done, in its loss and in their targets.

    a(s)  = the sampler's chunk from noise x₀ ~ N(0, σ₀²), a gradient goes through it
    L_π   = E [ β₁ ‖flow matching or denoising of a‖² − mean_e Q_e(s, a(s)) / mean |Q| ]
    y     = R + d · (min_{e ∈ S} Q'_e(s', a') − β₂ ‖a' − â'‖² / |A|),      a' of the averaged policy in s',
            â' what was done there, of the same author

Tarasov et al. 2023, after TD3+BC (Fujimoto and Gu 2021), whose scale of Q it has. Departures: the actor is a copy of
the base with its own loss in the place of ‖a(s) − a‖²; a' has the sampler's noise in the place of clipped noise; the
distance is a mean over components, so that β₂ means the same for each chunk; the actor climbs the mean of the critics,
where the authors' code climbs their minimum. Where nobody acted in s' there is nothing to be near.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policies.networks.ensemble import evaluate
from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.student import Imitating
from robolearn.rl.student_settings import ReBracConfig


class ReBrac(Imitating):
    """See the module."""

    def __init__(self, base: ChunkPolicy, config: ReBracConfig, *, seed: int) -> None:
        super().__init__(base, config, seed=seed, initial_noise=config.initial_noise)
        self.settings = config
        self._after = self.chunk * config.n_step  # steps from a window's first action to the next window's
        self.plan = max(self.plan, self._after + self.chunk)

    def update(self, batch: ReplayBatch) -> dict[str, Tensor]:
        after = slice(self._after, self._after + self.chunk)
        self._done_there = batch.plan[:, after], batch.planned[:, after]
        return super().update(batch)

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        features = self.policy.encode(observation)
        drawn = self.draw(len(features), 1, *self.policy.noise.shape[1:])
        chunk = self.policy.propose(observation, drawn)[:, 0]
        done, known = self._done_there
        # β₂ ‖a' − â'‖² / |A|
        apart = (chunk - done.flatten(1)).square().unflatten(1, (self.chunk, -1)).mean(2)
        return features, chunk, -self.settings.critic_bc * (apart * known).mean(1)

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        loss, metrics = self.actor_loss(features, batch)
        self.student.step(loss)
        return metrics

    def actor_loss(self, features: Tensor, batch: ReplayBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """L_π, and metrics."""
        values = evaluate(self.critic.net, features, self._moved(batch)[:, None])[:, :, 0]
        climbed = values.mean() / values.detach().abs().mean().clamp_min(1e-6)
        copied = self.student.loss(batch, torch.arange(len(batch), device=self.device))
        # L_π = β₁ L_imitation − Q / mean |Q|
        loss = self.settings.actor_bc * copied - climbed
        return loss, {"imitation": copied.detach(), "q_actor": values.detach().mean()}

    def _moved(self, batch: ReplayBatch) -> Tensor:
        """(B, H · Da) of the policy in training in what was seen, differentiable in its weights."""
        net, normal = self.student.net, self.policy.proposer.normalizer
        cond = net.encode(normal.observation(batch.observation))
        return self.sampled(net, cond, self.draw(len(batch), *net.noise_shape))
