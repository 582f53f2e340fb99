"""The actor of soft actor-critic and its temperature, whatever its actions are (chunks, or noise).

    L_π = α log π(a | s) − 1/E Σ_e Q_e(s, a),     a ~ π(· | s)
    L_α = −log α · (log π(a | s) + H̄),            H̄ = −target_entropy · |A|

Haarnoja et al. 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from policies.networks.squashed import SquashedGaussian
from robolearn.rl.off_policy_settings import SoftConfig


class SoftActor:
    """One squashed Gaussian in training.

    Args:
      actor: trained in place.
      size: |A|.
    """

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
        """What is not part of the policy."""
        return {"alpha": nn.ParameterList([self.log_alpha])}
