"""The networks over action chunks by their names, and the embedding of the time that they take.

Fourier features: Tancik et al. 2020, "Fourier Features Let Networks Learn High Frequency Functions".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from policies.networks.mlp import MlpField
from policies.networks.transformer import TransformerField
from policies.networks.unet1d import UNet1dField
from policies.settings import NetworkConfig


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


def _mlp(c: NetworkConfig, horizon: int, action_dim: int, embedding: int, tokens: Tokens) -> nn.Module:
    size = {"width": c.width, "depth": c.depth}
    return MlpField(horizon, action_dim, embedding, _length(tokens), **size, activation=c.activation, norm=c.norm)


def _unet(c: NetworkConfig, horizon: int, action_dim: int, embedding: int, tokens: Tokens) -> nn.Module:
    return UNet1dField(action_dim, embedding, _length(tokens), channels=c.channels, activation=c.activation)


def _transformer(c: NetworkConfig, horizon: int, action_dim: int, embedding: int, tokens: Tokens) -> nn.Module:
    return TransformerField(horizon, action_dim, embedding, tokens, width=c.width, depth=c.depth, heads=c.heads)


def _length(tokens: Tokens) -> int:
    """C, of the condition."""
    return sum(steps * size for steps, size in tokens)


Tokens = Sequence[tuple[int, int]]
FIELDS: dict[str, Callable[[NetworkConfig, int, int, int, Tokens], nn.Module]] = {
    "mlp": _mlp,
    "unet1d": _unet,
    "transformer": _transformer,
}


def build_field(config: NetworkConfig, *, horizon: int, action_dim: int, embedding: int, tokens: Tokens) -> nn.Module:
    """A module called as ``field(x (B, Tp, Da), embedding (B, E), cond (B, C)) -> (B, Tp, Da)``.

    Args:
      tokens: (steps, size) of each feature in the condition, as `ObservationEncoder.tokens`.
    """
    return FIELDS[config.kind](config, horizon, action_dim, embedding, tokens)
