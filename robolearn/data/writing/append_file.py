"""The newest file of a kind: it grows episode by episode, each time written whole, until it is full."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from robolearn.data.lerobot import layout


@dataclass(frozen=True)
class AppendFile:
    """The newest file of a kind, which still grows."""

    pattern: str
    number: int = 0
    table: pa.Table | None = None

    @property
    def path(self) -> str:
        return layout.numbered(self.pattern, self.number)

    def appended(self, rows: pa.Table) -> AppendFile:
        if self.table is None:
            return AppendFile(self.pattern, self.number, rows)
        return AppendFile(self.pattern, self.number, pa.concat_tables([self.table, rows]).combine_chunks())

    def next(self) -> AppendFile:
        return AppendFile(self.pattern, self.number + 1)

    def full(self, size: int | None = None, *, rows: int | None = None) -> bool:
        if self.table is None:
            return False
        return (size is not None and self.table.nbytes >= size) or (rows is not None and self.table.num_rows >= rows)

    def content(self) -> pa.Buffer:
        assert self.table is not None
        return layout.parquet_bytes(self.table)
