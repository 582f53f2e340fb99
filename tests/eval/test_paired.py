"""Simulation beside the arm: ranks by hand, correlation by scipy, coverage of prediction-powered rates by drawing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from robolearn.core import BadInput
from robolearn.eval.intervals import clopper_pearson
from robolearn.eval.paired import Paired, mmrv, pearson, powered, prediction


def test_rank_violations_by_hand() -> None:
    assert mmrv([0.1, 0.4, 0.6, 0.9], [0.2, 0.5, 0.7, 0.8]) == 0.0
    # 2 and 3 swapped: each hides .2 of real success, 1 and 4 nothing.
    assert mmrv([0.1, 0.6, 0.4, 0.9], [0.2, 0.5, 0.7, 0.8]) == pytest.approx((0.0 + 0.2 + 0.2 + 0.0) / 4)
    # Reversed: the worst of each is the far end.
    assert mmrv([0.9, 0.6, 0.4, 0.1], [0.2, 0.5, 0.7, 0.8]) == pytest.approx((0.6 + 0.3 + 0.5 + 0.6) / 4)
    s, r = [0.3, 0.5, 0.55, 0.9], [0.2, 0.7, 0.4, 0.8]
    assert pearson(s, r) == pytest.approx(stats.pearsonr(s, r)[0])
    assert math.isnan(pearson([0.5] * 4, r))


def test_a_powered_rate_by_hand() -> None:
    y, f, more = [1, 1, 1, 0], [1, 1, 0, 0], [1, 0] * 50
    # cov = 1/6, var f = 1/3, λ = 0.5 / 1.04; θ = λ/2 + 3/4 − λ/2
    found = powered(y, f, more)
    weight = 0.5 / 1.04
    left = np.array([1 - weight, 1 - weight, 1.0, 0.0, 1.0, -weight])  # the last two: a disagreement each way
    error = math.sqrt(weight**2 * 0.25 / 100 + left.var(ddof=1) / 4)
    assert found.rate == pytest.approx(0.75) and found.episodes == 4
    assert found.low == pytest.approx(max(0.0, 0.75 - 3.1824463 * error))


@pytest.mark.long
def test_intervals_hold_the_real_rate_and_are_narrower_where_simulation_agrees() -> None:
    rng = np.random.default_rng(0)
    inside, narrower, narrower_alone = 0, 0.0, 0.0
    for _ in range(1500):
        ease = rng.random(1040)  # of a start, on the arm and in a simulator that is a little kinder
        real, simulated = ease[:40] < 0.6, np.where(rng.random(1040) < 0.1, rng.random(1040) < 0.5, ease < 0.7)
        found = powered(real, simulated[:40], simulated[40:])
        inside += found.low <= 0.6 <= found.high
        narrower += found.high - found.low
        low, high = clopper_pearson(int(real.sum()), 40)
        narrower_alone += high - low
    assert 0.945 < inside / 1500 < 0.985  # a little more than 95%, for the two pairs that are added
    assert narrower < 0.85 * narrower_alone


def test_a_simulator_that_says_nothing_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    y = rng.random(2000) < 0.3
    found = powered(y, rng.random(2000) < 0.9, rng.random(4000) < 0.9)
    assert found.rate == pytest.approx(y.mean(), abs=0.01)
    for real, paired in (([1] * 10, [1] * 10), ([1] * 10, [0, 1] * 5)):  # no spread to measure by is not certainty
        found = powered(real, paired, [1, 0])
        assert (found.low, found.high) == clopper_pearson(sum(real), 10)
    agreed = powered([1, 0] * 5, [1, 0] * 5, [1, 0] * 5000)
    assert agreed.high - agreed.low > 0.4  # ten of ten pairs agree: a quarter of all may not
    with pytest.raises(BadInput, match="got 3 real, 2 paired"):
        powered([1, 1, 0], [1, 1], [1])


def outcomes(rate: float, n: int) -> list[bool]:
    return [i < round(rate * n) for i in range(n)]


def judged(pairs: list[tuple[float, float]], n: int) -> dict:
    """Of policies with these rates on the arm and in simulation, in n episodes on the arm."""
    return prediction([Paired(f"p{i}", outcomes(r, n), outcomes(s, n), outcomes(s, 100))
                       for i, (r, s) in enumerate(pairs)])  # fmt: skip


GOOD = [(0.2, 0.3), (0.4, 0.45), (0.6, 0.7), (0.9, 0.95)]


def test_the_sentence() -> None:
    good = judged(GOOD, 100)
    assert good["predicts"] and good["sentence"].startswith("this simulator predicts this arm: r = 1.00 (0.9")
    assert "MMRV = 0.000 (0.000–0.0" in good["sentence"] and "over 4 policies, 400 episodes on" in good["sentence"]
    bad = judged([(0.2, 0.9), (0.4, 0.45), (0.6, 0.7), (0.9, 0.3)], 100)
    assert bad["predicts"] is False and "this simulator does not predict this arm" in bad["sentence"]
    flat = judged([(0.1, 0.5), (0.3, 0.5), (0.7, 0.5), (0.9, 0.5)], 100)
    assert flat["pearson"] is None and flat["predicts"] is not True
    few = judged(GOOD[:2], 100)
    assert few["predicts"] is None and few["intervals"] is None and "2 of at least 4 policies" in few["sentence"]
    assert good["policies"][0]["agreement"] == pytest.approx(0.9)


@pytest.mark.parametrize("simulated", [(0.1, 0.2, 0.8, 0.9), (0.9, 0.8, 0.2, 0.1)])
def test_one_episode_for_each_policy_says_nothing(simulated: tuple[float, ...]) -> None:
    """Raw rates of 0, 0, 1, 1: r = 0.99 and no rank that is wrong, or the very contrary."""
    found = judged(list(zip((0.0, 0.0, 1.0, 1.0), simulated, strict=True)), 1)
    assert abs(found["pearson"]) > 0.98 and found["predicts"] is None
    assert found["sentence"].startswith("too few episodes to say whether this simulator predicts this arm: r = ")
    assert "over 4 policies, 4 episodes on the arm" in found["sentence"]
    ends = found["intervals"]
    assert ends["pearson"]["low"] < 0.8 <= ends["pearson"]["high"] and ends["mmrv"]["low"] <= 0.1 < ends["mmrv"]["high"]
    assert ends["pearson"]["low"] <= found["pearson"] <= ends["pearson"]["high"] + 1e-9


SPREAD = tuple(np.linspace(0.1, 0.9, 10))


@pytest.mark.long
@pytest.mark.parametrize(
    ("real", "simulated", "n", "said"),
    [
        (SPREAD, SPREAD, 1, {None}),  # noise alone, by which a perfect simulator looks bad
        (SPREAD, SPREAD, 5, {None}),
        ((0.9, 0.92, 0.95, 0.97), (0.9, 0.92, 0.95, 0.97), 5, {None}),
        ((0.2, 0.4, 0.6, 0.9), (0.2, 0.4, 0.6, 0.9), 100, {True}),
        ((0.2, 0.4, 0.6, 0.9), (0.4, 0.2, 0.9, 0.6), 5, {None}),
        ((0.2, 0.4, 0.6, 0.9), (0.4, 0.2, 0.9, 0.6), 200, {False}),
        ((0.2, 0.4, 0.6, 0.9), (0.9, 0.4, 0.6, 0.2), 50, {False}),
    ],
)
def test_intervals_hold_known_rates_and_decide_where_they_may(
    real: tuple[float, ...], simulated: tuple[float, ...], n: int, said: set
) -> None:
    """The verdict is right, or none, in 95% of repetitions; with many episodes it is there."""
    rng, r, violation = np.random.default_rng(3), pearson(simulated, real), mmrv(simulated, real)
    inside, verdicts = [], []
    for _ in range(60):
        made = [Paired(str(i), a := list(rng.random(n) < p), a, list(rng.random(200) < q))
                for i, (p, q) in enumerate(zip(real, simulated, strict=True))]  # fmt: skip
        found = prediction(made)
        ends = found["intervals"]
        inside += [ends["pearson"]["low"] <= r <= ends["pearson"]["high"] + 1e-9,
                   ends["mmrv"]["low"] <= violation <= ends["mmrv"]["high"]]  # fmt: skip
        verdicts.append(found["predicts"])
    assert np.mean(inside) >= 0.93
    assert np.mean([verdict in said for verdict in verdicts]) >= 0.9
    assert np.mean([verdict == (r < 0.8 or violation > 0.1) for verdict in verdicts]) <= 0.05  # the wrong one
