"""The verdict of a trial at any moment: rates, every pair of policies, the best of several, seeds, outcomes.

Training seeds and episodes are two variances: is a method better, or one of its trainings? Success y of episode i of
training j, with k trainings of n_j episodes each (one-way analysis of variance, method of moments; Searle, Casella,
McCulloch 1992):

    y_ij = μ + s_j + e_ij
    MSB = Σ n_j (ȳ_j − ȳ)² / (k − 1),    MSW = Σ n_j ȳ_j (1 − ȳ_j) / (N − k),    n₀ = (N − Σ n_j² / N) / (k − 1)
    σ²_episode = MSW,    σ²_seed = max(0, (MSB − MSW) / n₀)

A trial compares the trainings that it has. What another training would do is said by the interval over the seeds alone
(Student's, and of a difference Welch's 1947).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.eval.intervals import SeedEstimate, Success, over_seeds
from robolearn.eval.trials.design import log_level
from robolearn.eval.trials.futility import conditional_power
from robolearn.eval.trials.plan import TrialPlan
from robolearn.eval.trials.records import TrialEpisode, whole_blocks
from robolearn.eval.trials.sequential import compare_sequentially, rate_sequence
from robolearn.eval.verdict import Verdict, corrected
from robolearn.io.json_files import plain

FUTILE = "no difference that this plan could still find"


@dataclass(frozen=True)
class TrialAnalysis:
    """The state of a trial.

    Attributes:
      plan: the plan.
      blocks: blocks that every policy has finished; only these are compared.
      success: policy → its rate, with the interval that holds at any moment.
      outcomes: policy → outcome → number.
      verdicts: of every pair, corrected for their number (Holm).
      best: the policy that is better than every other one, or None.
      seeds: policy → its split, where it has several trainings.
      methods: pairs of policies with several trainings → difference over their seeds.
      agreement: of a person or the task with the classifier: counts ``both``, ``only``, ``classifier``, ``neither``,
        and Cohen's ``kappa``; None where not both judged.
      abandoned: tries at an episode that were repeated, and why.
      conditional_power: the largest of the pairs without a claim, see `robolearn.eval.trials.futility`; None where the
        plan has no stop for futility, all blocks are done or all pairs have a claim.
    """

    plan: TrialPlan
    blocks: int
    success: dict[str, Success]
    outcomes: dict[str, dict[str, int]]
    verdicts: list[Verdict]
    best: str | None
    seeds: dict[str, SeedSplit]
    methods: list[dict[str, Any]]
    agreement: dict[str, Any] | None
    abandoned: list[str]
    conditional_power: float | None = None

    @property
    def ended(self) -> str | None:
        """Why the trial is over; None while it goes on."""
        if self.best is not None:
            return "the verdict is clear"
        if self.blocks == self.plan.blocks:
            return "all blocks are done"
        futility, power = self.plan.futility, self.conditional_power
        return FUTILE if futility and power is not None and power < futility.below else None

    @property
    def conclusion(self) -> str:
        """``better`` where a best policy is named, ``inconclusive`` where the trial ended without, else ``open``."""
        if self.best is not None:
            return "better"
        return "open" if self.ended is None else "inconclusive"

    @property
    def intervals(self) -> list[str]:
        """The differences that cannot be claimed, in plain words."""
        return [f"{one.names[1]} minus {one.names[0]} {one.interval}" for one in self.verdicts if one.better is None]

    @property
    def sentence(self) -> str:
        """The verdict in plain words, without a full stop."""
        if len(self.verdicts) == 1:
            return self.verdicts[0].sentence
        if self.best is None:
            return f"No policy can be called the best of {len(self.success)} after {self.blocks} blocks"
        return f"{self.best} is the best of {len(self.success)}: {self.success[self.best]}"

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``--json``."""
        return {
            "plan": self.plan.sha256,
            "hashes": self.plan.all_hashes,
            "blocks": self.blocks,
            "planned_blocks": self.plan.blocks,
            "alpha": self.plan.alpha,
            "policies": {
                name: {
                    "success": success.to_json(),
                    "outcomes": self.outcomes[name],
                    "seeds": self.seeds[name].to_json() if name in self.seeds else None,
                }
                for name, success in self.success.items()
            },
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "methods": self.methods,
            "best": self.best,
            "ended": self.ended,
            "conclusion": self.conclusion,
            "futility": None if self.plan.futility is None else plain(self.plan.futility),
            "conditional_power": self.conditional_power,
            "intervals": self.intervals,
            "sentence": self.sentence,
            "agreement": self.agreement,
            "abandoned": self.abandoned,
        }


def analyse(plan: TrialPlan, episodes: Sequence[TrialEpisode], abandoned: Sequence[TrialEpisode] = ()) -> TrialAnalysis:
    """The state of the trial `plan` after `episodes`, in the order of the plan. Raises `BadInput`: no block is
    finished."""
    by_policy = whole_blocks(plan, episodes)
    names, level = sorted(plan.policies), 1 - plan.alpha
    blocks = len(by_policy[names[0]])
    if not blocks:
        raise BadInput("trial", got=f"{len(episodes)} episodes", expected="a finished block: one of every policy")
    won = {name: np.array([one.success for one in by_policy[name]]) for name in names}
    verdicts = corrected([
        compare_sequentially(won[a], won[b], plan.blocks, plan.concentration, names=(a, b), level=level)
        for a, b in itertools.combinations(names, 2)
    ])  # fmt: skip
    better = Counter(verdict.better for verdict in verdicts)
    best = next((name for name in names if better[name] == len(names) - 1), None)
    seeds = {name: split for name in names if (split := split_seeds(_by_checkpoint(plan, by_policy[name])))}
    methods = [
        {"a": a, "b": b, "difference": method_difference(seeds[a], seeds[b], level)}
        for a, b in itertools.combinations(seeds, 2)
    ]
    return TrialAnalysis(
        plan,
        blocks,
        {name: rate_sequence(int(won[name].sum()), blocks, level=level) for name in names},
        {name: dict(Counter(one.outcome for one in by_policy[name])) for name in names},
        verdicts,
        best,
        seeds,
        methods,
        _agreement([one.judged for one in episodes]),
        [f"episode {one.number + 1}: {one.reason}" for one in abandoned],
        _conditional_power(plan, won, verdicts),
    )


def _conditional_power(plan: TrialPlan, won: dict[str, NDArray[np.bool_]], verdicts: Sequence[Verdict]) -> float | None:
    undecided = [one.names for one in verdicts if one.better is None]
    left = plan.blocks - len(next(iter(won.values())))
    if plan.futility is None or not undecided or not left:
        return None
    level = log_level(plan.blocks, plan.alpha / len(undecided), plan.concentration)  # Holm's, of the next claim
    found = []
    for a, b in undecided:
        only_a, only_b = int((won[a] & ~won[b]).sum()), int((won[b] & ~won[a]).sum())
        found.append(conditional_power(only_a, only_b, left, plan.futility.rates, level, plan.concentration))
    return max(found)


def _by_checkpoint(plan: TrialPlan, episodes: Sequence[TrialEpisode]) -> list[list[bool]]:
    count = len(plan.policies[episodes[0].policy])
    return [[one.success for one in episodes if one.checkpoint == j] for j in range(count)]


def _agreement(judged: Sequence[dict[str, bool]]) -> dict[str, Any] | None:
    """Cohen's (1960) κ = (p_o − p_e)/(1 − p_e): the share of equal judgements beyond that of chance."""
    pairs = [(next(v for who, v in one.items() if who != "classifier"), one["classifier"]) for one in judged
             if "classifier" in one and len(one) > 1]  # fmt: skip
    if not pairs:
        return None
    cells = Counter(pairs)
    n, both, neither = len(pairs), cells[True, True], cells[False, False]
    other, classifier = both + cells[True, False], both + cells[False, True]
    equal = (both + neither) / n
    chance = (other * classifier + (n - other) * (n - classifier)) / n**2
    kappa = (equal - chance) / (1 - chance) if chance < 1 else None
    return {"both": both, "only": cells[True, False], "classifier": cells[False, True], "neither": neither,
            "kappa": kappa}  # fmt: skip


@dataclass(frozen=True)
class SeedSplit:
    """The spread of a policy's success.

    Attributes:
      rates: of each training.
      episodes: of each training.
      over_seeds: the mean over trainings with its interval.
      seed_sd: standard deviation between trainings.
      episode_sd: standard deviation of an episode's success within a training.
    """

    rates: tuple[float, ...]
    episodes: tuple[int, ...]
    over_seeds: SeedEstimate
    seed_sd: float
    episode_sd: float

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``--json``."""
        return {"rates": list(self.rates), "episodes": list(self.episodes), "over_seeds": self.over_seeds.to_json(),
                "seed_sd": self.seed_sd, "episode_sd": self.episode_sd}  # fmt: skip


def split_seeds(successes: Sequence[Sequence[bool]]) -> SeedSplit | None:
    """The split of the successes of each training; None with fewer than two trainings of two episodes."""
    if len(successes) < 2 or min(map(len, successes)) < 2:
        return None
    n = np.array([len(each) for each in successes])
    rate = np.array([np.mean(each) for each in successes])
    k, total = len(n), int(n.sum())
    between = float((n * (rate - (n * rate).sum() / total) ** 2).sum()) / (k - 1)
    within = float((n * rate * (1 - rate)).sum()) / (total - k)
    each = (total - float((n**2).sum()) / total) / (k - 1)
    seed = math.sqrt(max(0.0, (between - within) / each))
    estimate = over_seeds(rate.tolist(), rates=True)
    return SeedSplit(tuple(rate.tolist()), tuple(n.tolist()), estimate, seed, math.sqrt(within))


def method_difference(a: SeedSplit, b: SeedSplit, level: float = 0.95) -> dict[str, float | None]:
    """Mean of B's trainings minus that of A's, with Welch's interval over the seeds: ``{"value", "low", "high"}``; the
    bounds are None where no training of a method differs from another. Raises `BadInput`: a level out of range."""
    if not 0 < level < 1:
        raise BadInput("confidence level", got=level, expected="between 0 and 1")
    from scipy.special import stdtrit  # late: scipy takes a second to import

    value = b.over_seeds.mean - a.over_seeds.mean
    # v = s²/k of each;  t_ν √(v_a + v_b),  ν = (v_a + v_b)² / (v_a²/(k_a − 1) + v_b²/(k_b − 1))
    k = np.array([len(a.rates), len(b.rates)])
    v = np.array([np.var(a.rates, ddof=1), np.var(b.rates, ddof=1)]) / k
    if v.sum() == 0:
        return {"value": value, "low": None, "high": None}
    freedom = v.sum() ** 2 / (v**2 / (k - 1)).sum()
    half = float(stdtrit(freedom, (1 + level) / 2) * math.sqrt(v.sum()))
    return {"value": value, "low": max(-1.0, value - half), "high": min(1.0, value + half)}
