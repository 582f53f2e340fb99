"""First frames of training, by which a camera is noticed that stands elsewhere, or looks at another scene.

d_c = rms(map_c − μ_c) / σ_c        μ: mean map of a camera's first frames in training, σ: rms of their deviations
far   the median of d over the first frames of a set > 1.2 times the largest d of those kept from training
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from robolearn.core import Env, RewardModel, Window

MARGIN = 1.2
LOOKED_AT = 16  # episodes of a set, or worlds, whose first frames are compared
log = logging.getLogger(__name__)


class FirstFrames(nn.Module):
    """See the module.

    Attributes:
      mean: (C, 112, m, m); spread: (C,) σ.
      most: (C,) largest d of first frames that were kept from training.
    """

    mean: Tensor
    spread: Tensor
    most: Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(*shape))
        self.register_buffer("spread", torch.ones(shape[0]))
        self.register_buffer("most", torch.zeros(shape[0]))

    @torch.no_grad()
    def fit(self, trained: Tensor, kept: Tensor) -> None:
        """Of maps (n, C, 112, m, m) in training, and of others."""
        self.mean.copy_(trained.float().mean(0))
        deviation = trained.to(self.mean.device).float() - self.mean
        self.spread.copy_(deviation.square().flatten(2).mean((0, 2)).sqrt().clamp_min(1e-6))
        self.most.copy_(self.distance(kept).amax(0))

    def distance(self, maps: Tensor) -> Tensor:
        """(n, C) d of maps (n, C, 112, m, m)."""
        deviation = maps.to(self.mean.device).float() - self.mean
        return deviation.square().flatten(2).mean(2).sqrt() / self.spread

    def far(self, maps: Tensor, cameras: Sequence[str]) -> list[str]:
        """A sentence for each camera whose maps (n, C, 112, m, m) are far from those of training."""
        found = zip(cameras, self.distance(maps).median(0).values.tolist(), self.most.tolist(), strict=True)
        return [
            f"{camera}: first frames deviate {d:.1f} times as much from those of the critic's training as these among "
            f"themselves, and none that it was tried on more than {most:.1f} times: is the camera where it was?"
            for camera, d, most in found
            if d > MARGIN * most
        ]


def warn_if_strange(model: RewardModel, windows: Iterable[Window], where: str) -> None:
    """Warn in one line where `windows`, of `where`, begin otherwise to `model` than the episodes of its training. They
    are not read for a model that has no word on it. Raises `BadInput` as its `strange` does."""
    strange: Any = getattr(model, "strange", None)
    if strange is not None and (shown := list(windows)) and (found := strange(shown)):
        log.warning("%s: %s", where, "; ".join(found))


def beginnings(env: Env, seed: int) -> Iterable[Window]:
    """The first frame of each world of `env`, of `LOOKED_AT` at most, each before a step that is not taken."""
    observation, _ = env.reset(seed=seed)
    still = np.zeros((1, *env.interface.action.shape), np.float32)
    for world in range(min(LOOKED_AT, env.num_envs)):
        yield Window({key: value[world][None] for key, value in observation.items()}, still)
