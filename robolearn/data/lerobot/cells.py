"""Encoded pictures in a column of a table, which need not fit into memory.

A writer may put 1024 pictures into one page, and Arrow holds a page three times over while it reads it. So a row group
is read once, those of several cameras one after the other, and its pictures wait in an unnamed file.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robolearn.core import BadInput
from robolearn.data.lerobot import layout

BUFFER = 1 << 20  # bytes of a file that are read ahead
BATCH = 16  # rows that are looked at together

_one_at_a_time = threading.Lock()


def content_of(cell: Any) -> bytes:
    """The encoded picture in a table's cell; empty where there is none."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return content if isinstance(content, bytes) else b""


class PictureCells:
    """The encoded pictures in `column` of file `name` of the data set `root`. One thread may use them."""

    def __init__(self, root: Path, name: str, column: str) -> None:
        self._root, self._name, self._column = root, name, column
        self._first, self._ends = 0, np.zeros(0, np.int64)  # the first row of the row group at hand, and its pictures
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open for as long as this is there

    def at(self, rows: Iterable[int]) -> Iterator[bytes]:
        """The pictures in `rows` of the file, in that order; empty where there is none.

        Raises:
          BadInput: the file is missing or damaged, or has no such column.
        """
        for row in rows:
            if not 0 <= row - self._first < len(self._ends):
                self._take(row)
            end = int(self._ends[row - self._first])
            begin = int(self._ends[row - self._first - 1]) if row > self._first else 0
            self._file.seek(begin)
            yield self._file.read(end - begin)

    def _take(self, row: int) -> None:
        """Put the pictures of the row group that holds `row` into the file."""
        self._ends = np.zeros(0, np.int64)  # where reading fails, the next call begins anew
        self._file.seek(0)
        with _one_at_a_time, layout.parquet_file(self._root, self._name, BUFFER) as table:
            if self._column not in table.schema_arrow.names:
                what, names = f"data set {self._root}: {self._name}", table.schema_arrow.names
                raise BadInput(what, got=f"no column {self._column!r}", expected="it", available=names)
            sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
            starts = np.cumsum([0, *sizes])
            group = int(np.searchsorted(starts, row, side="right")) - 1
            lengths = [
                self._file.write(content_of(cell.as_py()))
                for batch in table.iter_batches(BATCH, [group], [self._column], use_threads=False)
                for cell in batch.column(0)
            ]
        self._first, self._ends = int(starts[group]), np.cumsum(lengths)
        pa.default_memory_pool().release_unused()
