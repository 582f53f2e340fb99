"""Observations → one condition vector: vectors are concatenated, pictures pass the encoder of their camera."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.encoder_settings import EncoderConfig
from robolearn.core import ArraySpec, BadInput
from robolearn.core.specs import is_goal, is_image, of_goal

KEYPOINTS = 32  # channels that a backbone's map is brought to before the softmax


def spatial_softmax(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Expected place of the activation of each channel of (B, F, h, w): rows and columns (B, F), each in [-1, 1] over
    the picture. It says where things are, at any resolution, with few weights (Finn et al. 2016, "Deep Spatial
    Autoencoders")."""
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
        self, backbone: nn.Module, channels: int, centre: tuple[float, ...], scale: tuple[float, ...], features: int,
        config: EncoderConfig,
    ) -> None:  # fmt: skip
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


SHARED = "shared"


def stored_key(camera: str) -> str:
    """The feature that may stand in for the pictures `camera`: the output of a frozen backbone."""
    return f"{camera}/stored"


def encoded_key(camera: str) -> str:
    """The feature that may stand in for the pictures `camera`: their encoding (`encode_picture`)."""
    return f"{camera}/seen"


def components(value: Tensor) -> Tensor:
    """(B, …) → (B, n), also of single numbers (B,)."""
    return value.flatten(1) if value.ndim > 1 else value[:, None]


class ObservationEncoder(nn.Module):
    """Normalised observation tensors → condition (B, size).

    Attributes:
      features: names in the order in which they are concatenated (sorted, so that a dict's order is nothing).
      steps: feature → observed steps, To; a goal has one.
      tokens: (steps, size) of each feature: the condition is their concatenation.
      size: length of the condition.
      frozen: the output of a backbone for a picture stays the same (`stored`).

    An input feature is (B, …) or (B, To, …); the To axis is flattened into the condition, oldest step first. The
    picture of a goal passes the encoder of its camera.
    """

    def __init__(
        self, observation: Mapping[str, ArraySpec], *, observe: int = 1, image_features: int = 64,
        encoder: EncoderConfig | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not observation:
            raise BadInput("observation features", got="nothing", expected="at least one")
        config = EncoderConfig() if encoder is None else encoder
        self.features = tuple(sorted(observation))
        self.shapes = {key: tuple(observation[key].shape) for key in self.features}
        self.observe, self.crop, self.shared = observe, config.random_crop, config.share
        images = [key for key in self.features if is_image(observation[key])]
        for key in images:
            if min(self.shapes[key][:2]) < self.crop:
                raise BadInput("--random-crop", got=self.crop, expected=f"at most {min(self.shapes[key][:2])} ({key})")
        cameras = {of_goal(key): observation[key] for key in images}  # the picture of a goal has its camera's encoder
        own = sorted(cameras)[:1] if self.shared else sorted(cameras)
        if self.shared and len(kinds := {self.shapes[key][2] for key in images}) > 1:
            raise BadInput("--share-encoder", got=f"cameras of {sorted(kinds)} channels", expected="the same of all")
        self.cameras = nn.ModuleDict(
            {
                SHARED if self.shared else _module_name(key): config.of_kind.build(
                    cameras[key].shape[-1], self._seen(cameras[key].shape[:2]), image_features, config
                )
                for key in own
            }
        )
        self.images = frozenset(images)
        self.frozen = config.freeze and bool(images)
        sizes = (image_features if key in self.images else observation[key].size for key in self.features)
        self.steps = {key: 1 if is_goal(key) else observe for key in self.features}
        self.tokens = tuple(zip(self.steps.values(), sizes, strict=True))
        self.size = sum(steps * size for steps, size in self.tokens)

    def load_pretrained(self, config: EncoderConfig) -> None:
        """Put the weights that `config` names, in a package or in its folder, into the backbones. Raises `BadInput`:
        there are none, or they do not fit."""
        backbones = [camera.backbone for camera in self.cameras.values() if isinstance(camera, BackboneEncoder)]
        if backbones:
            config.of_kind.load_weights(backbones, config.folder)

    @property
    def encoded_specs(self) -> dict[str, ArraySpec]:
        """`encoded_key` of each camera → what `encode_picture` gives for a frame."""
        size = {key: steps * size for key, (steps, size) in zip(self.features, self.tokens, strict=True)}
        return {encoded_key(key): ArraySpec((size[key],)) for key in sorted(self.images)}

    def camera(self, key: str) -> Any:
        """The encoder of the pictures `key`."""
        return self.cameras[SHARED if self.shared else _module_name(of_goal(key))]

    @property
    def has_goals(self) -> bool:
        """True where a part of the condition is a goal."""
        return any(is_goal(key) for key in self.features)

    def of_goals(self) -> Tensor:
        """(size,) true where the condition is that of a goal."""
        parts = [
            torch.full((steps * size,), is_goal(key))
            for key, (steps, size) in zip(self.features, self.tokens, strict=True)
        ]
        return torch.cat(parts)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        """{feature: (B, …) or (B, To, …)} → (B, size); images as (B, [To,] c, H, W) floats in [0, 1], or their
        `stored` under `stored_key`, or what was `encode_picture` at under `encoded_key`."""
        parts: list[Tensor] = []
        for key in self.features:
            if key not in self.images:
                parts.append(components(observation[key]))
            elif (seen := observation.get(encoded_key(key))) is not None:
                parts.append(seen.flatten(1))
            elif (stored := observation.get(stored_key(key))) is not None:
                batch, encoder = stored.shape[0], self.camera(key)
                rank = 1 if encoder.pooling == "mean" else 3
                parts.append(encoder.encode(stored.reshape(-1, *stored.shape[-rank:])).reshape(batch, -1))
            else:
                value = observation[key]
                frames = self._middle(value.reshape(-1, *value.shape[-3:]))
                parts.append(self.camera(key)(frames).reshape(value.shape[0], -1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def encode_picture(self, key: str, frames: Tensor) -> Tensor:
        """Pictures (B, c, H, W) in [0, 1] of camera `key` → its part of the condition, (B, …)."""
        return self.camera(key)(self._middle(frames))

    def stored(self, key: str, frames: Tensor) -> Tensor:
        """Pictures (B, c, H, W) in [0, 1] of camera `key` → what its frozen backbone makes of them, (B, …)."""
        encoder = self.camera(key)
        assert self.frozen and isinstance(encoder, BackboneEncoder)
        return encoder.stored(self._middle(frames))

    def keypoints(self, observation: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Picture feature → where its encoder looks in the newest observed step: rows and columns (B, F), each in
        [-1, 1] over the picture. Of spatial softmaxes alone."""
        found = {}
        for key in sorted(key for key in self.images if not is_goal(key)):
            frames = observation[key].reshape(-1, self.observe, *observation[key].shape[-3:])[:, -1]
            middle = self._middle(frames)
            points = self.camera(key).keypoints(middle)
            if points is not None:
                # Coordinates over the middle → over the picture.
                found[key] = tuple(
                    z * (inner - 1) / max(outer - 1, 1)
                    for z, inner, outer in zip(points, middle.shape[-2:], frames.shape[-2:], strict=True)
                )
        return found

    def _seen(self, size: tuple[int, ...]) -> tuple[int, int]:
        """(H, W) of what an encoder gets of pictures of `size`."""
        return (self.crop, self.crop) if self.crop else (int(size[0]), int(size[1]))

    def _middle(self, frames: Tensor) -> Tensor:
        """(B, c, H, W) → their middle (B, c, crop, crop); what training has cropped passes as it is."""
        height, width = frames.shape[-2:]
        if not self.crop or (height, width) == (self.crop, self.crop):
            return frames
        top, left = (height - self.crop) // 2, (width - self.crop) // 2
        return frames[..., top : top + self.crop, left : left + self.crop]


def _module_name(feature: str) -> str:
    """Module names may not contain dots."""
    return feature.replace(".", "/")
