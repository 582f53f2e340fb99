"""The report of a reward model: one self-contained HTML file from `templates/critic.html`, with curves, figures and the
worst mistakes as film strips; and an episode's film with its progress under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cv2
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from robolearn.core import Episode
from robolearn.eval.critics import CriticEvaluation
from robolearn.eval.intervals import Estimate, Success
from robolearn.eval.plots import COLOURS, STYLE, Curve, Series, canvas, draw
from robolearn.eval.report import picture, render_page
from robolearn.io.atomic import write_text
from robolearn.rewards.metrics import JudgedEpisode, split

Pictures = Callable[[JudgedEpisode], NDArray[np.uint8]]
"""An episode → its pictures (T, H, W, 3)."""

SHOWN = 30  # curves of each outcome
STRIP, WORST = 8, 4  # pictures of a film strip, strips
MEANINGS = {
    "VOC": "Spearman's rho of progress and time in successes; a clock has 1",
    "VOC, reversed": "the same pictures backwards: -1 is right",
    "VOC of failures": "for comparison; high here means that only time is seen",
    "tau": "Kendall's over pairs of a success and a failure, by the last progress",
    "gap": "mean last progress of successes, less that of failures",
    "false positives": "failures that were called done",
    "precision": "of the episodes that were called done, those that were",
    "recall": "of the successes, those that were called done",
    "wrong task": "progress with another task's words, to that with the right ones",
    "calibration": "ECE of the probability of done",
}


def pictures_after(episode: Episode, camera: str) -> NDArray[np.uint8]:
    """(T, H, W, 3) pictures of `camera` after each step, as its score is; the last is the end, where that is stored."""
    return episode.seen[camera][-len(episode.action) :]


def render_critic(
    evaluation: CriticEvaluation, *, title: str, subtitle: str, commands: Sequence[str] = (), pictures: Pictures | None
) -> str:
    """The HTML; film strips only with `pictures`."""
    kinds = [
        (kind.replace("_", " "), str(row["called_done"]["episodes"]),
         _text(row["progress"]["mean"], row["progress"]["low"], row["progress"]["high"]),
         f"{row['called_done']['rate']:.0%}")
        for kind, row in evaluation.by_failure().items()
    ]  # fmt: skip
    strips = [] if pictures is None else [
        (picture(draw_strip(j, pictures(j)), f"strip{i}"), caption)
        for i, (j, caption) in enumerate(mistakes(evaluation))
    ]  # fmt: skip
    return render_page(
        "critic.html",
        title=title,
        subtitle=subtitle,
        headline=evaluation.headline,
        faults=evaluation.faults,
        figures=_figures(evaluation),
        pictures=[
            picture(draw_progress(evaluation.judged), "progress"),
            picture(draw_mean(evaluation.judged), "mean"),
            picture(draw_last(evaluation.judged), "last"),
        ],
        kinds=kinds,
        strips=strips,
        commands=commands,
    )


def write_critic_report(path: Path, html: str) -> Path:
    """Write the page at `path`, which appears only when it is whole; returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
    return path


def _figures(e: CriticEvaluation) -> list[tuple[str, str, str, str]]:
    rows: dict[str, Estimate | Success | None] = {
        "VOC": e.voc, "VOC, reversed": e.voc_reversed, "VOC of failures": e.voc_failures, "tau": e.tau, "gap": e.gap,
        "false positives": e.false_positives, "precision": e.precision, "recall": e.recall,
        "wrong task": e.wrong_task_ratio, "calibration": e.calibration,
    }  # fmt: skip
    found = []
    for name, value in rows.items():
        mean = None if value is None else value.rate if isinstance(value, Success) else value.mean
        interval = "–" if value is None or not np.isfinite(value.low) else f"{value.low:.2f} to {value.high:.2f}"
        found.append((name, "–" if mean is None else f"{mean:.2f}", interval, MEANINGS[name]))
    half, most = e.latency_ms["p50"], e.latency_ms["p99"]
    meaning = f"median of one frame, encoding included; p99 {most.mean:.1f} ms"
    return [*found, ("time", f"{half.mean:.1f} ms", f"{half.low:.1f} to {half.high:.1f}", meaning)]


def _text(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.2f}" if low is None or high is None else f"{mean:.2f} ({low:.2f} to {high:.2f})"


def draw_progress(judged: Sequence[JudgedEpisode]) -> Figure:
    """The progress of each episode, successes and failures in their colours."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas("Progress of each episode", "control step", "progress", lines=2)
        for group, colour, name in zip(split(judged), ("--c3", "--c5"), ("successes", "failures"), strict=True):
            for i, j in enumerate(group[:SHOWN]):
                label = name if i == 0 else None
                axes.plot(j.progress, color=COLOURS[colour], alpha=0.35, linewidth=1.0, label=label)
        axes.set_ylim(-0.02, 1.02)
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.98), ncols=2, frameon=False, fontsize=8.5)
    return figure


def draw_mean(judged: Sequence[JudgedEpisode]) -> Figure:
    """Mean progress over the share of an episode, forwards, backwards and with the wrong words."""
    at = np.linspace(0.0, 1.0, 41)

    def mean(values: Sequence[NDArray]) -> NDArray[np.float64]:
        return np.mean([np.interp(at, np.linspace(0.0, 1.0, len(v)), v) for v in values], axis=0)

    solved, failed = split(judged)
    lines = {
        "successes": [j.progress for j in solved],
        "failures": [j.progress for j in failed],
        "backwards": [j.backwards for j in solved],
        "wrong words": [j.wrong for j in solved],
    }
    series = [Series(name, at, mean(values)) for name, values in lines.items() if values]
    return draw(Curve("Mean progress", "share of the episode", "progress", series))


def draw_last(judged: Sequence[JudgedEpisode]) -> Figure:
    """The last progress of all episodes, by outcome."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas("Progress at the end", "progress after the last step", "episodes", lines=2)
        bins = np.linspace(0.0, 1.0, 21).tolist()
        for group, colour, name in zip(split(judged), ("--c3", "--c5"), ("successes", "failures"), strict=True):
            axes.hist([j.last for j in group], bins=bins, color=COLOURS[colour], alpha=0.6, label=name)
        axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.98), ncols=2, frameon=False, fontsize=8.5)
    return figure


def mistakes(evaluation: CriticEvaluation) -> list[tuple[JudgedEpisode, str]]:
    """The failures that were praised most, and the successes that were praised least, with a caption each."""
    solved, failed = split(evaluation.judged)
    praised = sorted(failed, key=lambda j: -j.last)[: WORST // 2]
    missed = sorted(solved, key=lambda j: j.last)[: WORST // 2]
    return [
        (j, f"Episode {j.index} of {j.source}: {_outcome(j)}, progress {j.last:.2f} at its end"
            f"{', called done' if j.called else ''}.")
        for j in (*praised, *missed)
    ]  # fmt: skip


def _outcome(j: JudgedEpisode) -> str:
    return "a success" if j.success else f"a failure ({j.failure.replace('_', ' ') or 'unlabelled'})"


def draw_strip(judged: JudgedEpisode, pictures: NDArray[np.uint8]) -> Figure:
    """A film strip of the episode with its progress under it."""
    steps = len(judged.progress)
    chosen = np.unique(np.linspace(0, steps - 1, STRIP).astype(int))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 2.6), layout="constrained")
        grid = figure.add_gridspec(2, len(chosen), height_ratios=(1.0, 0.9))
        for column, t in enumerate(chosen):
            axes = figure.add_subplot(grid[0, column])
            axes.imshow(pictures[t])
            axes.set_axis_off()
            axes.set_title(f"step {t}", fontsize=8)
        axes = figure.add_subplot(grid[1, :])
        axes.plot(judged.progress, color=COLOURS["--c2"], linewidth=1.7, label="progress")
        axes.plot(judged.probability, color=COLOURS["--c1"], linewidth=1.0, label="probability of done")
        axes.plot(chosen, judged.progress[chosen], "o", color=COLOURS["--c2"], markersize=4)
        axes.set_ylim(-0.05, 1.05)
        axes.set_xlim(-0.5, steps - 0.5)
        axes.grid(axis="y", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left", frameon=False, fontsize=8)
    return figure


HEIGHT, BAND = 252, 64  # of a film's picture and of the curve under it [px]


def scored_frames(
    pictures: NDArray[np.uint8], progress: NDArray[np.float32], done: NDArray[np.bool_]
) -> Iterator[NDArray[np.uint8]]:
    """A film of pictures (T, H, W, 3) that grows its progress (T,) under them, green from where it is `done`."""
    height = HEIGHT
    width = round(pictures.shape[2] * height / pictures.shape[1])
    x = np.linspace(4, width - 5, len(progress))
    y = height + BAND - 6 - np.clip(progress, 0.0, 1.0) * (BAND - 12)
    points = np.stack([x, y], -1).round().astype(np.int32)
    for t, frame in enumerate(pictures):
        canvas_ = np.full((height + BAND, width, 3), 250, np.uint8)
        canvas_[:height] = cv2.resize(np.ascontiguousarray(frame), (width, height), interpolation=cv2.INTER_LINEAR)
        cv2.polylines(canvas_, [points], False, (215, 218, 222), 1, cv2.LINE_AA)
        colour = (75, 127, 60) if done[: t + 1].any() else (31, 111, 159)
        cv2.polylines(canvas_, [points[: t + 1]], False, colour, 2, cv2.LINE_AA)
        cv2.circle(canvas_, (int(points[t, 0]), int(points[t, 1])), 4, colour, -1, cv2.LINE_AA)
        text = f"{100 * float(progress[t]):3.0f}%"
        cv2.putText(canvas_, text, (6, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 3, cv2.LINE_AA)
        cv2.putText(canvas_, text, (6, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 1, cv2.LINE_AA)
        yield canvas_
