"""Blocks of a trial: how many it takes to find a difference, computed exactly from the walk of `sequential`.

Successes of the two policies at one start are taken as independent. Where they are not (a hard start is hard for both),
fewer blocks decide, and more clearly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from statistics import NormalDist
from typing import Any

import numpy as np

from robolearn.core import BadInput
from robolearn.eval.trials.futility import Futility, power_and_length
from robolearn.eval.trials.sequential import Array, crossing

MOST_BLOCKS = 4000
MOST_STEPPED = 400  # of McNemar's test: beyond, every count of both policies after every block takes too long
FUTILITY = 0.1  # from 0 to it the mean falls by a tenth at a power of 0.8, beyond hardly, while M grows
DRIFT = 2.7  # of a start, near enough for all rates
NORMAL = NormalDist()
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
      futility: conditional power below which the trial ends; None: it ends early by its verdict alone.
    """

    blocks: int
    concentration: int
    power: float
    expected_blocks: float
    fixed_blocks: int | None
    futility: float | None = None

    @property
    def saved(self) -> float | None:
        """Share of the blocks that stopping early saves, beside the test that is looked at once."""
        return None if self.fixed_blocks is None else 1.0 - self.expected_blocks / self.fixed_blocks

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``--json``."""
        return {**asdict(self), "saved": self.saved}


@lru_cache(maxsize=1024)
def log_level(blocks: int, alpha: float, concentration: int) -> float:
    """log of a value of E that equal policies reach within `blocks` with probability `alpha` at most, the least such to
    a thousandth."""
    low, high = 0.0, -math.log(alpha)  # Ville's bound suffices for any number of blocks
    while high - low > 1e-3:
        middle = (low + high) / 2
        rare = crossing(middle, blocks, concentration=concentration).sum() <= alpha
        low, high = (low, middle) if rare else (middle, high)
    return high


def design(
    rates: tuple[float, float], blocks: int, concentration: int, alpha: float, futility: Futility | None = None
) -> Design:
    """The trial of at most `blocks` blocks of two policies that succeed at `rates`, at level `alpha`, which ends for
    `futility` where that is given."""
    level = log_level(blocks, alpha, concentration)
    if futility is None:
        power, expected = _without_futility(rates, level, blocks, concentration)
    else:
        power, expected = power_and_length(rates, futility, level, blocks, concentration)
    below = futility and futility.below
    return Design(blocks, concentration, power, expected, fixed_blocks(rates, power, alpha), below)


def _without_futility(rates: tuple[float, float], level: float, blocks: int, concentration: int) -> tuple[float, float]:
    """Power and mean number of blocks of a trial that ends early by its verdict alone."""
    power, first, decisive = _walked(rates, level, blocks, concentration)
    from scipy import stats

    # P(not stopped by block n) = 1 − Σ_m Binomial(m; n, decisive) P(stopped by the m-th decisive block)
    stopped, m = np.cumsum(first), np.arange(blocks + 1)
    going = [1.0 - stats.binom.pmf(m[: n + 1], n, decisive) @ stopped[: n + 1] for n in range(blocks)]
    return power, float(sum(going))


def _walked(rates: tuple[float, float], level: float, blocks: int, concentration: int) -> tuple[float, Array, float]:
    """Power, the distribution of the decisive block that stops the trial, and the share of blocks that decide."""
    from scipy import stats  # late: it takes a second to import

    p_a, p_b = rates
    decisive = p_a * (1 - p_b) + p_b * (1 - p_a)
    first = crossing(level, blocks, p_b * (1 - p_a) / decisive, concentration)
    power = stats.binom.pmf(np.arange(blocks + 1), blocks, decisive) @ np.cumsum(first)
    return float(power), first, decisive


def planned(rates: tuple[float, float], power: float, alpha: float) -> Design:
    """The trial that finds the difference of `rates` with at least `power` and in the fewest blocks on average, of the
    trials of each concentration with the least M. It ends for futility where McNemar's test needs `MOST_STEPPED` blocks
    at most. Raises `BadInput`: no difference, shares out of range, or more than `MOST_BLOCKS`."""
    for name, value in (("rate", rates[0]), ("rate", rates[1]), ("power", power), ("alpha", alpha)):
        if not 0 < value < 1:
            raise BadInput(name, got=value, expected="between 0 and 1")
    fixed = None if rates[0] == rates[1] else fixed_blocks(rates, power, alpha)
    if fixed is None or 2 * fixed > MOST_BLOCKS:
        got, expected = f"{rates[0]:g} and {rates[1]:g}", f"rates that {MOST_BLOCKS} blocks can tell apart"
        raise BadInput("rates to detect", got=got, expected=expected)
    futility = Futility(rates, FUTILITY) if fixed <= MOST_STEPPED else None
    best: Design | None = None
    for concentration in CONCENTRATIONS:
        power_of = partial(_power, rates, alpha, concentration, futility)
        enough = enough_blocks(power_of, power, fixed if best is None else best.blocks)
        found = design(rates, enough, concentration, alpha, futility)
        if best is not None and found.expected_blocks >= best.expected_blocks:
            break
        best = found
    assert best is not None
    least = least_blocks(partial(_power, rates, alpha, best.concentration, futility), power, best.blocks)
    return design(rates, least, best.concentration, alpha, futility)


def _power(
    rates: tuple[float, float],
    alpha: float,
    concentration: int,
    futility: Futility | None,
    blocks: int,
    level_of: int,
) -> float:
    """The power of `blocks` blocks at the level of `level_of` blocks."""
    level = log_level(level_of, alpha, concentration)
    if futility is None:
        return _walked(rates, level, blocks, concentration)[0]
    return power_and_length(rates, futility, level, blocks, concentration)[0]


def enough_blocks(power_of: Callable[[int, int], float], power: float, guess: int) -> int:
    """A number M of blocks with ``power_of(M, M)`` ≥ `power`, more than that of M − 1."""
    low, high, at = 0, MOST_BLOCKS, guess
    wanted = max(NORMAL.inv_cdf(power), 0.0) + DRIFT
    while high - low > 1:
        found = power_of(at, at)
        low, high = (low, at) if found >= power else (at, high)
        # Φ⁻¹(power) + DRIFT is nearly proportional to √M
        step = wanted / (NORMAL.inv_cdf(min(max(found, 0.05), 0.999)) + DRIFT)
        at = min(max(round(at * step**2), low + 1), high - 1)
    return high


def least_blocks(power_of: Callable[[int, int], float], power: float, enough: int) -> int:
    """The least M ≤ `enough` with ``power_of(M, M)`` ≥ `power`. Power grows with the blocks M and falls with the N of
    the level, so that of all M from `start` to `end` is ``power_of(end, start)`` at most. With both it may fall,
    where the level makes a step."""
    end, width = enough - 1, 1
    while end > 0:
        start = max(1, end - width + 1)
        enough = _least_within(power_of, power, start, end) or enough
        end, width = start - 1, 2 * width
    return enough


def _least_within(power_of: Callable[[int, int], float], power: float, start: int, end: int) -> int | None:
    if power_of(end, start) < power:
        return None
    if start == end:
        return start
    middle = (start + end) // 2
    below = _least_within(power_of, power, start, middle)
    return below or _least_within(power_of, power, middle + 1, end)


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
