"""All measures of a set, and its episodes ranked from the best to the first to drop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.quality.action_divergence import SHARED, action_divergence, alone, frame_divergence
from robolearn.data.quality.coverage import coverage
from robolearn.data.quality.demonstrations import Array, Demonstrations, scaled
from robolearn.data.quality.duplicates import duplicates
from robolearn.data.quality.idle import idle
from robolearn.data.quality.jitter import jitter
from robolearn.data.quality.near_limits import near_limits
from robolearn.data.quality.neighbours import NEAR, neighbours, principal
from robolearn.data.quality.score import Judgement, good_quarter, points_lost, verdict_of
from robolearn.data.quality.stale import stale
from robolearn.data.quality.trajectory_quality import seconds, trajectory_quality
from robolearn.data.quality.transition_diversity import transition_diversity

TOLD = 2.0  # points; smaller losses are counted, but not worth a word


@dataclass(frozen=True, eq=False)
class Quality:
    """What was found out about a set.

    Attributes:
      episodes: judgements, the best first.
      saco: state-action coverage of the set, in (0, 1].
      tq: its trajectory quality, in [0, 1]; None without rewards.
      success: share of successful episodes; None where it was not recorded.
      frame: (Q,) the frames that were compared with their neighbours.
      divergence: (Q,) action divergence of these frames.
      place: (Q, 2) where they lie among all states: the first two principal components.
    """

    episodes: tuple[Judgement, ...]
    saco: float
    tq: float | None
    success: float | None
    frame: NDArray[np.int64] = field(repr=False)
    divergence: Array = field(repr=False)
    place: Array = field(repr=False)

    def of_kind(self, verdict: str) -> tuple[Judgement, ...]:
        """The episodes of one verdict, the worst last."""
        return tuple(found for found in self.episodes if found.verdict == verdict)

    def weights(self) -> list[float]:
        """One sampling weight per episode, in the order of the set.

        Raises:
          BadInput: every episode is to be dropped.
        """
        if not any(found.weight > 0 for found in self.episodes):
            raise BadInput("sampling weights", got="only episodes to drop", expected="one worth training on")
        return [found.weight for found in sorted(self.episodes, key=lambda found: found.episode)]


def assess(d: Demonstrations, joints: tuple[str, ...] = ()) -> Quality:
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
    failed = np.zeros(d.episodes, bool) if d.success is None else ~np.asarray(d.success, bool)
    measures: dict[str, Array] = {
        "failed": failed.astype(np.float64),
        "duplicate": (copy_of >= 0).astype(np.float64),
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
    sound = ~failed & (copy_of < 0)
    lost = points_lost(measures, sound)
    own = alone(d, near)
    rare = (own > 1 - SHARED) & (d.episodes > 1)
    faulty = failed | (copy_of >= 0) | (measures.get("low_return", np.zeros(d.episodes)) >= 1.0)
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
        }
        judgements.append(
            Judgement(
                episode=e,
                rank=rank,
                score=round(float(score[e]), 1),
                verdict=verdict_of(float(score[e]), bool(faulty[e])),
                lost={name: round(value, 1) for name, value in costs.items()},
                reasons=(
                    *(
                        _in_words(name, float(measures[name][e]), good[name], facts)
                        for name, cost in costs.items()
                        if cost >= TOLD
                    ),
                    *((f"coverage: nobody else was there in {own[e]:.0%} of it (costs nothing)",) * bool(rare[e])),
                ),
                measures={name: float(values[e]) if np.isfinite(values[e]) else None for name, values in given.items()},
            )
        )
    return Quality(
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
