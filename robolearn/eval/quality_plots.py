"""Pictures of a data set's quality, in the style of `robolearn.eval.plots`."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from robolearn.data.quality import RULES, Demonstrations, Judgement, Quality
from robolearn.eval.plots import COLOURS, MUTED, STYLE, canvas, legend

VERDICTS = {"keep": COLOURS["--c3"], "look": COLOURS["--c7"], "drop": COLOURS["--c5"]}
WORST = 16  # episodes in the picture of what points were lost to
_BINS = 20
_CELLS = 26


def draw_scores(quality: Quality) -> Figure:
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


def draw_losses(episodes: Sequence[Judgement]) -> Figure:
    """What the given episodes lost points to, one bar each."""
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


def draw_noise(quality: Quality) -> Figure:
    """How much the actions differ from others', against how much the commands shake."""
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


def draw_progress(d: Demonstrations, quality: Quality) -> Figure:
    """Where along the episodes the demonstrators disagree, by verdict."""
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


def draw_places(quality: Quality) -> Figure:
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
