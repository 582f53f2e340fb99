"""Storage jobs in a thread of their own: the control loop hands them over and never waits for disks."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from robolearn.core import RobolearnError

log = logging.getLogger(__name__)

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
        ...

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


class StorageThread:
    """A `Storage` in a thread; `before` is called in it first."""

    def __init__(self, before: Job = lambda: None) -> None:
        self.outcomes: deque[Outcome] = deque()
        self._jobs: queue.SimpleQueue[tuple[Job, bool] | None] = queue.SimpleQueue()
        self._before = before
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    def put(self, job: Job, *, ends: bool = False) -> None:
        """See `Storage.put`."""
        self._jobs.put((job, ends))

    def pending(self) -> int:
        """See `Storage.pending`."""
        return self._jobs.qsize()

    def close(self) -> None:
        """Wait until everything is stored."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._before()
        while (item := self._jobs.get()) is not None:
            self.outcomes.extend(attempt(*item))
