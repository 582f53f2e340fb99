"""The noise that turns a flow policy's sampler into a stochastic policy (ReinFlow, Zhang et al., 2025).

    log σ²(τ, o) = log σ_min² + (log σ_max² − log σ_min²) · (1 + tanh f(τ, o))/2

f is a small network, thrown away after fine-tuning. The observation enters detached: the noise must not shape
what the policy sees. σ_max is held for a share of the iterations, then falls on a cosine to 0.3 σ_min + 0.7 σ_max.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from robolearn.core import BadInput
from robolearn.rl.settings import NoiseConfig


class NoiseNet(nn.Module):
    """σ(τ, o) for every component of an action chunk.

    Args:
      cond_dim: size C of the encoded observation.
      chunk_dim: Tp · Da.
      config: range and width.
    """

    def __init__(self, cond_dim: int, chunk_dim: int, config: NoiseConfig) -> None:
        super().__init__()
        low, high = config.sigma_range
        if not 0 < low <= high:
            raise BadInput("range of the noise", got=config.sigma_range, expected="0 < sigma-min <= sigma-max")
        self.config = config
        self.net = nn.Sequential(
            nn.Linear(cond_dim + 1, config.hidden),
            nn.Tanh(),
            nn.Linear(config.hidden, config.hidden),
            nn.Tanh(),
            nn.Linear(config.hidden, chunk_dim),
        )
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        # It begins in the middle of the range (on the log scale), the same everywhere.
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.log_var_min: Tensor
        self.log_var_max: Tensor
        self.register_buffer("log_var_min", torch.tensor(2 * math.log(low)))
        self.register_buffer("log_var_max", torch.tensor(2 * math.log(high)))

    def forward(self, tau: Tensor, cond: Tensor) -> Tensor:
        """(B,) flow time and (B, C) condition → (B, Tp·Da) log σ."""
        f = self.net(torch.cat([cond.detach(), tau[:, None]], -1))
        share = 0.5 * (1 + torch.tanh(f))
        return 0.5 * (self.log_var_min + (self.log_var_max - self.log_var_min) * share)

    def schedule(self, progress: float) -> None:
        """Set σ_max for the share `progress` in [0, 1] of the iterations done."""
        low, high = self.config.sigma_range
        end = 0.3 * low + 0.7 * high
        fall = min(max((progress - self.config.hold) / (1 - self.config.hold), 0.0), 1.0)
        now = end + (high - end) * 0.5 * (1 + math.cos(math.pi * fall))
        self.log_var_max.fill_(2 * math.log(max(now, low)))
