"""A report: one self-contained HTML file that shows what was reached, how sure that is, and how to do it again.

It is built from plain values, never from run folders, so whoever has results can write one. Nothing in it is loaded
from anywhere: style, pictures (SVG) and videos (MP4) are inline, and its content security policy forbids the rest.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robolearn.eval import page
from robolearn.eval.intervals import Estimate, Success
from robolearn.eval.page import text
from robolearn.eval.plots import COLOURS, Curve, draw, draw_solved_within, to_svg
from robolearn.eval.rollout import Evaluation
from robolearn.eval.verdict import Verdict
from robolearn.eval.video import Video
from robolearn.io.atomic import write_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What one policy reached.

    Attributes:
      name: e.g. ``"imitation"``.
      success: its success rate.
      solved_s: cycle times of its successes [s].
      cycle_time_s: their mean [s].
      mean_return: mean return over all episodes.
      note: a remark, e.g. ``"154k environment steps"``.
    """

    name: str
    success: Success
    solved_s: ArrayLike = ()
    cycle_time_s: Estimate | None = None
    mean_return: Estimate | None = None
    note: str = ""

    @staticmethod
    def of(name: str, evaluation: Evaluation, *, note: str = "") -> Outcome:
        """The outcome that `evaluation` measured."""
        return Outcome(
            name,
            evaluation.success,
            evaluation.solved_s,
            evaluation.mean_cycle_time_s,
            evaluation.mean_return,
            note,
        )


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows; what is empty is left out.

    Attributes:
      title: e.g. ``"lift: from demonstrations to a reliable policy"``.
      subtitle: one sentence below it.
      outcomes: the policies, in the order of their making.
      verdict: A versus B.
      curves: learning curves.
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
    verdict: Verdict | None = None
    curves: Sequence[Curve] = ()
    wall_s: Mapping[str, float] = field(default_factory=dict)
    wall_detail: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    videos: Sequence[Video] = ()
    commands: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    footer: str = ""


def write_report(path: Path, data: ReportData) -> Path:
    """Write `data` as one HTML file at `path`, which appears only when it is whole; returns `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render(data))
    return path


def render(data: ReportData) -> str:
    """The HTML of a report."""
    body = [
        f"<header><h1>{text(data.title)}</h1>",
        f'<p class="muted">{text(data.subtitle)}</p></header>' if data.subtitle else "</header>",
        page.grid((_outcome(o, _colour(i)) for i, o in enumerate(data.outcomes)), kind="outcomes"),
        _verdict(data.verdict),
        page.section("Outcomes", _outcome_table(data.outcomes), _solved_within(data.outcomes)),
        page.section("Learning", page.grid(_curve(c, f"curve{i}") for i, c in enumerate(data.curves))),
        page.section("Videos", page.grid(_video(v) for v in data.videos)),
        page.section(
            "Where the wall time went",
            _wall("", data.wall_s),
            *(_wall(heading, parts) for heading, parts in data.wall_detail.items()),
        ),
        page.section("Do it again, step by step", _commands(data.commands)),
        page.section("Settings", _settings(data.settings)),
        page.section("Notes", "".join(f"<p>{text(note)}</p>" for note in data.notes)),
        f'<footer class="muted">{text(data.footer)}</footer>' if data.footer else "",
    ]
    return page.page(data.title, "\n".join(part for part in body if part))


def _colour(i: int) -> str:
    return list(COLOURS)[i % len(COLOURS)]


def _outcome(outcome: Outcome, colour: str) -> str:
    s = outcome.success
    ticks = "".join(
        f'<span class="tick {kind}" style="left:{x}%">{x}%</span>'
        for x, kind in ((0, "first"), (50, ""), (100, "last"))
    )
    note = f'<p class="muted">{text(outcome.note)}</p>' if outcome.note else ""
    return (
        f'<div class="card"><div class="name">{page.swatch(colour)}{text(outcome.name)}</div>'
        f'<div class="rate">{s.rate:.1%}</div>'
        f'<p class="muted">success over {s.episodes} episodes, 95% interval {s.low:.1%} to {s.high:.1%}</p>'
        '<div class="interval"><div class="track"></div>'
        f'<div class="band" style="left:{s.low:.2%};width:{s.high - s.low:.2%};background:var({colour})"></div>'
        f'<div class="dot" style="left:{s.rate:.2%};background:var({colour})"></div>{ticks}</div>{note}</div>'
    )


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    kind = "verdict" if verdict.better else "verdict open"
    return (
        f'<div class="{kind}"><strong>{text(verdict.sentence)}.</strong><br><span class="muted">'
        f"{text(verdict.names[1])} minus {text(verdict.names[0])}: {_points(verdict.difference)} percentage points, "
        f"{verdict.level:.0%} interval {_points(verdict.low)} to {_points(verdict.high)} "
        f"({text(verdict.test)} test)</span></div>"
    )


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def _outcome_table(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    rows = [
        (
            f"{page.swatch(_colour(i))} {text(o.name)}",
            f"{o.success.successes} of {o.success.episodes}",
            f"{o.success.rate:.1%}",
            f"{o.success.low:.1%} to {o.success.high:.1%}",
            _estimate(o.cycle_time_s),
            _estimate(o.mean_return),
        )
        for i, o in enumerate(outcomes)
    ]
    head = ("policy", "solved", "success", "95% interval", "cycle time of successes [s]", "return")
    remark = "Intervals are at 95%: Clopper-Pearson for success, bootstrap for means."
    return page.table(head, rows, numeric=range(1, 6)) + f'<p class="muted">{remark}</p>'


def _estimate(value: Estimate | None) -> str:
    if value is None or value.count == 0:
        return "–"
    interval = f" <span class='muted'>({value.low:.2f} to {value.high:.2f})</span>" if value.count > 1 else ""
    return f"{value.mean:.2f}{interval}"


def _solved_within(outcomes: Sequence[Outcome]) -> str:
    if not any(np.size(o.solved_s) for o in outcomes):
        return ""
    figure = draw_solved_within(
        [o.name for o in outcomes], [o.solved_s for o in outcomes], [o.success.episodes for o in outcomes]
    )
    caption = "Share of all episodes solved by then; where a line ends is the success rate."
    return f'<div class="solo">{_figure(to_svg(figure, "solved"), caption)}</div>'


def _curve(curve: Curve, prefix: str) -> str:
    return _figure(to_svg(draw(curve), prefix), curve.caption)


def _figure(content: str, caption: str) -> str:
    return f"<figure>{content}{f'<figcaption>{text(caption)}</figcaption>' if caption else ''}</figure>"


def _video(video: Video) -> str:
    path = Path(video.path)
    if not path.is_file():
        log.warning("video %s is missing: the report says so in its place", path)
        return _figure('<p class="muted">The video is missing.</p>', video.caption)
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    source = f"data:video/mp4;base64,{data}"
    return _figure(f'<video controls muted loop playsinline preload="auto" src="{source}"></video>', video.caption)


def _wall(heading: str, parts: Mapping[str, float]) -> str:
    named = {name: float(seconds) for name, seconds in parts.items() if name != "total"}
    total = float(parts.get("total", sum(named.values())))
    other = total - sum(named.values())
    if other > 0.005 * total:
        named["other"] = other
    if not named or total <= 0:
        return ""
    coloured = [
        (text(name), s, "--muted" if name == "other" else _colour(i)) for i, (name, s) in enumerate(named.items())
    ]
    spans = "".join(
        f'<span style="flex:{s / total:.5f};background:var({colour})" title="{name}: {s:.1f} s"></span>'
        for name, s, colour in coloured
    )
    rows = [(f"{page.swatch(colour)} {name}", f"{s:.1f}", f"{s / total:.1%}") for name, s, colour in coloured]
    rows.append(("total", f"{total:.1f}", "100%"))
    head = f"<h3>{text(heading)}</h3>" if heading else ""
    bar = f'<div class="bar" role="img" aria-label="shares of {total:.1f} s of wall time">{spans}</div>'
    return head + bar + page.table(("part", "wall time [s]", "share"), rows, numeric=(1, 2), total=True)


def _commands(commands: Sequence[str]) -> str:
    if not commands:
        return ""
    return (
        '<div class="code"><button class="copy" data-of="commands" hidden>copy</button>'
        f'<pre id="commands">{text(chr(10).join(commands))}</pre></div>'
    )


def _settings(settings: Mapping[str, Any]) -> str:
    single = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    groups = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    parts = [_setting_table(single)] if single else []
    for name, group in groups.items():
        parts.append(f"<details><summary>{text(name)}</summary>{_setting_table(_flat(group))}</details>")
    return "\n".join(parts)


def _setting_table(settings: Mapping[str, Any]) -> str:
    return page.table((), [(text(name), text(_value(value))) for name, value in settings.items()])


def _flat(group: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in group.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(item) for item in value)
    return str(value)
