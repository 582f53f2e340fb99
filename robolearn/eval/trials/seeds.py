"""Training seeds and episodes as two variances: is a method better, or one of its trainings?

Success y of episode i of training j, with k trainings of n_j episodes each (one-way analysis of variance, method of
moments; Searle, Casella, McCulloch 1992):

    y_ij = μ + s_j + e_ij
    MSB = Σ n_j (ȳ_j − ȳ)² / (k − 1),    MSW = Σ n_j ȳ_j (1 − ȳ_j) / (N − k),    n₀ = (N − Σ n_j² / N) / (k − 1)
    σ²_episode = MSW,    σ²_seed = max(0, (MSB − MSW) / n₀)

A trial compares the trainings that it has. What another training would do is said by the interval over the seeds alone
(Student's, and of a difference Welch's 1947).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robolearn.core import BadInput
from robolearn.eval.intervals import SeedEstimate, over_seeds


@dataclass(frozen=True)
class SeedSplit:
    """The spread of a policy's success.

    Attributes:
      rates: of each training.
      episodes: of each training.
      over_seeds: the mean over trainings with its interval.
      seed_sd: standard deviation between trainings.
      episode_sd: standard deviation of an episode's success within a training.
    """

    rates: tuple[float, ...]
    episodes: tuple[int, ...]
    over_seeds: SeedEstimate
    seed_sd: float
    episode_sd: float

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``--json``."""
        return {"rates": list(self.rates), "episodes": list(self.episodes), "over_seeds": self.over_seeds.to_json(),
                "seed_sd": self.seed_sd, "episode_sd": self.episode_sd}  # fmt: skip


def split_seeds(successes: Sequence[Sequence[bool]]) -> SeedSplit | None:
    """The split of the successes of each training; None with fewer than two trainings of two episodes."""
    if len(successes) < 2 or min(map(len, successes)) < 2:
        return None
    n = np.array([len(each) for each in successes])
    rate = np.array([np.mean(each) for each in successes])
    k, total = len(n), int(n.sum())
    between = float((n * (rate - (n * rate).sum() / total) ** 2).sum()) / (k - 1)
    within = float((n * rate * (1 - rate)).sum()) / (total - k)
    each = (total - float((n**2).sum()) / total) / (k - 1)
    seed = math.sqrt(max(0.0, (between - within) / each))
    estimate = over_seeds(rate.tolist(), rates=True)
    return SeedSplit(tuple(rate.tolist()), tuple(n.tolist()), estimate, seed, math.sqrt(within))


def method_difference(a: SeedSplit, b: SeedSplit, level: float = 0.95) -> dict[str, float | None]:
    """Mean of B's trainings minus that of A's, with Welch's interval over the seeds: ``{"value", "low", "high"}``; the
    bounds are None where no training of a method differs from another.

    Raises:
      BadInput: a level out of range.
    """
    if not 0 < level < 1:
        raise BadInput("confidence level", got=level, expected="between 0 and 1")
    from scipy.special import stdtrit  # late: scipy takes a second to import

    value = b.over_seeds.mean - a.over_seeds.mean
    # v = s²/k of each;  t_ν √(v_a + v_b),  ν = (v_a + v_b)² / (v_a²/(k_a − 1) + v_b²/(k_b − 1))
    k = np.array([len(a.rates), len(b.rates)])
    v = np.array([np.var(a.rates, ddof=1), np.var(b.rates, ddof=1)]) / k
    if v.sum() == 0:
        return {"value": value, "low": None, "high": None}
    freedom = v.sum() ** 2 / (v**2 / (k - 1)).sum()
    half = float(stdtrit(freedom, (1 + level) / 2) * math.sqrt(v.sum()))
    return {"value": value, "low": max(-1.0, value - half), "high": min(1.0, value + half)}
