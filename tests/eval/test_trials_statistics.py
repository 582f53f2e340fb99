"""The statistics of trials against scipy, enumeration, arithmetic by hand and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

from robolearn.core import BadInput
from robolearn.eval.trials.analysis import method_difference, split_seeds
from robolearn.eval.trials.design import design, fixed_blocks, log_level, mcnemar_power, planned
from robolearn.eval.trials.sequential import (
    compare_sequentially,
    crossing,
    difference_sequence,
    log_capital,
    log_evidence,
    p_value,
    rate_sequence,
)


def test_the_evidence_is_a_ratio_of_beta_functions():
    for a, b, c in [(0, 0, 1), (3, 0, 1), (2, 7, 1), (4, 9, 5), (0, 12, 16)]:
        expected = (a + b) * math.log(2) + betaln(b + c, a + c) - betaln(c, c)
        assert log_evidence(a, b, c) == pytest.approx(expected, abs=1e-12)
    assert log_evidence(0, 3) == pytest.approx(math.log(2.0))  # 2³/(4 · 1)


@pytest.mark.long
@pytest.mark.parametrize("concentration", [1, 4])
@pytest.mark.parametrize("log_c", [0.2, 0.9, 1.7])
def test_the_walk_agrees_with_every_sequence_counted_one_by_one(concentration: int, log_c: float):
    blocks, theta, expected = 10, 0.6, np.zeros(11)
    for signs in itertools.product((0, 1), repeat=blocks):
        won, m = np.cumsum(signs), np.arange(1, blocks + 1)
        e = [k * math.log(2) + betaln(b + concentration, k - b + concentration) - betaln(concentration, concentration)
             for k, b in zip(m, won, strict=True)]  # fmt: skip
        reached = np.flatnonzero(np.array(e) >= log_c - 1e-9)
        if len(reached):
            expected[reached[0] + 1] += theta ** won[-1] * (1 - theta) ** (blocks - won[-1])
    assert crossing(log_c, blocks, theta, concentration) == pytest.approx(expected, abs=1e-12)


def test_the_p_value_of_three_wins_is_worked_out_by_hand():
    assert p_value([1, 1, 1], 3) == pytest.approx(1 / 4)  # of 8 walks of three, two are all of one sign
    assert p_value([1, 0, 1, 0, 1], 5) == pytest.approx(crossing(math.log(2), 5).sum())  # ties are no steps
    # Four of one sign and one of the other, 2⁵/(6 · 5), is less than three of one sign, 2.
    assert p_value([1, 1, 1, -1, -1], 5) == p_value([1, 1, 1], 5) == pytest.approx(1 / 4)
    assert p_value([], 5) == p_value([0, 0], 5) == p_value([1, -1], 5) == 1.0
    with pytest.raises(BadInput, match="at most the 2"):
        p_value([1, 1, 1], 2)


def test_the_p_value_is_no_smaller_than_that_of_the_exact_sign_test_looked_at_once():
    for a, b in [(0, 6), (1, 12), (5, 20)]:
        looked_at_once = stats.binomtest(b, a + b, 0.5).pvalue
        assert looked_at_once * (1 - 1e-9) <= p_value([-1] * a + [1] * b, a + b) < 20 * looked_at_once


@pytest.mark.parametrize("blocks", [12, 60, 300])
def test_equal_policies_reach_the_level_no_more_often_than_alpha(blocks: int):
    for concentration in (1, 8):
        level = log_level(blocks, 0.05, concentration)
        reached = crossing(level, blocks, 0.5, concentration).sum()
        assert 0.02 < reached <= 0.05
        assert level < math.log(20)  # Ville's bound, which needs no end


def test_a_thousand_trials_that_are_looked_at_after_each_block():
    """Equal policies with stops as soon as p ≤ 0.05, simulated by numpy alone."""
    rng, blocks = np.random.default_rng(3), 80
    a, b = (rng.random((2, 1000, blocks)) < 0.6).astype(int)
    signs = b - a
    level = log_level(blocks, 0.05, 1)
    evidence = log_evidence(np.cumsum(signs < 0, axis=1), np.cumsum(signs > 0, axis=1))
    stopped = (evidence >= level - 1e-9).any(axis=1)
    assert stats.binomtest(int(stopped.sum()), 1000, 0.05, alternative="greater").pvalue > 0.01
    for trial in np.flatnonzero(stopped)[:3]:  # the rule is the p-value's
        first = int(np.argmax(evidence[trial] >= level - 1e-9)) + 1
        assert (
            p_value(signs[trial, :first].tolist(), blocks) <= 0.05 < p_value(signs[trial, : first - 1].tolist(), blocks)
        )


def test_power_and_mean_length_are_those_of_simulated_trials():
    made = design((0.5, 0.8), 60, 1, 0.05)
    rng = np.random.default_rng(0)
    a, b = rng.random((4000, 60)) < 0.5, rng.random((4000, 60)) < 0.8
    evidence = log_evidence(np.cumsum(a & ~b, axis=1), np.cumsum(b & ~a, axis=1))
    reached = evidence >= log_level(60, 0.05, 1) - 1e-9
    found, length = reached.any(axis=1), np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, 60)
    assert made.power == pytest.approx(found.mean(), abs=4 * math.sqrt(0.25 / 4000))
    assert made.expected_blocks == pytest.approx(length.mean(), abs=4 * length.std() / math.sqrt(4000))


def test_the_power_of_mcnemar_agrees_with_every_table_of_scipys_test():
    n, (p_a, p_b) = 12, (0.3, 0.9)
    only_a, only_b = p_a * (1 - p_b), p_b * (1 - p_a)
    expected = 0.0
    for x in range(n + 1):
        for y in range(n + 1 - x):
            if x + y and stats.binomtest(y, x + y, 0.5).pvalue <= 0.05:
                expected += stats.multinomial.pmf([x, y, n - x - y], n, [only_a, only_b, 1 - only_a - only_b])
    assert mcnemar_power((p_a, p_b), n, 0.05) == pytest.approx(expected, abs=1e-9)
    least = fixed_blocks((p_a, p_b), 0.9, 0.05)
    assert least is not None and mcnemar_power((p_a, p_b), least, 0.05) >= 0.9


@pytest.mark.long
@pytest.mark.parametrize(
    ("rates", "power"), [((0.5, 0.8), 0.9), ((0.7, 0.9), 0.9), ((0.9, 0.7), 0.8), ((0.6, 0.8), 0.8)]
)
def test_a_plan_has_its_power_and_saves_blocks(rates: tuple[float, float], power: float):
    made = planned(rates, power, 0.05)
    assert made.power >= power and made.saved is not None
    assert made.saved >= (0.33 if power == 0.9 else 0.25)
    assert made.blocks <= 1.5 * (made.fixed_blocks or 0)


def test_what_cannot_be_planned_is_refused():
    for rates in [(0.5, 0.5), (0.5, 0.501), (0.0, 0.5), (0.5, 1.5)]:
        with pytest.raises(BadInput):
            planned(rates, 0.9, 0.05)


def test_capital_without_a_difference_is_the_evidence():
    for ties, a, b, c in [(0, 3, 9, 1), (40, 3, 9, 1), (5, 30, 31, 4)]:
        assert log_capital(ties, a, b, 0.0, c) == pytest.approx(float(log_evidence(a, b, c)), abs=1e-9)
    # ∫ (1 + λ(1 − Δ)) dπ(λ) over λ ∈ [−1/(1 − Δ), 1/(1 + Δ)], by hand for Δ = 0.5: 1 + ½ · (−2 + 2/3)/2
    assert log_capital(0, 0, 1, 0.5) == pytest.approx(math.log(2 / 3))


def test_intervals_hold_at_all_looks_at_once():
    rng = np.random.default_rng(1)
    missed_rate = missed_difference = 0
    for _ in range(150):
        a, b = rng.random(60) < 0.5, rng.random(60) < 0.75
        k = np.cumsum(b)
        n = np.arange(1, 61)
        mixture = (
            betaln(k + 1, n - k + 1) - stats.binom.logpmf(k, n, 0.75) + np.log(stats.binom.pmf(k, n, 0.5) * 2.0**n)
        )
        missed_rate += bool((mixture >= math.log(20)).any())
        counts = np.cumsum(a == b), np.cumsum(a & ~b), np.cumsum(b & ~a)
        missed_difference += any(log_capital(*map(int, at), 0.25) >= math.log(20) for at in zip(*counts, strict=True))
    assert missed_rate <= 14 and missed_difference <= 14  # 5% of 150 is 7.5; P(more than 14) < 0.01
    low, high = difference_sequence(30, 5, 25)
    assert log_capital(30, 5, 25, low) == pytest.approx(math.log(20), abs=1e-6) == log_capital(30, 5, 25, high)
    assert low < 20 / 60 < high and difference_sequence(30, 25, 5) == pytest.approx((-high, -low), abs=1e-9)
    assert difference_sequence(0, 0, 3)[1] == 1.0 and difference_sequence(3, 0, 0)[0] > -1.0


def test_a_rate_is_never_surer_than_at_a_fixed_number():
    for k, n in [(0, 10), (7, 10), (90, 100), (100, 100)]:
        found = rate_sequence(k, n)
        fixed = stats.binomtest(k, n).proportion_ci(0.95, "wilson")
        assert found.low <= fixed.low + 1e-9 and found.high >= fixed.high - 1e-9
        for edge in {found.low, found.high} - {0.0, 1.0}:
            capital = betaln(k + 1, n - k + 1) - k * math.log(edge) - (n - k) * math.log1p(-edge)
            assert capital == pytest.approx(math.log(20), abs=1e-6)


def test_a_verdict_at_any_moment():
    a, b = [False, True, False, False, False, False], [True, True, True, True, True, True]
    verdict = compare_sequentially(a, b, 40, names=("old", "new"))
    assert verdict.values == (1 / 6, 1.0) and verdict.difference == pytest.approx(5 / 6)
    assert verdict.p_value == p_value([1, 0, 1, 1, 1, 1], 40) and (verdict.better is None) == (verdict.p_value >= 0.05)
    assert compare_sequentially(a * 4, b * 4, 40, names=("old", "new")).better == "new"


def test_a_lead_that_has_changed_sides_is_no_claim():
    wins = [-1] * 8 + [1] * 20
    assert p_value(wins[:8], 40) < 0.05
    assert p_value(wins, 40) == 1.0


def test_variances_of_seeds_and_episodes_are_those_of_scipys_analysis_of_variance():
    rng = np.random.default_rng(5)
    groups = [rng.random(n) < rate for n, rate in ((30, 0.4), (25, 0.8), (40, 0.6))]
    split = split_seeds([list(each) for each in groups])
    assert split is not None
    n = np.array([30, 25, 40])
    each = (n.sum() - (n**2).sum() / n.sum()) / 2
    f = stats.f_oneway(*[each.astype(float) for each in groups]).statistic
    assert (split.seed_sd**2 * each + split.episode_sd**2) / split.episode_sd**2 == pytest.approx(f)
    assert split_seeds([[True, False, True, False]] * 3).seed_sd == 0.0  # type: ignore[union-attr]
    assert split_seeds([[True] * 5]) is None
    other = split_seeds([[True] * 9 + [False], [True] * 10])
    assert other is not None
    found = method_difference(split, other)
    interval = stats.ttest_ind(other.rates, split.rates, equal_var=False).confidence_interval(0.95)
    assert found["low"] == pytest.approx(max(-1.0, interval.low)) and found["high"] == pytest.approx(
        min(1.0, interval.high)
    )
