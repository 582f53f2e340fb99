r"""Intervals for what an evaluation measures: success rates, returns, cycle times.

A rate p̂ = k/n of n independent episodes is reported with a two-sided interval:

- Clopper-Pearson (1934) inverts the binomial test, covers at least at its nominal level and is the default;
- Wilson (1927) inverts the score test, is narrower and covers at its nominal level on average.

Both are `scipy.stats.binomtest`'s. Means (returns, cycle times) get a bias-corrected bootstrap interval (Efron 1987).

These are intervals over *episodes*: how well one policy is measured. A claim about a method needs one over *training
seeds*, `over_seeds`: episodes of several seeds in one pot vary less than the seeds do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import BadInput

METHODS = ("clopper_pearson", "wilson")


@dataclass(frozen=True)
class Success:
    """A success rate with its interval.

    Attributes:
      rate: successes / episodes, in [0, 1].
      low: lower bound of the interval, in [0, 1].
      high: upper bound of the interval, in [0, 1].
      episodes: how many episodes were run.
    """

    rate: float
    low: float
    high: float
    episodes: int

    @staticmethod
    def of(successes: int, episodes: int, *, method: str = "clopper_pearson", level: float = 0.95) -> Success:
        """`successes` of `episodes`, with the interval of `method` (one of `METHODS`)."""
        if method not in METHODS:
            raise BadInput("interval", got=method, expected="a known method", available=METHODS)
        low, high = (clopper_pearson if method == "clopper_pearson" else wilson)(successes, episodes, level=level)
        return Success(successes / episodes, low, high, episodes)

    @property
    def successes(self) -> int:
        """Number of episodes that succeeded."""
        return round(self.rate * self.episodes)

    def to_json(self) -> dict[str, float | int]:
        """``{"rate", "low", "high", "episodes"}``, the shape that every command prints."""
        return {"rate": self.rate, "low": self.low, "high": self.high, "episodes": self.episodes}

    def __str__(self) -> str:
        return f"{self.rate:.1%} [{self.low:.1%}, {self.high:.1%}] of {self.episodes}"


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval, in the unit of the values; NaN where there are too few values.

    Attributes:
      mean: NaN without values.
      low: lower bound, NaN with fewer than two values.
      high: upper bound, NaN with fewer than two values.
      count: number of values.
    """

    mean: float
    low: float
    high: float
    count: int

    def to_json(self) -> dict[str, float | int | None]:
        """``{"mean", "low", "high", "count"}``; NaN, which JSON does not know, becomes None."""
        values = {name: getattr(self, name) for name in ("mean", "low", "high")}
        return {**{name: None if math.isnan(x) else x for name, x in values.items()}, "count": self.count}


@dataclass(frozen=True)
class SeedEstimate(Estimate):
    """A value of k training seeds, its mean with an interval over the seeds.

    Attributes:
      median: of the seeds; what a headline states.
    """

    median: float

    def to_json(self) -> dict[str, float | int | None]:
        """``{"median", "mean", "low", "high", "count"}``; NaN becomes None."""
        return {"median": self.median, **super().to_json()}


def over_seeds(
    values: Sequence[float], *, rates: bool = False, times: bool = False, level: float = 0.95
) -> SeedEstimate:
    """The value (a success rate, a time) of k training seeds, with Student's t interval over the seeds:

        x̄ ± t_{(1 + level)/2, k − 1} · s / √k

    Args:
      values: one of each seed, at least one.
      rates: shares in [0, 1], within which the interval is kept.
      times: durations, whose interval does not go below 0.
    """
    (x,) = _finite(np.asarray(values))
    _check_level(level)
    if not len(x):
        raise BadInput("values of seeds", got="nothing", expected="at least one seed")
    mean, median, k = float(x.mean()), float(np.median(x)), len(x)
    low = high = math.nan
    if k > 1:
        from scipy.special import stdtrit  # late, as below

        half = float(stdtrit(k - 1, (1 + level) / 2)) * float(x.std(ddof=1)) / math.sqrt(k)
        low, high = mean - half, mean + half
        low = max(low, 0.0) if rates or times else low
        high = min(high, 1.0) if rates else high
    return SeedEstimate(mean, low, high, k, median)


def over_tasks(successes: Sequence[Success]) -> Success:
    """The mean success rate p̄ of K tasks, each task counting alike, with an interval over their episodes:

        p̄ − √Σ (p̂ᵢ − lᵢ)² / K  to  p̄ + √Σ (uᵢ − p̂ᵢ)² / K

    by the intervals (lᵢ, uᵢ) of the tasks (Zou and Donner, Statistics in Medicine 2008). The tasks are these: it says
    nothing of others.
    """
    if not successes:
        raise BadInput("successes of tasks", got="nothing", expected="at least one task")
    k = len(successes)
    mean = sum(one.rate for one in successes) / k
    low = mean - math.hypot(*(one.rate - one.low for one in successes)) / k
    high = mean + math.hypot(*(one.high - one.rate for one in successes)) / k
    return Success(mean, low, high, sum(one.episodes for one in successes))


def least_of(successes: Sequence[Success], *, level: float = 0.95) -> Success:
    """The least success rate of K conditions, with an interval for the least of their true rates:

        min_i lᵢ  to  min_i uᵢ     (lᵢ, uᵢ): each at level 1 − (1 − level) / K, so that all hold at once (Bonferroni)

    The interval of the one that came out least lies too low: it was chosen by the episodes that measure it.
    """
    if not successes:
        raise BadInput("successes of conditions", got="nothing", expected="at least one condition")
    each = 1.0 - (1.0 - level) / len(successes)
    bounds = [clopper_pearson(one.successes, one.episodes, level=each) for one in successes]
    least = min(successes, key=lambda one: one.rate)
    return Success(least.rate, min(low for low, _ in bounds), min(high for _, high in bounds), least.episodes)


def wilson(successes: int, episodes: int, *, level: float = 0.95) -> tuple[float, float]:
    """The two-sided Wilson score interval (low, high) of a rate, without continuity correction."""
    return _binomial(successes, episodes, level, "wilson")


def clopper_pearson(successes: int, episodes: int, *, level: float = 0.95) -> tuple[float, float]:
    """The two-sided Clopper-Pearson interval (low, high) of a rate."""
    return _binomial(successes, episodes, level, "exact")


def _binomial(successes: int, episodes: int, level: float, method: Literal["exact", "wilson"]) -> tuple[float, float]:
    _check(successes, episodes, level)
    from scipy import stats  # takes a second to import: paid at the first interval, never at the start of a command

    bounds = stats.binomtest(successes, episodes).proportion_ci(level, method)
    return float(bounds.low), float(bounds.high)


def bootstrap_mean(values: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean of `values` (n,) with its BCa bootstrap interval.

    The interval is a function of (values, seed), so a report made twice is the same.
    """
    (x,) = _finite(values)
    return _bootstrap((x,), np.mean, level, resamples, seed) if len(x) else Estimate(math.nan, math.nan, math.nan, 0)


def mean_difference(x: NDArray[np.float64], y: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
    """Mean of `y` minus mean of `x`, as the tests of scipy call it."""
    return np.mean(y, axis=axis) - np.mean(x, axis=axis)


def bootstrap_difference(
    a: ArrayLike, b: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Mean of `b` (n_b,) minus mean of `a` (n_a,), two independent samples, with its BCa bootstrap interval."""
    x, y = _finite(a, b)
    if not len(x) or not len(y):
        return Estimate(math.nan, math.nan, math.nan, len(x) + len(y))
    return _bootstrap((x, y), mean_difference, level, resamples, seed)


def _bootstrap(
    samples: Sequence[NDArray[np.float64]], statistic: Callable[..., Any], level: float, resamples: int, seed: int
) -> Estimate:
    _check_level(level)
    value, count = float(statistic(*samples)), sum(map(len, samples))
    if min(map(len, samples)) == 1:
        return Estimate(value, math.nan, math.nan, count)
    if all(np.ptp(x) < 1e-12 * max(1.0, float(np.abs(x).max())) for x in samples):
        return Estimate(value, value, value, count)  # every resample is the same: BCa divides by zero
    from scipy import stats  # late, as above

    result = stats.bootstrap(
        samples, statistic, confidence_level=level, n_resamples=resamples, method="BCa",
        rng=np.random.default_rng(seed), vectorized=True,
        batch=64,  # its memory would otherwise grow with n², and with n times the resamples
    )  # fmt: skip
    return Estimate(value, float(result.confidence_interval.low), float(result.confidence_interval.high), count)


def _finite(*samples: ArrayLike) -> list[NDArray[np.float64]]:
    arrays = [np.asarray(values, dtype=np.float64).ravel() for values in samples]
    if not all(np.isfinite(x).all() for x in arrays):
        raise BadInput("values for an interval", got="NaN or infinity", expected="finite numbers")
    return arrays


def _check(successes: int, episodes: int, level: float) -> None:
    _check_level(level)
    if episodes < 1:
        raise BadInput("episodes", got=episodes, expected="at least 1")
    if not 0 <= successes <= episodes:
        raise BadInput("successes", got=successes, expected=f"between 0 and {episodes}")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise BadInput("confidence level", got=level, expected="between 0 and 1")
