"""Does simulation predict the arm? Correlation and ranks over policies, and real rates from many simulated episodes.

    r     Pearson's correlation of simulated and real success rates over policies
    MMRV  mean_i max_j |R_i − R_j| · 1[(S_i < S_j) ≠ (R_i < R_j)]           (Li et al. 2024, SIMPLER)

R are real rates, S simulated ones: MMRV is how much real success a wrong rank in simulation hides, on average over
policies in the worst case.

Rates of few episodes are noisy, and noise lowers r and raises MMRV. The lower end of r's 95% interval and the upper one
of MMRV's are those of a Bayesian bootstrap over each policy's episodes (Rubin 1981; rates of s successes and f failures
from Beta(s + ½, f + ½): one episode is no certainty). The other ends allow for what noise does to a simulator that
keeps all ranks, whose real rates R̃ rise with the simulated ones S̃ (isotonic regression; * are binomial draws):

    r ≤ r̂ − q₀.₀₂₅(r(S*, R*) − r(S̃, R̃)),        MMRV ≥ MMRV̂ − q₀.₉₇₅(MMRV(S*, R*))

A simulator predicts, or does not, where the intervals lie on one side of `R` or `MMRV`.

The rate of one policy by prediction-powered inference (Angelopoulos et al. 2023, PPI++), from n real episodes y whose
starts were simulated too, f, and N more simulated ones:

    θ = λ mean(f_N) + mean(y − λ f),   λ = cov(y, f) / ((1 + n/N) var f) in [0, 1]
    se² = λ² var(f_N)/N + var(y − λ f)/n

The interval is Student's, and the variance of y − λ f counts two more pairs in which arm and simulation disagree, one
each way: ten pairs that agree are no proof that all do. λ = 0 is the real episodes alone: a simulator that says nothing
costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.special import stdtrit

from robolearn.core import BadInput
from robolearn.eval.intervals import Success

LEAST = 4  # policies that a correlation is of
R, MMRV = 0.8, 0.1  # at least, at most: a simulator that predicts
DRAWS = 2000  # of an interval
TAIL = 0.025  # of it, on each side

Array = NDArray[np.float64]


def mmrv(simulated: ArrayLike, real: ArrayLike) -> float:
    """Mean maximum rank violation of rates (k,) of the same policies."""
    return float(_violation(np.asarray(simulated, dtype=np.float64), np.asarray(real, dtype=np.float64)))


def pearson(simulated: ArrayLike, real: ArrayLike) -> float:
    """Pearson's r of rates (k,); NaN where one of them does not differ between policies."""
    return float(_correlation(np.asarray(simulated, dtype=np.float64), np.asarray(real, dtype=np.float64)))


def _violation(s: Array, r: Array) -> Array:
    """(...) MMRV of rates (..., k)."""
    violated = (s[..., :, None] < s[..., None, :]) != (r[..., :, None] < r[..., None, :])
    return (np.abs(r[..., :, None] - r[..., None, :]) * violated).max(-1).mean(-1)


def _correlation(s: Array, r: Array) -> Array:
    """(...) Pearson's r of rates (..., k); NaN where one of them does not differ."""
    flat = (np.ptp(s, -1) == 0.0) | (np.ptp(r, -1) == 0.0)
    s, r = (one - one.mean(-1, keepdims=True) for one in (s, r))
    square = (s**2).sum(-1) * (r**2).sum(-1)
    return np.where(flat, np.nan, (s * r).sum(-1) / np.sqrt(np.where(flat, 1.0, square)))


def powered(real: ArrayLike, paired: ArrayLike, simulated: ArrayLike, level: float = 0.95) -> Success:
    """The real success rate by prediction-powered inference; `episodes` counts the real ones.

    Args:
      real: (n,) outcomes on the arm.
      paired: (n,) outcomes in simulation from the same starts.
      simulated: (N,) outcomes of other episodes in simulation.

    Raises:
      BadInput: pairs of different numbers, or none.
    """
    y, f, more = (np.asarray(values, dtype=np.float64) for values in (real, paired, simulated))
    if len(y) != len(f) or not len(y) or not len(more):
        expected = "as many paired as real ones, and simulated ones"
        raise BadInput("paired episodes", got=f"{len(y)} real, {len(f)} paired, {len(more)} more", expected=expected)
    n = len(y)
    if np.ptp(y) == 0.0 or np.ptp(f) == 0.0:  # the pairs say nothing of each other
        return Success.of(int(y.sum()), n, level=level)
    weight = np.cov(y, f)[0, 1] / ((1.0 + n / len(more)) * f.var(ddof=1))
    weight = float(np.clip(weight, 0.0, 1.0))
    left = y - weight * f
    rate = weight * more.mean() + left.mean()
    spread = np.append(left, [1.0, -weight]).var(ddof=1)
    error = math.sqrt(weight**2 * more.var() / len(more) + spread / n)
    reach = float(stdtrit(n - 1, 0.5 + 0.5 * level)) * error
    low, high, rate = (float(np.clip(value, 0.0, 1.0)) for value in (rate - reach, rate + reach, rate))
    return Success(rate, low, high, n)


@dataclass(frozen=True)
class Paired:
    """One policy on the arm and in simulation.

    Attributes:
      name: of the policy.
      real, paired: (n,) outcomes on the arm, and in simulation from the same starts.
      simulated: (N,) more outcomes in simulation.
    """

    name: str
    real: Sequence[bool]
    paired: Sequence[bool]
    simulated: Sequence[bool]

    def to_json(self) -> dict[str, Any]:
        """Rates on the arm, in simulation, and of the arm with simulation's help."""
        return {
            "policy": self.name,
            "real": Success.of(sum(self.real), len(self.real)).to_json(),
            "simulated": Success.of(sum(self.simulated), len(self.simulated)).to_json(),
            "agreement": float(np.mean(np.equal(self.real, self.paired))),
            "powered": powered(self.real, self.paired, self.simulated).to_json(),
        }


def intervals(policies: Sequence[Paired]) -> dict[str, tuple[float, float]]:
    """95% intervals of ``pearson`` and ``mmrv`` over the episodes of at least two policies."""
    rng, shape = np.random.default_rng(0), (DRAWS, len(policies))
    n = np.array([[len(p.simulated) for p in policies], [len(p.real) for p in policies]])
    won = np.array([[sum(p.simulated) for p in policies], [sum(p.real) for p in policies]])
    s, r = (rng.beta(w + 0.5, m - w + 0.5, shape) for w, m in zip(won, n, strict=True))
    simulated, real = (won + 0.5) / (n + 1.0)
    order = np.argsort(simulated)
    kept = np.empty(len(policies))
    kept[order] = isotonic_regression(real[order], weights=n[1][order]).x
    s_kept, r_kept = (rng.binomial(m, p, shape) / m for m, p in zip(n, (simulated, kept), strict=True))
    # Where rates do not differ r may be anything: it is taken at its far end.
    off = np.nan_to_num(_correlation(s_kept, r_kept), nan=-1.0) - np.nan_to_num(_correlation(simulated, kept), nan=1.0)
    low, high = np.quantile(_correlation(s, r), (TAIL, 1.0 - TAIL))
    allowed = pearson(*(won / n)) - np.quantile(off, TAIL)
    correlation = (float(low), 1.0 if np.isnan(allowed) else float(min(max(high, allowed), 1.0)))
    low, high = np.quantile(_violation(s, r), (TAIL, 1.0 - TAIL))
    allowed = mmrv(*(won / n)) - np.quantile(_violation(s_kept, r_kept), 1.0 - TAIL)
    return {"pearson": correlation, "mmrv": (float(max(min(low, allowed), 0.0)), float(high))}


def prediction(policies: Sequence[Paired]) -> dict[str, Any]:
    """``{"policies", "pearson", "mmrv", "intervals", "predicts", "sentence"}``; no verdict of fewer than `LEAST`
    policies, or where an interval holds what it is judged by."""
    rows = [policy.to_json() for policy in policies]
    simulated, real = ([row[key]["rate"] for row in rows] for key in ("simulated", "real"))
    if len(rows) < LEAST:
        sentence = f"{len(rows)} of at least {LEAST} policies: too few to say whether this simulator predicts this arm"
        none = {"pearson": None, "mmrv": None, "intervals": None, "predicts": None}
        return {"policies": rows, **none, "sentence": sentence}
    r, violation, found = pearson(simulated, real), mmrv(simulated, real), intervals(policies)
    (r_low, r_high), (low, high) = found["pearson"], found["mmrv"]
    predicts = None
    if r_low >= R and high <= MMRV:
        predicts = True
    elif r_high < R or low > MMRV:
        predicts = False
    verdict = {
        True: "this simulator predicts this arm",
        False: "this simulator does not predict this arm",
        None: "too few episodes to say whether this simulator predicts this arm",
    }[predicts]
    episodes = sum(len(policy.real) for policy in policies)
    figures = f"r = {r:.2f} ({r_low:.2f} to {r_high:.2f}), MMRV = {violation:.3f} ({low:.3f}–{high:.3f})"
    return {
        "policies": rows,
        "pearson": None if math.isnan(r) else r,
        "mmrv": violation,
        "intervals": {name: {"low": ends[0], "high": ends[1]} for name, ends in found.items()},
        "predicts": predicts,
        "sentence": f"{verdict}: {figures} over {len(rows)} policies, {episodes} episodes on the arm",
    }
