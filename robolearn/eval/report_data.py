"""The content of a report: plain values, never run folders, so that any results can be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from robolearn.core import BadInput
from robolearn.eval.comparison import Gain
from robolearn.eval.evaluation import Evaluation, same_starts
from robolearn.eval.intervals import Estimate, Success
from robolearn.eval.plots import Curve
from robolearn.eval.verdict import Verdict
from robolearn.eval.video import Video


@dataclass(frozen=True)
class Outcome:
    """Result of one policy.

    Attributes:
      name: e.g. ``"imitation"``.
      success: its success rate; None where the world reports no success, then returns are shown.
      solved_s: cycle times of its successes [s].
      cycle_time_s: their mean [s].
      mean_return: mean return over all episodes.
      returns: (n,) of all episodes.
      note: a remark, e.g. ``"154k environment steps"``.
    """

    name: str
    success: Success | None
    solved_s: ArrayLike = ()
    cycle_time_s: Estimate | None = None
    mean_return: Estimate | None = None
    returns: ArrayLike = ()
    note: str = ""

    @staticmethod
    def of(name: str, evaluation: Evaluation, *, note: str = "") -> Outcome:
        """The outcome that `evaluation` measured."""
        judged = evaluation.success_reported
        if evaluation.privileged:
            sees = f"sees {', '.join(evaluation.privileged)}: only in simulation"
            note = f"{note}; {sees}" if note else sees
        return Outcome(
            name,
            success=evaluation.success if judged else None,
            solved_s=evaluation.solved_s if judged else (),
            cycle_time_s=evaluation.mean_cycle_time_s if judged else None,
            mean_return=evaluation.mean_return,
            returns=evaluation.returns,
            note=note,
        )


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows; what is empty is left out.

    Attributes:
      title: e.g. ``"lift: from demonstrations to a reliable policy"``.
      subtitle: one sentence below it.
      outcomes: any number of policies, in the order of their making. If one has no success rate, all are shown by
        their returns.
      gain: which part of the gain came from what; its sentence stands right below the title.
      verdicts: A versus B, for any pairs; e.g. ``gain.verdicts``.
      success_interval: the method of the intervals of success.
      curves: learning curves, or what `curves_heading` says.
      wall_s: part → seconds [s]; a ``"total"`` above the sum of the parts shows as "other".
      wall_detail: heading → (part → seconds), e.g. ``{"Fine-tuning": {"simulation": …}}``.
      videos: put into the file.
      commands: the exact commands to do it again, step by step; a line that begins with # is a remark.
      settings: name → value, or group → (name → value).
      notes: remarks, one paragraph each.
      footer: the last line, e.g. the version and the machine.
    """

    title: str
    subtitle: str = ""
    outcomes: Sequence[Outcome] = ()
    gain: Gain | None = None
    verdicts: Sequence[Verdict] = ()
    curves: Sequence[Curve] = ()
    wall_s: Mapping[str, float] = field(default_factory=dict)
    wall_detail: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    videos: Sequence[Video] = ()
    commands: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    footer: str = ""
    success_interval: str = "Clopper-Pearson"
    curves_heading: str = "Learning"


def evaluation_report(
    policies: Mapping[str, Evaluation],
    *,
    verdicts: Sequence[Verdict] = (),
    videos: Sequence[Video] = (),
    commands: Sequence[str] = (),
) -> ReportData:
    """The report of policies that were evaluated in one task: name → evaluation, any number of them. Raises `BadInput`:
    no policy."""
    if not policies:
        raise BadInput("report", got="no evaluation", expected="at least one")
    done = list(policies.values())
    counts, seeds, worlds = ([getattr(e, name) for e in done] for name in ("episodes", "seed", "num_envs"))
    if len(set(counts)) > 1:
        episodes = f"{_listed(counts)} episodes"
    else:
        episodes = count(counts[0], "episode") + (" of each policy" if len(done) > 1 else "")
    if len(done) == 1:
        starts = f"seed {seeds[0]}"
    elif all(same_starts(done[0], e) for e in done):
        starts = f"from the same starts (seed {seeds[0]})"
    else:
        starts = f"from different starts (seeds {_listed(seeds)})" if len(set(seeds)) > 1 else f"seed {seeds[0]}"
    return ReportData(
        title=f"{done[0].task}: evaluation",
        subtitle=f"{episodes}, {starts}.",
        outcomes=[Outcome.of(name, e) for name, e in policies.items()],
        verdicts=verdicts,
        videos=videos,
        commands=commands,
        settings={
            "task": done[0].task,
            "episodes": _listed(counts),
            "seed": _listed(seeds),
            "worlds side by side": _listed(worlds),
        },
    )


def _listed(values: Sequence[int]) -> str:
    """One value where all are equal, else all of them."""
    return str(values[0]) if len(set(values)) == 1 else " and ".join(map(str, values))


def count(number: int, noun: str) -> str:
    """``"1 episode"`` or ``"8 episodes"``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
