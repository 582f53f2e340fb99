"""Chooses the network over action chunks that flow and diffusion policies share."""

from __future__ import annotations

from torch import nn

from policies.networks.mlp import MlpField
from policies.networks.unet1d import UNet1dField
from policies.settings import NetworkConfig


def build_field(config: NetworkConfig, *, horizon: int, action_dim: int, embedding: int, cond: int) -> nn.Module:
    """A module called as ``field(x (B, Tp, Da), embedding (B, E), cond (B, C)) -> (B, Tp, Da)``."""
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
