"""Files that only grow, by whole pieces: lines of text, or records with their length and checksum.

A kill leaves such a file whole up to its last piece; at most that one is cut short.
"""

from __future__ import annotations

import itertools
import logging
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

log = logging.getLogger(__name__)

DAMAGED = ".damaged-"  # and a number: kept beside a file that was cut

_HEAD = struct.Struct("<II")  # length, crc32


class AppendOnlyFile:
    """Appends to the file at `path`, which is made if need be. Use as a context manager, or `close` it.

    Args:
      truncate: begin with an empty file.
    """

    def __init__(self, path: Path, *, truncate: bool = False) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags | (os.O_TRUNC if truncate else 0), 0o666)

    def append(self, piece: bytes) -> None:
        """Hand `piece` to the system, in one call where the disk takes it whole.

        Raises `OSError` where the disk is full; part of the piece may be in the file then.
        """
        view = memoryview(piece)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        """Make appended pieces survive a power cut."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> AppendOnlyFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Journal:
    """Appends records to the file at `path`; its folder is made if need be.

    Args:
      resume: go on after the records that are there, which must be whole (see `cut_torn`), instead of anew.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = AppendOnlyFile(path, truncate=not resume)

    def append(self, record: bytes) -> None:
        """Add `record`, which is not empty.

        Raises `OSError` where the disk is full; the records before this one can still be read.
        """
        assert record
        self._file.append(_HEAD.pack(len(record), zlib.crc32(record)) + record)

    def sync(self) -> None:
        """Make appended records survive a power cut."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()


def records(path: Path) -> Iterator[bytes]:
    """The records of the file at `path`, up to the first that is cut short or damaged; none where there is no file.

    One record is in memory at a time. What is appended after the first has been asked for is not read.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        left = os.fstat(file.fileno()).st_size
        while left >= _HEAD.size:
            length, checksum = _HEAD.unpack(file.read(_HEAD.size))
            left -= _HEAD.size + length
            # A power cut may leave zeros at the end: a length of 0, and the checksum of nothing, which is 0 as well.
            # A damaged length may be of gigabytes: it is not asked for.
            if not length or left < 0:
                return
            record = file.read(length)
            if len(record) < length or zlib.crc32(record) != checksum:
                return
            yield record


class RecordReader:
    """Records of a file by their number, while its owner appends to it.

    Args:
      lengths: of the records that are there [bytes]; `add` says which follow.
    """

    def __init__(self, path: Path, lengths: Iterable[int] = ()) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._ends = [0]
        for length in lengths:
            self.add(length)

    def __len__(self) -> int:
        """Records that can be read."""
        return len(self._ends) - 1

    def add(self, length: int) -> None:
        """A record of `length` bytes was appended to the file."""
        self._ends.append(self._ends[-1] + _HEAD.size + length)

    def read(self, number: int) -> bytes:
        """The record with this number, from 0."""
        begin, end = self._ends[number], self._ends[number + 1]
        return os.pread(self._descriptor, end - begin, begin)[_HEAD.size :]

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def cut_torn(path: Path) -> None:
    """Cut the file at `path` after its last whole record, so that a `Journal` can go on with it.

    A kill tears the last record at most, and that is cut. Where whole records follow, the file is damaged: what is cut
    is kept beside it, as ``<name>.damaged-0``, and logged.
    """
    whole, rest, found = _after_records(path)
    if found:
        aside = next(one for i in itertools.count() if not (one := Path(f"{path}{DAMAGED}{i}")).exists())
        aside.write_bytes(rest)
        log.warning("%s is %s, are in %s", path, found, aside)
    with path.open("r+b") as file:
        file.truncate(whole)


def damage(path: Path) -> str:
    """The damage in the file of records at `path`, and how much of it is not read; empty where it ends with its
    last record, or within one."""
    return _after_records(path)[2]


def set_aside(path: Path) -> list[Path]:
    """The files that `cut_torn` has kept of the one at `path`."""
    return sorted(path.parent.glob(f"{path.name}{DAMAGED}*"))


def _after_records(path: Path) -> tuple[int, bytes, str]:
    """Where the last whole record ends, what follows, and words for it where there are whole records among that."""
    whole = sum(_HEAD.size + len(record) for record in records(path))
    with path.open("rb") as file:
        file.seek(whole)
        rest = file.read()
    if (begin := _whole_within(rest)) is None:
        return whole, rest, ""
    many = f"{len(rest)} bytes after that, whole records from byte {whole + begin} on among them"
    return whole, rest, f"damaged at byte {whole}: {many}"


def _whole_within(rest: bytes) -> int | None:
    """Where a whole record lies in `rest`, which does not begin with one; None without any."""
    for begin in range(1, len(rest) - _HEAD.size):
        length, checksum = _HEAD.unpack_from(rest, begin)
        end = begin + _HEAD.size + length
        if length and end <= len(rest) and zlib.crc32(memoryview(rest)[begin + _HEAD.size : end]) == checksum:
            return begin
    return None
