"""One camera's picture → a vector: a map of features, and what is kept of it.

A spatial softmax (Finn et al. 2016, "Deep Spatial Autoencoders") keeps where each channel is active, in image
coordinates. It says where things are, at any resolution, with few weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.networks.encoder_settings import EncoderConfig
from robolearn.core import BadInput

KEYPOINTS = 32  # channels that a backbone's map is brought to before the softmax


def spatial_softmax(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Expected place of the activation of each channel of (B, F, h, w): rows and columns (B, F), each in [-1, 1] over
    the picture."""
    rows, columns = maps.shape[-2:]
    # p = softmax over pixels;  keypoint = Σ p · (row, column)
    p = maps.flatten(2).softmax(-1).view_as(maps)
    y = (p.sum(3) * torch.linspace(-1, 1, rows, device=maps.device)).sum(2)
    x = (p.sum(2) * torch.linspace(-1, 1, columns, device=maps.device)).sum(2)
    return y, x


class SpatialCnn(nn.Module):
    """(B, c, H, W) in [0, 1] → (B, features): three strided convolutions, pooling, linear."""

    frozen = False

    def __init__(self, channels: int, features: int, pooling: str = "spatial_softmax") -> None:
        super().__init__()
        self.pooling = pooling
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, 5, stride=2, padding=2),
            nn.GroupNorm(4, 32),
            nn.SiLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
            nn.GroupNorm(4, 32),
            nn.SiLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
        )
        self.head = nn.Linear(32 if pooling == "mean" else 64, features)

    def keypoints(self, image: Tensor) -> tuple[Tensor, Tensor] | None:
        """See `spatial_softmax`; None for one that takes the mean."""
        return spatial_softmax(self.convolutions(image - 0.5)) if self.pooling == "spatial_softmax" else None

    def forward(self, image: Tensor) -> Tensor:
        maps = self.convolutions(image - 0.5)
        return self.head(maps.mean((2, 3)) if self.pooling == "mean" else torch.cat(spatial_softmax(maps), dim=1))


class BackboneEncoder(nn.Module):
    """(B, 3, H, W) in [0, 1] → (B, features): a backbone's map, pooling, linear.

    The backbone always computes as in evaluation: batch norm by its stored statistics, no dropout. An observation then
    has one encoding, whatever it is batched with, and the likelihood of an actor is that of its sampler.

    Args:
      backbone: (B, 3, H, W), centred and scaled → (B, F, h, w), or (B, F) where it has no map.
      channels: F.
      centre, scale: per channel, (picture − centre) / scale is what the backbone was trained on.
      features: of the result.
      config: pooling, size, and whether the backbone is left as it is.

    Attributes:
      frozen: no gradient reaches the backbone; `stored` may be kept.
    """

    def __init__(
        self,
        backbone: nn.Module,
        channels: int,
        centre: tuple[float, ...],
        scale: tuple[float, ...],
        features: int,
        config: EncoderConfig,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.frozen, self.pooling, self.resize = config.freeze, config.pooling, config.resize
        if self.frozen:
            backbone.requires_grad_(False)
        self.register_buffer("centre", torch.tensor(centre).view(-1, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(scale).view(-1, 1, 1), persistent=False)
        spatial = self.pooling == "spatial_softmax"
        self.reduce = nn.Conv2d(channels, KEYPOINTS, 1) if spatial else nn.Identity()
        self.head = nn.Linear(2 * KEYPOINTS if spatial else channels, features)
        self.train()

    def train(self, mode: bool = True) -> BackboneEncoder:
        """As of `nn.Module`, but for the backbone."""
        super().train(mode)
        self.backbone.eval()
        return self

    def stored(self, image: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] → what of the backbone's answer the rest depends on: (B, F, h, w) or its mean (B, F).
        Raises `BadInput`: a map is needed, and the backbone has none."""
        if self.resize and tuple(image.shape[-2:]) != (self.resize, self.resize):
            size = (self.resize, self.resize)
            image = nn.functional.interpolate(image, size, mode="bilinear", align_corners=False, antialias=True)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            maps = self.backbone((image - self.get_buffer("centre")) / self.get_buffer("scale"))
            if self.pooling == "mean":
                return maps.mean((2, 3)) if maps.ndim == 4 else maps
        if maps.ndim != 4:
            raise BadInput("--pooling", got="spatial_softmax of a backbone without a map", available=["mean"])
        return maps

    def encode(self, stored: Tensor) -> Tensor:
        """Output of `stored` → (B, features)."""
        return self.head(stored if self.pooling == "mean" else torch.cat(spatial_softmax(self.reduce(stored)), dim=1))

    def keypoints(self, image: Tensor) -> tuple[Tensor, Tensor] | None:
        """See `spatial_softmax`; None for one that takes the mean."""
        return spatial_softmax(self.reduce(self.stored(image))) if self.pooling == "spatial_softmax" else None

    def forward(self, image: Tensor) -> Tensor:
        return self.encode(self.stored(image))
