"""Features of text, a string per frame, that another maker's set has beside its observations.

Imports, edits and exports keep them under their names; policies, statistics and quality do not see them. A string may
be null. Which features they are: `features.text_names`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import text_names
from robolearn.data.lerobot.remote import RemotePath

Strings = NDArray[np.object_]
"""(T,) str, or None where a string is null."""

EVERYTHING, WORDS, NOTHING = "everything", "words", "nothing"
"""Of text, a format of exports holds everything; words, but neither null nor the character NUL; or nothing."""


class Texts:
    """The features of text of a set, read when they are asked for, a file of frames at a time.

    Args:
      root: the set.
      info: its ``meta/info.json``.
      rows: of ``meta/episodes``.

    Attributes:
      names: of the features.
      left_out: a line on each that is not there as ``meta/info.json`` says.
    """

    def __init__(self, root: Path | RemotePath, info: Mapping[str, Any], rows: pa.Table) -> None:
        wanted = text_names(info["features"])
        self._root, self._files = root, [layout.file_of(info, row) for row in rows.to_pylist()] if wanted else []
        self.names, self.left_out = texts_in(root, self._files, wanted)
        self._newest: tuple[str, pa.Table] | None = None

    def strings(self, name: str, episode: int) -> Strings:
        """Feature `name` of the frames of `episode`. Raises `BadInput`: the file is damaged, or holds no such text."""
        file = self._files[episode]
        table = layout.rows_of(self._table(file), "equal", episode, f"data set {self._root}: {file}")
        return strings_of(table, name, f"data set {self._root}: {file}")

    def held(self, by: str) -> tuple[list[str], list[str]]:
        """The features that a format holds, which holds `EVERYTHING`, `WORDS` or `NOTHING` of text, and a line on each
        of the others."""
        if by == NOTHING:
            return [], [*self.left_out, *(f"{name} (string): the format has no place for it" for name in self.names)]
        strange: dict[str, str] = {}
        for file in dict.fromkeys(self._files if by == WORDS else ()):
            for name in self.names:
                values = strings_of(self._table(file), name, f"data set {self._root}: {file}")
                found = "null" if None in values else "NUL" if any("\0" in value for value in values) else ""
                if found:
                    strange.setdefault(name, f"{name} (string): it has a {found}, for which the format has no place")
        return [name for name in self.names if name not in strange], [*self.left_out, *strange.values()]

    def _table(self, file: str) -> pa.Table:
        if self._newest is None or self._newest[0] != file:
            self._newest = file, layout.read_parquet(self._root, file, [*self.names, "episode_index"])
        return self._newest[1]


def texts_in(root: Path | RemotePath, files: Iterable[str], names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Those of the features `names` that are text in the first of `files` that opens, and a line on each other one."""
    for file in files if names else ():
        try:
            with layout.parquet_file(root, file) as opened:
                columns = {field.name: field.type for field in opened.schema_arrow}
        except BadInput:
            continue  # named where it is read
        there = tuple(name for name in names if name in columns and is_text(columns[name]))
        return there, [f"{name} (string): {file} has no such text" for name in names if name not in there]
    return tuple(names), []


def is_text(kind: pa.DataType) -> bool:
    """True for the type of a column of strings."""
    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    return str(kind) in ("string", "large_string", "string_view", "null")


def encodes(text: str) -> bool:
    """False where UTF-8 has no bytes for it: it holds half of a character that takes two, as names of files may."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def strings_of(table: pa.Table, name: str, what: str) -> Strings:
    """Column `name` of `table`. Raises `BadInput`: there is none, or what it holds is no text."""
    if name not in table.column_names or not is_text(table[name].type):
        got = f"a column of type {table[name].type}" if name in table.column_names else "no such column"
        raise BadInput(f"{what}, {name}", got=got, expected=f"text, as {layout.INFO_PATH} says")
    try:
        return np.array(table[name].to_pylist(), object)
    except UnicodeDecodeError as error:
        raise BadInput(f"{what}, {name}", got=f"bytes that are no text ({error})", expected="UTF-8") from None
