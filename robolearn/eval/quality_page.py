"""The report of a data set's quality: one self-contained HTML file, from `templates/quality.html`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robolearn.data.quality import RULES, Demonstrations, Judgement, Quality
from robolearn.data.quality.score import LEAST, LOOK
from robolearn.eval import quality_plots
from robolearn.eval.page import picture, render_page
from robolearn.io.atomic import write_text

_MEASURES = (
    ("action_divergence", "divergence", "{:.2f}"),
    ("command_jerk", "jerk", "{:.2f}"),
    ("spectral_arc", "arc", "{:.1f}"),
    ("duration_s", "time [s]", "{:.1f}"),
    ("idle", "idle", "{:.0%}"),
    ("near_limits", "limits", "{:.0%}"),
    ("stale", "stale", "{:.0%}"),
    ("transition_diversity", "diversity", "{:.2f}"),
    ("novelty", "novelty", "{:.0%}"),
    ("alone", "alone", "{:.0%}"),
)
_COLOURS = {"keep": "--c3", "look": "--c7", "drop": "--c5"}


def write_quality_report(
    path: Path, d: Demonstrations, quality: Quality, *, title: str, commands: Sequence[str] = ()
) -> Path:
    """Write the report at `path`, which appears only when it is whole; returns `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render_quality(d, quality, title=title, commands=commands))
    return path


def render_quality(d: Demonstrations, quality: Quality, *, title: str, commands: Sequence[str] = ()) -> str:
    """The HTML of the report."""
    # What failed or was stored twice needs no picture.
    worst = [j for j in reversed(quality.episodes) if j.lost and not j.lost.keys() & {"failed", "duplicate"}]
    worst = worst[: quality_plots.WORST]
    measures = [m for m in _MEASURES if any(j.measures.get(m[0]) is not None for j in quality.episodes)]
    figures = {
        "scores": quality_plots.draw_scores(quality),
        "noise": quality_plots.draw_noise(quality),
        "progress": quality_plots.draw_progress(d, quality),
        "places": quality_plots.draw_places(quality),
    }
    return render_page(
        "quality.html",
        title=title,
        episodes=d.episodes,
        frames=len(d.action),
        control_hz=d.control_hz,
        summary=summary(quality),
        facts=_facts(quality),
        pictures=[picture(figure, name) for name, figure in figures.items()],
        losses=picture(quality_plots.draw_losses(worst), "losses") if worst else "",
        drops=_reasons(quality.of_kind("drop")),
        looks=_reasons(quality.of_kind("look")),
        measures=[title for _, title, _ in measures],
        ranking=[
            {
                "rank": j.rank,
                "episode": j.episode,
                "score": j.score,
                "verdict": j.verdict,
                "colour": _COLOURS[j.verdict],
                "cells": [_text(j.measures.get(name), form, "–") for name, _, form in measures],
            }
            for j in quality.episodes
        ],
        rules_in_words=f"Every episode begins with 100 points. Drop: failed, or a copy. Look: a score "
        f"below {LOOK:g}. Sampling weight: score / 100, at least {LEAST:g}, 0 for an episode to drop.",
        rules=_rules(),
        commands=commands,
    )


def summary(quality: Quality) -> str:
    """What to do, in a sentence or two."""
    drops, looks = quality.of_kind("drop"), quality.of_kind("look")
    if not drops and not looks:
        return f"Keep all {len(quality.episodes)} episodes."
    parts = []
    if drops:
        parts.append(f"Drop {_episodes(drops)} of {len(quality.episodes)}, failed or copies: {listed(drops)}.")
    if looks:
        parts.append(
            f"Keep, with less weight, {_episodes(looks)}: {listed(looks)}. Train with --weights: what they cover "
            "is lost when they are dropped."
        )
    return " ".join(parts)


def _episodes(found: Sequence[Judgement]) -> str:
    return f"{len(found)} episode{'s' if len(found) > 1 else ''}"


def listed(found: Sequence[Judgement]) -> str:
    """Their numbers as `dataset edit drop --episodes` reads them, such as 3,7,10-19."""
    numbers = sorted(j.episode for j in found)
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def _facts(quality: Quality) -> list[tuple[str, str, str]]:
    return [
        ("success", _text(quality.success, "{:.1%}"), "of the episodes"),
        ("TQ", _text(quality.tq, "{:.2f}"), "trajectory quality: mean return, 1 = every episode like the best"),
        ("SACo", f"{quality.saco:.2f}", "state-action coverage: 1 = no frame repeats another"),
        (
            "action divergence",
            _text(_mean(quality, "action_divergence"), "{:.2f}"),
            "0 = all do the same in the same place, 1 = the place says nothing about the action",
        ),
        (
            "transition diversity",
            _text(_mean(quality, "transition_diversity"), "{:.2f}"),
            "0 = a deterministic world; neither good nor bad in itself",
        ),
    ]


def _mean(quality: Quality, measure: str) -> float | None:
    known = [value for j in quality.episodes if (value := j.measures[measure]) is not None]
    return sum(known) / len(known) if known else None


def _text(value: float | None, form: str, missing: str = "not recorded") -> str:
    return missing if value is None else form.format(value)


def _reasons(found: Sequence[Judgement]) -> list[tuple[str, str, str]]:
    return [
        (str(j.episode), f"{j.score:.0f}", "; ".join(j.reasons) or "its score is low")
        for j in sorted(found, key=lambda j: -j.rank)
    ]


def _rules() -> list[tuple[str, str, str]]:
    how = {
        "flag": "where it holds",
        "relative": "at twice the value of the good quarter, nothing up to that",
    }
    return [
        (name.replace("_", " "), f"{rule.points:g}", how.get(rule.kind, f"at {rule.full:.0%} of the frames"))
        for name, rule in RULES.items()
    ]
