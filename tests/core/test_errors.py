"""The one line of a `BadInput`."""

from __future__ import annotations

from typing import Literal

import pytest

from robolearn.core import BadInput, check_choice, look_up


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"got": "sac", "expected": "ppo"}, "--algo: got sac, expected ppo"),
        ({"got": "ppi", "available": ("sac", "ppo")}, "--algo: got ppi; available: sac, ppo (did you mean ppo?)"),
        ({"got": "nothing", "expected": "a name"}, "--algo: missing; expected a name"),
        ({"got": "nothing", "available": ("one", "sac")}, "--algo: missing; available: one, sac"),
        ({"got": "nothing", "available": ("one",), "hint": "Say it"}, "--algo: missing; available: one. Say it"),
        ({"got": "none", "expected": "panda"}, "--algo: got none, expected panda"),  # a value that is called so
        ({"expected": "a name"}, "--algo: expected a name"),
        ({}, "--algo"),
    ],
)
def test_what_is_missing_is_said_so(words: dict[str, object], line: str) -> None:
    assert str(BadInput("--algo", **words)) == line  # type: ignore[arg-type]


def test_a_name_is_looked_up_or_refused_with_those_there_are() -> None:
    assert look_up("world", "lift", {"lift": 1, "push": 2}) == 1
    check_choice("--kind", "a", Literal["a", "b"])
    for choices in (("lift", "push"), {"lift": 1, "push": 2}, Literal["lift", "push"]):
        with pytest.raises(BadInput) as error:
            check_choice("world", "lfit", choices)
        assert str(error.value) == "world: got lfit; available: lift, push (did you mean lift?)"
    with pytest.raises(BadInput, match="world: got none; available: lift"):
        look_up("world", "none", {"lift": 1})
