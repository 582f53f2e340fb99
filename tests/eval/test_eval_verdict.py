"""A versus B on tables with known answers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.core import BadInput
from robolearn.eval.comparison import (
    compare,
    compare_paired,
    compare_unpaired,
    difference_interval,
    paired_difference_interval,
)
from robolearn.eval.evaluation import evaluate
from robolearn.eval.verdict import corrected


def table(both: int, only_a: int, only_b: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    a = np.repeat([True, True, False, False], [both, only_a, only_b, neither])
    b = np.repeat([True, False, True, False], [both, only_a, only_b, neither])
    return a, b


def test_mcnemar_by_hand() -> None:
    # 1 against 7 discordant starts: p = 2 · (C(8,0) + C(8,1)) / 2⁸ = 18/256
    verdict = compare_paired(*table(10, 1, 7, 2))
    assert verdict.p_value == pytest.approx(18 / 256)
    assert verdict.difference == pytest.approx(6 / 20)
    assert verdict.better is None
    # 0 against 9: p = 2 / 2⁹
    verdict = compare_paired(*table(10, 0, 9, 1), names=("imitation", "after RL"))
    assert verdict.p_value == pytest.approx(2 / 512)
    assert verdict.sentence == "after RL is better: 95.0% against 50.0%, p = 0.0039, paired over 20 starts"
    assert verdict.test == "exact McNemar"


def test_barnard_published_table() -> None:
    # Mehta & Senchaudhuri (2003), "Conditional versus unconditional exact tests": 7 of 15 infected against
    # 12 of 15 with the pooled Wald statistic; two-sided p = 0.0682
    verdict = compare_unpaired(7, 15, 12, 15)
    assert verdict.p_value == pytest.approx(0.0682, abs=5e-5)
    assert verdict.better is None
    assert verdict.test == "Barnard"


def test_newcombe_intervals_of_the_difference() -> None:
    # Newcombe (1998), Stat. Med. 17:873, table II: 56/70 − 48/80
    assert difference_interval(48, 80, 56, 70) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert difference_interval(56, 70, 48, 80) == pytest.approx((-0.3339, -0.0524), abs=5e-5)
    # Newcombe (1998), Stat. Med. 17:2635: cells 36, 12, 2, 0
    assert paired_difference_interval(36, 2, 12, 0) == pytest.approx((0.0569, 0.3404), abs=5e-5)
    # the same, cells 20, 12, 2, 16: ad > bc, so that φ̂ is corrected for continuity (without: 0.0618 to 0.3242)
    assert paired_difference_interval(20, 2, 12, 16) == pytest.approx((0.0562, 0.3292), abs=5e-5)


@settings(max_examples=40, deadline=None)
@given(*(st.integers(0, 60) for _ in range(4)))
def test_paired_interval_is_antisymmetric_and_holds_the_difference(a: int, b: int, c: int, d: int) -> None:
    n = a + b + c + d
    if n == 0:
        return
    low, high = paired_difference_interval(a, b, c, d)
    assert -1 <= low <= (c - b) / n + 1e-12
    assert (c - b) / n - 1e-12 <= high <= 1
    assert paired_difference_interval(a, c, b, d) == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.long
def test_paired_interval_covers() -> None:
    rng = np.random.default_rng(0)
    cells, n = np.array([0.55, 0.05, 0.30, 0.10]), 100
    covered = 0
    for a, b, c, d in rng.multinomial(n, cells, size=1500):
        low, high = paired_difference_interval(int(a), int(b), int(c), int(d))
        covered += low <= cells[2] - cells[1] <= high
    assert 0.935 <= covered / 1500 <= 0.985


def test_better_in_either_direction_and_no_difference() -> None:
    up = compare_unpaired(244, 400, 390, 400)
    assert up.sentence == "B is better: 97.5% against 61.0%, p < 0.0001, over 400 and 400 episodes"
    down = compare_unpaired(390, 400, 244, 400)
    assert down.better == "A"
    assert down.sentence.startswith("A is better: 97.5% against 61.0%")
    assert up.low < up.difference < up.high and up.low > 0
    for verdict in (compare_unpaired(20, 20, 30, 30), compare_paired([True] * 5, [True] * 5)):
        assert verdict.p_value == 1 and verdict.better is None
        assert verdict.sentence.startswith("No difference can be claimed: B 100.0%, A 100.0%, p = 1, ")
    assert json.loads(json.dumps(up.to_json()))["better"] == "B"


def test_p_values_of_several_comparisons_are_corrected_by_holm() -> None:
    # by hand, m = 3: the smallest times 3, the next times 2, the largest as it is
    made = [
        compare_paired(*table(10, 1, 7, 2)),
        compare_paired(*table(10, 0, 9, 1)),
        compare_paired(*table(9, 3, 5, 3)),
    ]
    p = [verdict.p_value for verdict in made]
    assert p == pytest.approx([18 / 256, 2 / 512, 186 / 256])
    found = corrected(made)
    assert [verdict.p_value for verdict in found] == pytest.approx([2 * 18 / 256, 3 * 2 / 512, 186 / 256])
    assert found[1].better is not None and "corrected for 3 comparisons" in found[1].sentence
    assert [verdict.comparisons for verdict in found] == [3, 3, 3]
    alone = corrected(made[:1])
    assert alone[0].p_value == p[0] and alone[0].sentence == made[0].sentence


def test_corrected_p_values_rise_and_end_at_1() -> None:
    # 2/256 twice, and 24/2048 once, which is the smaller of the two then
    made = [compare_paired(*table(10, 0, 8, 1)), compare_paired(*table(10, 1, 10, 1))]
    assert [verdict.p_value for verdict in corrected(made)] == pytest.approx([4 / 256, 4 / 256])
    made = [compare_paired(*table(5, 3, 4, 1)) for _ in range(4)]
    assert [verdict.p_value for verdict in corrected(made)] == [1.0] * 4


@pytest.mark.long
def test_very_many_episodes_take_the_score_test() -> None:
    exact, score = compare_unpaired(460, 500, 475, 500), compare_unpaired(461, 501, 475, 500)
    assert (exact.test, score.test) == ("Barnard", "pooled score")
    assert score.p_value == pytest.approx(exact.p_value, rel=0.1)
    assert compare_unpaired(2000, 2000, 2000, 2000).p_value == 1


def test_lengths_must_agree() -> None:
    with pytest.raises(BadInput, match="expected two equal lengths"):
        compare_paired([True], [True, False])


def test_evaluations_are_paired_where_they_met_the_same_starts(fake) -> None:
    env = fake.Env(5, lambda difficulty, solved: 3 if solved else 7)
    weak = evaluate(env, fake.Policy(0.4), 60, seed=1)
    strong = evaluate(env, fake.Policy(0.9), 60, seed=1)
    verdict = compare(weak, strong, names=("weak", "strong"))
    assert verdict.paired and verdict.better == "strong"
    assert "paired over 60 starts" in verdict.sentence
    assert not (weak.succeeded & ~strong.succeeded).any()  # what the weak one solves, the strong one solves too
    other = evaluate(env, fake.Policy(0.9), 60, seed=2)
    assert not compare(weak, other).paired
