"""A versus B: is one policy better than the other, and by how much? And which part of a gain came from what?

By success, with exact tests of two rates and intervals of their difference:

- paired starts (same seed, same worlds): the exact McNemar test, a binomial test on the starts where exactly one of the
  two succeeds; interval by Newcombe (1998, Stat. Med. 17:2635, method 10);
- unpaired: Barnard's exact test (1945), more powerful than Fisher's; interval by Newcombe (1998, Stat. Med. 17:873,
  method 10). Barnard's test takes n_a · n_b memory; beyond `EXACT_UP_TO` the pooled score test, its limit for many
  episodes, takes its place.

By mean return, for worlds that report no success, in the unit of the rewards: the interval of the difference is a
bias-corrected bootstrap interval (Efron 1987), of the differences start by start where both met the same starts, else
of the two samples. The p-value is that of a permutation test (Fisher 1935) of signs of the paired differences, or of
episodes between A and B. It counts the observed arrangement among the random ones, which makes it an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import BadInput
from robolearn.eval.evaluation import Evaluation, same_starts
from robolearn.eval.intervals import bootstrap_difference, bootstrap_mean, mean_difference, wilson
from robolearn.eval.verdict import Verdict, corrected

ARRANGEMENTS = 9999  # the smallest p is 2 / (ARRANGEMENTS + 1)


def compare_returns(
    a: ArrayLike, b: ArrayLike, *, paired: bool, names: tuple[str, str] = ("A", "B"), level: float = 0.95, seed: int = 0
) -> Verdict:
    """Compare the returns `a` (n_a,) and `b` (n_b,) of the episodes of A and B.

    Args:
      a: undiscounted returns of A.
      b: undiscounted returns of B; with `paired`, ``b[i]`` began where ``a[i]`` began.
      paired: compare start by start.
      names: what A and B are called.
      level: of the interval.
      seed: of resamples and permutations; the verdict is a function of (a, b, seed).

    Raises:
      BadInput: no episodes, paired ones of different number, or returns that are not finite.
    """
    x, y = (np.asarray(values, dtype=np.float64).ravel() for values in (a, b))
    if not len(x) or not len(y) or (paired and len(x) != len(y)):
        expected = "two equal lengths (n,), n ≥ 1" if paired else "at least one episode of each"
        raise BadInput("comparison of returns", got=f"{x.shape} and {y.shape}", expected=expected)
    if paired:
        estimate = bootstrap_mean(y - x, level=level, seed=seed)
    else:
        estimate = bootstrap_difference(x, y, level=level, seed=seed)
    means, test = (float(x.mean()), float(y.mean())), "sign-flip permutation" if paired else "permutation"
    p_value, e = _permutation(x, y, paired, seed), estimate
    return Verdict("return", names, means, (len(x), len(y)), paired, test, p_value, e.mean, e.low, e.high, level)


def _permutation(x: np.ndarray, y: np.ndarray, paired: bool, seed: int) -> float:
    if min(len(x), len(y)) < 2:
        return 1.0
    from scipy import stats  # takes a second to import, and one policy alone needs no test

    test = partial(
        stats.permutation_test, n_resamples=ARRANGEMENTS, rng=np.random.default_rng(seed), vectorized=True,
        batch=256,  # memory would otherwise grow with episodes times arrangements
    )  # fmt: skip
    if paired:
        return float(test((y - x,), np.mean, permutation_type="samples").pvalue)
    return float(test((x, y), mean_difference, permutation_type="independent").pvalue)


EXACT_UP_TO = 250_000  # n_a · n_b, about a second and 100 MB


def paired_cells(x: NDArray[np.bool_], y: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Starts (n,) that both solve, A alone, B alone, and neither; raises `BadInput`: different lengths, or n = 0."""
    if x.shape != y.shape or x.ndim != 1 or len(x) == 0:
        raise BadInput("paired comparison", got=f"{x.shape} and {y.shape}", expected="two equal lengths (n,), n ≥ 1")
    return int((x & y).sum()), int((x & ~y).sum()), int((~x & y).sum()), int((~x & ~y).sum())


def compare_paired(a: ArrayLike, b: ArrayLike, *, names: tuple[str, str] = ("A", "B"), level: float = 0.95) -> Verdict:
    """Exact McNemar test of the successes `a` and `b` (n,) bool, start by start."""
    x, y = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    both, only_a, only_b, neither = paired_cells(x, y)
    n, discordant = len(x), only_a + only_b
    from scipy import stats  # takes a second to import, and one policy alone needs no test

    # Under H0 a discordant start is won by either with probability 1/2.
    p_value = float(stats.binomtest(only_b, discordant, 0.5).pvalue) if discordant else 1.0
    low, high = paired_difference_interval(both, only_a, only_b, neither, level=level)
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


def compare(a: Evaluation, b: Evaluation, *, names: tuple[str, str] = ("A", "B"), level: float = 0.95) -> Verdict:
    """Compare two evaluations: by success where both report it, else by mean return.

    Episodes are compared start by start where both evaluations met the same starts. Raises `BadInput`: the two did
    different tasks.
    """
    if a.task != b.task:
        raise BadInput("comparison: task", got=b.task, expected=a.task)
    paired = same_starts(a, b)
    if not (a.success_reported and b.success_reported):
        return compare_returns(a.returns, b.returns, paired=paired, names=names, level=level)
    if paired:
        return compare_paired(a.succeeded, b.succeeded, names=names, level=level)
    return compare_unpaired(
        int(a.succeeded.sum()), a.episodes, int(b.succeeded.sum()), b.episodes, names=names, level=level
    )


@dataclass(frozen=True)
class Gain:
    """The gain of fine-tuning, split into the choice of the initial noise and the training after it.

    A flow that imitates is as varied as its demonstrations, mistakes included. Where its paths begin is chosen before
    the first update, and that choice alone can repair part of them.

    Attributes:
      total: imitation against the fine-tuned policy.
      initial_noise: imitation against the same weights at the chosen initial noise.
      training: these against the fine-tuned policy.
    """

    total: Verdict
    initial_noise: Verdict
    training: Verdict

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All three, the whole first."""
        return self.total, self.initial_noise, self.training

    @property
    def share(self) -> float | None:
        """The part of the gain that the initial noise alone makes, in [0, 1]; None unless both parts are gains."""
        parts = self.initial_noise.difference, self.training.difference
        return parts[0] / sum(parts) if min(parts) >= 0 and sum(parts) > 0 else None

    @property
    def sentence(self) -> str:
        """The split in plain words."""
        v = self.total
        what, unit = ("Success", " percentage points") if v.metric == "success" else ("Mean return", "")
        a, b = (v.text(value) for value in v.values)
        noise, training = v.signed(self.initial_noise.difference), v.signed(self.training.difference)
        if self.share is not None:
            noise, training = f"{noise} ({self.share:.0%})", f"{training} ({1 - self.share:.0%})"
        return (
            f"{what} went from {a} to {b}, {v.signed(v.difference)}{unit}: {noise} from the choice of the initial "
            f"noise alone, without training, and {training} from RL."
        )

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``--json``."""
        return {
            "metric": self.total.metric,
            "total": self.total.to_json(),
            "initial_noise": self.initial_noise.to_json(),
            "training": self.training.to_json(),
            "initial_noise_share": self.share,
            "sentence": self.sentence,
        }


def split_gain(
    imitation: Evaluation,
    chosen_start: Evaluation,
    fine_tuned: Evaluation,
    *,
    names: Sequence[str] = ("imitation", "chosen initial noise", "after RL"),
) -> Gain:
    """The gain of fine-tuning in three evaluations, which should have the same starts.

    The p-values are corrected for the three comparisons.

    Args:
      imitation: the policy of imitation as it samples.
      chosen_start: the same weights at the initial noise that fine-tuning chose.
      fine_tuned: the policy after RL.
      names: what the three are called.

    Raises:
      BadInput: different tasks, or success reported by only some of the three.
    """
    if len({e.success_reported for e in (imitation, chosen_start, fine_tuned)}) > 1:
        raise BadInput("gain", got="success reported by some of the evaluations", expected="by all or by none")
    a, b, c = names
    pairs = (imitation, fine_tuned, (a, c)), (imitation, chosen_start, (a, b)), (chosen_start, fine_tuned, (b, c))
    return Gain(*corrected([compare(one, other, names=names) for one, other, names in pairs]))
