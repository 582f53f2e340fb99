"""A world in which nothing happens, to measure the bridge by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .facts import AdapterEnv, Facts, Features, Spec


def build(task: str = "idle", cameras: Sequence[str] = (), image_size: int = 84, numbers: int = 39) -> IdleSingle:
    """One world that shows `numbers` numbers, and grey pictures for `cameras`."""
    return IdleSingle(task, tuple(cameras), image_size, numbers)


class IdleSingle(AdapterEnv):
    """Observations that never change, episodes that never end."""

    def __init__(self, task: str, cameras: tuple[str, ...], image_size: int, numbers: int) -> None:
        specs = {"proprio": Spec((numbers,))}
        specs.update({f"images.{camera}": Spec((image_size, image_size, 3), "uint8") for camera in cameras})
        self._features: Features = {key: np.full(spec.shape, 7, spec.dtype) for key, spec in specs.items()}
        super().__init__(Facts(specs, 4, 20.0, task, "nothing", 0, reports_success=True))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, dict]:
        return self._features, {}

    def step(self, action: NDArray[np.float32]) -> tuple[Features, float, bool, bool, dict]:
        return self._features, 0.0, False, False, {"success": False}
