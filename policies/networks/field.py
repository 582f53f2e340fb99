"""Chooses the network over action chunks that flow and diffusion policies share."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from policies.networks.mlp import MlpField
from policies.networks.transformer import TransformerField
from policies.networks.unet1d import UNet1dField
from policies.settings import NetworkConfig


def build_field(
    config: NetworkConfig, *, horizon: int, action_dim: int, embedding: int, tokens: Sequence[tuple[int, int]]
) -> nn.Module:
    """A module called as ``field(x (B, Tp, Da), embedding (B, E), cond (B, C)) -> (B, Tp, Da)``.

    Args:
      tokens: (steps, size) of each feature in the condition, as `ObservationEncoder.tokens`.
    """
    cond = sum(steps * size for steps, size in tokens)
    if config.kind == "transformer":
        return TransformerField(
            horizon, action_dim, embedding, tokens, width=config.width, depth=config.depth, heads=config.heads
        )
    if config.kind == "unet1d":
        return UNet1dField(action_dim, embedding, cond, channels=config.channels, activation=config.activation)
    return MlpField(
        horizon,
        action_dim,
        embedding,
        cond,
        width=config.width,
        depth=config.depth,
        activation=config.activation,
        norm=config.norm,
    )
