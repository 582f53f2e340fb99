"""One score per episode, its verdict, and the ranking of a set.

An episode begins with 100 points and loses, for each rule of `RULES`,

    lost = points · severity,        severity in [0, 1]:

    flag       1 where it holds
    share      min(1, share of frames / full)
    relative   min(1, max(0, x − q₂₅) / (4 · max(q₂₅ − q₅, q₂₅ / 4)))

so that a relative measure x costs nothing up to the 25th percentile q₂₅ of the set, and everything from twice as much
on, unless the good quarter itself is spread wider. Percentiles are those of originals that did not fail and have no
wild frame. What could not be measured (NaN) costs nothing. Where success was not recorded, a low return takes the place
of failure. The score is 100 minus the points lost, at least 0.

`drop` marks hard faults alone: failed episodes (or, where success was not recorded, those that earned nothing), copies,
and those with a wild frame, which alone sets the scale of what policies are normalised by. `look` marks scores below
75: such episodes deserve a look and less weight. Dropping them lost more than it gained where it was tried, for they
cover what no other episode does.

As sampling weight an episode to drop gets 0, any other its score / 100, at least `LEAST`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.quality.comparison import (
    NEAR,
    SHARED,
    action_divergence,
    alone,
    coverage,
    duplicates,
    frame_divergence,
    neighbours,
    principal,
    transition_diversity,
)
from robolearn.data.quality.demonstrations import Array, Demonstrations, scaled
from robolearn.data.quality.motion import idle, jitter, near_limits, seconds, stale, trajectory_quality, wild

LOOK = 75.0
LEAST = 0.05  # weight of what is kept


@dataclass(frozen=True)
class Rule:
    """Cost of one measure.

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
    "wild": Rule(60.0, "flag"),
    "action_divergence": Rule(20.0, "relative"),
    "command_jerk": Rule(15.0, "relative"),
    "spectral_arc": Rule(5.0, "relative"),
    "duration_s": Rule(10.0, "relative"),
    "idle": Rule(15.0, "share", 0.3),
    "near_limits": Rule(15.0, "share", 0.2),
    "stale": Rule(25.0, "share", 0.2),
    "low_return": Rule(60.0, "share", 1.0),
}
"""Measure → its cost."""


@dataclass(frozen=True)
class EpisodeScore:
    """Score and verdict of one episode.

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


REPORTED = 2.0  # points; smaller losses are counted, but give no reason


@dataclass(frozen=True, eq=False)
class QualityReport:
    """Measures and ranking of a set.

    Attributes:
      episodes: judgements, the best first.
      saco: state-action coverage of the set, in (0, 1].
      tq: its trajectory quality, in [0, 1]; None without rewards.
      success: share of successful episodes; None where it was not recorded.
      frame: (Q,) the frames that were compared with their neighbours.
      divergence: (Q,) action divergence of these frames.
      place: (Q, 2) where they lie among all states: the first two principal components.
    """

    episodes: tuple[EpisodeScore, ...]
    saco: float
    tq: float | None
    success: float | None
    frame: NDArray[np.int64] = field(repr=False)
    divergence: Array = field(repr=False)
    place: Array = field(repr=False)

    def of_kind(self, verdict: str) -> tuple[EpisodeScore, ...]:
        """The episodes of one verdict, the worst last."""
        return tuple(found for found in self.episodes if found.verdict == verdict)

    def weights(self) -> list[float]:
        """One sampling weight per episode in their order. Raises `BadInput`: every episode is to be dropped."""
        if not any(found.weight > 0 for found in self.episodes):
            raise BadInput("sampling weights", got="only episodes to drop", expected="one worth training on")
        return [found.weight for found in sorted(self.episodes, key=lambda found: found.episode)]


def assess(d: Demonstrations, joints: tuple[str, ...] = ()) -> QualityReport:
    """Measure, score and rank the episodes of `d`; `joints` names the joints that have limits."""
    copy_of = duplicates(d)
    original = np.where(copy_of >= 0, copy_of, np.arange(d.episodes))
    near = neighbours(d.state, original[d.episode], limit=NEAR)
    place = principal(scaled(d.state))[near.frame][:, :2]
    saco, novelty = coverage(d)
    tq = trajectory_quality(d)
    arc, jerk = jitter(d)
    limits, limit_joint = near_limits(d)
    staleness, stale_source = stale(d)
    wildness, wild_frame = wild(d)
    failed = np.zeros(d.episodes, bool) if d.success is None else ~np.asarray(d.success, bool)
    measures: dict[str, Array] = {
        "failed": failed.astype(np.float64),
        "duplicate": (copy_of >= 0).astype(np.float64),
        "wild": wildness,
        "action_divergence": action_divergence(d, near),
        "command_jerk": jerk,
        "spectral_arc": arc,
        "duration_s": seconds(d),
        "idle": idle(d),
        "near_limits": limits,
        "stale": staleness,
    }
    if d.success is None:
        measures["low_return"] = 1.0 - tq
    sound = ~failed & (copy_of < 0) & (wildness == 0)
    rules = {name: rule for name, rule in RULES.items() if name in measures}
    lost = {name: rule.points * severity(rule, measures[name], sound) for name, rule in rules.items()}
    own = alone(d, near)
    rare = (own > 1 - SHARED) & (d.episodes > 1)
    faulty = ~sound | (measures.get("low_return", np.zeros(d.episodes)) >= 1.0)
    given = measures | {"alone": own, "transition_diversity": transition_diversity(d), "novelty": novelty, "tq": tq}
    total = sum(lost.values(), np.zeros(d.episodes))
    score = np.maximum(0.0, 100.0 - total)
    order = np.lexsort((np.arange(d.episodes), total))  # those at 0 points are ordered by what they lost
    good = {name: good_quarter(values, sound)[1] for name, values in measures.items()}
    judgements = []
    for rank, e in enumerate((int(e) for e in order), start=1):
        costs = {name: float(points[e]) for name, points in lost.items() if points[e] > 0}
        costs = dict(sorted(costs.items(), key=lambda item: -item[1]))
        facts = {
            "copy_of": int(copy_of[e]),
            "joint": joints[limit_joint[e]] if 0 <= limit_joint[e] < len(joints) else f"joint {limit_joint[e] + 1}",
            "source": stale_source[e],
            "frame": wild_frame[e],
        }
        reasons = [_in_words(name, float(measures[name][e]), good[name], facts)
                   for name, cost in costs.items() if cost >= REPORTED]  # fmt: skip
        if rare[e]:
            reasons.append(f"coverage: no other episode was near in {own[e]:.0%} of it (costs nothing)")
        verdict = "drop" if faulty[e] else "look" if score[e] < LOOK else "keep"
        rounded = {name: round(value, 1) for name, value in costs.items()}
        found = {name: float(values[e]) if np.isfinite(values[e]) else None for name, values in given.items()}
        points = round(float(score[e]), 1)
        judgements.append(EpisodeScore(e, rank, points, verdict, rounded, tuple(reasons), found))
    return QualityReport(
        episodes=tuple(judgements),
        saco=saco,
        tq=float(np.mean(tq)) if np.isfinite(tq).all() else None,
        success=None if d.success is None else float(np.mean(d.success)),
        frame=near.frame,
        divergence=frame_divergence(d, near),
        place=place if place.shape[1] == 2 else np.pad(place, ((0, 0), (0, 2 - place.shape[1]))),
    )


def _in_words(name: str, value: float, good: float, facts: dict[str, Any]) -> str:
    """A reason; (2.0×) means twice the value of the set's good quarter."""
    times = f"({value / good:.1f}×)" if good > 0 else ""
    words = {
        "failed": "failed",
        "duplicate": f"a copy of episode {facts['copy_of']}",
        "wild": facts["frame"],
        "action_divergence": f"other actions than others in the same place {times}",
        "command_jerk": f"shaky commands {times}",
        "spectral_arc": f"motion in small strokes {times}",
        "duration_s": f"slow: {value:.1f} s {times}",
        "idle": f"nothing moves in {value:.0%} of it",
        "near_limits": f"{facts['joint']} at the end of its range in {value:.0%} of it",
        "stale": f"{facts['source']} stale in {value:.0%} of it: its stamps do not advance",
        "low_return": "low return",
    }
    return words[name].strip()
