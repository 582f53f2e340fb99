"""Trials of simulated policies, looked at after every block and stopped as soon as a difference is claimed.

    python tests/programs/trial_statistics.py

Prints as JSON how often equal policies are called different in 2,000 trials that end for futility or go on all the
same, how often any claim is made of three and of five equal ones, how often the best of three is named, and how many
blocks two unequal ones take beside a fixed number at equal power; ends with 1 where what is computed is not what the
trials do, or nobody else judges it: fieldtrial the power of the exact McNemar test, its p-values and the blocks that a
betting test takes on the same trials, robostats its p-values, Holm's correction and the intervals of a rate (`pip
install --no-deps fieldtrial robostats`, which `make test-trials` does).
"""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

import numpy as np
from trial_families import ends, family, holm, judged

from robolearn.eval.comparison import compare_paired
from robolearn.eval.intervals import Success
from robolearn.eval.trials.design import FUTILITY, Design, design, fixed_blocks, log_level, mcnemar_power, planned
from robolearn.eval.trials.futility import Futility, conditional_power
from robolearn.eval.trials.sequential import difference_sequence, log_evidence, p_value

TRIALS, ALPHA = 2000, 0.05
DETECT = ((0.5, 0.8), (0.6, 0.8), (0.7, 0.9), (0.85, 0.95))


def stops(signs: np.ndarray, concentration: int, futility: Futility | None) -> tuple[int, bool]:
    """Blocks until p ≤ α or the end for futility, at a look after each, and whether p ≤ α was reached."""
    lost, won = np.cumsum(signs < 0).tolist(), np.cumsum(signs > 0).tolist()
    evidence = log_evidence(np.cumsum(signs < 0), np.cumsum(signs > 0), concentration)
    best = 0.0
    for n, e in enumerate(evidence, start=1):
        if e > best + 1e-9:  # p falls at new maxima only
            best = float(e)
            if best > 1.0 and p_value(signs[:n].tolist(), len(signs), concentration) <= ALPHA:
                return n, True
        if futility is not None and n < len(signs):
            few, many = sorted((lost[n - 1], won[n - 1]))
            if chance(few, many, len(signs) - n, futility.rates, len(signs), concentration) < futility.below:
                return n, False
    return len(signs), False


@cache
def chance(
    only_a: int, only_b: int, left: int, rates: tuple[float, float], blocks: int, concentration: int,
    alpha: float = ALPHA,
) -> float:  # fmt: skip
    level = log_level(blocks, alpha, concentration)
    return conditional_power(only_a, only_b, left, rates, level, concentration)


def trials(
    rates: tuple[float, float], made: Design, seed: int, futility: Futility | None
) -> tuple[np.ndarray, np.ndarray]:
    """Signs (trials, blocks) of simulated trials, and the stop of each."""
    blocks, concentration = made.blocks, made.concentration
    a, b = np.random.default_rng(seed).random((2, TRIALS, blocks))
    signs = (b < rates[1]).astype(int) - (a < rates[0]).astype(int)
    return signs, np.array([stops(each, concentration, futility) for each in signs])


def reached(rate: float, blocks: int, concentration: int) -> dict[str, float | int]:
    """Share of 100,000 trials of equal policies whose evidence reaches the level of α, which is where p ≤ α."""
    level, count = log_level(blocks, ALPHA, concentration), 0
    for seed in range(50):
        a, b = np.random.default_rng([seed, 7]).random((2, TRIALS, blocks)) < rate
        evidence = log_evidence(np.cumsum(a & ~b, axis=1), np.cumsum(b & ~a, axis=1), concentration)
        count += int((evidence >= level - 1e-9).any(axis=1).sum())
    return Success.of(count, 50 * TRIALS).to_json()


def several(contradicted: list[str]) -> dict[str, Any]:
    """Any false claim among equal policies at any of all looks, and the best of three as planned."""
    found: dict[str, Any] = {"equal": {}, "best": {}}
    for count in (3, 5):
        made = planned((0.6, 0.8), 0.9, ALPHA / (count * (count - 1) // 2))
        for rate in (0.3, 0.6, 0.9):
            one = family((rate,) * count, made, ALPHA, TRIALS, seed=3)
            claimed = int((one.claims != 0).any(axis=(0, 2)).sum())
            found["equal"][f"{count} at {rate:g}"] = {**Success.of(claimed, TRIALS).to_json(), "blocks": made.blocks}
            contradicted += judged(one, None, None) if rate == 0.6 and count == 3 else []
    made = planned((0.6, 0.8), 0.9, ALPHA / 3)
    futility = Futility((0.6, 0.8), FUTILITY)
    for rates in ((0.6, 0.6, 0.8), (0.4, 0.6, 0.8)):
        one = family(rates, made, ALPHA, TRIALS, seed=4)
        ended = ends(one, futility, chance)
        contradicted += judged(one, futility, ended)
        names = [why for _, why in ended]
        last = np.array([n for n, _ in ended]) - 1
        differ = np.sign([rates[j] - rates[i] for i, j in one.pairs])[:, None, None]
        before = np.arange(made.blocks) <= last[:, None]
        false = ((one.claims != 0) & (one.claims != differ) & before).any(axis=(0, 2))
        found["best"][" ".join(f"{rate:g}" for rate in rates)] = {
            "named": Success.of(names.count("2"), TRIALS).to_json(),
            "wrongly_named": Success.of(names.count("0") + names.count("1"), TRIALS).to_json(),
            "any_false_claim": Success.of(int(false.sum()), TRIALS).to_json(),
            "blocks": made.blocks, "mean_blocks": float(last.mean() + 1),
        }  # fmt: skip
    return found


def main() -> int:
    found: dict[str, Any] = {"false_positives": {}, "detect": {}}
    contradicted: list[str] = []
    made = planned((0.6, 0.8), 0.9, ALPHA)
    for rate in (0.3, 0.6, 0.9):
        stop = Futility((0.6, 0.8), FUTILITY)
        for name, futility in (("to the last block", None), ("as planned", stop)):
            _, stopped = trials((rate, rate), made, 1, futility)
            exact = design((rate, rate), made.blocks, made.concentration, ALPHA, futility)
            row: dict[str, Any] = {**Success.of(int(stopped[:, 1].sum()), TRIALS).to_json()}
            row |= {
                "blocks": made.blocks,
                "mean_blocks": float(stopped[:, 0].mean()),
                **beside(stopped, exact, contradicted),
            }
            if futility is None:
                row["of_many"] = reached(rate, made.blocks, made.concentration)
            found["false_positives"][f"{rate:g}, {name}"] = row
    for rates in DETECT:
        for power in (0.8, 0.9):
            made = planned(rates, power, ALPHA)
            assert made.futility is not None
            signs, stopped = trials(rates, made, 2, Futility(rates, made.futility))
            measured, mean = float(stopped[:, 1].mean()), float(stopped[:, 0].mean())
            fixed = fixed_blocks(rates, measured, ALPHA)
            error = float(stopped[:, 0].std()) / TRIALS**0.5
            row = {"blocks": made.blocks, "power": measured, "mean_blocks": mean, "fixed_blocks": fixed,
                   "saved": 1 - mean / fixed, "low": 1 - (mean + 1.96 * error) / fixed,
                   "high": 1 - (mean - 1.96 * error) / fixed} if fixed else {}  # fmt: skip
            row |= {**beside(stopped, made, contradicted), "exact_saved": made.saved}
            try:
                row |= others(rates, signs, made.blocks)
            except ImportError as error:
                contradicted.append(f"nobody else judges this: {error}")
            found["detect"][f"{rates[0]:g} {rates[1]:g}, power {power:g}"] = row
    found["several"] = several(contradicted)
    try:
        others_of_several()
    except ImportError as error:
        contradicted.append(f"nobody else judges this: {error}")
    found["contradicted"] = contradicted
    print(json.dumps(found, indent=2))
    families = [*found["several"]["equal"].values(),
                *(one["any_false_claim"] for one in found["several"]["best"].values())]  # fmt: skip
    worst = max(one["low"] for one in (*found["false_positives"].values(), *families))
    return int(worst > ALPHA or bool(contradicted))


def beside(stopped: np.ndarray, exact: Design, contradicted: list[str]) -> dict[str, float]:
    """The computed power and mean number of blocks; adds to `contradicted` where the trials are 4 errors away."""
    for name, values, expected in (
        ("power", stopped[:, 1], exact.power),
        ("blocks", stopped[:, 0], exact.expected_blocks),
    ):
        if abs(values.mean() - expected) > 4 * max(float(values.std()), 0.01) / TRIALS**0.5:
            contradicted.append(f"{name}: {values.mean():.4g} measured, {expected:.4g} computed, {exact}")
    return {"exact_power": exact.power, "exact_mean_blocks": exact.expected_blocks}


def others_of_several() -> None:
    """End the program where robostats corrects p-values otherwise. Raises `ImportError`: it is not installed."""
    from robostats.kmodel import adjust  # type: ignore[import-not-found]

    for p in np.random.default_rng(5).random((200, 10)) ** 4:
        assert np.abs(holm(p) - np.array(adjust(p.tolist(), "holm"))).max() < 1e-12


def others(rates: tuple[float, float], signs: np.ndarray, blocks: int) -> dict[str, Any]:
    """Figures of other implementations; ends the program where one contradicts ours. Raises `ImportError`: one is not
    installed."""
    from fieldtrial.stats.confseq import betting_cs, paired_anytime_test  # type: ignore[import-not-found]
    from fieldtrial.stats.paired import mcnemar_exact  # type: ignore[import-not-found]
    from fieldtrial.stats.power import mcnemar_power as theirs  # type: ignore[import-not-found]
    from robostats.compare import mcnemar  # type: ignore[import-not-found]
    from robostats.intervals import clopper_pearson  # type: ignore[import-not-found]
    from robostats.records import PairedResult  # type: ignore[import-not-found]

    p_a, p_b = rates
    power = theirs(p_a * (1 - p_b), p_b * (1 - p_a), blocks, alpha=ALPHA).power
    assert abs(power - mcnemar_power(rates, blocks, ALPHA)) < 1e-9, (power, rates)
    rejected, widths = [], []
    for each in signs[:100]:
        test = paired_anytime_test(each.astype(float), ALPHA)
        rejected.append(test.rejected_at or blocks)
        low, high = difference_sequence(int((each == 0).sum()), int((each < 0).sum()), int((each > 0).sum()))
        interval = betting_cs((each + 1) / 2, ALPHA).interval()
        widths.append((high - low) / (2 * (interval.high - interval.low)))
        x, y = each < 0, each > 0  # any outcomes with these signs
        only_a, only_b = int(x.sum()), int(y.sum())
        p = compare_paired(x, y).p_value
        paired = PairedResult("A", "B", 0, only_a, only_b, blocks - only_a - only_b, (), 0, 0, (), (), None)
        assert abs(p - mcnemar_exact(only_a, only_b).pvalue) < 1e-9
        assert abs(p - mcnemar(paired).p_value) < 1e-9
        own, bounds = Success.of(only_b, blocks), clopper_pearson(only_b, blocks)
        assert abs(own.low - bounds.lower) + abs(own.high - bounds.upper) < 1e-9
    return {"betting_mean_blocks": float(np.mean(rejected)), "interval_width_beside_betting": float(np.mean(widths))}


if __name__ == "__main__":
    sys.exit(main())
