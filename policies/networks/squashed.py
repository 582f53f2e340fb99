"""A Gaussian squashed into (-1, 1): the actor of SAC.

    u ~ N(μ(s), σ(s)²),  a = tanh(u),  log π(a | s) = log N(u; μ, σ²) − Σ_i log(1 − tanh² u_i)

Haarnoja et al. 2018, appendix C. The last term is 2 (log 2 − u − softplus(−2u)), which does not underflow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from policies.networks.mlp import ResidualMlp

LOG_STD = (-5.0, 2.0)


class SquashedGaussian(nn.Module):
    """(B, inputs) → actions (B, outputs) in (-1, 1).

    Args:
      std: σ where nothing has been learned.
    """

    def __init__(self, inputs: int, outputs: int, *, width: int = 256, depth: int = 3, std: float = 1.0) -> None:
        super().__init__()
        self.net = ResidualMlp(inputs, 2 * outputs, width=width, depth=depth, activation="relu", norm=True)
        with torch.no_grad():
            self.net.last.weight.mul_(0.1)
            self.net.last.bias[outputs:] = math.log(std)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(μ, log σ), each (B, outputs), before the squashing."""
        mean, log_std = self.net(x).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD)

    def sample(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(a, log π(a | s)): (B, outputs) and (B,), differentiable."""
        mean, log_std = self(x)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        u = mean + log_std.exp() * noise
        normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        return u.tanh(), (normal - 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))).sum(-1)

    def mode(self, x: Tensor) -> Tensor:
        """(B, outputs) tanh μ."""
        return self(x)[0].tanh()
