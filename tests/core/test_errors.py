"""The one line of a `BadInput`."""

from __future__ import annotations

import pytest

from robolearn.core import BadInput


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
