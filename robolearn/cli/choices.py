"""Flags whose values come from a registry: their help lists what is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from robolearn.core.switches import available


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


def _policy_kinds() -> Iterable[str]:
    from policies.settings import POLICIES

    return POLICIES


def _denoising_kinds() -> Iterable[str]:
    from policies.settings import denoising_kinds

    return denoising_kinds()


def _on_policy() -> Iterable[str]:
    from robolearn.rl.algorithms import OnPolicyConfig, algorithms

    return algorithms(OnPolicyConfig)


def _off_policy() -> Iterable[str]:
    from robolearn.rl.algorithms import OffPolicyConfig, algorithms

    return algorithms(OffPolicyConfig)


def _people() -> Iterable[str]:
    from hardware.teleop import people

    return people()


def _teleoperators() -> Iterable[str]:
    from hardware.teleop import TELEOPERATORS

    return (name for name, config in TELEOPERATORS.items() if config.has_flags)


Teleop = Annotated[str, available(_teleoperators)]
"""A teleoperator: a device that a person holds, or the script."""

PersonTeleop = Annotated[str, available(_people)]
"""A device that a person holds."""


def _read_formats() -> Iterable[str]:
    from robolearn.data.convert.formats import FORMATS

    return ("auto", *(form.title for form in FORMATS.values() if form.read))


def _written_formats() -> Iterable[str]:
    from robolearn.data.convert.formats import FORMATS

    return (form.title for form in FORMATS.values() if form.write)


ImportFormat = Annotated[str, available(_read_formats)]
"""A format of demonstrations that is read."""

ExportFormat = Annotated[str, available(_written_formats)]
"""A format of demonstrations that is written."""

Station = Annotated[str, available(_contracts)]
"""A robot contract, by its name or as a file."""

Robot = Annotated[str, available(_robots)]
"""An arm."""

SimRobot = Annotated[str, available(_arms)]
"""An arm that the embedded tasks can be done with."""

DemoQuality = Annotated[str, available(_qualities)]
"""Quality of a scripted expert's demonstrations."""

SimTask = Annotated[str, available(_tasks)]
"""A task of the embedded worlds."""

PolicyKind = Annotated[str, available(_policy_kinds)]
"""A kind of policy that imitation trains."""

DenoisingKind = Annotated[str, available(_denoising_kinds)]
"""A kind of policy that RL fine-tunes."""

OnPolicyAlgorithm = Annotated[str, available(_on_policy)]
"""An algorithm that learns from its own last rollout."""

OffPolicyAlgorithm = Annotated[str, available(_off_policy)]
"""An algorithm that learns from replayed windows."""
