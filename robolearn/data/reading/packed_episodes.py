"""The file of the frame cache that holds one camera's pictures in one episode, each packed for itself.

    magic (8 bytes) · T uint32 · where the pictures begin, and the end (T + 1) uint64 · T pictures

A file that was cut short, or has another number of pictures, is none; a picture that has changed says so itself.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC = b"RLPICS01"
_COUNT = struct.Struct("<8sI")


def write_episode(path: Path, pictures: Iterable[bytes], length: int) -> int:
    """Write `length` pictures to `path`, whole or not at all; returns the number of bytes.

    It is not brought to the disk here: what a power cut tears is found to be torn.
    """
    places = [_COUNT.size + 8 * (length + 1)]
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(part, "wb") as file:
            file.seek(places[0])
            for picture in pictures:
                file.write(picture)
                places.append(places[-1] + len(picture))
            file.seek(0)
            file.write(_COUNT.pack(MAGIC, length) + np.array(places, "<u8").tobytes())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return places[-1]


def is_whole(path: Path, length: int) -> bool:
    """Whether `path` holds `length` pictures, by its head and its size."""
    try:
        with open(path, "rb") as file:
            head = file.read(_COUNT.size + 8 * (length + 1))
            return _places(head, length, os.fstat(file.fileno()).st_size) is not None
    except OSError:
        return False


def read_pictures(path: Path, first: int, count: int) -> list[memoryview]:
    """Pictures `first` … of a file that was whole when it was looked at; raises `OSError` and `ValueError`.

    Nothing is kept open or mapped: a set may have more files than a process may open, and of a file larger than memory
    the system reads no more than is asked for.
    """
    with open(path, "rb", buffering=0) as file:
        head = os.pread(file.fileno(), 8 * (count + 1), _COUNT.size + 8 * first)
        places = [int(place) for place in np.frombuffer(head, "<u8")]
        size = os.fstat(file.fileno()).st_size
        if len(places) != count + 1 or places != sorted(places) or places[-1] > size:
            raise ValueError("not a whole file")
        content = memoryview(os.pread(file.fileno(), places[-1] - places[0], places[0]))
    ends = [place - places[0] for place in places]
    return [content[begin:end] for begin, end in itertools.pairwise(ends)]


def _places(head: bytes, length: int, size: int) -> NDArray[np.uint64] | None:
    if len(head) < _COUNT.size + 8 * (length + 1) or _COUNT.unpack_from(head) != (MAGIC, length):
        return None
    places = np.frombuffer(head, "<u8", length + 1, _COUNT.size)
    # Unsigned differences of places out of order are huge.
    return places if int(places[-1]) == size and (np.diff(places) < size).all() else None
