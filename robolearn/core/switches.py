"""The fields of settings as flags: how one is written on a command line, shown in its help, and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from typing import Annotated

import tyro

from robolearn.core.errors import BadInput


def switch(name: str) -> object:
    """The annotation of a switch that is on by default: ``--name`` and ``--no-name``, both in the help.

    `robolearn.cli.flags` takes ``--name`` out of the words before parsing.
    """
    return tyro.conf.arg(aliases=[f"--{name}"], help_behavior_hint=f"(default: --{name})")


def available(names: Callable[[], Iterable[str]]) -> object:
    """The annotation of a flag whose value is one of `names`, which are called for only when help is printed."""
    return tyro.conf.arg(
        help_behavior_hint=lambda default: f"(default: {default or 'none'}; available: {', '.join(names())})"
    )


@dataclass(frozen=True)
class Within:
    """A range in the annotation of a number's field, which `check_ranges` holds it to.

    Attributes:
      open: its ends do not belong to it.
    """

    low: float
    high: float = math.inf
    open: bool = False

    def __contains__(self, value: float) -> bool:
        inside = self.low < value < self.high if self.open else self.low <= value <= self.high
        return inside and math.isfinite(value)

    def __str__(self) -> str:
        low, high = f"{self.low:,.10g}", f"{self.high:,.10g}"
        if self.high < math.inf:
            return f"between {low} and {high}" if self.open else f"{low} to {high}"
        if self.open:
            return f"more than {low}" if self.low else "a positive number"
        return f"at least {low}" if self.low else "0 or more"


Count = Annotated[int, Within(1)]
Share = Annotated[float, Within(0.0, 1.0)]
Inside = Annotated[float, Within(0.0, 1.0, open=True)]
Positive = Annotated[float, Within(0.0, open=True)]
NotNegative = Annotated[float, Within(0.0)]
SEEDS = Within(0, 2**32 - 1)  # multiplied and added to before they are used, and must stay below 2⁶³
Seed = Annotated[int, SEEDS]


def check_ranges(config: object) -> None:
    """Raise `BadInput` for the first field that is outside of a range of its annotations, of those in the bases of its
    class too; None is no number."""
    for name, within in _ranges(type(config)):
        value = getattr(config, name)
        if value is not None and value not in within:
            raise BadInput(_flag(name), got=value, expected=str(within))


@cache
def _ranges(kind: type) -> list[tuple[str, Within]]:
    """Field and range of each annotation that has one."""
    return [
        (name, note)
        for each in reversed(kind.__mro__)
        for name, hint in get_annotations(each, eval_str=True).items()
        for note in getattr(hint, "__metadata__", ())
        if isinstance(note, Within)
    ]


def _flag(name: str) -> str:
    return "--worlds" if name == "num_envs" else f"--{name.replace('_', '-')}"
