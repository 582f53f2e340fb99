"""An append-only file of records, each with its length and checksum: whole up to where a killed process got."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct("<II")  # length, crc32


class Journal:
    """Append records to a new file at `path`. A record is handed to the system whole, by one call."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o666)

    def append(self, record: bytes) -> None:
        """Add `record`, which is not empty.

        Raises `OSError` where the disk is full; the file is then whole up to the record before.
        """
        assert record
        framed = memoryview(_HEAD.pack(len(record), zlib.crc32(record)) + record)
        while framed:
            framed = framed[os.write(self._descriptor, framed) :]

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def records(path: Path) -> Iterator[bytes]:
    """The records of the file at `path`, up to the first that is cut short or damaged; none where there is no file."""
    try:
        content = memoryview(path.read_bytes())
    except FileNotFoundError:
        return
    while len(content) >= _HEAD.size:
        length, checksum = _HEAD.unpack_from(content)
        record = bytes(content[_HEAD.size : _HEAD.size + length])
        # A power cut may leave zeros at the end: a length of 0, and the checksum of nothing, which is 0 as well.
        if not length or len(record) < length or zlib.crc32(record) != checksum:
            return
        yield record
        content = content[_HEAD.size + length :]
