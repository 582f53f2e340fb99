"""Flags of the commands that start the nodes of a station."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

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
