"""The flags that say where an actor plays, and whose hand takes over: shared by ``hil actor`` and ``hil run``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hardware.teleop import people
from robolearn.cli.choices import PersonTeleop, Station
from robolearn.cli.teleop_flags import shows_in_terminal, with_teleop_flags
from robolearn.core import BadInput
from robolearn.runs.command import Command, peek

Operators = Literal["none", "scripted"]
TASK = "peg_insert_tight"
OWN_DELAY = "an arm has a delay of its own"


@dataclass(frozen=True, kw_only=True)
@with_teleop_flags
class Playing(Command):
    """Where an actor plays, and who takes over."""

    task: str = TASK
    """A task of ours, robosuite:<Name> or gym:<module>:<Id-v0>; with --robot that of the simulated arm."""
    operator: Operators = "none"
    """Who watches and takes over where no --teleop is given: nobody, or a script (tasks of ours)."""
    teleop: PersonTeleop = ""
    """Your device. You watch, take over, hand back and label."""
    robot: Station = ""
    """An arm behind the safety filter over ROS 2, with --teleop: a robot contract, by name or as a file of your own."""
    rehearse: bool = False
    """With --robot: a simulated arm behind an emulator of the station's driver, its topics, stamps and habits."""
    seconds: float = 30.0
    """With --teleop: longest episode [s] of an arm and of our tasks; people take longer than scripts."""
    console: int | None = None
    """Show a page at this port of loopback: the scene, the curves, take over, labels, stop. 0 takes a free port. The
    address, with its token, is written into the file console beside the outbox."""
    host: str = "127.0.0.1"
    """Where the page of --teleop browser listens; 0.0.0.0: for phones on this network too, with TLS and a token."""
    port: int = 8070
    """Its port; 0 takes a free one. The address, with its token, is written into the file teleop beside the outbox."""
    realtime_priority: int = 10
    """With --robot, of the nodes (SCHED_FIFO, 1 to 99), where this machine permits it; 0: none."""
    enclaves: bool = False
    """With --robot: every node in its enclave of `robolearn permissions` (SROS2)."""
    domain: int | None = None
    """With --robot: ROS domain; by default ROS_DOMAIN_ID, and on the simulated arm one that is likely to be free."""

    @property
    def live(self) -> bool:
        """Whether a person or an arm sets the pace."""
        return bool(self.teleop or self.robot)

    @property
    def screen(self) -> bool:
        """Whether the device shows the state in the terminal itself."""
        return shows_in_terminal(self.teleop)

    def check_playing(self) -> None:
        """Raise `BadInput` for flags that make no sense together."""
        if self.teleop and self.teleop not in people():
            raise BadInput("--teleop", got=self.teleop, available=people())
        if self.teleop and self.operator != "none":
            raise BadInput("--operator", got=f"{self.operator} beside --teleop", expected="one of the two")
        if self.robot and not self.teleop:
            raise BadInput("--robot", got="no --teleop", expected="a person with a device", available=people())
        if self.rehearse and not self.robot:
            raise BadInput("--rehearse", got="no --robot", expected="the contract of a station")
        if not self.seconds > 0:
            raise BadInput("--seconds", got=self.seconds, expected="more than 0")


def pace_of(args: Sequence[str]) -> dict[str, Any]:
    """The default of --pace where a person or an arm sets it."""
    return {"pace": "realtime"} if peek(args, "--teleop", "") or peek(args, "--robot", "") else {}
