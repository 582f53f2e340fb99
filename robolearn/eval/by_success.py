"""A versus B by success: exact tests of two rates, and intervals of their difference.

- Paired starts (same seed, same worlds): the exact McNemar test, a binomial test on the starts where exactly
  one of the two succeeds; interval of the difference by Newcombe (1998, Stat. Med. 17:2635, method 10).
- Unpaired: Barnard's exact test (1945), more powerful than Fisher's; interval of the difference by Newcombe
  (1998, Stat. Med. 17:873, method 10). Barnard's test takes n_a · n_b memory; beyond `EXACT_UP_TO` the pooled
  score test, its limit for many episodes, takes its place.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from robolearn.core import BadInput
from robolearn.eval.intervals import wilson
from robolearn.eval.verdict import Verdict

EXACT_UP_TO = 250_000  # n_a · n_b, about a second and 100 MB


def compare_paired(a: ArrayLike, b: ArrayLike, *, names: tuple[str, str] = ("A", "B"), level: float = 0.95) -> Verdict:
    """Exact McNemar test of the successes `a` and `b` (n,) bool, start by start."""
    x, y = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    if x.shape != y.shape or x.ndim != 1 or len(x) == 0:
        raise BadInput("paired comparison", got=f"{x.shape} and {y.shape}", expected="two equal lengths (n,), n ≥ 1")
    both, only_a, only_b = int((x & y).sum()), int((x & ~y).sum()), int((~x & y).sum())
    n, discordant = len(x), only_a + only_b
    from scipy import stats  # takes a second to import, and one policy alone needs no test

    # Under H0 a discordant start is won by either with probability 1/2.
    p_value = float(stats.binomtest(only_b, discordant, 0.5).pvalue) if discordant else 1.0
    low, high = paired_difference_interval(both, only_a, only_b, n - both - discordant, level=level)
    rates = (float(x.mean()), float(y.mean()))
    return Verdict(
        "success", names, rates, (n, n), True, "exact McNemar", p_value, (only_b - only_a) / n, low, high, level
    )


def compare_unpaired(
    successes_a: int,
    episodes_a: int,
    successes_b: int,
    episodes_b: int,
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = 0.95,
) -> Verdict:
    """Barnard's exact test of two independent counts (for very many episodes, the pooled score test)."""
    from scipy import stats  # as above

    low, high = difference_interval(successes_a, episodes_a, successes_b, episodes_b, level=level)
    rates = (successes_a / episodes_a, successes_b / episodes_b)
    difference = rates[1] - rates[0]
    if episodes_a * episodes_b <= EXACT_UP_TO:
        test, table = "Barnard", [[successes_a, successes_b], [episodes_a - successes_a, episodes_b - successes_b]]
        # p = 1 for tables in which all, or none, succeeded. Sums of probabilities may exceed 1 by rounding.
        p_value = min(1.0, float(stats.barnard_exact(table, alternative="two-sided").pvalue))
    else:
        # z = (p̂_b − p̂_a) / √(p̄ (1 − p̄)(1/n_a + 1/n_b)), with p̄ the rate of both together
        pooled = (successes_a + successes_b) / (episodes_a + episodes_b)
        error = math.sqrt(pooled * (1 - pooled) * (1 / episodes_a + 1 / episodes_b))
        test, p_value = "pooled score", float(2 * stats.norm.sf(abs(difference) / error)) if error else 1.0
    episodes = (episodes_a, episodes_b)
    return Verdict("success", names, rates, episodes, False, test, p_value, difference, low, high, level)


def difference_interval(k_a: int, n_a: int, k_b: int, n_b: int, *, level: float = 0.95) -> tuple[float, float]:
    """Newcombe's interval of p_b − p_a for two independent counts."""
    return _square_and_add(k_a, n_a, k_b, n_b, phi=0.0, level=level)


def paired_difference_interval(
    both: int, only_a: int, only_b: int, neither: int, *, level: float = 0.95
) -> tuple[float, float]:
    """Newcombe's interval of p_b − p_a for paired starts, from the four cells of the table."""
    n = both + only_a + only_b + neither
    # φ̂ = (ad − bc) / √(row and column totals), continuity-corrected towards 0 where it is positive
    cross = both * neither - only_a * only_b
    if cross > 0:
        cross = max(cross - n / 2, 0.0)
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    phi = cross / math.sqrt(margins) if margins else 0.0
    return _square_and_add(both + only_a, n, both + only_b, n, phi=phi, level=level)


def _square_and_add(k_a: int, n_a: int, k_b: int, n_b: int, *, phi: float, level: float) -> tuple[float, float]:
    low_a, high_a = wilson(k_a, n_a, level=level)
    low_b, high_b = wilson(k_b, n_b, level=level)
    p_a, p_b = k_a / n_a, k_b / n_b
    # θ̂ − √(δb⁻² − 2φ δb⁻ δa⁺ + δa⁺²) … θ̂ + √(δb⁺² − 2φ δb⁺ δa⁻ + δa⁻²), with δ the arms of the Wilson intervals
    down = math.sqrt(max(0.0, (p_b - low_b) ** 2 - 2 * phi * (p_b - low_b) * (high_a - p_a) + (high_a - p_a) ** 2))
    up = math.sqrt(max(0.0, (high_b - p_b) ** 2 - 2 * phi * (high_b - p_b) * (p_a - low_a) + (p_a - low_a) ** 2))
    return max(-1.0, p_b - p_a - down), min(1.0, p_b - p_a + up)
