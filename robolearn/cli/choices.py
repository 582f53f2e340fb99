"""Flags whose values come from a registry: their help lists what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import tyro


def _hint(names: Callable[[], Iterable[str]]) -> Callable[[str], str]:
    # Called only when help is printed: nothing is imported for it before.
    return lambda default: f"(default: {default or 'none'}; available: {', '.join(names())})"


def _contracts() -> Iterable[str]:
    from robots.stations import contract_names

    return (*contract_names(), "<path>.yaml")


def _robots() -> Iterable[str]:
    from robots import ROBOTS

    return ROBOTS


def _arms() -> Iterable[str]:
    from sim.registry import robot_names

    return robot_names()


def _qualities() -> Iterable[str]:
    from sim.experts import QUALITIES

    return QUALITIES


def _tasks() -> Iterable[str]:
    from sim.tasks import TASKS

    return TASKS


Station = Annotated[str, tyro.conf.arg(help_behavior_hint=_hint(_contracts))]
"""A robot contract, by its name or as a file."""

Robot = Annotated[str, tyro.conf.arg(help_behavior_hint=_hint(_robots))]
"""An arm."""

SimRobot = Annotated[str, tyro.conf.arg(help_behavior_hint=_hint(_arms))]
"""An arm that the embedded tasks can be done with."""

DemoQuality = Annotated[str, tyro.conf.arg(help_behavior_hint=_hint(_qualities))]
"""How well a scripted expert demonstrates."""

SimTask = Annotated[str, tyro.conf.arg(help_behavior_hint=_hint(_tasks))]
"""A task of the embedded worlds."""
