"""Worlds in worker processes, and the same worlds in this process: two pools with one interface.

A worker is a plain child process (`sim.child`) that gets its envs described in JSON. Against `multiprocessing` this
pickles nothing, needs no ``if __name__ == "__main__"`` in the user's script, and does not import that script (and torch
with it) once per worker. A worker ends by itself when its parent is gone.

Messages, both ways: kind (1 byte), world (uint32), length of the payload (uint32), then the payload. Arrays travel as
their bytes in the order of the interface's features; texts as UTF-8 or JSON.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import struct
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface, RobolearnError
from sim.adapters.facts import AdapterEnv, EnvFactory, Facts, Features
from sim.adapters.world import StepOutcome, World
from sim.child import Child

_HEADER = struct.Struct("<cII")
_OUTCOME = struct.Struct("<I??b?")  # executed steps, terminated, truncated, success (-1: not reported), ended
_START = struct.Struct("<QQ")  # seed, start id

BUILD, RESET, NEXT, CHUNK, FRAME = b"b", b"r", b"n", b"c", b"f"  # requests
READY, OBSERVATION, OUTCOME, PICTURE = b"y", b"o", b"u", b"p"  # replies
WARNING, BAD_INPUT, ERROR = b"w", b"i", b"e"


def send(stream: BinaryIO, kind: bytes, world: int, payload: bytes = b"") -> None:
    """Write one message; OSError when the other side is gone."""
    stream.write(_HEADER.pack(kind, world, len(payload)) + payload)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[bytes, int, bytes]:
    """Read one message (kind, world, payload); EOFError when the other side is gone."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise EOFError
    kind, world, length = _HEADER.unpack(header)
    payload = stream.read(length) if length else b""
    if len(payload) < length:
        raise EOFError
    return kind, world, payload


def pack_features(features: Features, specs: Mapping[str, ArraySpec]) -> bytes:
    """The arrays' bytes in the order of `specs`."""
    return b"".join(np.ascontiguousarray(features[key], dtype=spec.dtype).tobytes() for key, spec in specs.items())


def unpack_features(data: bytes, specs: Mapping[str, ArraySpec]) -> Features:
    """The inverse of `pack_features`."""
    features, offset = {}, 0
    for key, spec in specs.items():
        array = np.frombuffer(data, dtype=spec.dtype, count=spec.size, offset=offset).reshape(spec.shape)
        features[key] = array
        offset += array.nbytes
    return features


def pack_outcome(outcome: StepOutcome, interface: Interface) -> bytes:
    """Numbers, the observation, and the final one where the episode ended. The warning travels apart."""
    numbers = _OUTCOME.pack(
        len(outcome.rewards),
        outcome.terminated,
        outcome.truncated,
        -1 if outcome.success is None else outcome.success,
        outcome.final is not None,
    )
    final = b"" if outcome.final is None else pack_features(outcome.final, interface.observation)
    rewards = np.array(outcome.rewards, np.float64).tobytes()
    return numbers + rewards + pack_features(outcome.observation, interface.observation) + final


def unpack_outcome(data: bytes, interface: Interface) -> StepOutcome:
    """The inverse of `pack_outcome`."""
    specs = interface.observation
    steps, terminated, truncated, success, ended = _OUTCOME.unpack_from(data)
    rewards = np.frombuffer(data, np.float64, count=steps, offset=_OUTCOME.size)
    body = data[_OUTCOME.size + rewards.nbytes :]
    observation = unpack_features(body, specs)
    rest = body[sum(array.nbytes for array in observation.values()) :]
    final = unpack_features(rest, specs) if ended else None
    solved = None if success < 0 else bool(success)
    return StepOutcome(observation, final, tuple(rewards.tolist()), terminated, truncated, solved)


def pack_picture(picture: NDArray[np.uint8] | None) -> bytes:
    """Height and width, then the pixels; nothing for None."""
    return b"" if picture is None else struct.pack("<II", *picture.shape[:2]) + picture.tobytes()


def unpack_picture(data: bytes) -> NDArray[np.uint8] | None:
    """The inverse of `pack_picture`."""
    if not data:
        return None
    height, width = struct.unpack_from("<II", data)
    return np.frombuffer(data, np.uint8, offset=8).reshape(height, width, 3)


def pack_start(seed: int, start_id: int) -> bytes:
    """The seed and the start id of a world."""
    return _START.pack(seed, start_id)


def unpack_start(data: bytes) -> tuple[int, int]:
    """The inverse of `pack_start`."""
    return _START.unpack(data)


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
    """Worlds in this process, one after the other: for envs that are lighter than a message."""

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


class _Worker(Child):
    """The parent's end of one worker process that hosts `worlds`."""

    def __init__(self, factory: EnvFactory, worlds: Sequence[int]) -> None:
        # One thread per worker: there are as many workers as cores.
        super().__init__("sim.adapters.worker", {"OMP_NUM_THREADS": "1", **os.environ})
        self.worlds = worlds
        order = np.asarray(worlds, np.uint32).tobytes()
        self.send(BUILD, len(worlds), order + factory.to_json().encode())

    def send(self, kind: bytes, world: int, payload: bytes = b"") -> None:
        """Ask for something; a worker that is gone is reported by the `receive` that follows."""
        with contextlib.suppress(OSError):
            send(self.requests, kind, world, payload)

    def receive(self, world: int, task: str) -> bytes:
        """The payload that answers for `world`."""
        while True:
            try:
                kind, _, payload = receive(self.replies)
            except EOFError:
                raise RobolearnError(f"world {world} of {task}: its worker process {self.ending()}") from None
            if kind == WARNING:
                log.warning("world %d of %s: %s", world, task, payload.decode())
            elif kind == BAD_INPUT:
                raise BadInput(payload.decode())
            elif kind == ERROR:
                summary, _, trace = payload.decode().partition("\n")
                log.debug("world %d of %s:\n%s", world, task, trace)
                raise RobolearnError(f"world {world} of {task} failed: {summary}")
            else:
                return payload


class WorkerPool:
    """Worlds spread over worker processes. `workers`: number of processes, at most N."""

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
                worker.send(NEXT, w)
            else:
                worker.send(RESET, w, pack_start(*starts[w]))
        for w, worker in enumerate(self._home):
            yield unpack_features(worker.receive(w, self._task), self.facts.interface.observation)

    def chunk(self, chunks: NDArray[np.float32], worlds: Sequence[int]) -> Iterator[tuple[int, StepOutcome]]:
        for w in worlds:
            self._home[w].send(CHUNK, w, chunks[w].tobytes())
        for w in worlds:
            yield w, unpack_outcome(self._home[w].receive(w, self._task), self.facts.interface)

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        self._home[world].send(FRAME, world)
        return unpack_picture(self._home[world].receive(world, self._task))

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
                answer, body = BAD_INPUT, str(error).encode()
            except Exception as error:
                summary = describe(error).replace("\n", " ")
                answer, body = ERROR, f"{summary}\n{traceback.format_exc()}".encode()
            send(replies, answer, w, body)
    except BrokenPipeError:
        pass
    for world in worlds.values():
        world.close()
    os._exit(0)  # no clean-up of the interpreter: its messages would go nowhere


def _read_ahead(requests: BinaryIO, inbox: SimpleQueue[tuple[bytes, int, bytes] | None]) -> None:
    try:
        while True:
            inbox.put(receive(requests))
    except EOFError:
        inbox.put(None)


def _answer(worlds: dict[int, World], replies: BinaryIO, kind: bytes, w: int, payload: bytes) -> tuple[bytes, bytes]:
    if kind == BUILD:  # here `w` is how many worlds there are
        factory = EnvFactory.from_json(payload[4 * w :].decode())
        for index in np.frombuffer(payload, np.uint32, count=w):
            worlds[int(index)] = World(factory.build(), int(index))
        return READY, next(iter(worlds.values())).facts.to_json().encode()
    world = worlds[w]
    interface = world.facts.interface
    if kind == CHUNK:
        actions = np.frombuffer(payload, np.float32).reshape(-1, *interface.action.shape)
        outcome = world.chunk(actions)
        if outcome.warning:
            send(replies, WARNING, w, outcome.warning.encode())
        return OUTCOME, pack_outcome(outcome, interface)
    if kind == FRAME:
        return PICTURE, pack_picture(world.frame())
    observation = world.next_episode() if kind == NEXT else world.reset(*unpack_start(payload))
    return OBSERVATION, pack_features(observation, interface.observation)
