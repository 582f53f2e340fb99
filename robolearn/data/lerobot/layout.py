"""The files of a LeRobotDataset v3.0: their places, reading and replacing them, and checks of ``meta/info.json``.

    meta/info.json  meta/stats.json  meta/tasks.parquet
    meta/episodes/chunk-000/file-000.parquet        one row per episode
    data/chunk-000/file-000.parquet                 one row per frame
    videos/observation.images.front/chunk-000/file-000.mp4      one per camera and episode
    .running/                                       what `repair` needs of the episode at hand; see writer.py

A file is replaced by writing ``<name>.tmp`` beside it, syncing that to the disk and renaming it. Readers of the
format list ``*.parquet``, so a ``.tmp`` that a killed process left behind is invisible to them.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robolearn.core import BadInput
from robolearn.core.errors import first_line
from robolearn.data.lerobot.remote import RemotePath
from robolearn.io.atomic import Commit
from robolearn.io.json_files import json_in
from robolearn.io.locks import Lock, LockHeld

CHUNKS_SIZE = 1000  # files per chunk folder
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
INFO_PATH = "meta/info.json"
A_SET = "A data set is a LeRobotDataset v3.0 folder, as robolearn collect and robolearn record write it"
INFO_TMP_PATH = "meta/info.json.tmp"
STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"
LOCK_PATH = ".writer.lock"
RUNNING_PATH = ".running"  # the journal and the growing videos of the episode at hand
# Such folders of recordings that were killed, 000, 001, …, set aside by a resumed one; and in beyond-000, … what lay
# beyond the counts of info.json and is no whole episode.
UNFINISHED_PATH = ".unfinished"
UNCOMMITTED = "beyond-"
WEIGHTS_PATH = "meta/robolearn_weights.json"
SCORES_PATH = "meta/robolearn_scores.parquet"


def numbered(pattern: str, number: int, video: str = "") -> str:
    """The path of file `number`, counted over all chunks, of feature `video` where there is one for each."""
    chunk, file = divmod(number, CHUNKS_SIZE)
    return pattern.format(video_key=video, chunk_index=chunk, file_index=file)


def video_path(key: str, number: int) -> str:
    """The mp4 of camera feature `key` and episode `number`."""
    return numbered(VIDEO_PATH, number, key)


def file_of(info: Mapping[str, Any], row: Mapping[str, Any], video: str = "") -> str:
    """The file in which a row of ``meta/episodes`` says that the episode's frames lie, or those of feature `video`."""
    where, key, usual = (f"videos/{video}", "video_path", VIDEO_PATH) if video else ("data", "data_path", DATA_PATH)
    place = {name: _whole_in(row, f"{where}/{name}") for name in ("chunk_index", "file_index")}
    return str(info.get(key) or usual).format(video_key=video, **place)


def begin_of(row: Mapping[str, Any], video: str) -> float:
    """The time in the file of feature `video` at which the episode of a row of ``meta/episodes`` begins [s]."""
    return _number_in(row, f"videos/{video}/from_timestamp")


def _whole_in(row: Mapping[str, Any], column: str) -> int:
    value = _number_in(row, column)
    if value != int(value):
        raise BadInput(f"meta/episodes, episode {row['episode_index']}: {column}", got=value, expected="a whole number")
    return int(value)


def _number_in(row: Mapping[str, Any], column: str) -> float:
    value = row[column]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"meta/episodes, episode {row['episode_index']}: {column}", got=value, expected="a number")
    return value


def row_files(root: Path) -> list[str]:
    """The files of ``meta/episodes`` of the data set `root`, in order."""
    return sorted(str(path.relative_to(root)) for path in root.glob("meta/episodes/*/*.parquet"))


def lock(root: Path) -> Lock:
    """Hold the data set `root` for writing. Raises `BadInput`: another writer holds it."""
    try:
        return Lock(root / LOCK_PATH)
    except LockHeld as held:
        got = f"another writer at work in it, process {held.holder}"
        raise BadInput(f"data set {root}", got=got, expected="one writer at a time") from None


def commit(root: Path, suffix: str = ".tmp") -> Commit:
    """Files of the data set `root` that are to be replaced together."""
    return Commit(root, f"data set {root}", suffix)


def json_bytes(value: Any, *, indent: int | None = None) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False).encode()


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    """One row group with page checksums, so that a damaged file is noticed when it is read."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", use_dictionary=False, write_page_checksum=True)
    return sink.getvalue()


def read_json(root: Path | RemotePath, name: str) -> dict[str, Any]:
    """Raises `BadInput` where the file is missing or not a JSON object."""
    path = root / name
    try:
        with path.open("rb") if isinstance(path, Path) else path.open() as file:
            value = json_in(file)
    except FileNotFoundError:
        is_run = isinstance(root, Path) and any(root.glob("log/*.transitions"))
        hint = f"A run of hil becomes a data set by robolearn dataset import {root} --out …" if is_run else ""
        wanted = "a LeRobotDataset v3.0 folder"
        raise BadInput(f"data set {root}", got=f"no {name}", expected=wanted, hint=hint) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"data set {root}: {name}", got=f"unreadable JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadInput(f"data set {root}: {name}", got=type(value).__name__, expected="a JSON object")
    return value


def read_info(root: Path | RemotePath) -> dict[str, Any]:
    """``meta/info.json`` of a set of any version. Raises `BadInput`: it is missing or unreadable, lacks a key that a
    reader needs, or has values that nothing can be read with; the message names the key."""
    info = read_json(root, INFO_PATH)
    check_not_newer(info, f"data set {root}")
    for key in ("codebase_version", "features", "fps", "total_episodes", "total_frames", "total_tasks"):
        if key not in info:
            raise BadInput(f"data set {root}: {INFO_PATH}", got=f"no {key}", expected="it", available=info)
    check_info(info, f"data set {root}: {INFO_PATH}")
    count = info["total_episodes"]
    # Each has a row at least; to go through so many that are not there takes for ever.
    if isinstance(root, Path) and count > UNPROVEN and (rows := _rows_in(root)) < count:
        expected = f"no more than the {rows} rows of its tables"
        raise BadInput(f"data set {root}: {INFO_PATH}: total_episodes", got=count, expected=expected)
    return info


def _rows_in(root: Path) -> int:
    """The rows of all tables that can be read, those of frames among them."""
    rows = 0
    for path in root.glob("**/*.parquet"):
        with suppress(BadInput), parquet_file(root, str(path.relative_to(root))) as file:
            rows += file.metadata.num_rows
    return rows


def read_parquet(root: Path | RemotePath, name: str, columns: list[str] | None = None) -> pa.Table:
    """The table in file `name`, all its columns or those of `columns` that it has.

    Raises `BadInput` where the file is missing or damaged.
    """
    with parquet_file(root, name) as file:
        if columns is not None:
            columns = [column for column in columns if column in file.schema_arrow.names]
        return file.read(columns=columns, use_threads=False)


@contextmanager
def parquet_file(root: Path | RemotePath, name: str, buffer: int = 0) -> Iterator[pq.ParquetFile]:
    """File `name`, opened; raises `BadInput` where it is missing, or turns out to be damaged while it is read.
    `buffer`: bytes that are read ahead; 0 reads all columns that are wanted at once."""
    try:
        path = root / name
        source = path.open() if isinstance(path, RemotePath) else path
        ahead = {"buffer_size": buffer, "pre_buffer": not buffer}
        with pq.ParquetFile(source, page_checksum_verification=True, **ahead) as file:
            yield file
    except FileNotFoundError:
        raise BadInput(f"data set {root}", got=f"no {name}", expected="that file") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"data set {root}: {name}", got=f"a corrupt parquet file ({first_line(error)})") from None


def rows_of(table: pa.Table, compare: str, episode: int, what: str = "") -> pa.Table:
    """The rows of `table`, from file `what`, whose episode is ``less`` than `episode`, ``equal`` or ``greater_equal``;
    raises `BadInput` where the column of episodes holds no whole numbers."""
    index = whole_numbers(table, ["episode_index"], what)["episode_index"]
    return table.filter(pc.call_function(compare, [index, pa.scalar(episode, pa.int64())]))


def whole_numbers(table: pa.Table, columns: Sequence[str], what: str) -> pa.Table:
    """`table` with `columns` as int64; raises `BadInput`, with `what` and the column, where one is something else."""
    for name in columns:
        if name not in table.column_names:
            raise BadInput(what, got=f"no column {name!r}", expected="it", available=table.column_names)
        column = table[name]
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise BadInput(f"{what}, {name}", got=f"a column of type {kind}", expected="whole numbers")
        if column.null_count:
            raise BadInput(f"{what}, {name}", got="a null", expected="a whole number in every row")
        try:
            column = (column.cast(pa.float32()) if pa.types.is_float16(kind) else column).cast(pa.int64())
        except pa.ArrowException as error:
            raise BadInput(f"{what}, {name}", got=first_line(error), expected="whole numbers") from None
        table = table.set_column(table.column_names.index(name), name, column)
    return table


VERSION = "v3.0"

# What may stand in the patterns of paths, by version.
V2 = ("episode_chunk", "episode_index", "video_key")
V3 = ("chunk_index", "file_index", "video_key")


MOST = 10**12  # episodes, frames or tasks of a set
UNPROVEN = 10**6  # episodes that are believed without a look at the frames


def check_info(info: Mapping[str, Any], what: str) -> None:
    """Raise `BadInput`, with the key, where a value is of a kind that no reader understands. All keys are there."""
    for key in ("total_episodes", "total_frames", "total_tasks"):
        if not isinstance(info[key], int) or not 0 <= info[key] <= MOST:
            raise BadInput(f"{what}: {key}", got=info[key], expected=f"a number from 0 to {MOST:,}")
    fps, size = info["fps"], info.get("chunks_size")
    if not isinstance(fps, int | float) or not 0 < fps < math.inf:
        raise BadInput(f"{what}: fps", got=fps, expected="a positive number")
    if size is not None and (not isinstance(size, int) or size < 1):
        raise BadInput(f"{what}: chunks_size", got=size, expected="a positive number")
    features = info["features"]
    if not isinstance(features, dict) or not all(isinstance(feature, dict) for feature in features.values()):
        raise BadInput(f"{what}: features", got=type(features).__name__, expected="a dict of dicts")
    for name, feature in features.items():
        _check_feature(name, feature, f"{what}: features: {name}")
    if _number(info)[:1] == [3]:
        check_patterns(info, what, V3)


def check_version(info: Mapping[str, Any], what: str) -> None:
    """Raise `BadInput` unless a set is of `VERSION`, which alone is read without an import."""
    if _number(info)[:2] != _number({"codebase_version": VERSION}):
        hint = "robolearn dataset import reads it" if _number(info)[:1] == [2] else ""
        raise BadInput(what, got=f"format {info['codebase_version']}", expected=VERSION, hint=hint)


def check_not_newer(info: Mapping[str, Any], what: str) -> None:
    """Raise `BadInput` where a set is of a version that came after `VERSION`: nothing else about it is known then."""
    if _number(info)[:2] > _number({"codebase_version": VERSION}):
        hint = f"This version of robolearn reads LeRobot's formats up to {VERSION}, which LeRobot 0.4 to 0.6 write"
        raise BadInput(what, got=f"format {info['codebase_version']}, a newer one", expected=VERSION, hint=hint)


def _number(info: Mapping[str, Any]) -> list[int]:
    """``"v3.0"`` → [3, 0]; what is no version → nothing."""
    parts = str(info.get("codebase_version", "")).removeprefix("v").split(".")
    return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else []


def _check_feature(name: str, feature: Mapping[str, Any], what: str) -> None:
    if "/" in name or "\0" in name or name in ("", ".", ".."):  # names become parts of paths
        raise BadInput(what, got="this name", expected="one without '/' and '\\0', as LeRobot has it")
    if not isinstance(feature.get("dtype"), str):
        raise BadInput(f"{what}: dtype", got=feature.get("dtype"), expected="a word")
    shape = feature.get("shape")
    if not isinstance(shape, list) or not all(isinstance(extent, int) and extent >= 0 for extent in shape):
        raise BadInput(f"{what}: shape", got=shape, expected="a list of numbers")
    for key in ("info", "video_info"):
        if not isinstance(feature.get(key) or {}, dict):
            raise BadInput(f"{what}: {key}", got=type(feature[key]).__name__, expected="a dict")


def check_patterns(info: Mapping[str, Any], what: str, names: Sequence[str]) -> None:
    """Raise `BadInput` where the pattern of a path holds something else than `names`, or leads out of the set."""
    for key in ("data_path", "video_path"):
        pattern = str(info.get(key) or "")
        try:
            wide = [
                spec
                for _, _, spec, _ in string.Formatter().parse(pattern)
                if not re.fullmatch(r"(0?\d\d?d)?", spec or "")
            ]
            path = "" if wide else pattern.format(**{name: "x" if name == "video_key" else 0 for name in names})
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            wide, path = [pattern], ""
        if wide or path.startswith("/") or re.search(r"[\\:\0]", path) or ".." in path.split("/"):
            expected = f"a pattern of {', '.join(names)} within the set"
            raise BadInput(f"{what}: {key}", got=info[key], expected=expected)
