"""Which episodes of a data set are trained on, and which are held out for validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from robolearn.core import BadInput
from robolearn.data import Dataset, Windows
from robolearn.train.settings import ImitationConfig


def split_episodes(episodes: int, config: ImitationConfig) -> tuple[list[int], list[int]]:
    """Indices of the episodes (for training, for validation); at least one for training.

    Whole episodes, because neighbouring windows of one episode are almost copies of each other.
    """
    held = min(math.ceil(episodes * config.validation), episodes - 1)
    order = np.random.default_rng([config.seed, episodes]).permutation(episodes)
    return sorted(int(e) for e in order[held:]), sorted(int(e) for e in order[:held])


@dataclass(frozen=True)
class Part:
    """The windows of one data set that are trained on, and those held out; `weights` are of the `episodes`."""

    train: Windows
    held: Windows | None
    episodes: list[int]
    weights: list[float] | None

    @staticmethod
    def of(
        config: ImitationConfig, dataset: Dataset, weights: Sequence[float] | None, device: str | torch.device
    ) -> Part:
        least = 2 if config.validation else 1
        if dataset.episodes < least:
            raise BadInput(f"dataset {dataset.path}", got=f"{dataset.episodes} episodes", expected=f"at least {least}")
        train, held = split_episodes(dataset.episodes, config)
        chunk = config.policy.observe, config.policy.horizon
        own = None if weights is None else [weights[e] for e in train]
        return Part(
            Windows(dataset, *chunk, episodes=train, weights=own, device=device),
            Windows(dataset, *chunk, episodes=held, device=device) if held else None,
            train,
            own,
        )
