"""Encoded pictures in a column of a table, which need not fit into memory.

A writer may put 1024 pictures into one page, and Arrow holds a page three times over while it reads it. So a row group
is read once, those of several cameras one after the other, and its pictures wait in an unnamed file, together with
those of other row groups up to `KEPT` bytes.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.remote import RemotePath

BUFFER = 1 << 20  # bytes of a file that are read ahead
BATCH = 16  # rows that are looked at together
KEPT = 1 << 28  # bytes of pictures that wait for who comes back to them

_one_at_a_time = threading.Lock()


def content_of(cell: Any) -> bytes:
    """The encoded picture in a table's cell; empty where there is none."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return content if isinstance(content, bytes) else b""


class PictureCells:
    """The encoded pictures in `column` of file `name` of the data set `root`."""

    def __init__(self, root: Path | RemotePath, name: str, column: str) -> None:
        self._root, self._name, self._column = root, name, column
        self._places: dict[int, NDArray[np.int64]] = {}  # first row of a row group → where its pictures begin, and end
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open for as long as this is there
        self._lock = threading.Lock()

    def at(self, rows: Iterable[int]) -> Iterator[bytes]:
        """The pictures in `rows` of the file, in that order; empty where there is none.

        Raises:
          BadInput: the file is missing or damaged, or has no such column.
        """
        for row in rows:
            with self._lock:
                known = (first for first, places in self._places.items() if 0 <= row - first < len(places) - 1)
                if (first := next(known, None)) is None:
                    first = self._take(row)
                begin, end = (int(place) for place in self._places[first][row - first : row - first + 2])
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
            group, places = int(np.searchsorted(starts, row, side="right")) - 1, [self._file.tell()]
            places += [
                self._file.write(content_of(cell.as_py()))
                for batch in table.iter_batches(BATCH, [group], [self._column], use_threads=False)
                for cell in batch.column(0)
            ]
        self._places[int(starts[group])] = np.cumsum(places)
        pa.default_memory_pool().release_unused()
        return int(starts[group])
