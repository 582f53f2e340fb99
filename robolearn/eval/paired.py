"""Does simulation predict the arm? Correlation and ranks over policies, and real rates from many simulated episodes.

    r     Pearson's correlation of simulated and real success rates over policies
    MMRV  mean_i max_j |R_i − R_j| · 1[(S_i < S_j) ≠ (R_i < R_j)]           (Li et al. 2024, SIMPLER)

R are real rates, S simulated ones: MMRV is how much real success a wrong rank in simulation hides, on average over
policies in the worst case. The rate of one policy by prediction-powered inference (Angelopoulos et al. 2023, PPI++),
from n real episodes y whose starts were simulated too, f, and N more simulated ones:

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
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from robolearn.core import BadInput
from robolearn.eval.intervals import Success

LEAST = 4  # policies that a correlation is of
R, MMRV = 0.8, 0.1  # at least, at most: a simulator that predicts


def mmrv(simulated: ArrayLike, real: ArrayLike) -> float:
    """Mean maximum rank violation of rates (k,) of the same policies."""
    s, r = np.asarray(simulated, dtype=np.float64), np.asarray(real, dtype=np.float64)
    violated = (s[:, None] < s) != (r[:, None] < r)
    return float((np.abs(r[:, None] - r) * violated).max(1).mean())


def pearson(simulated: ArrayLike, real: ArrayLike) -> float:
    """Pearson's r of rates (k,); NaN where one of them does not differ between policies."""
    s, r = np.asarray(simulated, dtype=np.float64), np.asarray(real, dtype=np.float64)
    if np.ptp(s) == 0.0 or np.ptp(r) == 0.0:
        return math.nan
    return float(np.corrcoef(s, r)[0, 1])


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


def prediction(policies: Sequence[Paired]) -> dict[str, Any]:
    """``{"policies", "pearson", "mmrv", "predicts", "sentence"}``; no verdict of fewer than `LEAST` policies."""
    rows = [policy.to_json() for policy in policies]
    simulated, real = ([row[key]["rate"] for row in rows] for key in ("simulated", "real"))
    if len(rows) < LEAST:
        sentence = f"{len(rows)} of at least {LEAST} policies: too few to say whether this simulator predicts this arm"
        return {"policies": rows, "pearson": None, "mmrv": None, "predicts": None, "sentence": sentence}
    r, violation = pearson(simulated, real), mmrv(simulated, real)
    predicts = r >= R and violation <= MMRV
    figures = f"r = {r:.2f}, MMRV = {violation:.3f} over {len(rows)} policies"
    sentence = f"this simulator {'predicts' if predicts else 'does not predict'} this arm: {figures}"
    known = None if math.isnan(r) else r
    return {"policies": rows, "pearson": known, "mmrv": violation, "predicts": predicts, "sentence": sentence}
