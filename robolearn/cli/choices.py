"""Flags that several commands have: their help, and the values that a registry has for them, listed there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.core.switches import available

if TYPE_CHECKING:
    from sim.registry import WorldConfig


def _of(module: str, names: Callable[[Any], Iterable[str]]) -> object:
    """The annotation of a flag whose values `names` takes from `module`, which is imported when help is printed."""
    return available(lambda: names(import_module(module)))


def rewarded(world: WorldConfig) -> tuple[WorldConfig, str]:
    """(the worlds with a reward of their own; the reward model, or nothing) of the flag ``--reward`` of `world`. Raises
    as `robolearn.rewards.choice.world_and_model` does."""
    from robolearn.rewards.choice import world_and_model

    own, model = world_and_model(world.reward)
    return replace(world, reward=own), model


def task_of(world: WorldConfig) -> str:
    """The task in words of `world`, of which one is built for that; empty where it says none."""
    with closing(replace(world, cameras=(), threads=1).build(1)) as env:
        return env.prompt


def _algorithms(kind: str) -> object:
    return _of("robolearn.rl.algorithms", lambda m: m.algorithms(getattr(m, kind)))


Domain = Annotated[int | None, tyro.conf.arg(help="ROS domain; by default ROS_DOMAIN_ID, or 0.")]
"""A ROS domain."""

Device = Annotated[str, tyro.conf.arg(help="Device of the networks: auto, cpu, cuda or cuda:<i>.")]
"""A device of torch."""

_TRACKER = "Tracker of the metrics besides the run folder (metrics.jsonl, TensorBoard), where it is installed."
Tracker = Annotated[Literal["none", "wandb", "trackio", "mlflow"], tyro.conf.arg(help=_TRACKER)]
"""A tracker of the metrics of a training."""

Teleop = Annotated[str, _of("hardware.teleop", lambda m: (k for k, v in m.TELEOPERATORS.items() if v.has_flags))]
"""A teleoperator: a device that a person holds, or the script."""

PersonTeleop = Annotated[str, _of("hardware.teleop", lambda m: m.people())]
"""A device that a person holds."""

_FORMATS = "robolearn.data.convert.formats"

ImportFormat = Annotated[str, _of(_FORMATS, lambda m: ("auto", *(f.title for f in m.FORMATS.values() if f.read)))]
"""A format of demonstrations that is read."""

ExportFormat = Annotated[str, _of(_FORMATS, lambda m: (f.title for f in m.FORMATS.values() if f.write))]
"""A format of demonstrations that is written."""

Station = Annotated[str, _of("robots.stations", lambda m: (*m.contract_names(), "<path>.yaml", "<folder>"))]
"""A robot contract, by its name, as a file or as the folder of a station."""

AnyStation = Annotated[
    str, _of("robots.stations", lambda m: (*m.contract_names(), "<path>.yaml", "<folder>", *m.pair_names()))
]
"""The same, of one arm or of two."""

Robot = Annotated[str, _of("robots", lambda m: m.ROBOTS)]
"""An arm."""

SimRobot = Annotated[str, _of("sim.registry", lambda m: m.robot_names())]
"""An arm that the embedded tasks can be done with."""

DemoQuality = Annotated[str, _of("sim.experts", lambda m: m.QUALITIES)]
"""Quality of a scripted expert's demonstrations."""

SimTask = Annotated[str, _of("sim.tasks", lambda m: m.TASKS)]
"""A task of the embedded worlds."""

Dynamics = Annotated[str, _of("robots.dynamics", lambda m: m.dynamics_names())]
Cousins = Annotated[str, _of("sim.embedded.cousins", lambda m: m.cousin_names())]
"""Dynamics of a simulated arm: a level, or a file."""

PolicyKind = Annotated[str, _of("policies.settings", lambda m: m.POLICIES)]
"""A kind of policy that imitation trains."""

DenoisingKind = Annotated[str, _of("policies.settings", lambda m: m.denoising_kinds())]
"""A kind of policy that RL fine-tunes."""

OnPolicyAlgorithm = Annotated[str, _algorithms("OnPolicyConfig")]
"""An algorithm that learns from its own last rollout."""

OffPolicyAlgorithm = Annotated[str, _algorithms("OffPolicyConfig")]
"""An algorithm that learns from replayed windows."""

AnyAlgorithm = Annotated[str, _of("robolearn.rl.algorithms", lambda m: m.ALGORITHMS)]
"""An algorithm that fine-tunes a policy."""
