"""A folder of contents that has a limit: what was used longest ago makes room."""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from pathlib import Path

_TARGET = 0.8  # of the largest size is left after room was made, so that it is not made for every file


class BoundedFolder:
    """Contents by name in the folder `path`, `most` bytes at most (give or take what other processes add meanwhile).

    A name is a digest, at least three characters that may stand in a path. Files are replaced whole and checked by
    their checksum when they are read; what cannot be written or read is not there. Threads and processes may share it.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        self._size: int | None = None  # as of the last look, and what was written since
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes | None:
        """The content `name`, or None."""
        place = self._place(name)
        try:
            stored = place.read_bytes()
        except OSError:
            return None
        content = stored[4:]
        if len(stored) < 4 or zlib.crc32(content) != int.from_bytes(stored[:4], "little"):
            return None
        with contextlib.suppress(OSError):
            os.utime(place)
        return content

    def put(self, name: str, content: bytes) -> None:
        """Keep `content` as `name`; a full or read-only disk keeps nothing."""
        if len(content) + 4 > self.most:
            return
        place = self._place(name)
        part = place.with_name(f"{place.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(zlib.crc32(content).to_bytes(4, "little") + content)
            os.replace(part, place)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            return
        with self._lock:
            if self._size is not None:
                self._size += len(content) + 4
            if self._size is None or self._size > self.most:
                self._size = self._make_room()

    def _place(self, name: str) -> Path:
        return self.path / name[:2] / name

    def _files(self) -> list[tuple[float, int, Path]]:
        """(when used last [s], bytes, path) of all files."""
        found = []
        for path in self.path.glob("*/*"):
            with contextlib.suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
        return found

    def _make_room(self) -> int:
        """Remove what was used longest ago, where there is too much; returns the bytes that are left."""
        files = sorted(self._files())
        left = sum(size for _, size, _ in files)
        for _, size, path in files if left > self.most else ():
            if left <= _TARGET * self.most:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                left -= size
        return left
