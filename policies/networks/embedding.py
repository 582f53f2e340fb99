"""Fourier features of flow time and step size (Tancik et al. 2020, "Fourier Features Let Networks Learn…")."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FourierEmbedding(nn.Module):
    """A number in [0, 1] → `dim` sines and cosines with periods spaced geometrically.

    No weights: the embedding of a sampling grid can be computed once.

    Attributes:
      dim: number of features, even.
      period: shortest and longest period. The shortest one should be a few sampling steps long: shorter ones
        only let the network tell apart times that it must treat alike.
    """

    def __init__(self, dim: int, period: tuple[float, float] = (0.1, 4.0)) -> None:
        super().__init__()
        self.dim = dim
        half = dim // 2
        log = torch.linspace(math.log(period[0]), math.log(period[1]), half, dtype=torch.float64)
        self.frequency: Tensor
        self.register_buffer("frequency", (2.0 * math.pi / log.exp()).float(), persistent=False)

    def forward(self, tau: Tensor) -> Tensor:
        """(B,) → (B, dim)."""
        # γ(τ) = [sin(2π τ / p_i), cos(2π τ / p_i)]
        angle = tau[:, None] * self.frequency
        return torch.cat((angle.sin(), angle.cos()), dim=-1)
