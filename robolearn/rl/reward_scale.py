"""Reward scaling: divide by the running standard deviation of the discounted return (Engstrom et al., ICLR 2020).

With the discounted return G of every world, which starts from 0 with every episode:

    G ← r + γ G,     r_scaled = clip(r / std[G], ±limit)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class RewardScale:
    """Running statistics over all worlds; the scale is never below `floor`, so that rare rewards stay bounded."""

    def __init__(self, num_envs: int, gamma: float, *, limit: float = 10.0, floor: float = 0.1) -> None:
        self._gamma, self._limit, self._floor = gamma, limit, floor
        self._running = np.zeros(num_envs)
        self._count, self._mean, self._m2 = 1e-4, 0.0, 0.0

    @property
    def std(self) -> float:
        """The present divisor."""
        return max(float(np.sqrt(self._m2 / self._count)), self._floor)

    def __call__(
        self, reward: NDArray[np.float32], ended: NDArray[np.bool_], worlds: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """(N,) rewards of one decision → (N,) scaled rewards; only the rows of `worlds` (N,) matter."""
        counted = slice(None) if worlds is None or worlds.all() else worlds
        self._running[counted] = reward[counted] + self._gamma * self._running[counted]
        running = self._running[counted]
        if len(running) == 0:
            return np.zeros_like(reward)
        # Chan's parallel update of mean and variance.
        n, mean, m2 = len(running), float(running.mean()), float(running.var() * len(running))
        delta, total = mean - self._mean, self._count + n
        self._mean += delta * n / total
        self._m2 += m2 + delta * delta * self._count * n / total
        self._count = total
        self._running[ended] = 0.0
        return np.clip(reward / self.std, -self._limit, self._limit).astype(np.float32)

    def begin(self) -> None:
        """All worlds begin new episodes."""
        self._running[:] = 0.0

    def state(self) -> NDArray[np.float64]:
        """Everything, as one vector."""
        return np.concatenate([[self._count, self._mean, self._m2], self._running])

    def load(self, state: NDArray[np.float64]) -> None:
        """The inverse of `state`."""
        self._count, self._mean, self._m2 = (float(x) for x in state[:3])
        self._running = state[3:].copy()
