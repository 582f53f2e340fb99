"""Simulated trials of several policies, all looks at once: for `trial_statistics.py`.

Claims are Holm's at every look, computed here for all trials together; `analyse`, which a trial's user has, judges some
of the trials look by look, and robostats the correction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.eval.trials.analysis import FUTILE, analyse
from robolearn.eval.trials.design import Design, log_level
from robolearn.eval.trials.futility import Futility
from robolearn.eval.trials.plan import TrialCheckpoint, TrialPlan
from robolearn.eval.trials.records import TrialEpisode
from robolearn.eval.trials.sequential import crossing, log_evidence

Chance = Callable[..., float]  # `trial_statistics.chance`
JUDGED = 2  # trials that `analyse` judges at every look


@dataclass(frozen=True)
class Family:
    """Trials (T,) of policies with the success `rates`, after each of M blocks.

    Attributes:
      won: (K, T, M) bool.
      pairs: of policies, (i, j) with i < j.
      lost, ahead: (P, T, M) blocks that i alone and that j alone of each pair has won so far.
      claims: (P, T, M) the sign of the difference that is claimed, j's success minus i's; 0: none is.
    """

    rates: tuple[float, ...]
    made: Design
    alpha: float
    won: NDArray[np.bool_]
    pairs: list[tuple[int, int]]
    lost: NDArray[np.int64]
    ahead: NDArray[np.int64]
    claims: NDArray[np.int64]

    @property
    def best(self) -> NDArray[np.int64]:
        """(T, M) the policy that is claimed to be better than every other one; −1: none is."""
        better = np.zeros(self.won.shape, dtype=int)
        for (i, j), claim in zip(self.pairs, self.claims, strict=True):
            better[i] += claim < 0
            better[j] += claim > 0
        found = better == len(self.rates) - 1
        return np.where(found.any(axis=0), found.argmax(axis=0), -1)


def family(rates: tuple[float, ...], made: Design, alpha: float, trials: int, seed: int) -> Family:
    """`trials` simulated trials of the plan `made`, whose level is that of one of the pairs."""
    blocks = made.blocks
    random = np.random.default_rng([seed, len(rates)]).random((len(rates), trials, blocks))
    won = random < np.array(rates)[:, None, None]
    pairs = list(itertools.combinations(range(len(rates)), 2))
    lost = np.stack([np.cumsum(won[i] & ~won[j], axis=1) for i, j in pairs])
    ahead = np.stack([np.cumsum(won[j] & ~won[i], axis=1) for i, j in pairs])
    p = np.stack([_p_values(a, b, made, alpha) for a, b in zip(lost, ahead, strict=True)])
    claims = np.where(holm(p) < alpha, np.sign(ahead - lost), 0)
    return Family(rates, made, alpha, won, pairs, lost, ahead, claims)


def _p_values(lost: NDArray[np.int64], ahead: NDArray[np.int64], made: Design, alpha: float) -> NDArray[np.float64]:
    """(T, M) p-values at every look; 1 for those above `alpha`, which claim nothing in any family."""
    e = log_evidence(lost, ahead, made.concentration)
    largest = np.maximum.accumulate(np.maximum(e, 0.0), axis=1)
    before = np.concatenate([np.zeros((len(e), 1)), largest[:, :-1]], axis=1)
    looks = np.arange(e.shape[1])
    at = np.maximum.accumulate(np.where(e > before, looks, 0), axis=1)  # the look with the largest so far
    lead = ahead - lost
    kept = np.take_along_axis(lead, at, axis=1) * lead > 0
    far = kept & (largest >= log_level(made.blocks, alpha, made.concentration) - 0.01)
    levels, first, which = np.unique(np.round(largest[far], 9), return_index=True, return_inverse=True)
    exact = largest[far][first]
    p = np.array([crossing(level, made.blocks, concentration=made.concentration).sum() for level in exact])
    out = np.ones(e.shape)
    out[far] = p[which] if len(levels) else 1.0
    return out


def holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """p-values (P, …) corrected along the first axis by Holm (1979)."""
    order = np.argsort(p, axis=0, kind="stable")
    factor = np.arange(len(p), 0, -1).reshape(-1, *[1] * (p.ndim - 1))
    stepped = np.minimum(1.0, np.maximum.accumulate(factor * np.take_along_axis(p, order, axis=0), axis=0))
    out = np.empty_like(stepped)
    np.put_along_axis(out, order, stepped, axis=0)
    return out


def ends(one: Family, futility: Futility, chance: Chance) -> list[tuple[int, str]]:
    """Of each trial the number of blocks after which it ends, and why: the name of the best policy, else why none."""
    best, blocks = one.best, one.made.blocks
    out = []
    for t in range(best.shape[0]):
        for n in range(1, blocks + 1):
            if best[t, n - 1] >= 0:
                out.append((n, str(best[t, n - 1])))
                break
            undecided = np.flatnonzero(one.claims[:, t, n - 1] == 0)
            counts = [sorted((int(one.lost[k, t, n - 1]), int(one.ahead[k, t, n - 1]))) for k in undecided]
            counts.sort(key=lambda ab: ab[0] - ab[1])  # the clearest first: one that has a chance suffices
            level = one.alpha / len(undecided)
            if n < blocks and all(
                chance(few, many, blocks - n, futility.rates, blocks, one.made.concentration, level) < futility.below
                for few, many in counts
            ):
                out.append((n, FUTILE))
                break
        else:
            out.append((blocks, "all blocks are done"))
    return out


def judged(one: Family, futility: Futility | None, ended: list[tuple[int, str]] | None) -> list[str]:
    """What `analyse` says otherwise than `one` and `ended` of the first trials, at any look up to the end."""
    names = [str(i) for i in range(len(one.rates))]
    plan = TrialPlan(
        policies={name: (TrialCheckpoint(name, ""),) for name in names}, arm="", setting={}, outcome="task",
        classifier="", blocks=one.made.blocks, concentration=one.made.concentration, alpha=one.alpha, seed=0, hashes={},
        futility=futility,
    )  # fmt: skip
    slots = [plan.slot(i) for i in range(len(names) * plan.blocks)]
    wrong = []
    for t in range(JUDGED):
        outcome = {True: "success", False: "failure"}
        episodes = [
            TrialEpisode("", **vars(slot), outcome=outcome[bool(one.won[int(slot.policy), t, slot.block])])
            for slot in slots
        ]
        last = plan.blocks if ended is None else ended[t][0]
        for n in range(1, last + 1):
            found = analyse(plan, episodes[: n * len(names)])
            claims = [0 if v.better is None else 1 if v.better == v.names[1] else -1 for v in found.verdicts]
            if claims != one.claims[:, t, n - 1].tolist():
                wrong.append(f"trial {t}, block {n}: claims {claims}, {one.claims[:, t, n - 1].tolist()}")
            if ended is not None and (found.ended is not None) != (n == last):
                wrong.append(f"trial {t}, block {n}: {found.ended}, {ended[t]}")
    return wrong
