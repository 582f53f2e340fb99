"""A versus B by mean return, for worlds that report no success: in the unit of the rewards.

The interval of the difference is a bias-corrected bootstrap interval (Efron 1987): of the differences start by start
where both met the same starts, else of the two samples. The p-value is that of a permutation test (Fisher 1935):
signs of the paired differences, or episodes between A and B. It counts the observed arrangement among the random
ones, which makes it an upper bound.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from robolearn.core import BadInput
from robolearn.eval.intervals import bootstrap_difference, bootstrap_mean
from robolearn.eval.verdict import Verdict

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
    return Verdict(
        metric="return",
        names=names,
        values=(float(x.mean()), float(y.mean())),
        episodes=(len(x), len(y)),
        paired=paired,
        test="sign-flip permutation" if paired else "permutation",
        p_value=_permutation(x, y, paired, seed),
        difference=estimate.mean,
        low=estimate.low,
        high=estimate.high,
        level=level,
    )


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
    return float(test((x, y), _mean_difference, permutation_type="independent").pvalue)


def _mean_difference(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.mean(y, axis=axis) - np.mean(x, axis=axis)
