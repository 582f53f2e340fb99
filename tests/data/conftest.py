"""Small episodes with numbers that tell where they belong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from robolearn.core import ArraySpec, Episode, Interface


@pytest.fixture
def interface() -> Interface:
    return Interface(
        observation={"proprio": ArraySpec((3,), names=("a", "b", "c")), "objects": ArraySpec((2,))},
        action=ArraySpec((2,)),
        control_hz=20.0,
        embodiment="panda",
        action_kind="tcp_delta",
        extra={"gripper": [0.0, 0.08]},
    )


@pytest.fixture
def episode() -> Callable[..., Episode]:
    """``episode(e, length)``: proprio[t] = (e, t, -t), action[t] = (e, t) / 1000."""

    def make(e: int, length: int = 5, *, success: bool = True, task: str = "lift the cube") -> Episode:
        t = np.arange(length, dtype=np.float32)
        same = np.full(length, e, np.float32)
        return Episode(
            observation={"proprio": np.stack([same, t, -t], 1), "objects": np.stack([t * 0.5, same], 1)},
            action=np.stack([same, t], 1) / np.float32(1000),
            reward=(t == length - 1).astype(np.float32) * success,
            success=success,
            terminated=success,
            truncated=not success,
            task=task,
        )

    return make
