"""The report of a data set's quality: one self-contained HTML file, from `templates/quality.html`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from robolearn.data.quality import RULES, Demonstrations, EpisodeScore, QualityReport
from robolearn.data.quality.score import LEAST, LOOK
from robolearn.eval.plots import COLOURS, MUTED, STYLE, canvas, legend
from robolearn.eval.report import picture, render_page, write_page

_VARIABLES = {"keep": "--c3", "look": "--c7", "drop": "--c5"}  # verdict → CSS variable
VERDICTS = {verdict: COLOURS[name] for verdict, name in _VARIABLES.items()}
MEANINGS = {
    "action_divergence": "0 = all do the same in the same place, 1 = the place says nothing about the action",
    "transition_diversity": "0 = a deterministic world; neither good nor bad in itself",
}
WORST = 16  # episodes in the picture of what points were lost to
_BINS = 20
_CELLS = 26


def draw_scores(quality: QualityReport) -> Figure:
    """The scores in the order of the ranking, coloured by verdict."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas("Score by rank", "rank", "score", lines=3)
        for verdict, colour in VERDICTS.items():
            found = quality.of_kind(verdict)
            if not found:
                continue
            ranks, scores = [j.rank for j in found], [j.score for j in found]
            # A score of 0 still shows where its episode stands.
            width = 0.8 if len(quality.episodes) <= 60 else 1.0
            label = f"{verdict} ({len(found)})"
            axes.bar(ranks, np.maximum(scores, 1.0), width=width, color=colour, label=label)
        axes.set_ylim(0, 102)
        axes.set_xlim(0.2, len(quality.episodes) + 0.8)
        legend(axes, 3)
    return figure


def draw_losses(episodes: Sequence[EpisodeScore]) -> Figure:
    """Points that the given episodes lost, by rule, one bar each."""
    with mpl.rc_context(STYLE):
        names = [name for name in RULES if any(name in j.lost for j in episodes)]
        height = 1.1 + 0.23 * max(len(episodes), 3)
        figure, axes = canvas("What points were lost to", "points lost", "episode", lines=1, size=(7.6, height))
        left, rows = np.zeros(len(episodes)), np.arange(len(episodes))
        colours = [*COLOURS.values(), MUTED]
        for i, name in enumerate(names):
            points = np.array([j.lost.get(name, 0.0) for j in episodes])
            label = name.replace("_", " ").removesuffix(" s")
            axes.barh(rows, points, left=left, height=0.72, color=colours[i % len(colours)], label=label)
            left += points
        axes.set_yticks(rows, [str(j.episode) for j in episodes])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", linewidth=0.7)
        if names:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8.5, handlelength=1.0)
    return figure


def draw_noise(quality: QualityReport) -> Figure:
    """Divergence of the actions from others', against the shaking of the commands."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas("Noise and disagreement", "command jerk", "action divergence", lines=3)
        axes.grid(axis="x", linewidth=0.7)
        for verdict, colour in VERDICTS.items():
            found = [j.measures for j in quality.of_kind(verdict)]
            points = [(m["command_jerk"], m["action_divergence"]) for m in found]
            points = [(x, y) for x, y in points if x is not None and y is not None]
            if points:
                x, y = np.array(points).T
                axes.scatter(x, y, s=16, color=colour, alpha=0.75, linewidth=0, label=verdict)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        if axes.get_legend_handles_labels()[0]:
            legend(axes, 3)
    return figure


def draw_progress(d: Demonstrations, quality: QualityReport) -> Figure:
    """Disagreement of the demonstrators along the episodes, by verdict."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas("Disagreement along the episode", "progress [%]", "action divergence", lines=3)
        owner = d.episode[quality.frame]
        progress = (quality.frame - d.starts[owner]) / np.maximum(d.lengths[owner] - 1, 1)
        bins = np.minimum((progress * _BINS).astype(int), _BINS - 1)
        for verdict, colour in VERDICTS.items():
            chosen = np.isin(owner, [j.episode for j in quality.of_kind(verdict)]) & np.isfinite(quality.divergence)
            if not chosen.any():
                continue
            total = np.bincount(bins[chosen], weights=quality.divergence[chosen], minlength=_BINS)
            count = np.bincount(bins[chosen], minlength=_BINS)
            mean = np.divide(total, count, out=np.full(_BINS, np.nan), where=count > 0)
            axes.plot(100 * (np.arange(_BINS) + 0.5) / _BINS, mean, color=colour, linewidth=1.7, label=verdict)
        axes.set_ylim(bottom=0)
        if axes.get_legend_handles_labels()[0]:
            legend(axes, 3)
    return figure


def draw_places(quality: QualityReport) -> Figure:
    """The states that were visited; the darker, the less the demonstrators agree there."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas("Where they disagree", "first principal component of the state", "second")
        known = np.isfinite(quality.divergence)
        place = quality.place[known]
        if len(place):
            low, span = place.min(axis=0), np.maximum(np.ptp(place, axis=0), 1e-9)
            cell = np.minimum(((place - low) / span * _CELLS).astype(int), _CELLS - 1)
            flat = cell[:, 0] * _CELLS + cell[:, 1]
            total = np.bincount(flat, weights=quality.divergence[known], minlength=_CELLS**2)
            count = np.bincount(flat, minlength=_CELLS**2)
            here = np.flatnonzero(count)
            shade = np.clip(total[here] / count[here], 0.08, 1.0)
            centres = low + (np.stack(np.divmod(here, _CELLS), 1) + 0.5) / _CELLS * span
            # One call per shade keeps colour and opacity apart, as the page's variables need them.
            for level in np.unique(np.round(shade, 1)):
                rows = np.round(shade, 1) == level
                axes.scatter(*centres[rows].T, s=26, marker="s", color=COLOURS["--c1"], alpha=float(level), linewidth=0)
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


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


def write_quality_report(path: Path, d: Demonstrations, quality: QualityReport, **texts: Any) -> Path:
    """Write the report, with the texts of `render_quality`, at `path`, as `write_page` does."""
    return write_page(path, render_quality(d, quality, **texts))


def render_quality(d: Demonstrations, quality: QualityReport, *, title: str, commands: Sequence[str] = ()) -> str:
    """The HTML of the report."""
    # What failed or was stored twice needs no picture.
    worst = [j for j in reversed(quality.episodes) if j.lost and not j.lost.keys() & {"failed", "duplicate"}][:WORST]
    measures = [m for m in _MEASURES if any(j.measures.get(m[0]) is not None for j in quality.episodes)]
    figures = {
        "scores": draw_scores(quality), "noise": draw_noise(quality), "progress": draw_progress(d, quality),
        "places": draw_places(quality),
    }  # fmt: skip
    return render_page(
        "quality.html",
        title=title,
        episodes=d.episodes,
        frames=len(d.action),
        control_hz=d.control_hz,
        summary=summary(quality),
        facts=_facts(quality),
        pictures=[picture(figure, name) for name, figure in figures.items()],
        losses=picture(draw_losses(worst), "losses") if worst else "",
        drops=_reasons(quality.of_kind("drop")),
        looks=_reasons(quality.of_kind("look")),
        measures=[title for _, title, _ in measures],
        ranking=[
            {
                "rank": j.rank,
                "episode": j.episode,
                "score": j.score,
                "verdict": j.verdict,
                "colour": _VARIABLES[j.verdict],
                "cells": [_text(j.measures.get(name), form, "–") for name, _, form in measures],
            }
            for j in quality.episodes
        ],
        rules_in_words=f"Every episode begins with 100 points. Drop: failed, or a copy. Look: a score "
        f"below {LOOK:g}. Sampling weight: score / 100, at least {LEAST:g}, 0 for an episode to drop.",
        rules=_rules(),
        commands=commands,
    )


def summary(quality: QualityReport) -> str:
    """Advice in a sentence or two."""
    drops, looks = quality.of_kind("drop"), quality.of_kind("look")
    if not drops and not looks:
        return f"Keep all {len(quality.episodes)} episodes."
    parts = []
    if drops:
        parts.append(
            f"Drop {_episodes(drops)} of {len(quality.episodes)}, failed, copies or with wild frames: {listed(drops)}."
        )
    if looks:
        parts.append(
            f"Keep {_episodes(looks)} at a lower weight: {listed(looks)}. Train with --weights; dropping them would "
            "lose what they cover."
        )
    return " ".join(parts)


def _episodes(found: Sequence[EpisodeScore]) -> str:
    return f"{len(found)} episode{'s' if len(found) > 1 else ''}"


def listed(found: Sequence[EpisodeScore]) -> str:
    """Their numbers as `dataset edit drop --episodes` reads them, such as 3,7,10-19."""
    parts: list[list[int]] = []
    for number in sorted(j.episode for j in found):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def _facts(quality: QualityReport) -> list[tuple[str, str, str]]:
    return [
        ("success", _text(quality.success, "{:.1%}"), "of the episodes"),
        ("TQ", _text(quality.tq, "{:.2f}"), "trajectory quality: mean return, 1 = every episode like the best"),
        ("SACo", f"{quality.saco:.2f}", "state-action coverage: 1 = no frame repeats another"),
        *(
            (name.replace("_", " "), _text(_mean(quality, name), "{:.2f}"), meaning)
            for name, meaning in MEANINGS.items()
        ),
    ]


def _mean(quality: QualityReport, measure: str) -> float | None:
    known = [value for j in quality.episodes if (value := j.measures[measure]) is not None]
    return sum(known) / len(known) if known else None


def _text(value: float | None, form: str, missing: str = "not recorded") -> str:
    return missing if value is None else form.format(value)


def _reasons(found: Sequence[EpisodeScore]) -> list[tuple[str, str, str]]:
    return [
        (str(j.episode), f"{j.score:.0f}", "; ".join(j.reasons) or "its score is low")
        for j in sorted(found, key=lambda j: -j.rank)
    ]


def _rules() -> list[tuple[str, str, str]]:
    how = {"flag": "where it holds", "relative": "at twice the value of the good quarter, nothing up to that"}
    return [
        (name.replace("_", " "), f"{rule.points:g}", how.get(rule.kind, f"at {rule.full:.0%} of the frames"))
        for name, rule in RULES.items()
    ]
