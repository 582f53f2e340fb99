"""A report: one self-contained HTML file that shows what was reached, how sure that is, and how to do it again.

Nothing in it is loaded from anywhere: style, pictures (SVG) and videos (MP4) are inline, and its content security
policy forbids the rest. The HTML is `templates/report.html`; this file computes the values that it shows.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from robolearn.core import BadInput
from robolearn.eval.intervals import Estimate
from robolearn.eval.plots import COLOURS, draw, draw_returns, draw_solved_within, to_svg
from robolearn.eval.report_data import Outcome, ReportData, count
from robolearn.eval.verdict import number
from robolearn.eval.video import Video
from robolearn.io.atomic import write_text
from robolearn.io.json_files import flatten
from robolearn.io.paths import check_folder

_TEMPLATES = Environment(
    loader=PackageLoader("robolearn.eval"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip


# What a setting that is not given stands for, by its docstring: `None` for what the program chooses, but for these.
NONE = {"dual_clip": "none", "demos": "none"}
ZERO = {
    "sigma_max": "automatic", "sigma_min": "automatic", "resize": "as they are", "random_crop": "all", "within": "any",
}  # fmt: skip


def render_page(template: str, **values: Any) -> str:
    """The HTML of `template`, e.g. ``"report.html"``; everything but `Markup` among the values shows as text."""
    return _TEMPLATES.get_template(template).render(values)


def picture(figure: Figure, prefix: str) -> Markup:
    """`figure` as inline SVG; `prefix` keeps the ids of several pictures on one page apart."""
    return Markup(to_svg(figure, prefix))  # matplotlib escapes the texts of a figure


log = logging.getLogger(__name__)

REPORT = "report.html"


def write_report(path: Path, data: ReportData) -> Path:
    """Write `data` as one HTML file at `path`, which appears only when it is whole; returns `path`."""
    return write_page(path, render(data))


def write_page(path: Path, html: str) -> Path:
    """Write `html` at `path`, which appears only when it is whole; returns `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
    return path


def check_report_folder(folder: Path, what: str = "--out") -> None:
    """Make sure that a report can be written into `folder`, before the episodes that it shows are run.

    A file is written there and removed again, with the folders that this made. Raises `BadInput`: `folder` holds a
    report already, is a file, or cannot be written to.
    """
    folder, what = Path(folder), f"{what} {folder}"
    made: list[Path] = []
    try:
        check_folder(folder, what)
        if (folder / REPORT).exists():
            raise BadInput(what, got="a folder with a report", expected="a new one")
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"report")
    except OSError as error:
        got = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        raise BadInput(what, got=got, expected="a folder that can be written to, or a new name") from None
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()


def render(data: ReportData) -> str:
    """The HTML of a report."""
    by_return = any(o.success is None for o in data.outcomes)
    scale = _scale(data.outcomes) if by_return else (0.0, 1.0)
    success_columns = () if by_return else ("solved", "success", "95% interval", "cycle time of successes [s]")
    walls = [_wall("", data.wall_s), *(_wall(heading, parts) for heading, parts in data.wall_detail.items())]
    groups = {name: value for name, value in data.settings.items() if isinstance(value, Mapping)}
    return render_page(
        "report.html",
        title=data.title,
        headline=data.gain.sentence if data.gain else "",
        subtitle=data.subtitle,
        by_return=by_return,
        success_interval=data.success_interval,
        curves_heading=data.curves_heading,
        outcomes=[_outcome(o, _colour(i), by_return, scale) for i, o in enumerate(data.outcomes)],
        outcome_columns=("policy", *success_columns, *(("episodes",) if by_return else ()), "return"),
        ticks=[number(x) for x in np.linspace(*scale, 3)] if by_return else ["0%", "50%", "100%"],
        verdicts=data.verdicts,
        distribution=_distribution(data.outcomes, by_return),
        curves=[(picture(draw(curve), f"curve{i}"), curve.caption) for i, curve in enumerate(data.curves)],
        videos=[(_video(video), video.caption) for video in data.videos],
        walls=[wall for wall in walls if wall],
        commands=data.commands,
        settings=list(_flat({name: value for name, value in data.settings.items() if name not in groups})),
        setting_groups=[(name, list(_flat(group))) for name, group in groups.items()],
        notes=data.notes,
        footer=data.footer,
    )


def _colour(i: int) -> str:
    return list(COLOURS)[i % len(COLOURS)]


def _scale(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """The range of mean returns that the bars of all outcomes share."""
    bounds = [x for o in outcomes if o.mean_return for x in (o.mean_return.mean, o.mean_return.low, o.mean_return.high)]
    finite = [x for x in bounds if np.isfinite(x)] or [0.0]
    low, high = min(*finite, 0.0), max(*finite, 0.0)
    return (low, high) if high > low else (low, low + 1.0)


def _outcome(o: Outcome, colour: str, by_return: bool, scale: tuple[float, float]) -> dict[str, Any]:
    """Values of the card and the row of an outcome."""
    if by_return or o.success is None:
        m = o.mean_return or Estimate(np.nan, np.nan, np.nan, 0)
        value, low, high = m.mean, m.low, m.high
        shown = "–" if m.count == 0 else number(value)
        interval = f", 95% interval {number(low)} to {number(high)}" if np.isfinite(low) else ""
        what = f"mean return over {count(m.count, 'episode')}{interval}"
        cells = [(str(m.count), "")]
    else:
        s = o.success
        value, low, high = s.rate, s.low, s.high
        shown = f"{s.rate:.1%}"
        what = f"success over {count(s.episodes, 'episode')}, 95% interval {s.low:.1%} to {s.high:.1%}"
        cells = [
            (f"{s.successes} of {s.episodes}", ""),
            (shown, ""),
            (f"{s.low:.1%} to {s.high:.1%}", ""),
            _estimate(o.cycle_time_s, "{:.2f}"),
        ]

    def at(x: float) -> float:
        return (x - scale[0]) / (scale[1] - scale[0])

    band = None
    if np.isfinite([value, low, high]).all():
        band = {"left": f"{at(low):.2%}", "width": f"{at(high) - at(low):.2%}", "dot": f"{at(value):.2%}"}
    return {
        "name": o.name,
        "colour": colour,
        "value": shown,
        "what": what,
        "band": band,
        "note": o.note,
        "cells": [*cells, _estimate(o.mean_return, "{:.2f}")],
    }


def _estimate(value: Estimate | None, form: str) -> tuple[str, str]:
    if value is None or value.count == 0:
        return "–", ""
    interval = f"{form.format(value.low)} to {form.format(value.high)}" if np.isfinite(value.low) else ""
    return form.format(value.mean), interval


def _distribution(outcomes: Sequence[Outcome], by_return: bool) -> dict[str, Any] | None:
    """All episodes in one picture: when they were solved, or the returns that they reached."""
    names = [o.name for o in outcomes]
    if by_return and any(np.size(o.returns) for o in outcomes):
        figure = draw_returns(names, [o.returns for o in outcomes])
        return {"svg": picture(figure, "returns"), "caption": "Share of the episodes with at least that return."}
    if not by_return and any(np.size(o.solved_s) for o in outcomes):
        figure = draw_solved_within(
            names, [o.solved_s for o in outcomes], [o.success.episodes for o in outcomes if o.success]
        )
        caption = "Share of all episodes solved by then; where a line ends is the success rate."
        return {"svg": picture(figure, "solved"), "caption": caption}
    return None


def _video(video: Video) -> str:
    """The file in base64; empty, with a warning in the log, where it is missing."""
    path = Path(video.path)
    if not path.is_file():
        log.warning("video %s is missing: the report has a remark in its place", path)
        return ""
    return base64.b64encode(path.read_bytes()).decode("ascii")


def _wall(heading: str, parts: Mapping[str, float]) -> dict[str, Any] | None:
    """Shares of a wall time; the difference between ``"total"`` and the sum of the parts is "other"."""
    named = {name: float(seconds) for name, seconds in parts.items() if name != "total"}
    total = float(parts.get("total", sum(named.values())))
    other = total - sum(named.values())
    if other > 0.005 * total:
        named["other"] = other
    if not named or total <= 0:
        return None
    colours = ["--muted" if name == "other" else _colour(i) for i, name in enumerate(named)]
    shown = [
        {"name": name, "seconds": seconds, "share": seconds / total, "colour": colour}
        for (name, seconds), colour in zip(named.items(), colours, strict=True)
    ]
    return {"heading": heading, "total": total, "parts": shown}


def _flat(group: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names with dots and values as text."""
    for name, value in flatten(group).items():
        if value != {}:
            last = name.rsplit(".", 1)[-1]
            spoken = NONE.get(last, "automatic") if value is None else "" if value else ZERO.get(last, "")
            yield name, spoken or _value(value)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(item) for item in value)
    return str(value)
