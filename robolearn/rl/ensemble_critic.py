"""The critics of off-policy learning: an ensemble over (observation, chunk), and their slow targets.

    y   = R + d · V(s'),   R = Σ_{i<h} γ^i r_i,  d = γ^h, or 0 where the task ended the episode
    L_Q = 1/E Σ_e mean_b (Q_e(s, a) − y)²
    Q'  ← Q' + τ (Q − Q')

V(s') is the algorithm's: an expectation under its actor, or a maximum over candidates. The pessimism of a target is the
minimum over a random subset of the ensemble (REDQ, Chen et al. 2021; RLPD).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from policies.networks.ensemble import EnsembleMlp, evaluate
from robolearn.rl.off_policy_settings import OffPolicyConfig


class EnsembleCritic:
    """E critics with their targets and optimiser.

    Args:
      net: of features and actions together.
    """

    def __init__(self, net: EnsembleMlp, config: OffPolicyConfig) -> None:
        self.config, self.net = config, net
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self._follow = get_ema_multi_avg_fn(1.0 - config.tau)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=config.lr, fused=True)

    def values(self, features: Tensor, actions: Tensor) -> Tensor:
        """(B, F) and (B, C, D) → (E, B, C), differentiable in the actions."""
        return evaluate(self.net, features, actions)

    def pessimistic(self, features: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        """(B, F) and (B, C, D) → (B, C): the smallest of a random subset of the targets."""
        members = torch.randperm(self.net.members, generator=generator)[: self.config.subset]
        return evaluate(self.target, features, actions, members.to(features.device)).amin(0)

    def fit(self, features: Tensor, actions: Tensor, target: Tensor) -> dict[str, Tensor]:
        """One gradient step towards the target (B,) of actions (B, D); then the targets follow."""
        found = self.net(torch.cat((features, actions), 1)).squeeze(-1)
        loss = (found - target).square().mean()
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam.step()
        with torch.no_grad():
            self._follow(list(self.target.parameters()), list(self.net.parameters()), 0)
        return {"critic_loss": loss.detach(), "q": found.detach().mean(), "q_spread": found.detach().std(0).mean()}
