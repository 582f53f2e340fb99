"""The stop for futility against arithmetic by hand, trees of all outcomes, the walk without it and simulation."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

from robolearn.core import BadInput
from robolearn.eval.trials.analysis import FUTILE, analyse
from robolearn.eval.trials.design import FUTILITY, MOST_STEPPED, design, least_blocks, log_level, planned
from robolearn.eval.trials.futility import Futility, conditional_power, least_wins, power_and_length, shares
from robolearn.eval.trials.page import write_trial
from robolearn.eval.trials.plan import TrialCheckpoint, TrialPlan
from robolearn.eval.trials.records import TrialEpisode
from robolearn.eval.trials.sequential import p_value

RATES = (0.2, 0.75)  # of a block B alone succeeds with probability 0.8 · 0.75 = 0.6, A alone with 0.2 · 0.25 = 0.05
HALF = math.log(2.0)  # E of three blocks that one policy won alone, 2³/4; of two it is 4/3


def test_three_blocks_are_worked_out_by_hand():
    assert shares(RATES) == pytest.approx((0.05, 0.6))
    power = functools.partial(conditional_power, rates=RATES, log_level=HALF, concentration=1)
    assert power(0, 1, 2) == power(1, 0, 2) == pytest.approx(0.36)  # two more, whichever leads
    assert power(0, 2, 1) == pytest.approx(0.6) and power(0, 0, 3) == pytest.approx(0.216)
    assert power(0, 0, 2) == power(1, 1, 1) == 0.0
    found = power_and_length(RATES, Futility(RATES, 0.1), HALF, 3, 1)
    # Power: three for B, or for A. Blocks: 1, a second unless the first was a tie, a third after two of one sign.
    assert found == pytest.approx((0.6**3 + 0.05**3, 1 + 0.65 + 0.6**2 + 0.05**2))
    assert power_and_length(RATES, Futility(RATES, 0.4), HALF, 3, 1) == pytest.approx((0.0, 1.0))  # 0.36 is too little
    # The rates of the plan are not those of the policies: equal ones at 0.5 decide every second block.
    equal = power_and_length((0.5, 0.5), Futility((0.75, 0.2), 0.1), HALF, 3, 1)
    assert equal == pytest.approx((2 / 4**3, 1 + 1 / 2 + 2 / 4**2))


@pytest.mark.parametrize(("below", "concentration", "log_c"), [(0.1, 1, 1.1), (0.3, 2, 0.6), (0.2, 4, 0.1)])
def test_power_and_length_are_those_of_a_tree_of_all_outcomes(below: float, concentration: int, log_c: float):
    blocks, rates, truth = 14, (0.3, 0.7), (0.5, 0.6)
    q_a, q_b = 0.3 * 0.3, 0.7 * 0.7

    def reached(a: int, b: int) -> bool:
        c = concentration
        return (a + b) * math.log(2) + betaln(b + c, a + c) - betaln(c, c) >= log_c - 1e-9

    @functools.cache
    def chance(n: int, a: int, b: int) -> float:
        if reached(a, b):
            return float(b > a)
        if n == blocks:
            return 0.0
        return (q_a * chance(n + 1, a + 1, b) + q_b * chance(n + 1, a, b + 1)
                + (1 - q_a - q_b) * chance(n + 1, a, b))  # fmt: skip

    @functools.cache
    def mean(n: int, a: int, b: int) -> tuple[float, float]:
        if reached(a, b):
            return 1.0, 0.0
        if n == blocks or (n and max(chance(n, a, b), chance(n, b, a)) < below):
            return 0.0, 0.0
        parts = ((0.2, mean(n + 1, a + 1, b)), (0.3, mean(n + 1, a, b + 1)), (0.5, mean(n + 1, a, b)))
        return sum(q * power for q, (power, _) in parts), 1 + sum(q * length for q, (_, length) in parts)

    futility = Futility(rates, below)
    assert power_and_length(truth, futility, log_c, blocks, concentration) == pytest.approx(mean(0, 0, 0), abs=1e-12)
    least = least_wins(futility, log_c, blocks, concentration)
    for n in range(1, blocks):
        for a in range(n + 1):
            for b in range(a, n + 1 - a):
                if reached(a, b):
                    continue
                expected = chance(n, a, b)
                found = conditional_power(a, b, blocks - n, rates, log_c, concentration)
                assert found == pytest.approx(expected, abs=1e-12)
                assert conditional_power(b, a, blocks - n, (0.7, 0.3), log_c, concentration) == found
                assert (b >= least[n, a + b]) == (expected >= below)


def test_a_stop_that_never_comes_changes_nothing():
    for rates, blocks, concentration in [((0.6, 0.8), 90, 2), ((0.9, 0.5), 40, 1), ((0.5, 0.5), 120, 8)]:
        without = design(rates, blocks, concentration, 0.05)
        never = design(rates, blocks, concentration, 0.05, Futility((0.6, 0.8), 0.0))
        assert never.power == pytest.approx(without.power) and without.futility is None
        assert never.expected_blocks == pytest.approx(without.expected_blocks)
        rule = Futility((0.6, 0.8), FUTILITY)
        with_one = design(rates, blocks, concentration, 0.05, rule)
        assert with_one.power < without.power and with_one.expected_blocks < without.expected_blocks
        assert with_one.futility == FUTILITY


def test_power_and_length_with_the_stop_are_those_of_simulated_trials():
    blocks, rule, level = 60, Futility((0.5, 0.8), 0.1), log_level(60, 0.05, 1)
    rng, least = np.random.default_rng(0), least_wins(Futility((0.5, 0.8), 0.1), log_level(60, 0.05, 1), 60, 1)
    a, b = rng.random((4000, 60)) < 0.5, rng.random((4000, 60)) < 0.8
    lost, won = np.cumsum(a & ~b, axis=1), np.cumsum(b & ~a, axis=1)
    evidence = (lost + won) * math.log(2) + betaln(won + 1, lost + 1)
    claimed = evidence >= level - 1e-9
    futile = np.maximum(lost, won)[:, :-1] < least[np.arange(1, 60), (lost + won)[:, :-1]]
    ends = claimed.copy()
    ends[:, :-1] |= futile
    ends[:, -1] = True
    first = ends.argmax(axis=1)
    found = claimed[np.arange(4000), first]
    made = design((0.5, 0.8), blocks, 1, 0.05, rule)
    assert stats.binomtest(int(found.sum()), 4000, made.power).pvalue > 1e-3
    assert made.expected_blocks == pytest.approx((first + 1).mean(), abs=4 * (first + 1).std() / math.sqrt(4000))


def test_the_least_number_of_blocks_is_found_below_a_step_of_the_level():
    def power_of(blocks: int, level_of: int) -> float:
        return blocks / 100 - (0.05 if level_of >= 50 else 0.0)

    assert [n for n in range(1, 60) if power_of(n, n) >= 0.47] == [47, 48, 49, *range(52, 60)]
    assert least_blocks(power_of, 0.47, 52) == 47
    assert least_blocks(power_of, 0.5, 55) == 55


@pytest.mark.long
@pytest.mark.parametrize("rates", [(0.3, 0.9), (0.95, 0.5)])
def test_a_plan_has_the_least_blocks_that_have_its_power(rates: tuple[float, float]):
    made = planned(rates, 0.8, 0.05)
    rule = Futility(rates, FUTILITY)
    power = [design(rates, n, made.concentration, 0.05, rule).power for n in range(1, made.blocks + 1)]
    assert power[-1] == made.power >= 0.8 > max(power[:-1])


@pytest.mark.long
def test_many_blocks_are_planned_without_the_stop():
    made = planned((0.6, 0.68), 0.8, 0.05)
    assert made.fixed_blocks is not None and made.fixed_blocks > MOST_STEPPED
    assert made.futility is None and made.power >= 0.8


def plan_of(blocks: int, futility: Futility | None, names: str = "ab") -> TrialPlan:
    return TrialPlan(
        policies={name: (TrialCheckpoint(f"runs/{name}", "0"),) for name in names}, arm="", setting={}, outcome="task",
        classifier="", blocks=blocks, concentration=1, alpha=0.05, seed=0, hashes={}, futility=futility,
    )  # fmt: skip


def episodes_of(plan: TrialPlan, won: dict[str, str]) -> list[TrialEpisode]:
    """Those of a success in each block for which the policy's word has a 1."""
    count = len(next(iter(won.values())))
    slots = [plan.slot(i) for i in range(count * len(plan.policies))]
    outcomes = {"0": "failure", "1": "success"}
    return [TrialEpisode(plan.sha256, **vars(slot), outcome=outcomes[won[slot.policy][slot.block]],
                         seconds=1.0 + slot.number) for slot in slots]  # fmt: skip


def test_a_trial_ends_where_its_plan_could_find_nothing_more(tmp_path: Path):
    plan = plan_of(20, Futility((0.3, 0.9), 0.1))
    level, word = log_level(20, 0.05, 1), ""
    while conditional_power(0, 0, 20 - len(word), (0.3, 0.9), level, 1) >= 0.1:
        word += "1"
    going, futile = (analyse(plan, episodes_of(plan, {"a": each, "b": each})) for each in (word[:-1], word))
    assert (going.ended, going.conclusion) == (None, "open") and going.conditional_power is not None
    assert going.conditional_power >= 0.1
    assert (futile.ended, futile.conclusion) == (FUTILE, "inconclusive")
    shown = futile.to_json()
    assert shown["conditional_power"] < 0.1 and shown["futility"] == {"rates": [0.3, 0.9], "below": 0.1}
    page = write_trial(tmp_path, futile, episodes_of(plan, {"a": word, "b": word}), []).read_text()
    assert FUTILE in page and "hardly to be reached" in page and "Inconclusive: b minus a" in page
    # Without the rule, as in plans of before, it goes on; p of what follows is that of the whole walk.
    before = replace(plan, futility=None)
    assert analyse(before, episodes_of(before, {"a": word, "b": word})).ended is None
    rest = 20 - len(word)
    went_on = analyse(plan, episodes_of(plan, {"a": word + "0" * rest, "b": word + "1" * rest}))
    assert went_on.verdicts[0].p_value == p_value([0] * len(word) + [1] * rest, 20)
    assert went_on.ended is not None and went_on.ended != FUTILE and went_on.conditional_power is None


def test_of_several_policies_the_pair_with_the_best_chance_counts():
    plan = plan_of(30, Futility((0.1, 0.95), 0.1), "abc")
    won = {"a": "1" * 20, "b": "1" * 20, "c": "0" * 8 + "1" * 12}
    found = analyse(plan, episodes_of(plan, won))
    assert [one.better for one in found.verdicts] == [None, "a", "b"]
    level = log_level(30, 0.05, 1)  # two claims are made: Holm's level of the last one is that of one comparison
    assert found.conditional_power == conditional_power(0, 0, 10, (0.1, 0.95), level, 1)
    sooner = analyse(plan, episodes_of(plan, {name: word[:5] for name, word in won.items()}))
    level = log_level(30, 0.05 / 3, 1)
    assert sooner.conditional_power == conditional_power(5, 0, 25, (0.1, 0.95), level, 1)
    decided = {"a": "1" * 20, "b": "0" * 20, "c": "0" * 20}
    assert analyse(plan, episodes_of(plan, decided)).ended == "the verdict is clear"


def test_plans_of_before_keep_their_hash_and_new_ones_cover_the_rule(tmp_path: Path):
    before = plan_of(20, None)
    assert before.sha256 == "8a1e051ead051685af2fa57c88802ff22b2b4f74435e187243376cd245c6fdc1"
    before.write(tmp_path / "before")
    assert "futility" not in (tmp_path / "before" / "plan.json").read_text()
    assert TrialPlan.read(tmp_path / "before") == before
    new = plan_of(20, Futility((0.3, 0.9), 0.1))
    new.write(tmp_path / "new")
    assert TrialPlan.read(tmp_path / "new") == new and new.sha256 != before.sha256
    stored = tmp_path / "new" / "plan.json"
    stored.write_text(stored.read_text().replace('"below": 0.1', '"below": 0.2'))
    with pytest.raises(BadInput, match="a plan whose hash is"):
        TrialPlan.read(tmp_path / "new")
