"""Two success rates compared block by block: a look after every block, a stop at any time, the error controlled.

A block is one start that both policies meet, in random order. Blocks in which exactly one of them succeeds decide: of m
such, B has won b and A has won a. Where both are equally good, each is B's with probability 1/2 whatever the others
were, so b − a is a fair walk. The evidence against that is the likelihood ratio of an unknown share θ to θ = 1/2, with
the prior Beta(c, c) for θ; c = 1 is uniform, a larger one looks for smaller differences:

    E = 2^m B(b + c, a + c) / B(c, c), with B the beta function

It is a martingale under equality (Robbins 1970, Ann. Math. Stat. 41:1397). A plan has an end, and with it the
probability that E gets far is known exactly, by stepping through the walk:

    p = P_{θ=1/2}( E ever reaches, within the M blocks of the plan, its largest value so far )

A p-value at every moment: P(p ≤ α at any look, by any rule of stopping) ≤ α. Where the lead has changed sides since, it
is 1.

Intervals hold at all looks at once and for any number of blocks, by Ville's inequality (1939): a martingale that begins
at 1 ever reaches 1/α with probability α at most.

    difference   { Δ : K(Δ) < 1/α },  K(Δ) = ∫ (1 + λ(1 − Δ))^b (1 − λΔ)^ties (1 − λ(1 + Δ))^a dπ(λ)
    rate         { p : B(k + 1, n − k + 1) / (p^k (1 − p)^(n−k)) < 1/α }

K is the capital of bets λ against the difference Δ (Waudby-Smith and Ramdas 2024, JRSS B 86:1), spread over all that
cannot lose more than everything as θ is above: K(0) = E.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import BadInput
from robolearn.eval.comparison import paired_cells
from robolearn.eval.intervals import Success
from robolearn.eval.verdict import Verdict

TEST = "sequential sign"
TIES = 1e-9  # of logarithms: values of E that are equal but for rounding
BETS = 256  # λ of the mixture

Array = NDArray[np.float64]


def log_evidence(only_a: ArrayLike, only_b: ArrayLike, concentration: int = 1) -> Array:
    """log E after blocks that A alone and B alone has won, arrays of counts of one shape; c is the `concentration`."""
    a, b, c = np.asarray(only_a), np.asarray(only_b), concentration
    m = a + b
    log_gamma = _log_factorials(int(np.max(m, initial=0)) + 2 * c)  # of k + 1
    prior = 2 * log_gamma[c - 1] - log_gamma[2 * c - 1]
    return m * math.log(2.0) + log_gamma[b + c - 1] + log_gamma[a + c - 1] - log_gamma[m + 2 * c - 1] - prior


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> Array:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 1)))])


def crossing(log_level: float, blocks: int, theta: float = 0.5, concentration: int = 1) -> Array:
    """(M + 1,) probability that E first reaches ``exp(log_level)`` with the m-th decisive block, m = 0 … M.

    Args:
      log_level: more than 0, where E begins.
      blocks: M.
      theta: probability that a decisive block is won by B.
      concentration: c.
    """
    assert log_level > 0
    walk, first = np.zeros(blocks + 1), np.zeros(blocks + 1)  # walk[b] = P(b won, never reached)
    walk[0] = 1.0
    low, high = 0, 0  # the b that are left: low … high
    for m, most in enumerate(most_losses(log_level, blocks, concentration), start=1):
        # P_m(b) = θ P_{m−1}(b − 1) + (1 − θ) P_{m−1}(b)
        now = np.zeros(high - low + 2)
        now[1:] = theta * walk[low : high + 1]
        now[:-1] += (1 - theta) * walk[low : high + 1]
        walk[low : high + 2] = now
        left, right = max(low, most + 1), min(high + 1, m - most - 1)
        first[m] = walk[low:left].sum() + walk[right + 1 : high + 2].sum()
        low, high = left, right
        if low > high:
            break
    return first


def most_losses(log_level: float, blocks: int, concentration: int) -> list[int]:
    """Of m = 1 … M decisive blocks, the most that the better policy may have lost where E reaches the level; −1: none
    are few enough."""
    # log E without its constant, by the counts of both; c − 1 is added to each
    c, log_gamma = concentration, _log_factorials(blocks + 2 * concentration).tolist()
    least = log_level - TIES + 2 * log_gamma[c - 1] - log_gamma[2 * c - 1]
    most, found = -1, []
    for m in range(1, blocks + 1):
        needed = least - m * math.log(2.0) + log_gamma[m + 2 * c - 1]
        # E is larger the fewer of m are lost, and one block more permits at most a few more.
        while 2 * (most + 1) <= m and log_gamma[most + c] + log_gamma[m - most + c - 2] >= needed:
            most += 1
        found.append(most)
    return found


def p_value(wins: Sequence[int], blocks: int, concentration: int = 1) -> float:
    """The p-value of the module's docstring.

    Args:
      wins: of each block so far +1 (B alone succeeded), −1 (A alone) or 0.
      blocks: M, of the plan.

    Raises:
      BadInput: more blocks than planned.
    """
    if len(wins) > blocks:
        raise BadInput("blocks of a trial", got=len(wins), expected=f"at most the {blocks} of its plan")
    signs = np.asarray(wins, dtype=np.int64)
    lost, won = np.cumsum(signs < 0), np.cumsum(signs > 0)
    so_far = log_evidence(lost, won, concentration)
    largest = float(so_far.max(initial=0.0))
    if largest <= TIES:
        return 1.0
    at = int(so_far.argmax())
    if (won[-1] - lost[-1]) * (won[at] - lost[at]) <= 0:
        return 1.0
    return min(1.0, float(crossing(largest, blocks, concentration=concentration).sum()))


def compare_sequentially(
    a: ArrayLike,
    b: ArrayLike,
    blocks: int,
    concentration: int = 1,
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = 0.95,
) -> Verdict:
    """The verdict on the successes `a` and `b` (n,) bool so far, block by block, at whatever moment it is asked for.

    Args:
      blocks: M ≥ n, fixed before the first.
      concentration: c, fixed before the first.

    Raises:
      BadInput: no block, different numbers, or more than planned.
    """
    x, y = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    both, only_a, only_b, neither = paired_cells(x, y)
    p = p_value((y.astype(int) - x.astype(int)).tolist(), blocks, concentration)
    low, high = difference_sequence(both + neither, only_a, only_b, concentration, level=level)
    n, rates = len(x), (float(x.mean()), float(y.mean()))
    return Verdict("success", names, rates, (n, n), True, TEST, p, (only_b - only_a) / n, low, high, level)


def rate_sequence(successes: int, episodes: int, *, level: float = 0.95) -> Success:
    """A success rate with the interval that holds at every number of episodes at once."""
    if episodes < 1 or not 0 <= successes <= episodes:
        raise BadInput("successes", got=f"{successes} of {episodes}", expected="at least one episode")
    k, n, rate = successes, episodes, successes / episodes
    mixture = math.lgamma(k + 1) + math.lgamma(n - k + 1) - math.lgamma(n + 2)

    def excess(p: float) -> float:
        return mixture - _log_power(p, k) - _log_power(1 - p, n - k) + math.log(1 - level)

    return Success(rate, _edge(excess, rate, 0.0), _edge(excess, rate, 1.0), n)


def difference_sequence(
    ties: int, only_a: int, only_b: int, concentration: int = 1, *, level: float = 0.95
) -> tuple[float, float]:
    """The interval of p_B − p_A that holds at every number of blocks at once, from the blocks that ended alike, and
    that A alone and B alone has won."""
    middle = (only_b - only_a) / (ties + only_a + only_b)

    def excess(difference: float) -> float:
        return log_capital(ties, only_a, only_b, difference, concentration) + math.log(1 - level)

    return _edge(excess, middle, -1.0), _edge(excess, middle, 1.0)


def log_capital(ties: int, only_a: int, only_b: int, difference: float, concentration: int = 1) -> float:
    """log K(Δ) of the module's docstring; infinite at differences of ±1 that the blocks exclude."""
    if abs(difference) >= 1.0:
        return 0.0 if max(ties, only_a if difference > 0 else only_b) == 0 else math.inf
    at, weight = _bets(concentration)
    least, most = -1 / (1 - difference), 1 / (1 + difference)
    bet = least + (most - least) * at
    capital = (
        only_b * np.log1p(bet * (1 - difference))
        + ties * np.log1p(-bet * difference)
        + only_a * np.log1p(-bet * (1 + difference))
    )
    largest = capital.max()
    return float(largest + np.log(weight @ np.exp(capital - largest)))


@lru_cache(maxsize=8)
def _bets(concentration: int) -> tuple[Array, Array]:
    """Places in [0, 1] and weights of Beta(c, c), by Gauss's quadrature: any such mixture of bets is a martingale."""
    from scipy.special import roots_jacobi  # late: scipy takes a second to import

    at, weight = roots_jacobi(BETS, concentration - 1, concentration - 1)
    return (1 + at) / 2, weight / weight.sum()


def _log_power(p: float, count: int) -> float:
    """log p^count, with 0⁰ = 1."""
    if not count:
        return 0.0
    return count * math.log(p) if p > 0 else -math.inf


def _edge(excess: Callable[[float], float], inside: float, bound: float) -> float:
    """The end of the interval {excess < 0} between a point `inside` it and the `bound` of what is possible."""
    if inside == bound or excess(bound) < 0:
        return bound
    from scipy.optimize import bisect

    return cast(float, bisect(excess, inside, bound))
