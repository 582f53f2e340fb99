"""A camera's frames in a data set: where they lie, how they are decoded, and the digests by which they are known again.

An mp4 may hold one episode, as ours do, or many, as LeRobot's do; `container` says which picture is which frame.
Pictures of dtype "image" are PNG files in a column of the data, which need not fit into memory. So a row group is read
once, those of several cameras one after the other, and its pictures wait in an unnamed file, together with those of
other row groups up to `KEPT` bytes. Row groups beyond `LARGE` bytes are not read by Arrow but by `parquet_pages`.

A digest of a file is kept for as long as the file's size, times and inode stay as they were, in this process and, where
there is a folder for it, in ``<folder>/fingerprints.jsonl``: one line [path, size, modified, changed, inode, digest]
each. That file may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.remote import RemotePath
from robolearn.data.video.container import TOLERANCE_S
from robolearn.data.video.packing import pack, rgb
from robolearn.data.video.parquet_pages import column_pages, unpacked
from robolearn.data.video.segments import VideoSegment, pictures
from robolearn.io.append_only import AppendOnlyFile
from robolearn.io.hashes import sha256, sha256_file

BUFFER = 1 << 20  # bytes of a file that are read ahead
BATCH = 16  # rows that are looked at together
KEPT = 1 << 28  # bytes of pictures that wait for who comes back to them
LARGE = 1 << 26  # bytes of pictures in a row group of which Arrow may hold each three times

_one_at_a_time = threading.Lock()


def content_of(cell: Any) -> bytes:
    """The encoded picture in a table's cell; empty where there is none."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return content if isinstance(content, bytes) else b""


class PictureCells:
    """The encoded pictures in `column` of file `name` of the data set `root`."""

    def __init__(self, root: Path | RemotePath, name: str, column: str) -> None:
        self._root, self._name, self._column = root, name, column
        self._places: dict[int, NDArray[np.int64]] = {}  # first row of a row group → (N, 2): each begins and ends there
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open for as long as this is there
        self._lock = threading.Lock()

    def at(self, rows: Iterable[int]) -> Iterator[bytes]:
        """The pictures in `rows` of the file, in that order; empty where there is none. Raises `BadInput`: the file is
        missing or damaged, or has no such column."""
        for row in rows:
            with self._lock:
                known = (first for first, places in self._places.items() if 0 <= row - first < len(places))
                if (first := next(known, None)) is None:
                    first = self._take(row)
                begin, end = self._places[first][row - first].tolist()
                self._file.seek(begin)
                content = self._file.read(end - begin)
            yield content

    def _take(self, row: int) -> int:
        """Put the pictures of the row group that holds `row` into the file; the first row of that group."""
        if self._file.seek(0, os.SEEK_END) > KEPT:
            self._places.clear()
            self._file.seek(0)
            self._file.truncate()
        with _one_at_a_time, layout.parquet_file(self._root, self._name, BUFFER) as table:
            if self._column not in table.schema_arrow.names:
                what, names = f"data set {self._root}: {self._name}", table.schema_arrow.names
                raise BadInput(what, got=f"no column {self._column!r}", expected="it", available=names)
            sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
            starts = np.cumsum([0, *sizes])
            group = int(np.searchsorted(starts, row, side="right")) - 1
            self._places[int(starts[group])] = self._taken(table, group)
        return int(starts[group])

    def _taken(self, table: pq.ParquetFile, group: int) -> NDArray[np.int64]:
        """Put the pictures of row group `group` at the end of the file; (N, 2) where each begins and ends there."""
        size, pages = column_pages(table, group, self._column)
        if pages is not None and size > LARGE:
            path = self._root / self._name
            with path.open() if isinstance(path, RemotePath) else path.open("rb") as source:
                return unpacked(source, pages, self._file)
        places = [self._file.tell()]
        places += [
            self._file.write(content_of(cell.as_py()))
            for batch in table.iter_batches(BATCH, [group], [self._column], use_threads=False)
            for cell in batch.column(0)
        ]
        pa.default_memory_pool().release_unused()
        ends = np.cumsum(places)
        return np.stack([ends[:-1], ends[1:]], axis=1)


MEMO = "fingerprints.jsonl"
RESTED_NS = 2_000_000_000  # a file that changed later than this before it was read may change again unnoticed

_Facts = tuple[str, int, int, int, int]
_known: dict[_Facts, str] = {}
_read: set[Path] = set()


def fingerprint(path: Path | RemotePath, folder: Path | None = None) -> str:
    """The digest of the file `path`, remembered in `folder`; of a file on a server, one of what that says of it. Raises
    `OSError`: it cannot be read."""
    if isinstance(path, RemotePath):
        return path.identity()
    before = _facts(path)
    if folder is not None and folder not in _read:
        _recall(folder)
    if before not in _known:
        begun = time.time_ns()
        digest = sha256_file(path)
        if _facts(path) != before or begun - max(before[2:4]) < RESTED_NS:
            return digest
        _known[before] = digest
        if folder is not None:
            _note(folder, [*before, digest])
    return _known[before]


def _facts(path: Path) -> _Facts:
    found = os.stat(path)
    return os.path.abspath(path), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _recall(folder: Path) -> None:
    _read.add(folder)
    with contextlib.suppress(OSError):
        for line in (folder / MEMO).read_bytes().splitlines():
            with contextlib.suppress(ValueError, TypeError):  # a line that a killed process did not finish
                path, size, modified, changed, inode, digest = json.loads(line)
                _known[path, size, modified, changed, inode] = digest


def _note(folder: Path, entry: list[str | int]) -> None:
    with contextlib.suppress(OSError):  # a folder that cannot be written only costs time
        folder.mkdir(parents=True, exist_ok=True)
        with AppendOnlyFile(folder / MEMO) as file:
            file.append(json.dumps(entry).encode() + b"\n")


@dataclass(frozen=True)
class FrameReader:
    """The frames of one camera, episode by episode.

    Attributes:
      root: the data set.
      key: the observation feature, e.g. ``images.front``.
      shape: (H, W, 3).
      lengths: (E,) frames per episode.
      paths: (E,) their files.
      memo: the folder of digests.
    """

    root: Path | RemotePath
    key: str
    shape: tuple[int, ...]
    lengths: NDArray[np.int64]
    paths: list[str]
    memo: Path | None

    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]:
        """Frames `first` … of `episode` (count, H, W, 3). Raises `BadInput`: a file is missing, damaged or short; the
        message names it, the episode and the frame."""
        raise NotImplementedError

    def packed(self, episode: int) -> Iterator[bytes]:
        """All frames of `episode` in order, as `packing` packs them; raises as `decode` does."""
        raise NotImplementedError

    def place(self, episode: int) -> list[str]:
        """Where in its file `episode` lies, beside its length."""
        raise NotImplementedError

    def identity(self, episode: int) -> str:
        """Identity of the source of the frames of `episode`: equal for the same content, wherever it lies."""
        try:
            content = fingerprint(self.root / self.paths[episode], self.memo)
        except OSError as error:
            raise BadInput(f"data set {self.root}: {self.paths[episode]}", got=error.strerror, expected="it") from None
        return sha256("\n".join([content, *self.place(episode), str(self.lengths[episode]), str(self.shape)]))


@dataclass(frozen=True)
class VideoReader(FrameReader):
    """Frames in mp4 files, in which the episodes begin at `begins` (E,) [s]."""

    begins: NDArray[np.float64]
    hz: float

    def _pictures(self, episode: int, rows: slice = slice(None)) -> Iterator[av.VideoFrame]:
        begin, length = float(self.begins[episode]), int(self.lengths[episode])
        name, height, width = f"episode {episode}, {self.key}", *self.shape[:2]
        path = self.root / self.paths[episode]
        segment = VideoSegment(path, length, self.hz, begin, name=name, size=(height, width))
        return pictures(segment[rows], threads=1)  # episodes are decoded side by side

    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]:
        count = int(self.lengths[episode]) - first if count is None else count
        decoded = np.empty((count, *self.shape), np.uint8)
        for t, picture in enumerate(self._pictures(episode, slice(first, first + count))):
            decoded[t] = rgb(picture)
        return decoded

    def packed(self, episode: int) -> Iterator[bytes]:
        return map(pack, self._pictures(episode))

    def place(self, episode: int) -> list[str]:
        return [repr(float(number)) for number in (self.begins[episode], self.hz, TOLERANCE_S)]


def picture_in(cell: Any) -> NDArray[np.uint8] | None:
    """The RGB picture (H, W, 3) in a table's cell, which holds an encoded file; None where there is none. Its pixels as
    they are stored, which is what LeRobot shows a policy: a camera's note on how it was held (EXIF) turns nothing."""
    import cv2

    if not (content := content_of(cell)):
        return None
    picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    return None if picture is None else picture[..., ::-1].astype(np.uint8, copy=False)  # of blue, green, red


@dataclass(frozen=True)
class PictureReader(FrameReader):
    """PNG files in column `column` of tables, from row `rows` (E,) on."""

    rows: NDArray[np.int64]
    column: str
    _newest: dict[str, PictureCells] = field(default_factory=dict, repr=False, compare=False)

    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]:
        path = self.paths[episode]
        cells = self._newest.get(path)
        if cells is None:
            self._newest.clear()  # the newest file only: neighbours are read one after the other
            self._newest[path] = cells = PictureCells(self.root, path, self.column)
        count = int(self.lengths[episode]) - first if count is None else count
        frames, begin = np.empty((count, *self.shape), np.uint8), int(self.rows[episode]) + first
        for t, content in enumerate(cells.at(range(begin, begin + count))):
            what = f"{self.root}: {path} (episode {episode}, frame {first + t}), {self.column}"
            picture = picture_in(content)
            if picture is None or picture.shape != self.shape:
                got = "no readable picture" if picture is None else f"shape {picture.shape}"
                raise BadInput(what, got=got, expected=f"a picture of {self.shape}")
            frames[t] = picture
        return frames

    def packed(self, episode: int) -> Iterator[bytes]:
        for t in range(int(self.lengths[episode])):
            yield pack(av.VideoFrame.from_ndarray(self.decode(episode, t, 1)[0], format="rgb24"))

    def place(self, episode: int) -> list[str]:
        return [self.column, str(self.rows[episode])]
