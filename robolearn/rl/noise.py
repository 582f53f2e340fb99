"""The noise that turns a flow policy's sampler into a stochastic policy (ReinFlow, Zhang et al., 2025).

    log σ²(τ, o) = log σ_min² + (log σ_max² − log σ_min²) · (1 + tanh f(τ, o))/2

f is a small network, thrown away after fine-tuning. The observation enters detached: the noise must not shape
what the policy sees. σ_max is held for a share of the iterations, then falls on a cosine to 0.3 σ_min + 0.7 σ_max.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from robolearn.core import BadInput


@dataclass(frozen=True)
class NoiseConfig:
    """Range and schedule of the injected noise, in units of the normalised action.

    Attributes:
      sigma_min, sigma_max: range of the standard deviation of one denoising step; 0 for `sigma_max` chooses it
        by calibration (see `robolearn.rl.calibrate`), with `sigma_min` as a share `min_share` of it.
      steps: which denoising steps are noised: "last", or "all" as in the paper (see `stochastic_flow`).
      min_share: σ_min/σ_max when calibrated.
      start: standard deviation of x_0, where every path begins; None chooses it by calibration, too, or leaves the
        policy's where the range is given.
      hold: share of the iterations before σ_max begins to fall.
      hidden: width of the two hidden layers.
    """

    sigma_min: float = 0.0
    sigma_max: float = 0.0
    steps: Literal["last", "all"] = "last"
    min_share: float = 0.5
    start: float | None = None
    hold: float = 0.35
    hidden: int = 64


class NoiseNet(nn.Module):
    """σ(τ, o) for every component of an action chunk.

    Args:
      cond_dim: size C of the encoded observation.
      chunk_dim: Tp · Da.
      config: range and width.
    """

    def __init__(self, cond_dim: int, chunk_dim: int, config: NoiseConfig) -> None:
        super().__init__()
        if not 0 < config.sigma_min <= config.sigma_max < math.inf:
            raise BadInput(
                "range of the noise", got=(config.sigma_min, config.sigma_max), expected="0 < sigma_min <= sigma_max"
            )
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
        self.register_buffer("log_var_min", torch.tensor(2 * math.log(config.sigma_min)))
        self.register_buffer("log_var_max", torch.tensor(2 * math.log(config.sigma_max)))

    def forward(self, tau: Tensor, cond: Tensor) -> Tensor:
        """(B,) flow time and (B, C) condition → (B, Tp·Da) log σ."""
        f = self.net(torch.cat([cond.detach(), tau[:, None]], -1))
        share = 0.5 * (1 + torch.tanh(f))
        return 0.5 * (self.log_var_min + (self.log_var_max - self.log_var_min) * share)

    def schedule(self, progress: float) -> None:
        """Set σ_max for the share `progress` in [0, 1] of the iterations done."""
        low, high = self.config.sigma_min, self.config.sigma_max
        end = 0.3 * low + 0.7 * high
        fall = min(max((progress - self.config.hold) / (1 - self.config.hold), 0.0), 1.0)
        now = end + (high - end) * 0.5 * (1 + math.cos(math.pi * fall))
        self.log_var_max.fill_(2 * math.log(max(now, low)))
