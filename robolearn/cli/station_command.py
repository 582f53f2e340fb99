"""Flags of the commands that start the nodes of a station, and those that the configs of the teleoperators make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import tyro

from hardware.node_parameters import parameter_names
from hardware.teleop import TELEOPERATORS, teleop_flags
from robolearn.cli.choices import Dynamics, Station
from robolearn.core import BadInput
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from robots.stations import AnyContract


@dataclass(frozen=True, kw_only=True)
class StationCommand(Command):
    """A command that starts the nodes of a station."""

    realtime_priority: int = 10
    """Of the nodes (SCHED_FIFO, 1 to 99), where this machine permits it; 0: none."""
    enclaves: bool = False
    """Every node in its enclave of `robolearn permissions` (SROS2); needs ROS_SECURITY_KEYSTORE and its keys."""
    logs: Path | None = None
    """Folder for the logs of the nodes; by default a temporary one, kept when something fails."""
    domain: int | None = None
    """ROS domain; by default ROS_DOMAIN_ID, and on the simulated arm one that is likely to be free."""


@dataclass(frozen=True, kw_only=True)
class MovingCommand(StationCommand):
    """A command that moves the arm of a station: a real one, the simulated one, or in a rehearsal an emulated one."""

    robot: Station = "sim"
    """The robot contract, by name or as a file of your own."""
    dynamics: Dynamics = "none"
    """Dynamics of the simulated arm, and in a rehearsal: a level, or a file such as robolearn identify writes."""
    rehearse: bool = False
    """On a simulated arm behind an emulator of the station's driver: its topics, stamps and habits."""
    yes: bool = False
    """On a real arm: do not ask before it moves."""

    @contextmanager
    def rehearsed(self) -> Iterator[Self]:
        """This command for the station of its rehearsal, which ends with the block."""
        from robolearn.bench.emulators.rehearsal import rehearsal

        with rehearsal(self.robot) as robot:
            yield replace(self, robot=robot, rehearse=False)

    def check_simulated_only(self, contract: AnyContract, **flags: tuple[Any, Any]) -> None:
        """Raise `BadInput` where --dynamics or another of the `flags`, (its value, that of none), is given for a real
        arm, which has its own."""
        for flag, (value, idle) in {**flags, "dynamics": (self.dynamics, "none")}.items():
            if not contract.simulated and value != idle:
                expected = f"{idle}, or --rehearse"
                raise BadInput(
                    f"--{flag.replace('_', '-')} on {contract.name}, a real arm", got=value, expected=expected
                )


T = TypeVar("T")


def with_teleop_flags(cls: type[T]) -> type[T]:
    """`cls`, not yet a dataclass, with a field for each flag of `hardware.teleop` that it has not itself.

    For example::

        @dataclass(frozen=True, kw_only=True)
        @with_teleop_flags
        class Record(Command): ...
    """
    for name, flag in teleop_flags().items():
        if name not in cls.__annotations__:
            cls.__annotations__[name] = Annotated[flag.type, tyro.conf.arg(help=flag.help)]
            setattr(cls, name, flag.default)
    return cls


def teleop_values(command: object) -> dict[str, Any]:
    """Flag → its value, of the flags of all teleoperators."""
    return {name: getattr(command, name) for name in teleop_flags()}


def teleop_parameters(kind: type[T]) -> type[T]:
    """`kind`, parameters of a node, with those flags of all teleoperators that it has not itself."""
    own = parameter_names(kind)
    more = [(name, flag.type, flag.default) for name, flag in teleop_flags().items() if name not in own]
    return make_dataclass(kind.__name__, more, bases=(kind,), frozen=True, kw_only=True)


def shows_in_terminal(teleop: str) -> bool:
    """True where the device shows the state of the recording in the terminal, and has no page."""
    config = TELEOPERATORS.get(teleop)
    return config is not None and config.shows_in_terminal


def device_options(teleop: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the device `teleop`, for `make_device`; `values`: flag → value, those of other devices left out."""
    config = TELEOPERATORS.get(teleop)
    return {} if config is None else {one.name: values[flag] for flag, one in config.flags().items() if flag in values}
