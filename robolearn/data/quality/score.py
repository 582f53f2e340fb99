"""One score per episode, and what to do with it.

An episode begins with 100 points and loses, for each rule of `RULES`,

    lost = points · severity,        severity in [0, 1]:

    flag       1 where it holds
    share      min(1, share of frames / full)
    relative   min(1, max(0, x − q₂₅) / (4 · max(q₂₅ − q₅, q₂₅ / 4)))

so that a relative measure x costs nothing up to what the good quarter of the set shows (its 25th percentile q₂₅), and
everything from twice as much on, unless the good quarter itself is spread wider. Percentiles are those of originals
that did not fail. What could not be measured (NaN) costs nothing. Where success was not recorded, a low return takes
the place of failure. The score is 100 minus what is lost, at least 0.

`drop` marks hard faults alone: failed episodes (or, where success was not recorded, those that earned nothing) and
copies. `look` marks scores below 75: such episodes are worth a look, and less weight. Dropping them lost more than it
gained where it was tried, for what they cover nobody else does.

As sampling weight an episode to drop gets 0, any other its score / 100, at least `LEAST`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.quality.demonstrations import Array

LOOK = 75.0
LEAST = 0.05  # weight of what is kept


@dataclass(frozen=True)
class Rule:
    """What one measure costs.

    Attributes:
      points: at full severity.
      kind: ``flag``, ``share`` or ``relative``.
      full: the share from which on a ``share`` costs everything.
    """

    points: float
    kind: str
    full: float = 1.0


RULES: dict[str, Rule] = {
    "failed": Rule(60.0, "flag"),
    "duplicate": Rule(60.0, "flag"),
    "action_divergence": Rule(20.0, "relative"),
    "command_jerk": Rule(15.0, "relative"),
    "spectral_arc": Rule(5.0, "relative"),
    "duration_s": Rule(10.0, "relative"),
    "idle": Rule(15.0, "share", 0.3),
    "near_limits": Rule(15.0, "share", 0.2),
    "stale": Rule(25.0, "share", 0.2),
    "low_return": Rule(60.0, "share", 1.0),
}
"""Measure → what it costs."""


@dataclass(frozen=True)
class Judgement:
    """What is thought of one episode.

    Attributes:
      episode: its index.
      rank: 1 for the best of the set.
      score: 0 to 100.
      verdict: ``keep``, ``look`` or ``drop``.
      lost: measure → points lost to it, the most first.
      reasons: why, in words, the weightiest first.
      measures: measure → value, in the units of its module; None where it could not be measured.
    """

    episode: int
    rank: int
    score: float
    verdict: str
    lost: dict[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    measures: dict[str, Any] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        """For sampling, in [0, 1]."""
        return 0.0 if self.verdict == "drop" else max(LEAST, self.score / 100.0)


def good_quarter(values: Array, sound: NDArray[np.bool_]) -> tuple[float, float]:
    """(q₅, q₂₅) of the finite ones of (E,) `values` among the episodes that are `sound` (E,), or among all; else 0."""
    known = np.isfinite(values)
    basis = values[known & sound]
    basis = basis if len(basis) else values[known]
    if not len(basis):
        return 0.0, 0.0
    low, high = np.quantile(basis, [0.05, 0.25])
    return float(low), float(high)


def severity(rule: Rule, values: Array, sound: NDArray[np.bool_]) -> Array:
    """(E,) severities in [0, 1] of (E,) `values`; the good quarter is taken from the episodes that are `sound` (E,)."""
    known = np.isfinite(values)
    if rule.kind == "relative":
        q05, q25 = good_quarter(values, sound)
        # min(1, max(0, x − q₂₅) / (4 max(q₂₅ − q₅, q₂₅ / 4)))
        span = 4.0 * max(q25 - q05, 0.25 * q25, 1e-9)
        found = (np.where(known, values, q25) - q25) / span
    else:
        found = np.where(known, values, 0.0) / rule.full
    return np.clip(found, 0.0, 1.0)


def points_lost(measures: dict[str, Array], sound: NDArray[np.bool_]) -> dict[str, Array]:
    """Rule → (E,) points, for the rules whose measure there is."""
    return {
        name: rule.points * severity(rule, np.asarray(measures[name], np.float64), sound)
        for name, rule in RULES.items()
        if name in measures
    }


def verdict_of(score: float, faulty: bool) -> str:
    """``keep``, ``look`` or ``drop``."""
    if faulty:
        return "drop"
    return "look" if score < LOOK else "keep"
