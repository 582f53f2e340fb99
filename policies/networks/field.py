"""Chooses the network over action chunks that flow and diffusion policies share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from policies.networks.mlp import ACTIVATIONS, MlpField
from policies.networks.unet1d import UNet1dField
from robolearn.core import BadInput


@dataclass(frozen=True)
class NetworkConfig:
    """The network from (chunk, time, condition) to a chunk.

    Attributes:
      kind: residual MLP over the flat chunk, or U-Net 1-D along its time.
      width: units per layer of the MLP.
      depth: layers of the MLP.
      channels: channels per level of the U-Net.
      activation: "silu", "mish", "relu" or "tanh".
      norm: LayerNorm before each residual layer of the MLP.
      embedding: Fourier features of the flow time, even.
      image_features: length of the encoding of one camera.
    """

    kind: Literal["mlp", "unet1d"] = "mlp"
    width: int = 256
    depth: int = 3
    channels: tuple[int, ...] = (32, 64)
    activation: Literal["silu", "mish", "relu", "tanh"] = "silu"
    norm: bool = False
    embedding: int = 16
    image_features: int = 64

    def __post_init__(self) -> None:
        if self.kind not in ("mlp", "unet1d"):
            raise BadInput("network", got=self.kind, available=("mlp", "unet1d"))
        if self.activation not in ACTIVATIONS:
            raise BadInput("activation", got=self.activation, available=ACTIVATIONS)
        if self.embedding < 2 or self.embedding % 2:
            raise BadInput("time embedding", got=self.embedding, expected="an even number of at least 2")
        channels_fit = self.channels and all(type(c) is int and c > 0 for c in self.channels)
        if self.width < 1 or self.depth < 1 or not channels_fit:
            raise BadInput("network size", got=(self.width, self.depth, self.channels), expected="positive numbers")


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
