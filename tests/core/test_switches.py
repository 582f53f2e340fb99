"""Ranges in the annotations of settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import pytest

from robolearn.core import BadInput
from robolearn.core.switches import Count, Inside, NotNegative, Positive, Share, Within, check_ranges


@dataclass(frozen=True)
class Settings:
    num_envs: Count = 1
    batch: Annotated[int | None, Within(2)] = None
    share: Share = 1.0
    expectile: Inside = 0.5
    lr: Positive = 1e-3
    penalty: NotNegative = 0.0
    tempo: Annotated[Positive, Within(0.0, 4.0)] = 4.0
    note: str = ""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Narrower(Settings):
    share: float = 0.5  # the range of the base holds all the same
    penalty: Annotated[float, Within(3.0)] = 3.0


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_envs", 0, "--worlds: got 0, expected at least 1"),
        ("batch", 1, "--batch: got 1, expected at least 2"),
        ("share", 1.5, "--share: got 1.5, expected 0 to 1"),
        ("share", math.nan, "--share: got nan, expected 0 to 1"),
        ("expectile", 1.0, "--expectile: got 1.0, expected between 0 and 1"),
        ("lr", 0.0, "--lr: got 0.0, expected a positive number"),
        ("lr", math.inf, "--lr: got inf, expected a positive number"),
        ("penalty", -1.0, "--penalty: got -1.0, expected 0 or more"),
        ("tempo", 5.0, "--tempo: got 5.0, expected 0 to 4"),
        ("tempo", 0.0, "--tempo: got 0.0, expected a positive number"),
    ],
)
def test_a_field_outside_of_a_range_is_refused(name: str, value: float, expected: str) -> None:
    for kind in (Settings, Narrower):
        with pytest.raises(BadInput) as error:
            kind(**{name: value})  # type: ignore[arg-type]
        assert str(error.value) == expected


def test_the_ends_of_a_closed_range_belong_to_it_and_none_is_no_number() -> None:
    Settings(batch=2, share=0.0, penalty=0.0, tempo=4.0)
    Settings(batch=None)


def test_a_subclass_may_narrow_a_range() -> None:
    with pytest.raises(BadInput, match=r"--penalty: got 2\.0, expected at least 3"):
        Narrower(penalty=2.0)
