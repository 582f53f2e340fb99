"""A reward model from preferences (Christiano et al. 2017): the frames that better clips have more of.

    r̂_m(o), d_m(o) ∈ (−1, 1)                          of member m
    R_m(σ)   = β mean_{t∈σ} r̂_m(o_{t+1})              of a clip σ;  or D_m(σ) = β max_{t∈σ} d_m(o_{t+1})
    P(l ≻ r) = 1 / (1 + e^{R(r) − R(l)})              Bradley and Terry
    Φ_t      = ½ (1 + min_m r̂_m(o_t)),                done where ½ (1 + min_m d_m(o_t)) ≥ θ

The mean says what a way to the end is worth. The maximum says how near a clip came: a failure may be on a good way for
long, and a threshold of Φ would call that done.

Departures: clips differ in length, so means are compared, not sums; an ensemble is read by its worst member; what is
learned from is the verdict *done*, with Φ as a potential. θ is fitted on the same pairs (`preference_training`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor, nn

from robolearn.core import ArraySpec, BadInput, Interface, Score, Window
from robolearn.core.specs import check_observed
from robolearn.rewards.networks import CHANNELS, STRIDE, PictureModel, sizes_of, squeezed
from robolearn.rewards.settings import PreferenceRewardConfig
from robolearn.rewards.shaping import score_of_frames

NEVER = 1.0  # a threshold that nothing reaches
MOST = float(np.nextafter(np.float32(NEVER), np.float32(0)))  # of what is below it; tanh is 1 from 9 on


class PreferenceNet(nn.Module):
    """r̂ and d of one member: pictures as in the success classifier, vectors beside them.

    Args:
      cameras: C.
      size: V, components of all vectors together.
    """

    def __init__(self, config: PreferenceRewardConfig, cameras: int, size: int) -> None:
        super().__init__()
        width, seen = config.width, cameras * config.channels * (config.picture // STRIDE) ** 2
        self.squeeze = nn.ModuleList(nn.Conv2d(CHANNELS, config.channels, 1) for _ in range(cameras))
        self.drop = nn.Dropout(config.dropout)
        self.see = nn.Sequential(*([nn.Linear(seen, width), nn.LayerNorm(width), nn.SiLU()] if cameras else []))
        self.value = nn.Sequential(
            nn.Linear(size + (width if cameras else 0), width), nn.SiLU(),
            nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2),
        )  # fmt: skip

    def forward(self, maps: Tensor, vectors: Tensor) -> Tensor:
        """Maps (B, C, 112, m, m) and standardised vectors (B, V) → (B, 2) r̂ and d."""
        parts = [self.see(self.drop(squeezed(self.squeeze, maps)))] if len(self.squeeze) else []
        return torch.tanh(self.value(torch.cat([*parts, self.drop(vectors)], 1)))


class PreferenceReward(PictureModel):
    """See the module.

    Attributes:
      config: of its training.
      vectors: feature → its components; those that are no pictures.
      names: feature → the names of its components, where it has some.
      is_privileged: some of them only a simulated world has.
      centre, scale: (V,) mean and deviation of the vectors in training.
      threshold: θ.
    """

    format = "robolearn.preference_reward"
    needs_prompt = False
    frame_by_frame = True
    centre: Tensor
    scale: Tensor

    def __init__(
        self, config: PreferenceRewardConfig, pictures: Mapping[str, tuple[int, int]], vectors: Mapping[str, int], *,
        names: Mapping[str, Sequence[str]] | None = None, is_privileged: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(config.picture, pictures)
        self.config, self.vectors, self.threshold = config, dict(vectors), NEVER
        self.names = {key: tuple(found) for key, found in (names or {}).items()}
        size = sum(vectors.values())
        self.members = nn.ModuleList(PreferenceNet(config, len(pictures), size) for _ in range(config.members))
        self.register_buffer("centre", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.sees_images, self.is_privileged = bool(pictures), is_privileged

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> PreferenceReward:
        """The model that a checkpoint's config.json describes, without its weights."""
        settings = TypeAdapter(PreferenceRewardConfig).validate_python(stored["settings"])
        vectors = {str(key): int(size) for key, size in stored["vectors"].items()}
        model = cls(
            settings, sizes_of(stored), vectors, names=stored["names"], is_privileged=bool(stored["privileged"])
        )
        model.threshold = float(stored["threshold"])
        if not 0.0 < model.threshold <= NEVER:
            raise ValueError(f"threshold {model.threshold}")
        return model

    def facts(self) -> dict[str, Any]:
        """For config.json."""
        return {
            "vectors": self.vectors,
            "names": {key: list(names) for key, names in self.names.items()},
            "privileged": self.is_privileged,
            "threshold": self.threshold,
        }

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.cameras, *self.vectors)

    def check(self, interface: Interface) -> None:
        super().check(interface)
        needed = {key: ArraySpec((size,), names=self.names.get(key, ())) for key, size in self.vectors.items()}
        check_observed(needed, interface, what="reward")

    def vectors_of(self, observation: Mapping[str, NDArray]) -> Tensor:
        """(P, V) of P frames, as they are observed. Raises `BadInput` as `check` does."""
        for key, size in self.vectors.items():
            if key not in observation or observation[key].shape[1:] != (size,):
                got = observation[key].shape[1:] if key in observation else "no such feature"
                raise BadInput(f"reward: {key}", got=got, expected=f"({size},), as in its training",
                               available=observation)  # fmt: skip
        count = len(next(iter(observation.values())))
        parts = [np.asarray(observation[key], np.float32) for key in self.vectors]
        return torch.from_numpy(np.concatenate([np.zeros((count, 0), np.float32), *parts], 1))

    def values(self, maps: Tensor, vectors: Tensor) -> Tensor:
        """(members, B, 2) r̂ and d of frames with maps (B, C, 112, m, m) and vectors (B, V) as they are observed."""
        standard = (vectors - self.centre) / self.scale
        return torch.stack([member(maps, standard) for member in self.members])

    @torch.no_grad()
    def judged(self, maps: Tensor, vectors: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(B,) Φ, and (B,) what is compared with θ."""
        self.eval()
        device = self.centre.device
        parts = zip(maps.split(256), vectors.split(256), strict=True)
        worst = torch.cat([self.values(m.to(device), v.to(device)).amin(0) for m, v in parts])
        progress, done = (0.5 * (1.0 + worst)).clamp(max=MOST).cpu().numpy().astype(np.float32).T
        return progress, done

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        """See `robolearn.core.RewardModel`. Raises `BadInput` where a window does not fit."""
        return [self._score(window) for window in windows]

    def _score(self, window: Window) -> Score:
        vectors, frames = self.vectors_of(window.observation), self.seen(window)
        maps = self.encoder.encode(frames) if frames else torch.zeros(len(vectors), 0)
        progress, done = self.judged(maps, vectors)
        return score_of_frames(progress, done, len(window), self.threshold)
