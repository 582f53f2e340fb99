"""Pictures for reports: curves with bands, drawn without a display and without matplotlib's global state.

A figure is drawn in the light palette. `to_svg` turns it into a fragment for an HTML page whose colours are the
page's CSS variables, so that it follows a dark page; `to_png` keeps the light palette.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from robolearn.core import BadInput
from robolearn.eval.intervals import wilson

COLOURS = {
    "--c1": "#b4611f",
    "--c2": "#1f6f9f",
    "--c3": "#4b7f3c",
    "--c4": "#7d5ba6",
    "--c5": "#9c4456",
    "--c6": "#2b8580",
    "--c7": "#94801a",
}
"""CSS variable → light colour of the series, in order; chosen to differ for colour-blind eyes, too."""

INK, MUTED, GRID = "#22262b", "#646b74", "#dcdfe3"
_VARIABLES = {**{colour: name for name, colour in COLOURS.items()}, INK: "--ink", MUTED: "--muted", GRID: "--line"}
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.titlesize": 10,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "grid.color": GRID,
    "svg.fonttype": "none",  # text stays text: small, selectable, in the font of the page
}


@dataclass(frozen=True)
class Series:
    """One line of a curve.

    Attributes:
      name: for the legend.
      x: (n,) positions.
      y: (n,) values; gaps where they are not finite.
      low: (n,) lower edge of the band, or None.
      high: (n,) upper edge of the band, or None.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None


@dataclass(frozen=True)
class Curve:
    """One picture.

    Attributes:
      title: what is shown.
      x_label: with its unit, e.g. ``"wall time [s]"``.
      y_label: with its unit, e.g. ``"success [%]"``.
      series: the lines.
      percent: y is a share in [0, 1], shown as 0 to 100%.
      caption: a remark below the picture.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    percent: bool = False
    caption: str = ""


def success_series(name: str, x: ArrayLike, successes: ArrayLike, episodes: ArrayLike) -> Series:
    """Success rate with its 95% Wilson band, from counts (n,) per point; a gap where no episode ended."""
    k, n = np.asarray(successes, dtype=np.int64), np.asarray(episodes, dtype=np.int64)
    bounds = [wilson(int(a), int(b)) if b else (np.nan, np.nan) for a, b in zip(k, n, strict=True)]
    low, high = np.array(bounds, dtype=np.float64).reshape(-1, 2).T
    rate = np.divide(k, n, out=np.full(len(n), np.nan), where=n > 0)
    return Series(name, x, rate, low, high)


def mean_series(name: str, x: ArrayLike, means: ArrayLike, deviations: ArrayLike, episodes: ArrayLike) -> Series:
    """Means, e.g. of returns, with their 95% band; a gap where no episode ended.

    Args:
      name: for the legend.
      x: (n,) positions.
      means: (n,) mean over the episodes of a point; anything where there were none.
      deviations: (n,) their standard deviation, divided by the number of episodes less one.
      episodes: (n,) how many there were; a point of one episode has no band.
    """
    count = np.asarray(episodes, dtype=np.float64)
    mean, deviation = (np.array(values, dtype=np.float64) for values in (means, deviations))
    mean[count < 1] = np.nan
    # Student's interval: mean ± t₀.₉₇₅(n − 1) · s / √n
    several = count > 1
    half = np.full(len(count), np.nan)
    half[several] = stdtrit(count[several] - 1, 0.975) * deviation[several] / np.sqrt(count[several])
    return Series(name, x, mean, mean - half, mean + half)


def draw(curve: Curve) -> Figure:
    """The picture of `curve`. Raises `BadInput`: x, y or the band differ in length."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(curve.title, curve.x_label, curve.y_label, percent=curve.percent, lines=len(curve.series))
        largest = 0.0
        for series, colour in zip(curve.series, _cycle(len(curve.series)), strict=True):
            x, y = _column(series, "x"), _column(series, "y")
            if len(x) != len(y):
                raise BadInput(
                    f"curve {curve.title!r}, series {series.name!r}", got=len(y), expected=f"{len(x)} values"
                )
            if series.low is not None and series.high is not None:
                low, high = _column(series, "low"), _column(series, "high")
                if len(low) != len(x) or len(high) != len(x):
                    raise BadInput(f"curve {curve.title!r}, band of {series.name!r}", got=len(low), expected=len(x))
                axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
            few: dict[str, Any] = {"marker": "o", "markersize": 3.5} if len(x) <= 30 else {}
            axes.plot(x, y, color=colour, linewidth=1.7, label=_label(series.name), solid_capstyle="round", **few)
            largest = max(largest, float(np.nanmax(np.abs(x), initial=0.0)))
        if largest >= 10_000:
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        legend(axes, len(curve.series))
    return figure


def draw_solved_within(names: Sequence[str], solved_s: Sequence[ArrayLike], episodes: Sequence[int]) -> Figure:
    """Share of all episodes solved within t seconds, one line per outcome: success and speed in one picture.

    Args:
      names: of the outcomes.
      solved_s: per outcome, the cycle times of its successes [s].
      episodes: per outcome, how many episodes there were, failures included.
    """
    times = [np.sort(np.asarray(values, dtype=np.float64)) for values in solved_s]
    end = max((float(t[-1]) for t in times if len(t)), default=1.0) * 1.05
    steps = [
        (np.r_[0.0, t, end], np.r_[0.0, np.arange(1, len(t) + 1), len(t)] / n)
        for t, n in zip(times, episodes, strict=True)
    ]
    labels = ("Solved within a given time", "cycle time [s]", "episodes solved [%]")
    return _draw_steps(labels, names, steps, "post", (0, end))


def draw_returns(names: Sequence[str], returns: Sequence[ArrayLike]) -> Figure:
    """Share of the episodes that reach a return or more, one line per outcome: where one lies higher, it is better.

    Args:
      names: of the outcomes.
      returns: per outcome, the returns of its episodes (n,).
    """
    values = [np.sort(np.asarray(each, dtype=np.float64)) for each in returns]
    low = min((float(v[0]) for v in values if len(v)), default=0.0)
    high = max((float(v[-1]) for v in values if len(v)), default=1.0)
    margin = 0.05 * (high - low) or 0.5
    low, high = low - margin, high + margin
    steps = [
        (np.r_[low, v, high], np.r_[1.0, np.arange(len(v), 0, -1) / len(v), 0.0]) if len(v) else () for v in values
    ]
    labels = ("Reached return", "return [reward]", "episodes that reach it [%]")
    return _draw_steps(labels, names, steps, "pre", (low, high))


def _draw_steps(
    labels: tuple[str, str, str], names: Sequence[str], steps: Sequence[tuple[Any, ...]], where: Any, limits: Any
) -> Figure:
    """A staircase for each outcome; `labels` are those of the picture and its axes."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(*labels, percent=True, lines=len(names))
        for name, step, colour in zip(names, steps, _cycle(len(names)), strict=True):
            if step:
                axes.step(*step, where=where, color=colour, linewidth=1.7, label=_label(name))
        axes.set_xlim(*limits)
        legend(axes, len(names))
    return figure


def to_svg(figure: Figure, prefix: str) -> str:
    """`figure` as an SVG element for inline use, in the CSS variables of the page.

    `prefix` keeps the ids of several pictures on one page apart.
    """
    buffer = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": prefix}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\s(xmlns(:\w+)?|width|height|version)="[^"]*"', "", svg[: svg.index(">")]) + svg[svg.index(">") :]
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    svg = re.sub(r'xlink:href="#', f'href="#{prefix}-', svg)
    for colour, name in _VARIABLES.items():
        svg = svg.replace(colour, f"var({name})")
    return svg.replace("<svg ", '<svg role="img" ', 1)


def to_png(figure: Figure, *, dpi: int = 180) -> bytes:
    """`figure` as a PNG on white."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white")
    return buffer.getvalue()


def canvas(
    title: str,
    x_label: str,
    y_label: str,
    *,
    percent: bool = False,
    lines: int = 1,
    size: tuple[float, float] = (5.0, 3.1),
) -> tuple[Figure, Axes]:
    """An empty picture in the style of the others; to be used within ``rc_context(STYLE)``."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(_plain(title), loc="left", pad=18 if lines > 1 else 8)  # the legend stands between title and axes
    axes.set_xlabel(_plain(x_label))
    axes.set_ylabel(_plain(y_label))
    axes.grid(axis="y", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, pad=5)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if percent:
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=""))
    return figure, axes


def legend(axes: Axes, count: int) -> None:
    """A legend above the axes, for more than one line."""
    if count > 1:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.01, 0.98), ncols=count, frameon=False, borderpad=0.2,
            handlelength=1.2, handletextpad=0.5, columnspacing=1.4, fontsize=8.5,
        )  # fmt: skip


def _cycle(count: int) -> list[str]:
    colours = list(COLOURS.values())
    return [colours[i % len(colours)] for i in range(count)]


def _column(series: Series, name: str) -> NDArray[np.float64]:
    return np.asarray(getattr(series, name), dtype=np.float64).ravel()


def _label(name: str) -> str:
    """A name for the legend; matplotlib leaves out what begins with an underscore."""
    return _plain("\u200b" + name if name.startswith("_") else name)


def _plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
