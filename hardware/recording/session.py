"""The parts of a recording, the writer of its rows, and the thread that waits for disks in its place."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from numpy.typing import NDArray

from hardware.recording.episodes import EpisodeLifecycle
from hardware.teleop.device import Device
from hardware.teleop.reset_policy import PolicyReset
from robolearn.core import Interface, RobolearnError
from robots.stations import AnyContract

log = logging.getLogger(__name__)

BEHIND_S = 5.0  # of the writer, after which an episode is not worth going on with


class Writer(Protocol):
    """Writer of rows; `robolearn.data.writing.writer.EpisodeWriter` is one."""

    @property
    def add(self) -> Callable[..., None]:
        """Takes one step of the running episode, as `EpisodeWriter.add` does; never waits."""
        ...

    def end(
        self, *, success: bool, terminated: bool = False, truncated: bool = False, task: str = "",
        final: Mapping[str, NDArray] | None = None,
    ) -> int:  # fmt: skip
        """Store the running episode, which `final` was observed at the end of; its number."""
        ...

    def discard(self) -> None:
        """Drop the running episode."""


@dataclass(frozen=True)
class Session:
    """The parts of a recording.

    Attributes:
      contract: the station.
      device: open; the node closes it.
      interface: what a row is; the station offers it.
      writer: where episodes go.
      task: in words.
      episodes, first: how many to record, and the number of the first.
      limit_s: longest episode [s].
      start_s: how long everything may take to be there [s].
      simulated: the arm is `sim_arm`, which puts everything in its place.
      judged: the simulated arm judges when an episode ends, and how; no operator is there.
      homes: between episodes the arm goes to its home posture by itself; where the operator places things.
      back: a policy that brings things back, or None; the arm goes home then, and the operator places things, in
        simulation too.
      watch: called ten times a second; raises when something that the recording needs is gone.
    """

    contract: AnyContract
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
    homes: bool = False
    back: PolicyReset | None = None
    watch: Callable[[EpisodeLifecycle], None] = lambda episodes: None


def stamp_names(interface: Interface, *, device: bool = True) -> tuple[str, ...]:
    """Time stamps in a recording of `interface`: of its sources, of the sample of a device, where there is one, and of
    the action."""
    return (*interface.observation, *(("device",) if device else ()), "action")


Job = Callable[[], None]
Outcome = OSError | RobolearnError | None


class Storage(Protocol):
    """Queue of writing jobs, done in order.

    Attributes:
      outcomes: an error of any job, and None for each job that ended an episode well, in order.
    """

    outcomes: deque[Outcome]

    def put(self, job: Job, *, ends: bool = False) -> None:
        """Do `job` soon; `ends`: it ends an episode."""

    def pending(self) -> int:
        """Jobs that are not begun."""
        ...


def attempt(job: Job, ends: bool) -> list[Outcome]:
    """Do `job`; its entries for the outcomes."""
    try:
        job()
    except (OSError, RobolearnError) as error:
        return [error]
    except Exception as error:
        log.exception("the episode was not stored")
        return [RobolearnError(f"{type(error).__name__}: {error}")]
    return [None] if ends else []


class StorageThread(Storage):
    """A `Storage` in a thread; `before` is called in it first."""

    def __init__(self, before: Job = lambda: None) -> None:
        self.outcomes: deque[Outcome] = deque()
        self._jobs: queue.SimpleQueue[tuple[Job, bool] | None] = queue.SimpleQueue()
        self._before = before
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    def put(self, job: Job, *, ends: bool = False) -> None:
        self._jobs.put((job, ends))

    def pending(self) -> int:
        return self._jobs.qsize()

    def close(self) -> None:
        """Wait until everything is stored."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._before()
        while (item := self._jobs.get()) is not None:
            self.outcomes.extend(attempt(*item))
