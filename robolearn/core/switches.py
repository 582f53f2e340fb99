"""Annotations of the fields of settings: how a flag is written on a command line and shown in its help."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tyro


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
