"""Figures that `make figures` measures stand on their pages, once each, with a command that the program understands."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from robolearn.cli.main import parse
from robolearn.cli.registry import find

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))
from figures import Figure, affordable, figures

FIGURES = figures()


@pytest.mark.long
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_stands_on_its_page_and_its_command_parses(figure: Figure) -> None:
    figure.stated()
    entry, rest = find(shlex.split(figure.command.format(out="out"))[1:])
    parse(entry, rest)


def test_what_is_measured_by_default_takes_twenty_minutes() -> None:
    chosen = affordable(FIGURES)
    assert (
        0
        < sum(dict((figure.command, figure.minutes) for figure in chosen).values())
        <= 20
        < sum(dict((figure.command, figure.minutes) for figure in FIGURES).values())
    )


def test_a_figure_is_off_on_the_side_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "stated", lambda self: 100.0)
    both = Figure("", "", "", "", {}, {"points": 2.0}, 1)
    assert [both.is_off(x) for x in (97.9, 98.0, 102.0, 102.1)] == [True, False, False, True]
    speed = Figure("", "", "", "", {}, {"share": 0.2, "only": "lower"}, 1)
    assert [speed.is_off(x) for x in (79.0, 81.0, 500.0)] == [True, False, False]
    cost = Figure("", "", "", "", {}, {"share": 0.2, "only": "higher"}, 1)
    assert [cost.is_off(x) for x in (1.0, 119.0, 121.0)] == [False, False, True]


def test_a_figure_is_found_in_the_result() -> None:
    figure = Figure("", "", "", "", {"path": "settings.1.rl.rate", "times": 100}, {}, 1)
    assert figure.of({"settings": [{}, {"rl": {"rate": 0.985}}]}) == pytest.approx(98.5)
