"""Observations → one condition vector: vectors are concatenated, images pass a compact CNN.

The CNN ends in a spatial softmax (Finn et al. 2016, "Deep Spatial Autoencoders"): where each channel is
active, in image coordinates. It says where things are, at any resolution, with few weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from robolearn.core import ArraySpec, BadInput
from robolearn.core.specs import is_image


class SpatialCnn(nn.Module):
    """(B, c, H, W) in [0, 1] → (B, features): three strided convolutions, spatial softmax, linear."""

    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, 5, stride=2, padding=2),
            nn.GroupNorm(4, 32),
            nn.SiLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
            nn.GroupNorm(4, 32),
            nn.SiLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
        )
        self.head = nn.Linear(64, features)

    def keypoints(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Where each channel looks: rows and columns (B, 32), each coordinate in [-1, 1] over the picture."""
        h = self.convolutions(image - 0.5)
        rows, columns = h.shape[-2:]
        # p = softmax over pixels;  keypoint = Σ p · (row, column)
        p = h.flatten(2).softmax(-1).view_as(h)
        y = (p.sum(3) * torch.linspace(-1, 1, rows, device=h.device)).sum(2)
        x = (p.sum(2) * torch.linspace(-1, 1, columns, device=h.device)).sum(2)
        return y, x

    def forward(self, image: Tensor) -> Tensor:
        """See the class."""
        return self.head(torch.cat(self.keypoints(image), dim=1))


class ObservationEncoder(nn.Module):
    """Normalised observation tensors → condition (B, size).

    Attributes:
      features: names in the order in which they are concatenated (sorted, so that a dict's order is nothing).
      tokens: (steps, size) of each feature: the condition is their concatenation.
      size: length of the condition.

    An input feature is (B, …) or (B, To, …); the To axis is flattened into the condition, oldest step first.
    """

    def __init__(self, observation: Mapping[str, ArraySpec], *, observe: int = 1, image_features: int = 64) -> None:
        super().__init__()
        if not observation:
            raise BadInput("observation features", got="none", expected="at least one")
        self.features = tuple(sorted(observation))
        self.shapes = {key: tuple(observation[key].shape) for key in self.features}
        self.observe = observe
        images = [key for key in self.features if is_image(observation[key])]
        self.cameras = nn.ModuleDict(
            {_module_name(key): SpatialCnn(observation[key].shape[-1], image_features) for key in images}
        )
        self.images = frozenset(images)
        sizes = (image_features if key in self.images else observation[key].size for key in self.features)
        self.tokens = tuple((observe, size) for size in sizes)
        self.size = sum(steps * size for steps, size in self.tokens)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        """{feature: (B, …) or (B, To, …)} → (B, size); images as (B, [To,] c, H, W) floats in [0, 1]."""
        parts: list[Tensor] = []
        for key in self.features:
            value = observation[key]
            if key in self.images:
                frames = value.reshape(-1, *value.shape[-3:])
                parts.append(self.cameras[_module_name(key)](frames).reshape(value.shape[0], -1))
            else:
                parts.append(value.flatten(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def keypoints(self, observation: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Picture feature → where its encoder looks, see `SpatialCnn.keypoints`; of the newest observed step."""
        found = {}
        for key in sorted(self.images):
            frames = observation[key].reshape(-1, self.observe, *observation[key].shape[-3:])[:, -1]
            found[key] = self.cameras[_module_name(key)].keypoints(frames)  # type: ignore[operator]
        return found


def _module_name(feature: str) -> str:
    """Module names may not contain dots."""
    return feature.replace(".", "/")
