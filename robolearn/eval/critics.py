"""Evaluation of a reward model on episodes whose outcome is known: every figure with an interval over episodes.

`CriticEvaluation.faults` says in words what makes a critic no reward to learn from. They are tests of the kinds of
critic that look good by one figure: one that always says yes, a clock, one that looks at the start alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.eval.intervals import Estimate, Success, bootstrap_difference, bootstrap_mean
from robolearn.rewards.metrics import JudgedEpisode, calibration_error, split, tau, voc

RESAMPLES = 1000
# Worse than these, a critic is no reward to learn from.
LEAST_VOC, MOST_REVERSED, LEAST_TAU, LEAST_GAP, MOST_FALSE, LEAST_RECALL, MOST_WRONG = (
    0.5,
    -0.5,
    0.3,
    0.2,
    0.1,
    0.5,
    0.5,
)


@dataclass(frozen=True)
class CriticEvaluation:
    """Figures of a reward model.

    Attributes:
      judged: the episodes.
      voc, voc_reversed: of successes, played forwards and backwards; `voc_failures` of failures, for comparison.
      tau, gap: of the last progress of successes and failures.
      false_positives: failures that were called done.
      precision, recall: of episodes that were called done.
      wrong_task_ratio: progress at the end of successes with another task's words, to that with their own.
      calibration: ECE of the largest probability of done in an episode.
      latency_ms: p50 and p99 over the episodes, of one frame [ms].
    """

    judged: Sequence[JudgedEpisode]
    voc: Estimate
    voc_reversed: Estimate
    voc_failures: Estimate
    tau: Estimate
    gap: Estimate
    false_positives: Success
    precision: Success | None
    recall: Success
    wrong_task_ratio: Estimate
    calibration: Estimate
    latency_ms: dict[str, Estimate]

    @property
    def headline(self) -> str:
        """The verdict in a line; the limits are the coarsest that rule a critic out, no promise that it is good."""
        if self.faults:
            return "No reward to learn from:"
        false, missed = self.false_positives.rate, 1 - self.recall.rate
        wrong = f"it calls {false:.0%} of the failures done, and misses {missed:.0%} of the successes"
        return f"Not ruled out as a reward by these {len(self.judged)} episodes: {wrong}."

    @property
    def faults(self) -> list[str]:
        """Reasons why it is no reward to learn from, a sentence each; empty where there are none."""
        found = []
        if self.voc.mean < LEAST_VOC:
            found.append(f"its progress does not rise while a task is solved (VOC {self.voc.mean:.2f})")
        if self.voc_reversed.mean > MOST_REVERSED:
            found.append(f"it does not see that a clip runs backwards (VOC {self.voc_reversed.mean:.2f})")
        if self.tau.mean < LEAST_TAU:
            found.append(f"it does not tell successes from failures (tau {self.tau.mean:.2f})")
        if self.gap.mean < LEAST_GAP:
            found.append(f"it praises failures nearly as much as successes (gap {self.gap.mean:.2f})")
        if self.false_positives.rate > MOST_FALSE:
            found.append(f"it calls failures done ({self.false_positives.rate:.0%})")
        if self.recall.rate < LEAST_RECALL:
            found.append(f"it does not see that a task is done (recall {self.recall.rate:.0%})")
        if self.wrong_task_ratio.mean > MOST_WRONG:
            found.append(f"it does not listen to the words ({self.wrong_task_ratio.mean:.0%} with another task's)")
        return found

    def by_failure(self) -> dict[str, dict[str, Any]]:
        """Kind of failure → its last progress, and how often it was called done."""
        kinds = Counter(j.failure or "unlabelled" for j in self.judged if not j.success)
        found = {}
        for kind, count in sorted(kinds.items()):
            own = [j for j in self.judged if not j.success and (j.failure or "unlabelled") == kind]
            found[kind] = {
                "progress": bootstrap_mean([j.last for j in own]).to_json(),
                "called_done": Success.of(sum(j.called for j in own), count).to_json(),
            }
        return found

    def to_json(self) -> dict[str, Any]:
        """The result of ``robolearn reward evaluate``; its keys are an interface."""
        solved, failed = split(self.judged)
        return {
            "episodes": {"success": len(solved), "failure": len(failed)},
            "voc": self.voc.to_json(),
            "voc_reversed": self.voc_reversed.to_json(),
            "voc_failures": self.voc_failures.to_json(),
            "tau": self.tau.to_json(),
            "success_failure_gap": self.gap.to_json(),
            "false_positive_rate": self.false_positives.to_json(),
            "done": {
                "precision": None if self.precision is None else self.precision.to_json(),
                "recall": self.recall.to_json(),
            },
            "wrong_task_ratio": self.wrong_task_ratio.to_json(),
            "calibration": self.calibration.to_json(),
            "latency_ms": {
                key: value
                for name, pace in self.latency_ms.items()
                for key, value in ((name, pace.mean), (f"{name}_low", pace.low), (f"{name}_high", pace.high))
            },
            "by_failure": self.by_failure(),
            "trusted": not self.faults,
            "faults": self.faults,
        }


def check_outcomes(success: Sequence[bool]) -> None:
    """Raise `BadInput` unless there are successes and failures: neither proves anything without the other."""
    if all(success) or not any(success):
        lacking = "failure" if any(success) else "success"
        hint = "robolearn collect --quality failures makes failures"
        raise BadInput("episodes to judge by", got=f"no {lacking}", expected="successes and failures", hint=hint)


def evaluate_critic(judged: Sequence[JudgedEpisode], *, seed: int = 0) -> CriticEvaluation:
    """The figures of a reward model that judged these episodes; raises as `check_outcomes` does."""
    check_outcomes([j.success for j in judged])
    solved, failed = split(judged)
    ends = [np.array([j.last for j in group]) for group in (solved, failed)]
    wrong = np.array([[j.wrong[-1], j.last] for j in solved])
    sure = np.array([[j.probability.max(), j.success] for j in judged], np.float64)
    called = [j for j in judged if j.called]
    pace = np.array([1000.0 * j.seconds / len(j.progress) for j in judged])
    hits = sum(j.called for j in solved)
    return CriticEvaluation(
        judged=judged,
        voc=bootstrap_mean([voc(j.progress) for j in solved], seed=seed),
        voc_reversed=bootstrap_mean([voc(j.backwards) for j in solved], seed=seed),
        voc_failures=bootstrap_mean([voc(j.progress) for j in failed], seed=seed),
        tau=bootstrap_of(ends, tau, seed=seed),
        gap=bootstrap_difference(ends[1], ends[0], seed=seed),
        false_positives=Success.of(sum(j.called for j in failed), len(failed)),
        precision=Success.of(hits, len(called)) if called else None,
        recall=Success.of(hits, len(solved)),
        wrong_task_ratio=bootstrap_of([wrong], _ratio, seed=seed),
        calibration=bootstrap_of([sure], lambda x: calibration_error(x[:, 0], x[:, 1]), seed=seed),
        latency_ms={
            f"p{share}": bootstrap_of([pace], lambda x, share=share: float(np.percentile(x, share)), seed=seed)
            for share in (50, 99)
        },
    )


def bootstrap_of(
    samples: Sequence[NDArray], statistic: Callable[..., float], *, level: float = 0.95, seed: int = 0
) -> Estimate:
    """`statistic` of independent `samples`, each (n, …), with its percentile bootstrap interval over their rows."""
    value, count = statistic(*samples), sum(map(len, samples))
    rng = np.random.default_rng(seed)
    drawn = [
        statistic(*(sample[rng.integers(len(sample), size=len(sample))] for sample in samples))
        for _ in range(RESAMPLES)
    ]
    if not math.isfinite(value) or min(map(len, samples)) < 2:
        return Estimate(value, math.nan, math.nan, count)
    low, high = np.percentile(drawn, [50 * (1 - level), 50 * (1 + level)])
    return Estimate(value, float(low), float(high), count)


def _ratio(rows: NDArray[np.float64]) -> float:
    """Σ wrong / Σ right of rows (n, 2); 1 where there is no progress at all."""
    right = rows[:, 1].sum()
    return float(rows[:, 0].sum() / right) if right > 0 else 1.0
