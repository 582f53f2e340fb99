"""The fields of settings as flags: how one is written on a command line, shown in its help, and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, get_args

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


def check_choice(what: str, value: str, choices: Any) -> None:
    """Raise `BadInput` unless `value` is one of a ``Literal``."""
    if value not in get_args(choices):
        raise BadInput(what, got=value, available=get_args(choices))


def check_least(config: object, least: int, *names: str) -> None:
    """Raise `BadInput` for the first field of `names` that is below `least`; None is no number."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < least:
            raise BadInput(_flag(name), got=value, expected=f"at least {least}")


def check_range(config: object, **ranges: tuple[float, float]) -> None:
    """Raise `BadInput` for the first field that is not finite or lies outside its closed range."""
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        if not (low <= value <= high and math.isfinite(value)):
            expected = f"{low:g} to {high:g}" if high < 2 else f"{low:g} or more"
            raise BadInput(_flag(name), got=value, expected=expected)


def check_positive(config: object, *names: str) -> None:
    """Raise `BadInput` for the first field that is not a positive finite number."""
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise BadInput(_flag(name), got=getattr(config, name), expected="a positive number")


def _flag(name: str) -> str:
    return "--worlds" if name == "num_envs" else f"--{name.replace('_', '-')}"
