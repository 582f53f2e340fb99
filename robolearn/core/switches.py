"""How a switch that is on by default is written on a command line: ``--name`` and ``--no-name``, both in the help."""

from __future__ import annotations

import tyro


def switch(name: str) -> object:
    """The annotation of such a field; `robolearn.cli.flags` takes ``--name`` out of the words before parsing."""
    return tyro.conf.arg(aliases=[f"--{name}"], help_behavior_hint=f"(default: --{name})")
