"""The parts of a recording, and the writer of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from hardware.recording.episodes import EpisodeLifecycle
from hardware.teleop.device import Device
from robolearn.core import Interface
from robots.stations import Contract


class Writer(Protocol):
    """Writer of rows; `robolearn.data.writing.writer.EpisodeWriter` is one."""

    def add(
        self,
        observation: Mapping[str, ArrayLike],
        action: ArrayLike,
        reward: float = 0.0,
        *,
        intervention: bool = False,
        stamps: Mapping[str, float] | None = None,
    ) -> None:
        """One step of the running episode; never waits."""
        ...

    def end(self, *, success: bool, terminated: bool = False, truncated: bool = False, task: str = "") -> int:
        """Store the running episode; its number."""
        ...

    def discard(self) -> None:
        """Drop the running episode."""
        ...


@dataclass(frozen=True)
class Session:
    """The parts of a recording.

    Attributes:
      contract: the station.
      device: open; the node closes it.
      interface: what a row is; the station offers it.
      writer: where episodes go.
      task: in words.
      episodes: how many to record.
      first: number of the first.
      limit_s: longest episode [s].
      start_s: how long everything may take to be there [s].
      simulated: the arm is `sim_arm`, which puts everything in its place.
      judged: the simulated arm judges when an episode ends, and how; no operator is there.
      watch: called ten times a second; raises when something that the recording needs is gone.
    """

    contract: Contract
    device: Device
    interface: Interface
    writer: Writer
    task: str
    episodes: int
    first: int = 0
    limit_s: float = 60.0
    start_s: float = float("inf")
    simulated: bool = False
    judged: bool = False
    watch: Callable[[EpisodeLifecycle], None] = lambda episodes: None


def stamp_names(interface: Interface) -> tuple[str, ...]:
    """Time stamps in a recording of `interface`: of its sources, of the device's sample, and of the action."""
    return (*interface.observation, "device", "action")
