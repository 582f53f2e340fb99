"""How much is to be done: so many episodes in every world, or so many decisions.

A budget of n episodes is divided over the N worlds before anything moves: world w runs its first ⌈n/N⌉ or ⌊n/N⌋
episodes and then rests. Which episodes count therefore never depends on how long they last; counting whatever
happens to end within a number of steps favours short episodes, and failures are often the short ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Quota(Protocol):
    """What `Engine.turns` ends by."""

    def open(self, episodes: NDArray[np.int64], decisions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,) worlds in which something is left to do, after so many episodes and decisions in each."""
        ...


@dataclass(frozen=True)
class Episodes:
    """The first ``each[w]`` episodes of every world w; `each` is (N,)."""

    each: NDArray[np.int64]

    def open(self, episodes: NDArray[np.int64], decisions: NDArray[np.int64]) -> NDArray[np.bool_]:
        return episodes < self.each


@dataclass(frozen=True)
class Decisions:
    """T decisions in every world, over as many episodes as that takes."""

    each: int

    def open(self, episodes: NDArray[np.int64], decisions: NDArray[np.int64]) -> NDArray[np.bool_]:
        return decisions < self.each


def spread(episodes: int, num_envs: int) -> NDArray[np.int64]:
    """(N,) how many of n episodes each world runs: ⌈n/N⌉ in the first n mod N worlds, ⌊n/N⌋ in the others."""
    share, rest = divmod(episodes, num_envs)
    return share + (np.arange(num_envs) < rest).astype(np.int64)
