"""RLPD: soft actor-critic whose every batch is half demonstrations (Ball et al. 2023). The base is used for its
statistics alone: the rival that starts from nothing.

    V(s')  = min_{e ∈ S} Q'_e(s', a') [− α log π(a' | s')],   a' ~ π(· | s')
    L_π    = α log π(a | s) − 1/E Σ_e Q_e(s, a),              a  ~ π(· | s)
    L_α    = −log α · (log π(a | s) + H̄),                     H̄ = −target_entropy · |A|
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from policies.policy import ChunkPolicy
from robolearn.core import Observation
from robolearn.data.replay import WindowBatch
from robolearn.rl.actors.squashed import SquashedGaussian
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.off_policy_settings import RlpdConfig


class Rlpd(OffPolicy):
    """See the module."""

    def __init__(self, base: ChunkPolicy, config: RlpdConfig, *, seed: int) -> None:
        super().__init__(base, config, seed=seed)
        self.settings = config
        with torch.device("cpu"):
            actor = SquashedGaussian(self.features, self.size, width=config.width, depth=config.depth)
        self.actor = actor.to(self.device)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(config.temperature), device=self.device))
        self.adam = torch.optim.Adam(self.actor.parameters(), lr=config.lr, fused=True)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=config.lr, fused=True)

    @torch.no_grad()
    def act(self, observation: Observation, *, explore: bool) -> np.ndarray:
        features = self.see(self.tensors_of(observation))
        chunk = self.actor.sample(features, self.generator)[0] if explore else self.actor.mode(features)
        return chunk.view(-1, self.chunk, self.components).cpu().numpy()

    def next_value(self, features: Tensor, proposals: Tensor) -> Tensor:
        action, log_prob = self.actor.sample(features, self.generator)
        value = self.critic.pessimistic(features, action[:, None], self.order)[:, 0]
        return value - self.log_alpha.exp() * log_prob if self.settings.backup_entropy else value

    def improve(self, features: Tensor, batch: WindowBatch) -> dict[str, Tensor]:
        action, log_prob = self.actor.sample(features, self.generator)
        value = self.critic.values(features, action[:, None]).mean(0).squeeze(1)
        # L_π = α log π − mean_e Q_e
        loss = (self.log_alpha.detach().exp() * log_prob - value).mean()
        self.adam.zero_grad(set_to_none=True)
        loss.backward(inputs=list(self.actor.parameters()))
        self.adam.step()
        # L_α = −log α (log π + H̄)
        goal = -self.settings.target_entropy * self.size
        alpha_loss = -self.log_alpha * (log_prob.detach().mean() + goal)
        self.alpha_adam.zero_grad(set_to_none=True)
        alpha_loss.backward()
        self.alpha_adam.step()
        return {"entropy": -log_prob.detach().mean(), "alpha": self.log_alpha.detach().exp()}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"actor": self.adam, "critic": self.critic.adam, "alpha": self.alpha_adam}

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | {"alpha": nn.ParameterList([self.log_alpha])}
