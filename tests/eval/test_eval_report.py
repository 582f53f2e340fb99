"""A report holds what it must, loads nothing, and shows foreign text as text."""

from __future__ import annotations

import base64
import re
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from policies.networks.encoder_settings import EncoderConfig
from robolearn.core import BadInput
from robolearn.eval.comparison import Gain, compare_unpaired
from robolearn.eval.intervals import Estimate, Success
from robolearn.eval.plots import Curve, Series, draw, draw_solved_within, success_series, to_png, to_svg
from robolearn.eval.report import NONE, ZERO, _flat, render, write_report
from robolearn.eval.report_data import Outcome, ReportData
from robolearn.eval.video import Video, write_video
from robolearn.hil.settings import LearnerRun
from robolearn.rl.settings import GrpoConfig, NoiseConfig

STEPS = np.arange(10) * 5000.0
CURVE = Curve("Success", "environment steps", "success [%]", [Series("rollouts", STEPS, STEPS / 5e4)], percent=True)


class Tags(HTMLParser):
    """Collects what a browser would load, and checks that tags close in order."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "use", "path"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "poster", "srcset", "action"):
                self.loads.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def parse(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


@pytest.fixture
def data(tmp_path: Path) -> ReportData:
    write_video(tmp_path / "best.mp4", [np.full((16, 16, 3), 9 * i, np.uint8) for i in range(9)], fps=20)
    return ReportData(
        title="lift: from demonstrations to a reliable policy",
        subtitle="seed 0",
        outcomes=[
            Outcome("imitation", Success.of(244, 400), np.linspace(1, 4, 244), Estimate(2.1, 2.0, 2.2, 244)),
            Outcome("after RL", Success.of(390, 400), np.linspace(1, 3, 390), note="192k environment steps"),
        ],
        verdicts=[compare_unpaired(244, 400, 390, 400, names=("imitation", "after RL"))],
        curves=[CURVE, CURVE],
        wall_s={"collect": 6.0, "fine-tune": 30.0, "total": 40.0},
        wall_detail={"Fine-tuning": {"simulation": 24.0, "update": 6.0}},
        videos=[Video("the quickest success", tmp_path / "best.mp4"), Video("lost", tmp_path / "lost.mp4")],
        commands=["robolearn collect --task lift", "robolearn train --data data/lift && echo <done>"],
        settings={"task": "lift", "fine-tuning": {"actor_lr": 6e-4, "net": {"width": 256}}},
        notes=["The last checkpoint was judged."],
        footer="robolearn 0.1",
    )


def test_a_report_holds_what_it_must(data: ReportData, tmp_path: Path) -> None:
    path = write_report(tmp_path / "run" / "report.html", data)
    page = path.read_text(encoding="utf-8")
    for words in (
        "lift: from demonstrations to a reliable policy", "61.0%", "97.5%", "244 of 400", "2.10",
        "after RL is better: 97.5% against 61.0%, p &lt; 0.0001, over 400 and 400 episodes.",
        "Barnard test", "+36.5 percentage points", "success [%]", "environment steps", "cycle time [s]",
        "wall time [s]", "</i> other</td>", "the quickest success", "The video is missing.",
        "robolearn collect --task lift\nrobolearn train",
        "net.width", "0.0006", "The last checkpoint was judged.", "192k environment steps", "robolearn 0.1",
        "prefers-color-scheme: dark", 'name="viewport"',
    ):  # fmt: skip
        assert words in page, words
    assert "10.0%" in page and "60.0%" not in page.split("Fine-tuning</h3>")[0].split("wall time went")[1]
    assert "80.0%" in page.split("Fine-tuning</h3>")[1]  # simulation, of the fine-tuning
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_setting_that_is_chosen_by_the_program_says_so() -> None:
    """By the classes of the settings: what is listed is a setting there, and is None or 0 by default."""
    noise = {"initial": None, "sigma_max": 0.0, "sigma_min": 0.02, "within": 0.0}
    settings = {
        "minibatch": None,
        "seed": 0,
        "noise": noise,
        "encoder": {"resize": 0},
        "dual_clip": None,
        "mask": False,
    }
    assert dict(_flat(settings)) == {
        "minibatch": "automatic", "seed": "0", "noise.initial": "automatic", "noise.sigma_max": "automatic",
        "noise.sigma_min": "0.02", "noise.within": "any", "encoder.resize": "as they are", "dual_clip": "none",
        "mask": "False",
    }  # fmt: skip
    kinds = (NoiseConfig, EncoderConfig, GrpoConfig, LearnerRun)
    defaults = {field.name: field.default for kind in kinds for field in fields(kind)}
    assert {defaults[name] for name in NONE} == {None} and {defaults[name] for name in ZERO} == {0}


def test_a_report_loads_nothing(data: ReportData) -> None:
    page = render(data)
    tags = parse(page)
    assert tags.loads and all(load.startswith(("data:", "#")) for load in tags.loads)
    assert "http:" not in page and "https:" not in page and "@import" not in page
    assert not {"link", "iframe", "object", "embed", "base"} & set(tags.seen)
    assert not re.search(r"url\((?!#)", page)
    assert len(tags.ids) == len(set(tags.ids)), "ids of the pictures collide"
    assert "default-src 'none'" in page

    (video,) = re.findall(r'src="data:video/mp4;base64,([^"]+)"', page)
    assert base64.b64decode(video) == Path(data.videos[0].path).read_bytes()


def test_foreign_text_stays_text() -> None:
    evil = "<script>alert('x')</script>\"&$\\frac"
    verdict = compare_unpaired(1, 9, 8, 9, names=(evil, evil))
    data = ReportData(
        evil, evil, [Outcome(evil, Success.of(1, 2), [1.0], note=evil)], Gain(verdict, verdict, verdict), [verdict],
        [Curve(evil, evil, evil, [Series(evil, [1], [1]), Series(evil, [1, 2], [1, 2])], caption=evil)],
        {evil: 1.0}, {evil: {evil: 1.0}}, [Video(evil, Path("none.mp4"))], [evil],
        {evil: evil, evil + "g": {evil: evil}}, [evil], evil,
    )  # fmt: skip
    page = render(data)
    tags = parse(page)
    assert tags.seen.count("script") == 1
    assert "<script>alert" not in page and page.count("&lt;script&gt;alert(") > 15


def test_an_empty_report_is_still_a_page() -> None:
    page = render(ReportData("nothing yet"))
    assert parse(page).seen.count("section") == 0
    half = render(ReportData("one", outcomes=[Outcome("a", Success.of(0, 5))], wall_s={"total": 0.0}))
    assert "0.0%" in half and "wall time" not in half


def test_success_series_has_gaps_and_bands() -> None:
    series = success_series("rollouts", [0, 1, 2], [5, 0, 9], [10, 0, 10])
    y, low, high = (np.asarray(v, float) for v in (series.y, series.low, series.high))
    assert y[0] == 0.5 and np.isnan(y[1]) and y[2] == 0.9
    assert low[2] < 0.9 < high[2] and np.isnan(low[1])
    draw(Curve("t", "x [s]", "y [%]", [series], percent=True))
    draw(Curve("nothing", "x [s]", "y [1]", []))
    with pytest.raises(BadInput, match="got 1, expected 2 values"):
        draw(Curve("t", "x", "y", [Series("s", [1, 2], [1])]))


def test_pictures_have_axes_with_units_and_follow_the_page() -> None:
    figure = draw_solved_within(["imitation", "after RL"], [[1.0, 2.0], []], [4, 4])
    assert figure.axes[0].get_xlabel() == "cycle time [s]" and figure.axes[0].get_ylabel() == "episodes solved [%]"
    lines = figure.axes[0].get_lines()
    assert np.asarray(lines[0].get_ydata())[-1] == 0.5 and np.asarray(lines[1].get_ydata())[-1] == 0
    svg = to_svg(figure, "p1")
    ElementTree.fromstring(svg)
    assert "cycle time [s]" in svg and "var(--c1)" in svg and "var(--ink)" in svg and "#1f6f9f" not in svg
    assert svg == to_svg(figure, "p1")
    assert to_png(figure).startswith(b"\x89PNG")


def test_names_are_shown_as_they_are_given() -> None:
    """matplotlib reads $ as mathematics, and leaves what begins with _ out of a legend."""
    names = ("a$b_{$", "_old", r"c\$")
    picture = to_svg(draw_solved_within(names, [[1.0]] * 3, [2] * 3), "n")
    assert all(name in picture for name in names)
    series = [Series(name, STEPS, STEPS / 5e4) for name in names]
    assert "_old" in to_svg(draw(Curve("t", "x", "y", series)), "m")
