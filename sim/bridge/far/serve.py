"""The process that worlds live in: build what the near side describes, then answer until it hangs up.

Messages, both ways, over pipes of their own: kind (1 byte), a number (int64), length of the payload (uint32), then the
payload. Requests and answers alternate. The arrays are in memory that both sides have mapped (`WorldArrays`).
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import select
import signal
import struct
import sys
import traceback
from dataclasses import replace
from importlib import import_module
from typing import Any

from .errors import BadInput, describe, parts_of
from .facts import WorldArrays
from .world import probe
from .worlds import WorldFailure, Worlds

HEADER = struct.Struct("<cqI")
LIST, OPEN, MAP, BEGIN, NEXT, CHUNK, EXPERT, FRAME = b"l", b"o", b"m", b"b", b"n", b"c", b"x", b"f"  # requests
DONE, BAD_INPUT, FAILED = b"d", b"i", b"e"  # answers


def send(stream: int, kind: bytes, number: int = 0, payload: bytes = b"") -> None:
    """Write one message to a pipe; OSError when the other side is gone."""
    data = memoryview(HEADER.pack(kind, number, len(payload)) + payload)
    while data:
        data = data[os.write(stream, data) :]


def receive(stream: int) -> tuple[bytes, int, bytes]:
    """Read one message (kind, number, payload) from a pipe; EOFError when the other side is gone."""
    kind, number, length = HEADER.unpack(_read(stream, HEADER.size))
    return kind, number, _read(stream, length) if length else b""


def _read(stream: int, length: int) -> bytes:
    found = b""
    while len(found) < length:
        part = os.read(stream, length - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def main() -> None:
    """The process. Its arguments: descriptors of the requests, the answers, the parent's life line and the memory."""
    requests, answers, life, memory = (int(number) for number in sys.argv[1:5])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    die_with(life)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # an env that asks for a line gets none, and does not wait
    process = _Process(memory)
    try:
        while True:
            kind, number, payload = receive(requests)
            try:
                body = process.answer(kind, number, payload)
                send(answers, DONE, 0, body)
            except BadInput as error:
                send(answers, BAD_INPUT, 0, parts_of(error))
            except WorldFailure as failure:
                if isinstance(failure.error, BadInput):
                    send(answers, BAD_INPUT, failure.world, parts_of(failure.error))
                else:
                    send(answers, FAILED, failure.world, _described(failure.error))
            except (Exception, SystemExit) as error:
                send(answers, FAILED, -1, _described(error))
    except (EOFError, OSError):
        pass
    process.close()
    os._exit(0)  # no clean-up of the interpreter: its messages would go nowhere


def die_with(life: int) -> None:
    """Let the kernel end this process when the other end of the pipe `life` is closed, however its owner ends.

    SIGIO's default action ends the process, also one that is stuck in a call and never comes back to Python. A parent
    death signal would not do: it is sent when the *thread* that started the process ends.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(life, select.POLLHUP)
    if watch.poll(0):  # it was gone before
        os._exit(1)


def _named(text: str, install: str) -> Any:
    """The function of this ``module:function``; a module that begins with a dot is one of this folder.

    Raises `BadInput`: a package is missing here that the command `install` installs.
    """
    module, _, name = text.partition(":")
    if not module.startswith(".") and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(import_module(module, __package__), name)
    except ModuleNotFoundError as error:
        if not install:
            raise
        raise BadInput(f"packages of {sys.executable}", got=f"no {error.name}", hint=f"Run: {install}") from error


def _described(error: BaseException) -> bytes:
    summary = describe(error).replace("\n", " ")
    return (summary + "\n" + "".join(traceback.format_exception(type(error), error, error.__traceback__))).encode()


class _Process:
    """One env as soon as it is described, then its share of the worlds."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._builder: Any = None
        self._kwargs: dict[str, Any] = {}
        self._first: Any = None
        self._worlds: Any = None
        self._block: Any = None

    def answer(self, kind: bytes, number: int, payload: bytes) -> bytes:
        """Do what is asked for; returns the payload of the answer."""
        if kind == LIST:
            work = json.loads(payload.decode())
            return json.dumps(_named(work["builder"], work["install"])()).encode()
        if kind == OPEN:
            return self._open(json.loads(payload.decode()))
        if kind == MAP:
            self._map(json.loads(payload.decode()))
            return b""
        if kind == FRAME:
            return self._frame(number)
        worlds, block = self._worlds, self._block
        if kind == CHUNK:
            worlds.chunk(block, number)
        elif kind == EXPERT:
            worlds.demonstrate(block)
        else:
            worlds.reset(block, begin=kind == BEGIN)
        return self._notes()

    def _open(self, work: dict[str, Any]) -> bytes:
        """Build the first env; its facts, with what a step of it showed."""
        self._builder = _named(work["builder"], work["install"])
        self._kwargs = work["kwargs"]
        self._first = self._builder(**self._kwargs)
        facts = self._first.facts
        if not facts.reports_success:
            facts = replace(facts, reports_success=probe(self._first, 1)[0])
        return facts.to_json().encode()

    def _map(self, work: dict[str, int]) -> None:
        """Map the memory, and build the rest of the share on the first call."""
        first, count = work["first"], work["count"]
        facts = self._first.facts
        size = WorldArrays.bytes_of(facts, work["worlds"], work["steps"])
        whole = WorldArrays.make(facts, work["worlds"], work["steps"], mmap.mmap(self._memory, size))
        self._block = whole.part(first, count)
        if self._worlds is None:
            if hasattr(self._first, "together"):  # a library that steps many worlds in one call
                self._worlds = self._first.together(count, first)
            else:
                others = [self._builder(**self._kwargs) for _ in range(count - 1)]
                self._worlds = Worlds([self._first, *others], first)

    def _frame(self, world: int) -> bytes:
        """Length of the notes, the notes, then height, width and pixels; nothing of the latter for no picture."""
        picture = self._worlds.frame(world)
        notes = self._notes()
        head = struct.pack("<I", len(notes)) + notes
        return head if picture is None else head + struct.pack("<II", *picture.shape[:2]) + picture.tobytes()

    def _notes(self) -> bytes:
        notes = self._worlds.notes
        if not notes:
            return b""
        text = json.dumps(notes).encode()
        notes.clear()
        return text

    def close(self) -> None:
        """Close the envs."""
        if self._worlds is not None:
            self._worlds.close()


__all__ = ["die_with", "main", "receive", "send"]
