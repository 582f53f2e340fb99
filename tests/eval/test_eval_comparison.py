"""A versus B by return, and the parts of a gain, against arithmetic by hand and classical tests."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from robolearn.core import BadInput
from robolearn.eval import Evaluation, compare, split_gain
from robolearn.eval.comparison import compare_returns
from robolearn.eval.intervals import bootstrap_difference
from robolearn.eval.verdict import number

Make = Callable[..., Evaluation]


@pytest.fixture
def make() -> Make:
    """Evaluations of four worlds with given returns, all from the same starts."""

    def make(returns: list[float], succeeded: list[bool] | None = None, reported: bool = False) -> Evaluation:
        n = len(returns)
        world, index = np.divmod(np.arange(n), -(-n // 4))
        ended = np.ones(n, bool)
        return Evaluation(
            "hop", 7, 4, 20.0, world, index, np.array(succeeded or [False] * n), np.full(n, 20),
            np.array(returns, float), ended, ~ended, {"total": 1.0}, reported,
        )  # fmt: skip

    return make


def test_signs_by_hand() -> None:
    # All five differences are positive: 2 of the 2⁵ signs are as extreme, p = 1/16, which is no claim.
    five = compare_returns([0.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0], paired=True)
    assert five.p_value == pytest.approx(2 / 32) and five.better is None
    assert (five.difference, five.values, five.test) == (3.0, (0.0, 3.0), "sign-flip permutation")
    six = compare_returns([0.0] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], paired=True, names=("old", "new"))
    assert six.p_value == pytest.approx(2 / 64) and six.better == "new"
    # Unpaired, 0 0 0 against 1 1 1: 2 of the 20 ways to deal them out are as extreme.
    dealt = compare_returns([0.0] * 3, [1.0] * 3, paired=False)
    assert dealt.p_value == pytest.approx(2 / 20) and dealt.test == "permutation"


@pytest.mark.long
@pytest.mark.parametrize("paired", [True, False])
def test_many_returns_agree_with_the_t_test(paired: bool) -> None:
    rng = np.random.default_rng(5)
    common = rng.normal(0, 40, 300)
    a, b = 300 + common + rng.normal(0, 20, 300), 304 + common + rng.normal(0, 20, 300)
    verdict = compare_returns(a, b, paired=paired)
    student = stats.ttest_rel(b, a) if paired else stats.ttest_ind(b, a)
    assert verdict.p_value == pytest.approx(student.pvalue, rel=0.15, abs=2e-3)  # of 9999 arrangements
    low, high = student.confidence_interval()
    assert (verdict.low, verdict.high) == pytest.approx((low, high), abs=0.05 * (high - low))
    assert (verdict.better == "B") == (student.pvalue < 0.05) == paired  # pairing finds what the rest hides
    assert compare_returns(a, b, paired=paired) == verdict


def test_a_fall_is_no_success(make: Make) -> None:
    """Hopper: a policy that falls early was judged the better one, since a fall with reward counted as success."""
    rng = np.random.default_rng(0)
    falls = make(rng.normal(294, 40, 60).tolist(), [True] * 16 + [False] * 44)
    hops = make(rng.normal(981, 60, 60).tolist(), [False] * 60)
    verdict = compare(falls, hops, names=("imitation", "rl"))
    assert verdict.metric == "return" and verdict.better == "rl" and verdict.paired
    assert verdict.sentence.startswith("rl is better: mean return 9")
    assert "against 29" in verdict.sentence and "difference +6" in verdict.sentence
    assert verdict.sentence.endswith("p ≤ 0.0002, paired over 60 starts")
    # Judged by success, were it reported, the verdict is the other one.
    assert compare(replace(falls, success_reported=True), replace(hops, success_reported=True)).better == "A"
    # One that reports and one that does not have only returns in common.
    assert compare(falls, replace(hops, success_reported=True)).metric == "return"


def test_json_of_a_verdict_names_its_metric(make: Make) -> None:
    by_return = json.loads(json.dumps(compare(make([1.0, 2.0, 4.0]), make([3.0, 1.0, 3.0])).to_json()))
    assert by_return["metric"] == "return"
    assert (by_return["mean_a"], by_return["mean_b"]) == (pytest.approx(7 / 3), pytest.approx(7 / 3))
    assert by_return["better"] is None and set(by_return["difference"]) == {"value", "low", "high"}
    solved = [True, False, True]
    success = compare(make([1.0] * 3, solved, reported=True), make([1.0] * 3, solved, reported=True)).to_json()
    assert set(success) == (set(by_return) - {"mean_a", "mean_b"}) | {"rate_a", "rate_b"}
    assert success["metric"] == "success" and success["rate_a"] == pytest.approx(2 / 3)


def test_too_few_or_equal_returns(make: Make) -> None:
    one = compare(make([1.0]), make([5.0]))
    assert one.better is None and math.isnan(one.low) and one.p_value == 1
    assert "+4.000, too few episodes for an interval" in one.sentence
    assert json.loads(json.dumps(one.to_json()))["difference"] == {"value": 4.0, "low": None, "high": None}
    equal = compare(make([2.0] * 9), make([2.0] * 9))
    assert (equal.p_value, equal.low, equal.high, equal.better) == (1.0, 0.0, 0.0, None)
    steady = compare(make([2.0] * 9), make([3.0] * 9))
    assert (steady.low, steady.high, steady.better) == (1.0, 1.0, "B")
    with pytest.raises(BadInput, match="two equal lengths"):
        compare_returns([1.0], [1.0, 2.0], paired=True)
    with pytest.raises(BadInput, match="NaN"):
        compare_returns([1.0, math.nan], [1.0, 2.0], paired=True)


def test_returns_of_other_starts_are_compared_unpaired(make: Make) -> None:
    a = make([float(i) for i in range(20)])
    b = replace(make([float(i) + 30 for i in range(20)]), seed=8)
    verdict = compare(a, b)
    assert not verdict.paired and verdict.better == "B"
    assert verdict.sentence.endswith("over 20 and 20 episodes")


@pytest.mark.long
def test_a_comparison_of_many_returns_needs_little_memory() -> None:
    values = np.random.default_rng(0).normal(size=(2, 3000))
    tracemalloc.start()
    try:
        compare_returns(*values, paired=False)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def test_interval_of_a_difference_covers() -> None:
    rng, covered = np.random.default_rng(1), 0
    for _ in range(150):
        a, b = rng.gamma(2.0, 1.0, 40), 1.0 + rng.gamma(2.0, 1.0, 60)
        estimate = bootstrap_difference(a, b, resamples=400)
        covered += estimate.low <= 1.0 <= estimate.high
    assert stats.binomtest(covered, 150, 0.93).pvalue > 0.01


def test_numbers_of_any_size() -> None:
    assert [number(x) for x in (0, 294.96, 0.012345, 12345.6, 999.99, -2.5, 1.5e7)] == [
        "0", "295.0", "0.01235", "12,346", "1000", "-2.500", "1.500e+07"
    ]  # fmt: skip
    assert number(686.0, sign="+") == "+686.0"


def outcome(make: Make, solved: int) -> Evaluation:
    succeeded = [True] * solved + [False] * (20 - solved)
    return make([float(s) for s in succeeded], succeeded, reported=True)


def test_the_parts_of_a_gain_by_hand(make: Make) -> None:
    gain = split_gain(outcome(make, 10), outcome(make, 16), outcome(make, 18))
    # 50% → 80% → 90%: 30 of 40 points, three quarters, come before the training.
    assert gain.share == pytest.approx(0.75)
    assert gain.sentence == (
        "Success went from 50.0% to 90.0%, +40.0 percentage points: +30.0 (75%) from the choice of the initial noise "
        "alone, without training, and +10.0 (25%) from RL."
    )
    assert [v.names for v in gain.verdicts] == [
        ("imitation", "after RL"), ("imitation", "chosen initial noise"), ("chosen initial noise", "after RL")
    ]  # fmt: skip
    assert all(v.paired for v in gain.verdicts)
    result = json.loads(json.dumps(gain.to_json()))
    assert result["initial_noise"]["difference"]["value"] == pytest.approx(0.3)
    assert result["metric"] == "success" and result["initial_noise_share"] == pytest.approx(0.75)


def test_a_loss_has_no_shares(make: Make) -> None:
    gain = split_gain(outcome(make, 10), outcome(make, 8), outcome(make, 18))
    assert gain.share is None
    assert gain.sentence.endswith(
        ": −10.0 from the choice of the initial noise alone, without training, and +50.0 from RL."
    )
    assert split_gain(*[outcome(make, 10)] * 3).share is None


def test_a_gain_in_return(make: Make) -> None:
    gain = split_gain(make([100.0] * 8), make([200.0] * 8), make([500.0] * 8))
    assert gain.sentence.startswith("Mean return went from 100.0 to 500.0, +400.0: +100.0 (25%) from the choice")
    with pytest.raises(BadInput, match="by all or by none"):
        split_gain(outcome(make, 10), make([1.0] * 20), outcome(make, 10))
