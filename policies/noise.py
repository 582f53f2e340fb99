"""The noise that a policy starts from, reproducible world by world."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 64  # calls whose noise is made at once: a generator per world and call would cost more than the policy


class WorldNoise:
    """Standard normal noise that depends on (seed, world, call) alone, not on the number of worlds or threads.

    Attributes:
      shape: of one world's noise.
      seed: set by `reset`.
      call: how often `draw` was called since. Setting both restores the sequence.
    """

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.shape = shape
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Start anew."""
        self.seed, self.call = abs(int(seed)), 0
        self._number, self._block = -1, np.empty((BLOCK, 0, *self.shape), np.float32)

    def draw(self, worlds: int) -> NDArray[np.float32]:
        """(worlds, *shape)."""
        number, row = divmod(self.call, BLOCK)
        if number != self._number:
            self._number, self._block = number, np.empty((BLOCK, 0, *self.shape), np.float32)
        have = self._block.shape[1]
        if have < worlds:
            new = [
                np.random.default_rng((self.seed, world, number)).standard_normal((BLOCK, *self.shape), np.float32)
                for world in range(have, worlds)
            ]
            self._block = np.concatenate((self._block, np.stack(new, axis=1)), axis=1)
        self.call += 1
        return self._block[row, :worlds].copy()
