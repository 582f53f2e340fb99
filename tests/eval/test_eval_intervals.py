"""Intervals against values from the literature and an independent implementation."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robolearn.core import BadInput
from robolearn.eval.intervals import Success, bootstrap_mean, clopper_pearson, least_of, over_seeds, wilson

# Newcombe (1998), Stat. Med. 17:857, table I: 95% intervals of 81/263, 15/148, 0/20, 1/29
NEWCOMBE = {
    (81, 263): ((0.2553, 0.3662), (0.2527, 0.3676)),
    (15, 148): ((0.0624, 0.1605), (0.0578, 0.1617)),
    (0, 20): ((0.0, 0.1611), (0.0, 0.1684)),
    (1, 29): ((0.0061, 0.1718), (0.0009, 0.1776)),
}


@pytest.mark.parametrize("counts", NEWCOMBE)
def test_published_intervals(counts: tuple[int, int]) -> None:
    score, exact = NEWCOMBE[counts]
    assert wilson(*counts) == pytest.approx(score, abs=5e-5)
    assert clopper_pearson(*counts) == pytest.approx(exact, abs=5e-5)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.99]))
def test_intervals_hold_the_rate_and_solve_the_equations_that_define_them(n: int, share: float, level: float) -> None:
    k, tail = round(share * n), (1 - level) / 2
    for low, high in (wilson(k, n, level=level), clopper_pearson(k, n, level=level)):
        assert 0 <= low <= k / n <= high <= 1
    z = stats.norm.isf(tail)
    for p in wilson(k, n, level=level):  # (p̂ − p)² = z² p (1 − p) / n
        assert (k / n - p) ** 2 == pytest.approx(z * z * p * (1 - p) / n, abs=1e-9)
    low, high = clopper_pearson(k, n, level=level)  # P(X ≥ k | low) = tail and P(X ≤ k | high) = tail
    assert k == 0 or stats.binom.sf(k - 1, n, low) == pytest.approx(tail, abs=1e-6)
    assert k == n or stats.binom.cdf(k, n, high) == pytest.approx(tail, abs=1e-6)


def test_an_interval_costs_a_command_nothing_before_it_is_asked_for() -> None:
    """scipy.stats takes a second to import, which `robolearn deploy` may not spend before the arm moves."""
    code = "import sys, robolearn.eval.intervals; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_clopper_pearson_covers_at_least_as_often_as_it_says() -> None:
    n = 40
    bounds = np.array([clopper_pearson(k, n) for k in range(n + 1)])
    for p in (0.02, 0.3, 0.5, 0.87, 0.99):
        inside = (bounds[:, 0] <= p) & (p <= bounds[:, 1])
        assert stats.binom.pmf(np.arange(n + 1), n, p)[inside].sum() >= 0.95


def test_success_is_json_with_exactly_the_shared_keys() -> None:
    success = Success.of(390, 400)
    assert json.loads(json.dumps(success.to_json())) == {
        "rate": 0.975, "low": success.low, "high": success.high, "episodes": 400
    }  # fmt: skip
    assert success.successes == 390
    assert 0.93 < success.low < 0.975 < success.high < 1
    assert str(success).startswith("97.5% [")


@pytest.mark.parametrize(("k", "n", "level"), [(0, 0, 0.95), (-1, 5, 0.95), (6, 5, 0.95), (1, 2, 1.0)])
def test_impossible_counts_are_refused(k: int, n: int, level: float) -> None:
    with pytest.raises(BadInput, match="expected"):
        wilson(k, n, level=level)
    with pytest.raises(BadInput, match="expected"):
        clopper_pearson(k, n, level=level)


def test_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="did you mean wilson"):
        Success.of(1, 2, method="wilsn")


def test_bootstrap_is_close_to_student_for_many_values_and_repeats() -> None:
    values = np.random.default_rng(3).normal(5.0, 2.0, 400)
    estimate = bootstrap_mean(values)
    half = stats.t.ppf(0.975, 399) * values.std(ddof=1) / 20
    assert estimate.mean == pytest.approx(values.mean())
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.03)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.03)
    assert bootstrap_mean(values) == estimate


def test_bootstrap_of_many_values_needs_little_memory() -> None:
    values = np.random.default_rng(0).normal(size=4000)
    tracemalloc.start()
    try:
        bootstrap_mean(values)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_bootstrap_of_few_or_equal_values() -> None:
    assert bootstrap_mean([]).to_json() == {"mean": None, "low": None, "high": None, "count": 0}
    assert bootstrap_mean([2.0]).to_json() == {"mean": 2.0, "low": None, "high": None, "count": 1}
    assert bootstrap_mean([2.0] * 9).to_json() == {"mean": 2.0, "low": 2.0, "high": 2.0, "count": 9}
    assert math.isnan(bootstrap_mean([]).mean)
    with pytest.raises(BadInput, match="NaN"):
        bootstrap_mean([1.0, math.nan])


def test_an_interval_over_seeds_is_students() -> None:
    """Five seeds of imitation, 20 29 43 32 31%: pooled over 2,000 episodes ±2.0 points, over the seeds ±10.2."""
    rates = [0.20, 0.29, 0.43, 0.32, 0.31]
    found = over_seeds(rates, rates=True)
    low, high = stats.t.interval(0.95, 4, np.mean(rates), stats.sem(rates))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.mean == pytest.approx(0.31) and found.median == 0.31 and found.count == 5
    assert found.high - found.mean == pytest.approx(0.102, abs=5e-4)


def test_an_interval_over_seeds_keeps_within_what_rates_can_be() -> None:
    assert over_seeds([0.99, 0.80], rates=True).high == 1.0 and over_seeds([0.01, 0.20], rates=True).low == 0.0
    assert over_seeds([1.75, 1.95]).low < 1.0
    assert over_seeds([1.0, 60.0]).low < 0.0 == over_seeds([1.0, 60.0], times=True).low
    one = over_seeds([0.5], rates=True)
    assert math.isnan(one.low) and json.loads(json.dumps(one.to_json()))["low"] is None
    with pytest.raises(BadInput, match="at least one seed"):
        over_seeds([])


def test_the_least_of_several_has_an_interval_that_allows_for_the_choice() -> None:
    """By hand: 3 of 10, 8 of 10 and 30 of 40, each at 1 − 0.05 / 3; and of eight that are equally good."""
    found = least_of([Success.of(8, 10), Success.of(3, 10), Success.of(30, 40)])
    assert (found.rate, found.episodes) == (0.3, 10)
    assert found.low == pytest.approx(stats.beta.ppf(0.05 / 6, 3, 8))
    assert found.high == pytest.approx(min(stats.beta.ppf(1 - 0.05 / 6, k + 1, n - k) for k, n in ((3, 10), (30, 40))))
    one = Success.of(7, 9)
    assert least_of([one]) == one
    eight = [Success.of(k, 20) for k in (16, 16, 17, 18, 15, 16, 17, 11)]
    assert least_of(eight).high > 0.8 > Success.of(11, 20).high, (
        "0.8 is the rate of each: the least one alone denies it"
    )
    with pytest.raises(BadInput, match="successes of conditions"):
        least_of([])
