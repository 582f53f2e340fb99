"""The page of a trial: its verdict, rates, evidence block by block, outcomes, and the hashes of what was compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robolearn.eval.intervals import bootstrap_mean
from robolearn.eval.plots import Curve, Series
from robolearn.eval.report import REPORT, write_report
from robolearn.eval.report_data import Outcome, ReportData
from robolearn.eval.trials.analysis import TrialAnalysis
from robolearn.eval.trials.design import log_level
from robolearn.eval.trials.futility import least_wins
from robolearn.eval.trials.plan import TrialPlan
from robolearn.eval.trials.records import OUTCOMES, TrialEpisode, whole_blocks
from robolearn.eval.trials.sequential import log_evidence, rate_sequence


def write_trial(
    folder: Path,
    found: TrialAnalysis,
    episodes: Sequence[TrialEpisode],
    commands: Sequence[str],
    changed: Sequence[str] = (),
) -> Path:
    """Write the page into `folder`, with the names of what has `changed` since the plan; returns its path."""
    plan = found.plan
    outcomes = []
    for name, each in whole_blocks(plan, episodes).items():
        seconds = [one.seconds for one in each if one.success]
        kinds = ", ".join(f"{n} {kind}" for kind, n in found.outcomes[name].items())
        outcomes.append(Outcome(name, found.success[name], seconds, bootstrap_mean(seconds), note=kinds))
    hashes = {name: value[:16] for name, value in plan.all_hashes.items()}
    data = ReportData(
        title=f"Trial of {len(outcomes)} policies",
        subtitle=f"{found.blocks} of at most {plan.blocks} blocks, an episode of every policy in each, from one start "
        f"in random order; {found.ended or 'it goes on'}.",
        outcomes=outcomes,
        verdicts=found.verdicts,
        success_interval="confidence sequences, which hold at any look,",
        curves=[_evidence(found, episodes), _rates(found, episodes)],
        curves_heading="Block by block",
        commands=commands,
        settings={
            "plan": plan.sha256,
            "arm": plan.arm or "simulated worlds",
            "judged by": plan.outcome + (f", beside {plan.classifier}" if plan.classifier else ""),
            "level": 1 - plan.alpha,
            "futility": "no stop" if plan.futility is None else asdict(plan.futility),
            "seed": plan.seed,
            "setting": dict(plan.setting),
            "hashes": hashes,
        },
        notes=[*_notes(found), *([f"Changed since the plan: {', '.join(changed)}."] if changed else [])],
    )
    return write_report(folder / REPORT, data)


def _evidence(found: TrialAnalysis, episodes: Sequence[TrialEpisode]) -> Curve:
    """log₁₀ of the evidence for each pair after each block, and where it suffices."""
    plan, blocks = found.plan, np.arange(found.blocks + 1)
    by_policy, lines = whole_blocks(plan, episodes), []
    lost = won = np.zeros(len(blocks), dtype=np.int64)
    for verdict in found.verdicts:
        a, b = ([one.success for one in by_policy[name]] for name in verdict.names)
        d = np.array(b, dtype=int) - np.array(a, dtype=int)
        lost, won = (np.concatenate([[0], np.cumsum(d == sign)]) for sign in (-1, 1))
        lines.append((f"{verdict.names[0]} or {verdict.names[1]}", log_evidence(lost, won, plan.concentration)))
    level = log_level(plan.blocks, plan.alpha / len(lines), plan.concentration)
    lines.append(("suffices", np.full(len(blocks), level)))
    caption = "Evidence that one is better. From the line on it is claimed, and may be at any block."
    if plan.futility is not None and len(lines) == 2:
        lines.append(("hardly to be reached", _futile(plan, level, lost + won)))
        caption += " Below the other line it would hardly get there within the plan, and the trial ends."
    if len(found.verdicts) > 1:
        caption += " The line is that of the hardest of several comparisons."
    return Curve("Evidence", "block", "log10 of E",
                 [Series(name, blocks, y / math.log(10)) for name, y in lines], caption=caption)  # fmt: skip


def _futile(plan: TrialPlan, level: float, decisive: NDArray[np.int64]) -> NDArray[np.float64]:
    """log E of the least lead with which a trial goes on, after each block; NaN where any lead or none is enough."""
    assert plan.futility is not None
    least = least_wins(plan.futility, level, plan.blocks, plan.concentration)
    line = np.full(len(decisive), np.nan)
    for n, m in enumerate(decisive[: plan.blocks]):
        if m < 2 * (won := least[n, m]) <= 2 * m:
            line[n] = log_evidence(m - won, won, plan.concentration)
    return line


def _rates(found: TrialAnalysis, episodes: Sequence[TrialEpisode]) -> Curve:
    """Success so far of each policy, with the interval that holds at all blocks at once."""
    lines = []
    for name, each in whole_blocks(found.plan, episodes).items():
        at = np.unique(np.linspace(1, len(each), min(len(each), 60)).astype(int))
        so_far = np.cumsum([one.success for one in each])
        rates = [rate_sequence(int(so_far[n - 1]), int(n), level=1 - found.plan.alpha) for n in at]
        lines.append(Series(name, at, [r.rate for r in rates], [r.low for r in rates], [r.high for r in rates]))
    caption = "Success so far; the bands hold at all blocks at once, wherever one stops."
    return Curve("Success", "block", "success [%]", lines, percent=True, caption=caption)


def _notes(found: TrialAnalysis) -> list[str]:
    kinds = sorted({kind for each in found.outcomes.values() for kind in each}, key=list(OUTCOMES).index)
    notes = ["Outcomes: " + "; ".join(f"{kind}: {OUTCOMES[kind]}" for kind in kinds) + "."]
    notes.append("p makes use of the plan's last block. The intervals do not: they hold for any number of blocks, are "
                 "wider, and may include 0 where a difference is claimed.")  # fmt: skip
    if found.plan.futility is not None:
        power = found.conditional_power
        chance = "" if power is None else f" It is {power:.1%}."
        notes.append("The plan ends the trial where a difference of its size, whichever policy is the better one, "
                     f"would still be found with a probability of less than {found.plan.futility.below:.0%}.{chance} "
                     "The level takes no account of that: p holds where the trial goes on all the same.")  # fmt: skip
    if found.conclusion == "inconclusive":
        notes.append(f"Inconclusive: {'; '.join(found.intervals)}.")
    notes += [
        f"{name}: trainings differ by a standard deviation of {split.seed_sd:.1%}, episodes of one training by "
        f"{split.episode_sd:.1%}. The verdicts are about these trainings; of the method the mean over "
        f"{len(split.rates)} trainings is {split.over_seeds.mean:.1%} ({split.over_seeds.low:.1%} to "
        f"{split.over_seeds.high:.1%})."
        for name, split in found.seeds.items()
    ]
    if found.agreement:
        kappa = found.agreement["kappa"]
        notes.append(f"Classifier and other judge agree with a kappa of {'none' if kappa is None else f'{kappa:.2f}'}.")
    if found.abandoned:
        notes.append("Repeated, and not counted: " + "; ".join(found.abandoned) + ".")
    return notes
