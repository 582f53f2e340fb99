"""Flags of the commands that start the nodes of a station."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robolearn.runs.command import Command


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
