"""Arrow tables of the v3.0 format: frames, episodes and tasks, built from arrays and turned back into them; and a file
of our own with the observation after the last action of an episode, which other readers of the format pass over.

    meta/robolearn_final/chunk-000/file-000.parquet     one row per file, the file's number is the episode's

The format has a frame for each action, so the state that the last action led to has no frame. Columns are LeRobot's
names of the features: vectors as lists, pictures as PNG; ``length`` is the number of steps that came before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput, Episode, Interface, Observation
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import (
    FAILURE,
    INTERVENTION,
    cast,
    column,
    failure_number,
    image_keys,
    is_image,
    stamp_column,
)
from robolearn.data.lerobot.layout import CHUNKS_SIZE, whole_numbers
from robolearn.data.lerobot.statistics import QUANTILES, Stats

STATISTICS = ("min", "max", "mean", "std", "count", *QUANTILES)
DATA_PLACE = ("data/chunk_index", "data/file_index", "dataset_from_index", "dataset_to_index")
ROW_PLACE = ("meta/episodes/chunk_index", "meta/episodes/file_index")
_INDEX_COLUMN = "__index_level_0__"


def frames_table(schema: pa.Schema, frames: Mapping[str, NDArray]) -> pa.Table:
    """One row per frame; a vector column takes (T, D), a plain one (T,)."""
    columns = []
    for field in schema:
        values = frames[field.name]
        if pa.types.is_fixed_size_list(field.type):
            flat = pa.array(np.ascontiguousarray(values).reshape(-1), type=field.type.value_type)
            columns.append(pa.FixedSizeListArray.from_arrays(flat, type=field.type))
        else:
            columns.append(pa.array(np.ascontiguousarray(values).reshape(-1), type=field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def episodes_schema(features: Mapping[str, Mapping[str, Any]]) -> pa.Schema:
    """The columns of ``meta/episodes``, with LeRobot's types: extremes as the feature has them."""
    columns: dict[str, pa.DataType] = {"episode_index": pa.int64(), "tasks": pa.list_(pa.string())}
    columns |= {name: pa.int64() for name in ("length", *DATA_PLACE)}
    for name, feature in features.items():
        if feature["dtype"] == "string":
            continue  # text has no statistics, as LeRobot has it
        if feature["dtype"] == "video":
            columns |= {f"videos/{name}/{key}": pa.int64() for key in ("chunk_index", "file_index")}
            columns |= {f"videos/{name}/{key}": pa.float64() for key in ("from_timestamp", "to_timestamp")}
        extreme = {"int64": pa.int64(), "bool": pa.bool_()}.get(feature["dtype"], pa.float64())
        kinds = {"min": extreme, "max": extreme, "count": pa.int64()}
        for key in STATISTICS:
            kind = pa.list_(kinds.get(key, pa.float64()))
            if feature["dtype"] == "video" and key != "count":  # (3, 1, 1)
                kind = pa.list_(pa.list_(kind))
            columns[f"stats/{name}/{key}"] = kind
    columns |= {name: pa.int64() for name in ROW_PLACE}
    return pa.schema(columns.items())


def row_facts(
    index: int, frames: range, data: int, meta: int, cameras: Sequence[str], hz: float
) -> dict[str, int | float]:
    """The plain columns of the row of episode `index`, which has the `frames` of the set.

    Args:
      data, meta: numbers of the files in which its frames and its row lie; of each camera it has a file of its own.
      cameras: the features that are videos.
    """
    facts: dict[str, int | float] = {"episode_index": index, "length": len(frames)}
    facts |= {"dataset_from_index": frames.start, "dataset_to_index": frames.stop}
    for camera in cameras:
        facts |= {f"videos/{camera}/from_timestamp": 0.0, f"videos/{camera}/to_timestamp": len(frames) / hz}
    numbers = {"data": data, "meta/episodes": meta, **{f"videos/{camera}": index for camera in cameras}}
    for name, number in numbers.items():
        facts[f"{name}/chunk_index"], facts[f"{name}/file_index"] = divmod(number, CHUNKS_SIZE)
    return facts


def episode_row(
    schema: pa.Schema, facts: Mapping[str, int | float], tasks: Sequence[str], stats: Mapping[str, Stats]
) -> pa.Table:
    """The row of one episode: `facts` (the plain columns), its tasks, and ``stats/<feature>/<statistic>``."""
    columns = {name: pa.array([value], type=schema.field(name).type) for name, value in facts.items()}
    columns["tasks"] = pa.array([list(tasks)], type=pa.list_(pa.string()))
    for feature, values in stats.items():
        for name in STATISTICS:
            key = f"stats/{feature}/{name}"
            kind = schema.field(key).type.value_type
            if pa.types.is_list(kind):
                columns[key] = pa.array([values[name].reshape(-1, 1, 1).tolist()], type=schema.field(key).type)
                continue
            flat = pa.array(values[name].astype(kind.to_pandas_dtype(), copy=False), type=kind)
            columns[key] = pa.ListArray.from_arrays(pa.array([0, len(flat)], type=pa.int32()), flat)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def conformed(table: pa.Table, schema: pa.Schema, *, what: str) -> pa.Table:
    """`table` with the columns, their order and types of `schema`; another tool may have appended to the set."""
    lacking = [name for name in schema.names if name not in table.column_names]
    if lacking:
        raise BadInput(what, got=f"no column {lacking[0]!r}", expected="it")
    try:
        return table.select(schema.names).replace_schema_metadata(None).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise BadInput(what, got=f"columns of other types ({error})", expected=str(schema)) from None


def stacked_stats(episodes: pa.Table, features: Sequence[str]) -> Stats:
    """The statistics of E `episodes`, the features side by side: statistic → (E, Σ D)."""
    stats: Stats = {}
    for name in STATISTICS:
        parts = [_matrix(episodes[f"stats/{feature}/{name}"]) for feature in features]
        stats[name] = parts[0] if name == "count" else np.concatenate(parts, axis=1)
    return stats


def _matrix(column: pa.ChunkedArray) -> NDArray:
    flat = flat_values(column).to_numpy(zero_copy_only=False)
    return flat.astype(np.int64 if flat.dtype == np.int64 else np.float64).reshape(len(column), -1)


def tasks_table(tasks: Sequence[str]) -> pa.Table:
    """Task i in words. The words are the pandas index, which LeRobot looks them up by."""
    numbers = pa.array(range(len(tasks)), type=pa.int64())
    table = pa.table({"task_index": numbers, _INDEX_COLUMN: pa.array(list(tasks), type=pa.string())})

    def described(name: str | None, field: str | None, kind: str, numpy: str, metadata: Any = None) -> dict[str, Any]:
        return {"name": name, "field_name": field, "pandas_type": kind, "numpy_type": numpy, "metadata": metadata}

    words = described(None, _INDEX_COLUMN, "unicode", "object")
    pandas = {
        "index_columns": [_INDEX_COLUMN],
        "column_indexes": [described(None, None, "unicode", "object", {"encoding": "UTF-8"})],
        "columns": [described("task_index", "task_index", "int64", "int64"), words],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.2.0",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})


MOST_TASKS = 1_000_000  # what numbers them may leave some out


def numbered_tasks(table: pa.Table, *, what: str) -> dict[int, str]:
    """Task index → the task in words: the inverse of `tasks_table`, whatever the index column is called."""
    words = [f.name for f in table.schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    if "task_index" not in table.column_names or not words:
        raise BadInput(what, got=f"columns {table.column_names}", expected="task_index and the task in words")
    numbers = whole_numbers(table, ["task_index"], what)["task_index"].to_pylist()
    if strange := [number for number in numbers if not 0 <= number < MOST_TASKS]:
        raise BadInput(f"{what}: task_index", got=strange[0], expected=f"0 to {MOST_TASKS - 1}")
    return {number: str(task) for number, task in zip(numbers, table[words[0]].to_pylist(), strict=True)}


def tasks_of(table: pa.Table, *, what: str) -> list[str]:
    """The tasks in words, by their index; an index that none has is empty."""
    tasks = numbered_tasks(table, what=what)
    return [tasks.get(index, "") for index in range(max(tasks, default=-1) + 1)]


def array_of(column: pa.ChunkedArray, shape: tuple[int, ...], dtype: str, *, what: str) -> NDArray:
    """A contiguous (N, *shape) array of a column of lists, nested lists or plain values. Raises `BadInput`: a row with
    another number of components, or a null."""
    length = len(column)
    flat = flat_values(column)
    if not any(kind(flat.type) for kind in (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)):
        raise BadInput(what, got=f"a column of type {flat.type}", expected=dtype)
    if flat.null_count and not pa.types.is_floating(flat.type):
        raise BadInput(what, got="a null", expected="a value in every row")
    if len(flat) != length * int(np.prod(shape)):
        raise BadInput(what, got=f"{len(flat)} values in {length} rows", expected=f"{shape} in every row")
    given = flat.to_numpy(zero_copy_only=False)
    # A copy: Arrow's own memory is read-only, which torch refuses to share.
    values, changed = cast(given, dtype)
    if changed.any():
        raise BadInput(what, got=given[changed.argmax()], expected=f"numbers that are {dtype}")
    return values.reshape(length, *shape)


def flat_values(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column of lists, nested lists or plain values, one after the other."""
    flat = column.combine_chunks()
    while any(kind(flat.type) for kind in (pa.types.is_list, pa.types.is_fixed_size_list, pa.types.is_large_list)):
        flat = flat.flatten()
    return flat


def frame_columns(
    episode: Episode, interface: Interface, stamps: Sequence[str], index: int, first: int, tasks: Sequence[str]
) -> dict[str, NDArray]:
    """Column → (T, D) or (T,), images apart; text as objects.

    Args:
      stamps: the names of the raw timestamps.
      index: of the episode.
      first: of its first frame, counted over the data set.
      tasks: all tasks of the data set, by index, its own among them.
    """
    length = len(episode)
    place = {task: index for index, task in enumerate(tasks)}
    frame = np.arange(length, dtype=np.int64)
    last = frame == length - 1
    pictures = set(image_keys(interface))
    vectors = {key: array for key, array in episode.observation.items() if key not in pictures}
    intervention = np.zeros(length, bool) if episode.intervention is None else episode.intervention
    return {
        **{column(key): array.reshape(length, -1) for key, array in vectors.items()},
        "action": episode.action.reshape(length, -1),
        "next.reward": episode.reward,
        "next.done": last & bool(episode.terminated or episode.truncated),
        "next.terminated": last & bool(episode.terminated),
        "next.truncated": last & bool(episode.truncated),
        "next.success": last & bool(episode.success),
        INTERVENTION: intervention,
        FAILURE: np.full(length, failure_number(episode.failure), np.int64),
        **{stamp_column(name): episode.stamps[name] for name in stamps},
        **episode.texts,
        "timestamp": (frame / interface.control_hz).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.full(length, index, np.int64),
        "index": first + frame,
        "task_index": np.array([place[task] for task in episode.frame_tasks or (episode.task,) * length], np.int64),
    }


FINAL_PATH = "meta/robolearn_final/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_LENGTH = "length"


def final_table(final: Observation, interface: Interface, length: int) -> pa.Table:
    """The row of an episode of `length` steps; `final` has each feature of `interface`, without a leading axis."""
    columns = {_LENGTH: pa.array([length], pa.int64())}
    for key, spec in interface.observation.items():
        value = np.asarray(final[key])
        if is_image(spec):
            done, data = cv2.imencode(".png", np.ascontiguousarray(value[..., ::-1]))
            assert done
            columns[column(key)] = pa.array([data.tobytes()], pa.binary())
        else:
            columns[column(key)] = pa.array([value.ravel().tolist()], pa.list_(pa.from_numpy_dtype(value.dtype)))
    return pa.table(columns)


def has_final(root: object, index: int) -> bool:
    """True where the set in the folder `root` has the final observation of episode `index`; of a set on a server none
    is read."""
    return isinstance(root, Path) and (root / layout.numbered(FINAL_PATH, index)).is_file()


def final_content(root: object, index: int) -> bytes:
    """The file of the final observation of episode `index`; empty where `has_final` is false."""
    path = root / layout.numbered(FINAL_PATH, index) if isinstance(root, Path) else None
    return path.read_bytes() if path is not None and path.is_file() else b""


def read_final(root: Path, index: int, length: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray]:
    """Features of the observation after the last of the `length` steps of episode `index`.

    Args:
      shapes: feature → its shape.

    Raises:
      BadInput: the file is damaged, of an episode of another length, or lacks a feature.
    """
    name = layout.numbered(FINAL_PATH, index)
    table, what = layout.read_parquet(root, name), f"data set {root}: {name}"
    names = {key: column(key) for key in shapes}
    lacking = [name for name in (_LENGTH, *names.values()) if name not in table.column_names]
    if lacking or table.num_rows != 1:
        got = f"no column {lacking[0]!r}" if lacking else f"{table.num_rows} rows"
        raise BadInput(what, got=got, expected="one row with every feature", available=table.column_names)
    if (found := table[_LENGTH][0].as_py()) != length:
        hint = "Another tool has moved episodes: remove meta/robolearn_final"
        raise BadInput(what, got=f"an episode of {found} steps", expected=f"{length}", hint=hint)
    final: dict[str, NDArray] = {}
    for key, stored in names.items():
        shape, value = shapes[key], table[stored][0].as_py()
        if isinstance(value, bytes):
            picture = cv2.imdecode(np.frombuffer(value, np.uint8), cv2.IMREAD_COLOR)
            array = np.zeros(0, np.uint8) if picture is None else np.ascontiguousarray(picture[..., ::-1])
        else:
            array = np.asarray(value, table.schema.field(stored).type.value_type.to_pandas_dtype())
            array = array.reshape(shape) if array.size == math.prod(shape) else array
        if array.shape != shape:
            raise BadInput(f"{what}: {stored}", got=f"shape {array.shape}", expected=f"shape {shape}")
        final[key] = array
    return final
