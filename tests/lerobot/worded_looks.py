"""Made-up observations for policies that are told the task in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from robolearn.core import Interface

PICTURE = (48, 64)  # neither square nor what a network takes


def looks(
    world: Interface,
    steps: int,
    worlds: int = 1,
    cameras: Sequence[str] = ("front", "wrist"),
    picture: tuple[int, int] = PICTURE,
) -> list[dict[str, np.ndarray]]:
    """Made-up observations, one after the other."""
    rng = np.random.default_rng(5)
    size = world.observation["proprio"].shape
    return [
        {"proprio": rng.normal(size=(worlds, *size)).astype(np.float32)}
        | {f"images.{name}": rng.integers(0, 256, (worlds, *picture, 3), dtype=np.uint8) for name in cameras}
        for _ in range(steps)
    ]


def batch_of(look: dict[str, np.ndarray], sentence: str) -> dict[str, Any]:
    """An observation as LeRobot's preprocessor takes it."""
    batch: dict[str, Any] = {
        "observation.state": torch.tensor(look["proprio"]),
        "task": [sentence] * len(look["proprio"]),
    }
    for key, value in look.items():
        if value.ndim == 4:
            batch[f"observation.{key}"] = torch.tensor(value).permute(0, 3, 1, 2).float() / 255
    return batch
