"""The error types of robolearn: every one says what it got, what it expected and what is available."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

Entry = TypeVar("Entry")


def nearest(word: str, names: Iterable[str], cutoff: float = 0.5, path: str = "") -> str:
    """`` (did you mean NAME?)`` for the one of `names` that `word` is most like, ``path`` before it; empty for none.
    Letters in another order come first."""
    import difflib  # late: most runs have no error

    names = list(names)
    turned = [name for name in names if sorted(name) == sorted(word)]
    near = turned or difflib.get_close_matches(word, names, n=1, cutoff=cutoff)
    return f" (did you mean {path}{near[0]}?)" if near else ""


class RobolearnError(Exception):
    """Something went wrong while the program worked. The command ends with exit code 1."""

    exit_code = 1


class BadInput(RobolearnError):
    """The user asked for something that cannot be done. The command ends with exit code 2.

    Args:
      what: the thing at fault, e.g. ``"task"`` or ``"dataset data/lift"``.
      got: what was found; ``"nothing"`` reads *missing*.
      expected: what was needed.
      available: valid names, listed with the nearest one to `got` first.
      hint: what to do about it.
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        got: object = None,
        expected: object = None,
        available: Iterable[object] = (),
        hint: str = "",
    ) -> None:
        self.hint = hint
        names = [str(name) for name in available]
        missing = str(got) == "nothing"
        parts = [] if got is None else ["missing" if missing else f"got {got}"]
        if expected is not None:
            parts.append(f"expected {expected}")
        line = what + (": " + ("; " if missing else ", ").join(parts) if parts else "")
        if names:
            line += f"; available: {', '.join(names)}{'' if missing else nearest(str(got), names)}"
        super().__init__(line + (f". {hint}" if hint else ""))


def check_choice(what: str, value: object, choices: Any) -> None:
    """Raise `BadInput` unless `value` is one of `choices`: names, or those of a ``Literal``."""
    names = get_args(choices) or choices
    if value not in names:
        raise BadInput(what, got=value, available=names)


def look_up(what: str, name: object, table: Mapping[Any, Entry]) -> Entry:
    """The entry `name` of `table`; raises `BadInput` where it has none."""
    check_choice(what, name, table)
    return table[name]


class NonFinite(RobolearnError):
    """A number that must be finite is NaN or infinite."""


class RewardWithheld(RobolearnError):
    """A reward model, or its server, gave no score that can be used; the message says why.

    None of the windows of that call has a score: nothing stands in its place, a zero least of all. Another call may
    succeed.
    """


def first_line(error: BaseException) -> str:
    """The first line of what a library says of its error, or the error's type; without number and path where the
    machine's own words are there."""
    text = getattr(error, "strerror", None) or str(error)
    return next(iter(str(text).strip().splitlines()), type(error).__name__)
