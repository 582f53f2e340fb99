"""A stop for futility: the end of a trial that has hardly a chance left, and what that does to power and length.

After n of M blocks, a of them won by A alone and b by B alone, the conditional power is the probability, at the rates
that the plan is to detect, that E of `sequential` still reaches its level (Lan, Simon, Halperin 1982, Sequential Anal.
1:207). Which policy has the higher rate is not part of the plan, so the larger of both directions counts, which is that
of the leader. With the shares q_A = p_A (1 − p_B) and q_B = p_B (1 − p_A) of blocks, B the better one:

    C_n(a, b) = q_B C_{n+1}(a, b + 1) + q_A C_{n+1}(a + 1, b) + (1 − q_A − q_B) C_{n+1}(a, b)

with 1 where E reaches the level for B, 0 where for A, and C_M = 0 elsewhere. The trial ends where max(C_n(a, b),
C_n(b, a)) is below the plan's threshold. The level takes no account of that end: no false claim becomes likelier, and
p-values stay valid where a trial goes on all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from robolearn.eval.trials.sequential import Array, most_losses

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Futility:
    """The rule of a plan.

    Attributes:
      rates: of two policies that the plan is to tell apart, in either order.
      below: conditional power from which on a trial goes on.
    """

    rates: tuple[float, float]
    below: float


def shares(rates: tuple[float, float]) -> tuple[float, float]:
    """Probabilities that A alone and that B alone succeeds, at the rates of A and B."""
    p_a, p_b = rates
    return p_a * (1 - p_b), p_b * (1 - p_a)


def conditional_power(
    only_a: int, only_b: int, left: int, rates: tuple[float, float], log_level: float, concentration: int
) -> float:
    """The larger of both directions, of a trial with `left` blocks to go whose E has not reached its level."""
    from scipy import stats  # late: it takes a second to import

    lost, better = min(only_a, only_b), max(shares(rates))
    decisive, m = sum(shares(rates)), only_a + only_b
    most = np.array(most_losses(log_level, m + left, concentration)[m:])
    theta, going, first = better / decisive, np.zeros(left + 1), np.zeros(left + 1)
    going[0] = 1.0  # going[k] = P(the leader lost k more, E never reached)
    for j in range(1, left + 1):
        going[1:] = theta * going[1:] + (1 - theta) * going[:-1]
        going[0] *= theta
        reached, wrong = most[j - 1] - lost, m + j - most[j - 1] - lost
        if reached >= 0:
            first[j] = going[: reached + 1].sum()
            going[: reached + 1] = 0.0
        going[max(0, wrong) :] = 0.0
    # P(reached) = Σ_j P(with the j-th decisive block) P(at least j of those that are left decide)
    return float(first @ stats.binom.sf(np.arange(left + 1) - 1, left, decisive))


class _Band:
    """Walks (m decisive blocks, b of them won by B) that have not reached the level, a row for each m: column j is
    b = m // 2 − half + j. Where a block is decisive, row m leads to row m + 1, from an even one to the columns j and
    j + 1, from an odd one to j − 1 and j."""

    def __init__(self, log_level: float, blocks: int, concentration: int) -> None:
        most = np.array([-1, *most_losses(log_level, blocks, concentration)])
        m = np.arange(blocks + 1)
        self.half = int((m // 2 - most).max()) + 2
        self.b: Counts = (m // 2 - self.half)[:, None] + np.arange(2 * self.half + 1)
        self.a: Counts = m[:, None] - self.b
        self.for_b, self.for_a = self.a <= most[:, None], self.b <= most[:, None]
        self.inside = ~(self.for_a | self.for_b) & (self.a >= 0) & (self.b >= 0)


def _next(values: Array, q_a: float, q_b: float) -> Array:
    """The mean of `values` (m + 1, columns) after one more block, of the states with up to m − 1 decisive ones."""
    rows = len(values) - 1
    out = (1 - q_a - q_b) * values[:rows]
    out[0::2, :-1] += q_a * values[1::2, :-1] + q_b * values[1::2, 1:]
    out[1::2, 1:] += q_a * values[2::2, :-1] + q_b * values[2::2, 1:]
    return out


def _spread(going: Array, q_a: float, q_b: float) -> Array:
    """The probabilities of states after one more block: `_next` read backwards, with one row more."""
    out = np.zeros((len(going) + 1, going.shape[1]))
    out[:-1] = (1 - q_a - q_b) * going
    even, odd = going[0::2], going[1::2]
    out[1::2, :-1] += q_a * even[:, :-1]
    out[1::2, 1:] += q_b * even[:, :-1]
    out[2::2, :-1] += q_a * odd[:, 1:]
    out[2::2, 1:] += q_b * odd[:, 1:]
    return out


@lru_cache(maxsize=8)
def least_wins(futility: Futility, log_level: float, blocks: int, concentration: int) -> Counts:
    """(M, M) the least wins of the leader among m decisive blocks, at which a trial goes on after n: ``[n, m]``."""
    band = _Band(log_level, blocks, concentration)
    q_a, q_b = sorted(shares(futility.rates))
    least = np.zeros((blocks, blocks), dtype=np.int64)
    inside, for_b = band.inside.astype(float), band.for_b.astype(float)
    values = for_b
    for n in range(blocks - 1, -1, -1):
        values = _next(values, q_a, q_b)
        values *= inside[: n + 1]
        values += for_b[: n + 1]
        # C grows with b: the first column that suffices
        least[n, : n + 1] = band.b[: n + 1, 0] + (values < futility.below).sum(axis=1)
    return least


def power_and_length(
    rates: tuple[float, float], futility: Futility, log_level: float, blocks: int, concentration: int
) -> tuple[float, float]:
    """Probability that a difference is claimed, and the mean number of blocks, of policies that succeed at `rates`."""
    band = _Band(log_level, blocks, concentration)
    least = np.maximum(least_wins(futility, log_level, blocks, concentration), 0).astype(np.int16)
    q_a, q_b = shares(rates)
    going = np.zeros((1, band.b.shape[1]))
    going[0, band.half] = 1.0
    power = length = 0.0
    reached, leader = (
        (band.for_a | band.for_b).astype(float),
        np.where(band.inside, np.maximum(band.a, band.b), -1).astype(np.int16),
    )
    for n in range(1, blocks + 1):
        length += float(going.sum())
        going = _spread(going, q_a, q_b)
        power += float(np.vdot(going, reached[: n + 1]))
        if n < blocks:
            going *= leader[: n + 1] >= least[n, : n + 1, None]
    return power, length
