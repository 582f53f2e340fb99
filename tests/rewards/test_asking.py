"""A reward model that a training asks: once for the same steps, over resumptions, and not for ever in vain."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import RewardWithheld, RobolearnError, Score, Window
from robolearn.rewards.asking import IN_A_ROW, LoggedScores, WithheldCount


class Counted:
    """Progress is x; of x below 0 there is none. Keeps what it was asked for, and in how many calls."""

    reads = ("x",)

    def __init__(self) -> None:
        self.asked: list[tuple[float, str]] = []
        self.calls = 0

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        self.calls += 1
        firsts = [float(window.observation["x"][0]) for window in windows]
        if min(firsts, default=0.0) < 0:
            raise RewardWithheld("the server is away")
        self.asked += zip(firsts, prompts, strict=True)
        x = [window.observation["x"][1:].astype(np.float32) for window in windows]
        return [Score(one, 2 * one, one > 3, np.full(len(one), 0.75, np.float32)) for one in x]


def window(first: float, action: float = 0.0) -> Window:
    return Window({"x": np.array([first, 2.5, 3.5])}, np.full((2, 1), action, np.float32))


def test_the_same_steps_are_scored_once_over_resumptions(tmp_path: Path) -> None:
    def begin(name: str = "m") -> tuple[Counted, LoggedScores]:
        model = Counted()
        return model, LoggedScores(model, name, tmp_path / "log")

    model, kept = begin()
    assert kept.reads == ("x",) and not (tmp_path / "log").exists(), "nothing is written before there is a score"
    whole = kept.score([window(1), window(2)], ["go", "go"])
    assert [vars(score).keys() for score in kept.score([window(2)], ["go"])] and model.calls == 1
    kept.close()
    again, kept = begin()
    found = kept.score([window(2), window(1), window(1), window(1, action=1.0)], ["go", "go", "stop", "go"])
    assert again.asked == [(1.0, "stop"), (1.0, "go")], "other words and other actions are something else"
    for one, other in zip((found[1], found[0]), whole, strict=True):
        for name, value in vars(one).items():
            np.testing.assert_array_equal(value, getattr(other, name))
    kept.close()
    another, kept = begin("another")
    kept.score([window(1)], ["go"])
    assert another.asked == [(1.0, "go")]
    kept.close()


def test_what_is_withheld_is_asked_for_again(tmp_path: Path) -> None:
    model = Counted()
    kept = LoggedScores(model, "m", tmp_path)
    for calls in (1, 2):
        with pytest.raises(RewardWithheld):
            kept.score([window(-1)], [""])
        assert model.calls == calls
    kept.close()


def test_of_several_windows_only_those_without_a_score_are_withheld(caplog: pytest.LogCaptureFixture) -> None:
    count = WithheldCount()
    with caplog.at_level(logging.WARNING, "robolearn"):
        found = count.scores(Counted(), [window(1), window(-1), window(-2), window(3)], [""] * 4)
    assert [score is None for score in found] == [False, True, True, False] and count.in_a_row == 0
    assert len(caplog.messages) == 1 and "the server is away" in caplog.messages[0]


def test_many_in_a_row_end_the_training_with_the_reason() -> None:
    count, model = WithheldCount(), Counted()
    for place in range(2 * IN_A_ROW - 2):
        count.scores(model, [window(1 if place == IN_A_ROW - 1 else -1)], [""])
    with pytest.raises(
        RobolearnError, match=rf"{IN_A_ROW} episodes in a row are withheld: the server is away"
    ) as error:
        for _ in range(2):
            count.scores(model, [window(-1)], [""])
    assert error.value.exit_code == 1 and "\n" not in str(error.value)
