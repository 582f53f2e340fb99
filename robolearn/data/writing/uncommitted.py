"""Remains of killed processes: files of a set beyond the counts of ``meta/info.json``, and hidden copies.

A commit renames ``meta/info.json`` last. Where one was killed on its way, ``meta/info.json.tmp`` is still there with
the number of episodes that there would have been; those were never finished. Without it they are finished ones, and
``meta/info.json`` is older than they are: it came back from a backup, from git, or with a tool that syncs folders.

Of edits, imports, exports and repairs hidden copies stay that nothing refers to:

    .<name>.part/           beside what was to become <name>; its set is in set/, and whole where only the last rename
                            is lacking; together.json names the other parts of a split
    .<name>.part            a file, in the same place
    <set>/.unfinished/beyond-<number>/      what no episode is whole of: see `repair`

What a living process is filling is not among them: it holds the lock of the folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.video.container import UNREADABLE, pictures_of, state_of
from robolearn.io.atomic import move, remove
from robolearn.io.locks import is_locked

_COLUMNS = ["episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index"]


@dataclass(frozen=True)
class Uncommitted:
    """Content of a set of ours beyond the counts of its ``meta/info.json``.

    Attributes:
      torn: it is the rest of a commit that was killed.
      lengths: of the finished episodes that follow the counted ones: those of which the row, the frames and the videos
        are there, up to the first that lacks something.
      tasks: how many tasks there are, those of these episodes included.
    """

    torn: bool
    lengths: list[int]
    tasks: int


def find_uncommitted(root: Path, info: Mapping[str, Any]) -> Uncommitted:
    """Look at the files of the set `root`, in the layout of `layout`; `info` is its ``meta/info.json``."""
    count, frames, tasks = info["total_episodes"], info["total_frames"], info["total_tasks"]
    cameras = [name for name, feature in info["features"].items() if feature.get("dtype") == "video"]
    columns = _COLUMNS + [f"videos/{name}/{key}" for name in cameras for key in ("chunk_index", "file_index")]
    rows: dict[int, dict[str, Any]] = {}
    for name in layout.row_files(root):
        try:
            table = layout.read_parquet(root, name, columns)
        except BadInput:
            continue  # where counted episodes are in it, reading them raises
        if "episode_index" in table.column_names and pa.types.is_integer(table["episode_index"].type):
            rows |= {row["episode_index"]: row for row in layout.rows_of(table, "greater_equal", count).to_pylist()}
    if is_torn(root, count, max(rows, default=count)):
        return Uncommitted(True, [], tasks)
    lengths: list[int] = []
    while (index := count + len(lengths)) in rows:
        found = _whole(root, rows[index], frames + sum(lengths), cameras)
        if found is None:
            break
        lengths.append(found[0])
        tasks = max(tasks, found[1] + 1)
    return Uncommitted(False, lengths, tasks)


def is_torn(root: Path, count: int, newest: int) -> bool:
    """True where episodes `count` to `newest` are the rest of a commit that was killed."""
    try:
        total = json.loads((root / layout.INFO_TMP_PATH).read_bytes())["total_episodes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return isinstance(total, int) and max(count, newest) < total


def _whole(root: Path, row: Mapping[str, Any], first: int, cameras: list[str]) -> tuple[int, int] | None:
    """(length, highest task) of the episode of `row`, which begins at frame `first`; None where something lacks."""
    index, length = row["episode_index"], row.get("length")
    where = {"chunk_index": row.get("data/chunk_index"), "file_index": row.get("data/file_index")}
    if not length or row.get("dataset_from_index") != first or None in where.values():
        return None
    try:
        table = layout.read_parquet(root, layout.DATA_PATH.format(**where), ["episode_index", "index", "task_index"])
        known = layout.read_parquet(root, layout.TASKS_PATH).num_rows
    except BadInput:
        return None
    if table.num_columns < 3:
        return None
    mine = layout.rows_of(table, "equal", index)
    task = max(mine["task_index"].to_pylist(), default=known)
    if mine["index"].to_pylist() != list(range(first, first + length)) or task >= known:
        return None
    return (length, task) if all(_frames(root, row, name) == length for name in cameras) else None


def _frames(root: Path, row: Mapping[str, Any], name: str) -> int:
    """Of the video of feature `name`, by its index; 0 where there is none."""
    try:
        path = root / layout.file_of({}, row, name)
        return len(pictures_of(path, *state_of(path)).ticks)
    except (*UNREADABLE, KeyError, TypeError):
        return 0


log = logging.getLogger(__name__)


def unfinished_folder(root: Path, prefix: str = "") -> Path:
    """A path in `layout.UNFINISHED_PATH` that is not there yet: `prefix` and a number."""
    folder = root / layout.UNFINISHED_PATH
    folder.mkdir(exist_ok=True)
    taken = [path.name.removeprefix(prefix) for path in folder.glob(f"{prefix}*")]
    return folder / f"{prefix}{1 + max((int(name) for name in taken if name.isdigit()), default=-1):03d}"


def clean_up(root: Path, newest: Mapping[str, int], *, torn: bool, cut: Sequence[str] = ()) -> None:
    """Clear away .tmp files but that of info.json, and the files after the `newest` of each pattern.

    Args:
      newest: pattern of a path → number of the last file that an episode lies in, -1 for none.
      torn: the others are the rest of a killed commit, and are removed.
      cut: files that lose rows; where these are no rest of a killed commit, copies are set aside.
    """
    for name in root.rglob("*.tmp"):
        if name != root / layout.INFO_TMP_PATH:
            name.unlink()
    strays = [file for pattern, last in newest.items() for file in _after(root, pattern, last)]
    if torn:
        for file in strays:
            file.unlink()
    elif strays or cut:
        folder = unfinished_folder(root, layout.UNCOMMITTED)
        for file in (*strays, *(root / name for name in cut)):
            place = folder / file.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            if file in strays:
                move(file, place)
            else:
                shutil.copy2(file, place)
        log.warning("%s: what %s does not count is set aside in %s", root, layout.INFO_PATH, folder)


def _after(root: Path, pattern: str, last: int) -> list[Path]:
    """The files of `pattern` with a higher number than `last`."""
    return [
        file
        for chunk in (root / pattern).parent.parent.glob("chunk-*")
        for file in chunk.glob(f"file-*{Path(pattern).suffix}")
        if _number(chunk, file) > last
    ]


def _number(chunk: Path, file: Path) -> int:
    """Of a file in the layout; -1 for other files beside them."""
    of_chunk, of_file = chunk.name.removeprefix("chunk-"), file.stem.removeprefix("file-")
    return int(of_chunk) * layout.CHUNKS_SIZE + int(of_file) if of_chunk.isdecimal() and of_file.isdecimal() else -1


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


PART, INNER, TOGETHER = ".part", "set", "together.json"


@dataclass(frozen=True)
class Leftover:
    """A copy that a killed process left.

    Attributes:
      path: of the hidden file or folder.
      size: of its files [bytes].
      what: in words.
    """

    path: Path
    size: int
    what: str


def part_of(place: Path) -> Path:
    """The place at which the future `place` is written. Raises `BadInput`: a link lies there: what it leads to would be
    emptied."""
    part = place.with_name(f".{place.name}{PART}")
    if part.is_symlink():
        raise BadInput(f"--out {place}", got=f"a link {part}", expected="none: what it leads to would be emptied")
    return part


def note_together(part: Path, places: Sequence[Path]) -> None:
    """Write down in the folder `part` which sets are made together."""
    (part / TOGETHER).write_text(json.dumps([str(place) for place in places]))


def leftovers(folder: Path) -> Iterator[Leftover]:
    """The leftovers in `folder`, which holds data sets, and in each of these sets."""
    for path in sorted(folder.glob(f".*{PART}")):
        if not path.is_symlink() and not is_locked(path / layout.LOCK_PATH):
            place = folder / path.name.removeprefix(".").removesuffix(PART)
            yield Leftover(path, _size(path), _words(path, place))
    for path in sorted(folder.glob(f"*/{layout.UNFINISHED_PATH}/{layout.UNCOMMITTED}*")):
        if not is_locked(path.parents[1] / layout.LOCK_PATH):
            yield Leftover(path, _size(path), "what a repair found of episodes that are not whole")


def clear(left: Leftover) -> None:
    """Remove it; a folder that held nothing else goes with it."""
    remove(left.path)
    if left.path.parent.name == layout.UNFINISHED_PATH:
        with contextlib.suppress(OSError):  # there are other things in it
            left.path.parent.rmdir()


def _words(part: Path, place: Path) -> str:
    try:
        others = [Path(name) for name in json.loads((part / TOGETHER).read_text())]
    except (OSError, ValueError, TypeError):
        return f"a copy that was to become {place}, of a command that was killed"
    there = [other.name for other in others if other.exists()]
    missing = [other.name for other in others if not other.exists()]
    return (
        f"a part of a split that was killed: {', '.join(there) or 'none'} of {len(others)} parts "
        f"{'is' if len(there) == 1 else 'are'} there, {', '.join(missing)} not"
    )


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
