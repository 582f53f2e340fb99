"""Blocks of a trial: how many it takes to find a difference, computed exactly from the walk of `sequential`.

Successes of the two policies at one start are taken as independent. Where they are not (a hard start is hard for both),
fewer blocks decide, and more clearly.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from robolearn.core import BadInput
from robolearn.eval.trials.sequential import Array, crossing

MOST_BLOCKS = 4000
CONCENTRATIONS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Design:
    """Properties of a trial of two policies with given success rates.

    Attributes:
      blocks: M, at most.
      concentration: c of `sequential`.
      power: probability that the better one is named within them.
      expected_blocks: mean number of blocks until the trial stops.
      fixed_blocks: blocks of the exact McNemar test, looked at once, for that power; None beyond `MOST_BLOCKS`.
    """

    blocks: int
    concentration: int
    power: float
    expected_blocks: float
    fixed_blocks: int | None

    @property
    def saved(self) -> float | None:
        """Share of the blocks that stopping early saves, beside the test that is looked at once."""
        return None if self.fixed_blocks is None else 1.0 - self.expected_blocks / self.fixed_blocks

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``--json``."""
        return {**asdict(self), "saved": self.saved}


@lru_cache(maxsize=64)
def log_level(blocks: int, alpha: float, concentration: int) -> float:
    """log of a value of E that equal policies reach within `blocks` with probability `alpha` at most, the least such to
    a thousandth."""
    low, high = 0.0, -math.log(alpha)  # Ville's bound suffices for any number of blocks
    while high - low > 1e-3:
        middle = (low + high) / 2
        rare = crossing(middle, blocks, concentration=concentration).sum() <= alpha
        low, high = (low, middle) if rare else (middle, high)
    return high


def design(rates: tuple[float, float], blocks: int, concentration: int, alpha: float) -> Design:
    """The trial of at most `blocks` blocks of two policies that succeed at `rates`, at level `alpha`."""
    power, first, decisive = _walked(rates, blocks, concentration, alpha)
    from scipy import stats

    # P(not stopped by block n) = 1 − Σ_m Binomial(m; n, decisive) P(stopped by the m-th decisive block)
    stopped, m = np.cumsum(first), np.arange(blocks + 1)
    going = [1.0 - stats.binom.pmf(m[: n + 1], n, decisive) @ stopped[: n + 1] for n in range(blocks)]
    return Design(blocks, concentration, power, float(sum(going)), fixed_blocks(rates, power, alpha))


def _walked(rates: tuple[float, float], blocks: int, concentration: int, alpha: float) -> tuple[float, Array, float]:
    """Power, the distribution of the decisive block that stops the trial, and the share of blocks that decide."""
    from scipy import stats  # late: it takes a second to import

    p_a, p_b = rates
    decisive = p_a * (1 - p_b) + p_b * (1 - p_a)
    level = log_level(blocks, alpha, concentration)
    first = crossing(level, blocks, p_b * (1 - p_a) / decisive, concentration)
    power = stats.binom.pmf(np.arange(blocks + 1), blocks, decisive) @ np.cumsum(first)
    return float(power), first, decisive


def planned(rates: tuple[float, float], power: float, alpha: float) -> Design:
    """The trial that finds the difference of `rates` with at least `power` and in the fewest blocks on average. Raises
    `BadInput`: no difference, shares out of range, or more than `MOST_BLOCKS`."""
    for name, value in (("rate", rates[0]), ("rate", rates[1]), ("power", power), ("alpha", alpha)):
        if not 0 < value < 1:
            raise BadInput(name, got=value, expected="between 0 and 1")
    fixed = None if rates[0] == rates[1] else fixed_blocks(rates, power, alpha)
    if fixed is None or 2 * fixed > MOST_BLOCKS:
        got, expected = f"{rates[0]:g} and {rates[1]:g}", f"rates that {MOST_BLOCKS} blocks can tell apart"
        raise BadInput("rates to detect", got=got, expected=expected)
    best: Design | None = None
    for concentration in CONCENTRATIONS:
        low, high = fixed, fixed
        while _walked(rates, high, concentration, alpha)[0] < power:
            low, high = high, round(1.25 * high) + 1
        while high - low > max(1, low // 50):  # to two per cent
            middle = (low + high) // 2
            enough = _walked(rates, middle, concentration, alpha)[0] >= power
            low, high = (low, middle) if enough else (middle, high)
        found = design(rates, high, concentration, alpha)
        if best is not None and found.expected_blocks >= best.expected_blocks:
            break
        best = found
    assert best is not None
    return best


@lru_cache(maxsize=64)
def fixed_blocks(rates: tuple[float, float], power: float, alpha: float) -> int | None:
    """Blocks that the exact McNemar test, looked at once, needs for `power`; None beyond `MOST_BLOCKS`."""
    if mcnemar_power(rates, MOST_BLOCKS, alpha) < power:
        return None
    low, high = 1, MOST_BLOCKS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if mcnemar_power(rates, middle, alpha) >= power else (middle + 1, high)
    return low


def mcnemar_power(rates: tuple[float, float], blocks: int, alpha: float) -> float:
    """Power of the exact McNemar test after `blocks` blocks."""
    from scipy import stats

    p_a, p_b = rates
    decisive = p_a * (1 - p_b) + p_b * (1 - p_a)
    theta = p_b * (1 - p_a) / decisive
    m = np.arange(blocks + 1)
    most = stats.binom.ppf(alpha / 2, m, 0.5)  # the largest k with P(b ≤ k) ≤ α/2: rejected there, and at m − k
    most -= stats.binom.cdf(most, m, 0.5) > alpha / 2
    rejected: Array = stats.binom.cdf(most, m, theta) + stats.binom.sf(m - most - 1, m, theta)
    return float(stats.binom.pmf(m, blocks, decisive) @ np.where(most < 0, 0.0, rejected))
