"""Messages between our process, which has the world, and the one that runs a rival's code: JSON, then arrays as they
lie in memory."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from typing import Any

import numpy as np

LENGTH = struct.Struct("<I")


class Channel:
    """One side: file descriptors to read from and to write to."""

    def __init__(self, reads: int, writes: int) -> None:
        self._from, self._to = os.fdopen(reads, "rb"), os.fdopen(writes, "wb")

    def send(self, kind: str, **values: Any) -> None:
        """Send a message of arrays and plain values. Raises OSError: the other side has ended."""
        arrays = {key: np.ascontiguousarray(value) for key, value in values.items() if isinstance(value, np.ndarray)}
        plain = {key: value for key, value in values.items() if key not in arrays}
        shapes = {key: [value.dtype.str, list(value.shape)] for key, value in arrays.items()}
        head = json.dumps({"kind": kind, "plain": plain, "arrays": shapes}).encode()
        self._to.write(LENGTH.pack(len(head)) + head)
        for value in arrays.values():
            self._to.write(value.tobytes())
        self._to.flush()

    def receive(self) -> tuple[str, dict[str, Any]]:
        """The next message: its kind and its values. Raises EOFError: the other side has ended."""
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        head = json.loads(self._read(length))
        values = dict(head["plain"])
        for key, (kind, shape) in head["arrays"].items():
            found, dtype = tuple(shape), np.dtype(kind)
            raw = self._read(dtype.itemsize * int(np.prod(found, dtype=np.int64)))
            values[key] = np.frombuffer(raw, dtype).reshape(found).copy()
        return head["kind"], values

    def close(self) -> None:
        """Let go of both descriptors."""
        for stream in (self._from, self._to):
            with contextlib.suppress(OSError):  # what was not yet written has no reader
                stream.close()

    def _read(self, length: int) -> bytes:
        found = self._from.read(length)
        if len(found) < length:
            raise EOFError
        return found
