"""The report of a set's quality: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robolearn.data.quality import RULES, Demonstrations, Judgement, Quality
from robolearn.data.quality.score import DROP, LOOK
from robolearn.eval import page, quality_plots
from robolearn.eval.page import text
from robolearn.eval.plots import to_svg
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
    pictures = {
        "scores": quality_plots.draw_scores(quality),
        "noise": quality_plots.draw_noise(quality),
        "progress": quality_plots.draw_progress(d, quality),
        "places": quality_plots.draw_places(quality),
    }
    figures = [f"<figure>{to_svg(figure, name)}</figure>" for name, figure in pictures.items()]
    losses = f"<figure>{to_svg(quality_plots.draw_losses(worst), 'losses')}</figure>" if worst else ""
    drops, looks = quality.of_kind("drop"), quality.of_kind("look")
    body = [
        f"<header><h1>{text(title)}</h1>",
        f'<p class="muted">{d.episodes} episodes, {len(d.action)} frames, {d.control_hz:g} Hz.</p></header>',
        f'<div class="verdict {"" if drops else "open"}"><strong>{text(summary(quality))}</strong></div>',
        page.section("The set", _facts(quality)),
        page.section("Pictures", page.grid(figures)),
        page.section("The weakest that did not fail", losses),
        page.section("Drop", _why(drops)),
        page.section("Look at", _why(looks)),
        '<p class="muted">(2.0×): twice the value of the good quarter of the set.</p>' if drops or looks else "",
        page.section("Every episode, the best first", _table(quality.episodes)),
        page.section("How the score is made", _rules()),
        page.section("Do it again", f"<pre>{text(chr(10).join(commands))}</pre>" if commands else ""),
    ]
    return page.page(title, "\n".join(part for part in body if part))


def summary(quality: Quality) -> str:
    """What to do, in one sentence."""
    drops, looks = quality.of_kind("drop"), quality.of_kind("look")
    if not drops and not looks:
        return f"Keep all {len(quality.episodes)} episodes."
    parts = []
    if drops:
        parts.append(f"Drop {_episodes(drops)} of {len(quality.episodes)}: {_listed(drops)}.")
    if looks:
        parts.append(f"Look at {_episodes(looks)}: {_listed(looks)}.")
    return " ".join(parts)


def _episodes(found: Sequence[Judgement]) -> str:
    return f"{len(found)} episode{'s' if len(found) > 1 else ''}"


def _listed(found: Sequence[Judgement], most: int = 24) -> str:
    numbers = [str(j.episode) for j in sorted(found, key=lambda j: j.episode)]
    return ", ".join(numbers[:most]) + (" …" if len(numbers) > most else "")


def _facts(quality: Quality) -> str:
    told = [j.measures["action_divergence"] for j in quality.episodes if j.measures["action_divergence"] is not None]
    diversity = [v for j in quality.episodes if (v := j.measures["transition_diversity"]) is not None]

    def number(value: float | None, form: str) -> str:
        return "not recorded" if value is None else form.format(value)

    rows = [
        ("success", number(quality.success, "{:.1%}"), "of the episodes"),
        ("TQ", number(quality.tq, "{:.2f}"), "trajectory quality: mean return, 1 = every episode like the best"),
        ("SACo", f"{quality.saco:.2f}", "state-action coverage: 1 = no frame repeats another"),
        (
            "action divergence",
            number(sum(told) / len(told) if told else None, "{:.2f}"),
            "0 = all do the same in the same place, 1 = the place says nothing about the action",
        ),
        (
            "transition diversity",
            number(sum(diversity) / len(diversity) if diversity else None, "{:.2f}"),
            "0 = a deterministic world; neither good nor bad in itself",
        ),
    ]
    return page.table(("measure", "value", "meaning"), [tuple(text(cell) for cell in row) for row in rows])


def _why(found: Sequence[Judgement]) -> str:
    rows = [
        (str(j.episode), f"{j.score:.0f}", text("; ".join(j.reasons) or "its score is low"))
        for j in sorted(found, key=lambda j: -j.rank)
    ]
    return page.table(("episode", "score", "why, the weightiest first"), rows) if rows else ""


def _table(found: Sequence[Judgement]) -> str:
    columns = [m for m in _MEASURES if any(j.measures.get(m[0]) is not None for j in found)]

    def cell(j: Judgement, name: str, form: str) -> str:
        value = j.measures.get(name)
        return "–" if value is None else form.format(value)

    rows = [
        (
            str(j.rank),
            str(j.episode),
            f"{j.score:.0f}",
            f"{page.swatch(_COLOURS[j.verdict])} {j.verdict}",
            *(cell(j, name, form) for name, _, form in columns),
        )
        for j in found
    ]
    head = ("rank", "episode", "score", "verdict", *(title for _, title, _ in columns))
    return page.table(head, rows, numeric=(0, 1, 2, *range(4, 4 + len(columns))))


def _rules() -> str:
    how = {
        "flag": "where it holds",
        "relative": "at twice the value of the good quarter, nothing up to that",
    }
    rows = [
        (
            text(name.replace("_", " ")),
            f"{rule.points:g}",
            text(how.get(rule.kind, f"at {rule.full:.0%} of the frames")),
        )
        for name, rule in RULES.items()
    ]
    words = (
        f"Every episode begins with 100 points. Drop: failed, a copy, or a score below {DROP:g}. "
        f"Look: a score below {LOOK:g}. Sampling weight: score / 100, 0 for an episode to drop."
    )
    return f"<p>{text(words)}</p>" + page.table(("measure", "points", "lost in full"), rows, numeric=(1,))
