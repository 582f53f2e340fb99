"""N worlds in this process or in worker processes, of this interpreter or another: two pools with one interface.

Both write what their worlds do into one `WorldArrays` of arrays; that of the workers is memory that they share. Against
`multiprocessing` and Gymnasium's AsyncVectorEnv, which start the same interpreter, this pickles nothing, needs no
``if __name__ == "__main__"`` in the user's script, and does not import that script (and torch with it) per worker.
"""

from __future__ import annotations

import json
import logging
import math
import mmap
import os
import struct
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface, RobolearnError
from sim.bridge.far import serve
from sim.bridge.far.errors import describe
from sim.bridge.far.facts import AdapterEnv, Facts, WorldArrays
from sim.bridge.far.worlds import WorldFailure, Worlds
from sim.bridge.process import STEP_S, WorkerProcess

log = logging.getLogger(__name__)

CHUNK_STEPS = 16  # the memory is laid out anew for a chunk that is longer


def interface_of(facts: Facts) -> Interface:
    """The same facts in the words of `robolearn.core`."""
    return Interface(
        observation={key: ArraySpec(*spec) for key, spec in facts.observation.items()},
        action=ArraySpec((facts.action,)),
        control_hz=facts.control_hz,
        embodiment=facts.embodiment,
    )


@dataclass(frozen=True)
class EnvFactory:
    """Builds one env in any process: a function by name and its JSON-able keyword arguments.

    A name that begins with a dot is one of `sim.bridge.far`, the only ones that another interpreter has.
    """

    builder: str  # ``"package.module:function"``; the function returns an `AdapterEnv`
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    install: str = ""  # the command that installs what the builder imports, for an interpreter that lacks it

    def build(self) -> AdapterEnv:
        """Import the builder and call it."""
        name = "sim.bridge.far" + self.builder if self.builder.startswith(".") else self.builder
        return resolve_name(name)(**self.kwargs)

    def to_json(self) -> str:
        """One JSON object; BadInput where an argument is no JSON value."""
        try:
            return json.dumps({"builder": self.builder, "kwargs": dict(self.kwargs), "install": self.install})
        except TypeError as error:
            raise BadInput("env arguments", got=str(error), expected="numbers, strings, lists and dicts") from None


class Pool(Protocol):
    """N worlds, wherever they live; they do what ``block.active`` selects. Raises RobolearnError naming the world at
    fault."""

    facts: Facts
    block: WorldArrays

    def room_for(self, steps: int) -> None:
        """Make ``block`` large enough for chunks of `steps` actions; what is observed stays."""
        ...

    def reset(self, *, begin: bool) -> None:
        """Start the next episodes: from ``block.starts`` where `begin`, else each world's own next one."""
        ...

    def chunk(self, steps: int) -> None:
        """Execute ``block.actions[:, :steps]``."""
        ...

    def demonstrate(self) -> None:
        """Write the actions of the worlds' own experts into ``block.actions[:, 0]``."""
        ...

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        """A picture of one world."""
        ...

    def close(self) -> None:
        """End all worlds."""
        ...


class LocalPool:
    """Worlds in this process, one after the other: for envs that are lighter than a message.

    What they print goes to stderr: stdout is for our results. A world that does not come back is named, but it cannot
    be ended; one that ends the process, or lets no other thread run, is not.
    """

    def __init__(self, envs: Sequence[AdapterEnv]) -> None:
        self.facts = envs[0].facts
        self._worlds = Worlds(envs)
        self._count = len(envs)
        self.block = WorldArrays.make(self.facts, self._count, CHUNK_STEPS)
        self._closed = threading.Event()
        watch = (weakref.ref(self), self._closed, self.facts.task)
        threading.Thread(target=_watch, args=watch, name="world-watch", daemon=True).start()

    def room_for(self, steps: int) -> None:
        if steps > self.block.actions.shape[1]:
            old, self.block = self.block, WorldArrays.make(self.facts, self._count, steps)
            keep(old, self.block)

    def reset(self, *, begin: bool) -> None:
        with self._named():
            self._worlds.reset(self.block, begin=begin)

    def chunk(self, steps: int) -> None:
        with self._named():
            self._worlds.chunk(self.block, steps)

    def demonstrate(self) -> None:
        with self._named():
            self._worlds.demonstrate(self.block)

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        with self._named():
            return self._worlds.frame(world)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            with redirect_stdout(sys.stderr):
                yield
        except WorldFailure as failure:
            error = failure.error
            raise failed(self.facts.task, failure.world, describe(error)) from error
        finally:
            warn(self.facts.task, self._worlds.notes)
            self._worlds.notes.clear()

    def close(self) -> None:
        self._closed.set()
        with self._named():
            self._worlds.close()


def _watch(pool: weakref.ref[LocalPool], closed: threading.Event, task: str) -> None:
    """Say once of each world of `pool` that it has been at work for `STEP_S`, until the pool is closed."""
    count, moved = -1, time.monotonic()
    while not closed.wait(STEP_S / 10) and (found := pool()) is not None:
        block, now = found.block, time.monotonic()
        del found
        busy = block.busy.nonzero()[0].tolist()
        if not busy or int(block.progress.sum()) != count:
            count, moved = int(block.progress.sum()), now
        elif now - moved > STEP_S:
            moved = math.inf
            log.warning(
                "world %d of %s hangs: no answer within %.0f s. It runs in this process, which cannot end it: with "
                "--sim-threads 1 it runs in one of its own, where a hang and a death end the command",
                *(busy[0], task, STEP_S),
            )


class WorkerPool:
    """Worlds spread over worker processes.

    Args:
      workers: number of processes, at most N.
      task: the worlds' name in messages.
      python: the interpreter that they run in; "" is this one.
    """

    def __init__(self, factory: EnvFactory, num_envs: int, workers: int, task: str, python: str = "") -> None:
        self._task, self._count = task, num_envs
        shares = np.array_split(np.arange(num_envs), min(workers, num_envs))
        self._memory = os.memfd_create("worlds")
        self._workers: list[WorkerProcess] = []
        try:
            for share in shares:
                self._workers.append(WorkerProcess(task, python, self._memory, range(share[0], share[-1] + 1)))
            work = factory.to_json().encode()
            facts = [*self._ask(serve.OPEN, 0, work)]
            self.facts = Facts.from_json(facts[0].decode())
            for worker in self._workers:
                worker.started()
            self.block = self._map(CHUNK_STEPS)
        except BaseException:
            self.close()
            raise

    def _map(self, steps: int) -> WorldArrays:
        size = WorldArrays.bytes_of(self.facts, self._count, steps)
        os.ftruncate(self._memory, size)
        block = WorldArrays.make(self.facts, self._count, steps, mmap.mmap(self._memory, size))
        for worker in self._workers:
            rows = worker.worlds
            worker.block = block.part(rows.start, len(rows))
            place = {"worlds": self._count, "steps": steps, "first": rows.start, "count": len(rows)}
            worker.send(serve.MAP, 0, json.dumps(place).encode())
        for worker in self._workers:
            worker.receive()
        return block

    def room_for(self, steps: int) -> None:
        if steps > self.block.actions.shape[1]:
            old = {key: value.copy() for key, value in self.block.observation.items()}
            self.block = self._map(2 * steps)
            for key, value in old.items():
                self.block.observation[key][:] = value

    def reset(self, *, begin: bool) -> None:
        self._do(serve.BEGIN if begin else serve.NEXT)

    def chunk(self, steps: int) -> None:
        self._do(serve.CHUNK, steps)

    def demonstrate(self) -> None:
        self._do(serve.EXPERT)

    def _do(self, kind: bytes, number: int = 0) -> None:
        for notes in self._ask(kind, number):
            if notes:
                warn(self._task, json.loads(notes))

    def _ask(self, kind: bytes, number: int, payload: bytes = b"") -> Iterator[bytes]:
        """The answers of the workers that have something to do."""
        asked = [worker for worker in self._workers if worker.block is None or worker.block.active.any()]
        for worker in asked:
            worker.send(kind, number, payload)
        for worker in asked:
            yield worker.receive()

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        worker = next(worker for worker in self._workers if world in worker.worlds)
        worker.send(serve.FRAME, world)
        answer = worker.receive()
        (length,) = struct.unpack_from("<I", answer)
        if length:
            warn(self._task, json.loads(answer[4 : 4 + length]))
        if len(answer) == 4 + length:
            return None
        height, width = struct.unpack_from("<II", answer, 4 + length)
        return np.frombuffer(answer, np.uint8, offset=12 + length).reshape(height, width, 3)

    def pids(self) -> list[int]:
        """Process id by world."""
        return [worker.process.pid for worker in self._workers for _ in worker.worlds]

    def close(self) -> None:
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def keep(old: WorldArrays, new: WorldArrays) -> None:
    """Copy what is observed."""
    for key, value in old.observation.items():
        new.observation[key][:] = value


def failed(task: str, world: int, what: str) -> RobolearnError:
    """The error of one world."""
    return RobolearnError(f"world {world} of {task} failed: {what}")


def warn(task: str, notes: Sequence[tuple[int, str]]) -> None:
    """Log what worlds want the user to know."""
    for world, text in notes:
        log.warning("world %d of %s: %s", world, task, text)
