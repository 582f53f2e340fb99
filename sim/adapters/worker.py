"""Worlds in worker processes, and the same worlds in this process: two pools with one interface.

A worker is a plain child process that gets its envs described in JSON and answers over its standard streams. Against
`multiprocessing` this pickles nothing, needs no ``if __name__ == "__main__"`` in the user's script, and does not
import that script (and torch with it) once per worker. A worker ends by itself when its parent is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, RobolearnError
from sim.adapters import wire
from sim.adapters.facts import AdapterEnv, EnvFactory, Facts, Features
from sim.adapters.world import StepOutcome, World

log = logging.getLogger(__name__)


class Pool(Protocol):
    """N worlds, wherever they live. Raises RobolearnError naming the world at fault."""

    facts: Facts

    def reset(self, starts: Sequence[tuple[int, int]] | None) -> Iterator[Features]:
        """Start all worlds over at (seed, start id) each, or go on in their sequences where `starts` is None."""
        ...

    def chunk(self, chunks: NDArray[np.float32], worlds: Sequence[int]) -> Iterator[tuple[int, StepOutcome]]:
        """Execute ``chunks[w]`` (Ta, Da) in each of `worlds`."""
        ...

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        """A picture of one world."""
        ...

    def close(self) -> None:
        """End all worlds."""
        ...


def describe(error: Exception) -> str:
    """The message of an error, with its type unless it is one of ours, whose names say nothing to a user."""
    return str(error) if isinstance(error, RobolearnError) else f"{type(error).__name__}: {error}"


class LocalPool:
    """Worlds in this process, one after the other: for envs that are lighter than a message.

    Args:
      envs: the N adapters.
    """

    def __init__(self, envs: Sequence[AdapterEnv]) -> None:
        self._worlds = [World(env, index) for index, env in enumerate(envs)]
        self.facts = self._worlds[0].facts

    def reset(self, starts: Sequence[tuple[int, int]] | None) -> Iterator[Features]:
        for world in self._worlds:
            try:
                yield world.next_episode() if starts is None else world.reset(*starts[world.index])
            except Exception as error:
                raise self._failure(world.index, error) from error

    def chunk(self, chunks: NDArray[np.float32], worlds: Sequence[int]) -> Iterator[tuple[int, StepOutcome]]:
        for w in worlds:
            try:
                outcome = self._worlds[w].chunk(chunks[w])
            except Exception as error:
                raise self._failure(w, error) from error
            if outcome.warning:
                log.warning("world %d of %s: %s", w, self.facts.task, outcome.warning)
            yield w, outcome

    def _failure(self, world: int, error: Exception) -> RobolearnError:
        return RobolearnError(f"world {world} of {self.facts.task} failed: {describe(error)}")

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        return self._worlds[world].frame()

    def close(self) -> None:
        for world in self._worlds:
            world.close()


class _Worker:
    """The parent's end of one worker process that hosts `worlds`."""

    def __init__(self, factory: EnvFactory, worlds: Sequence[int]) -> None:
        self.worlds = worlds
        paths = [path or os.getcwd() for path in sys.path]
        # One thread per worker: there are as many workers as cores.
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from sim.adapters.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._requests: BinaryIO = self.process.stdin  # type: ignore[assignment]
        self._replies: BinaryIO = self.process.stdout  # type: ignore[assignment]
        order = np.asarray(worlds, np.uint32).tobytes()
        self.send(wire.BUILD, len(worlds), order + factory.to_json().encode())

    def send(self, kind: bytes, world: int, payload: bytes = b"") -> None:
        """Ask for something; a worker that is gone is reported by the `receive` that follows."""
        with contextlib.suppress(OSError):
            wire.send(self._requests, kind, world, payload)

    def receive(self, world: int, task: str) -> bytes:
        """The payload that answers for `world`."""
        while True:
            try:
                kind, _, payload = wire.receive(self._replies)
            except EOFError:
                raise RobolearnError(f"world {world} of {task}: its worker process {self._exit()}") from None
            if kind == wire.WARNING:
                log.warning("world %d of %s: %s", world, task, payload.decode())
            elif kind == wire.BAD_INPUT:
                raise BadInput(payload.decode())
            elif kind == wire.ERROR:
                summary, _, trace = payload.decode().partition("\n")
                log.debug("world %d of %s:\n%s", world, task, trace)
                raise RobolearnError(f"world {world} of {task} failed: {summary}")
            else:
                return payload

    def _exit(self) -> str:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its output but still runs"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """End the process: first by closing its streams, after 5 s by killing it."""
        for stream in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class WorkerPool:
    """Worlds spread over worker processes.

    Args:
      factory: builds one env.
      num_envs: N.
      workers: number of processes, at most N.
      task: the name for messages.
    """

    def __init__(self, factory: EnvFactory, num_envs: int, workers: int, task: str) -> None:
        self._task = task
        shares = np.array_split(np.arange(num_envs), min(workers, num_envs))
        self._workers: list[_Worker] = []
        try:
            for share in shares:
                self._workers.append(_Worker(factory, [int(w) for w in share]))
            self._home = [worker for worker in self._workers for _ in worker.worlds]
            facts = [worker.receive(worker.worlds[0], task) for worker in self._workers]
        except BaseException:
            self.close()
            raise
        self.facts = Facts.from_json(facts[0].decode())

    def reset(self, starts: Sequence[tuple[int, int]] | None) -> Iterator[Features]:
        for w, worker in enumerate(self._home):
            if starts is None:
                worker.send(wire.NEXT, w)
            else:
                worker.send(wire.RESET, w, wire.pack_start(*starts[w]))
        for w, worker in enumerate(self._home):
            yield wire.unpack_features(worker.receive(w, self._task), self.facts.interface.observation)

    def chunk(self, chunks: NDArray[np.float32], worlds: Sequence[int]) -> Iterator[tuple[int, StepOutcome]]:
        for w in worlds:
            self._home[w].send(wire.CHUNK, w, chunks[w].tobytes())
        for w in worlds:
            yield w, wire.unpack_outcome(self._home[w].receive(w, self._task), self.facts.interface)

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        self._home[world].send(wire.FRAME, world)
        return wire.unpack_picture(self._home[world].receive(world, self._task))

    def pids(self) -> list[int]:
        """Process id by world."""
        return [worker.process.pid for worker in self._home]

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


def main() -> None:
    """The worker process: build what the parent names, then answer until it hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    # Read ahead, so that neither side ever waits to write while the other waits to write too.
    inbox: SimpleQueue[tuple[bytes, int, bytes] | None] = SimpleQueue()
    threading.Thread(target=_read_ahead, args=(requests, inbox), daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what the env prints must not mix with the replies
    worlds: dict[int, World] = {}
    try:
        while (request := inbox.get()) is not None:
            kind, w, payload = request
            try:
                answer, body = _answer(worlds, replies, kind, w, payload)
            except BadInput as error:
                answer, body = wire.BAD_INPUT, str(error).encode()
            except Exception as error:
                summary = describe(error).replace("\n", " ")
                answer, body = wire.ERROR, f"{summary}\n{traceback.format_exc()}".encode()
            wire.send(replies, answer, w, body)
    except BrokenPipeError:
        pass
    for world in worlds.values():
        world.close()
    os._exit(0)  # no clean-up of the interpreter: its messages would go nowhere


def _read_ahead(requests: BinaryIO, inbox: SimpleQueue[tuple[bytes, int, bytes] | None]) -> None:
    try:
        while True:
            inbox.put(wire.receive(requests))
    except EOFError:
        inbox.put(None)


def _answer(worlds: dict[int, World], replies: BinaryIO, kind: bytes, w: int, payload: bytes) -> tuple[bytes, bytes]:
    if kind == wire.BUILD:  # here `w` is how many worlds there are
        factory = EnvFactory.from_json(payload[4 * w :].decode())
        for index in np.frombuffer(payload, np.uint32, count=w):
            worlds[int(index)] = World(factory.build(), int(index))
        return wire.READY, next(iter(worlds.values())).facts.to_json().encode()
    world = worlds[w]
    interface = world.facts.interface
    if kind == wire.CHUNK:
        actions = np.frombuffer(payload, np.float32).reshape(-1, *interface.action.shape)
        outcome = world.chunk(actions)
        if outcome.warning:
            wire.send(replies, wire.WARNING, w, outcome.warning.encode())
        return wire.OUTCOME, wire.pack_outcome(outcome, interface)
    if kind == wire.FRAME:
        return wire.PICTURE, wire.pack_picture(world.frame())
    observation = world.next_episode() if kind == wire.NEXT else world.reset(*wire.unpack_start(payload))
    return wire.OBSERVATION, wire.pack_features(observation, interface.observation)
