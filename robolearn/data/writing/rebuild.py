"""Rows of ``meta/episodes`` that are lost, made again from the frames, the videos and the tasks.

A row holds nothing that is not also in these files, in the layout of `layout`. Where a file of rows is damaged or gone,
all rows are written anew, so that their files are numbered without a hole.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import schema_of
from robolearn.data.lerobot.statistics import describe, split
from robolearn.data.lerobot.tables import array_of, conformed, episode_row, episodes_schema, tasks_of
from robolearn.data.video.pixels import describe_frames
from robolearn.data.video.readers import VideoReader
from robolearn.data.writing import locked_dataset

WHERE = ("meta/episodes/chunk_index", "meta/episodes/file_index")


def rebuild_rows(root: Path, info: Mapping[str, Any]) -> list[int]:
    """Make the rows again that the set `root` lacks; returns their episodes.

    Args:
      info: its ``meta/info.json``; it counts the episodes that there are.

    Raises:
      BadInput: of an episode without a row the frames, a video or the tasks are not whole, either; it is named, and
        nothing has changed.
    """
    schema = episodes_schema(info["features"])
    found, damaged = _found(root, schema)
    lacking = [index for index in range(info["total_episodes"]) if index not in found]
    if not lacking and not damaged:
        return []
    if lacking:
        found |= _made(root, info, schema, set(lacking))
    rows = [found[index] for index in sorted(found)]
    commit = layout.commit(root, ".again.tmp")
    count = -(-len(rows) // locked_dataset.META_ROWS)
    for number in range(count):
        table = pa.concat_tables(rows[number * locked_dataset.META_ROWS : (number + 1) * locked_dataset.META_ROWS])
        for name, value in zip(WHERE, divmod(number, layout.CHUNKS_SIZE), strict=True):
            table = table.set_column(table.column_names.index(name), name, pa.array([value] * len(table), pa.int64()))
        commit.stage(layout.numbered(layout.EPISODES_PATH, number), layout.parquet_bytes(table.combine_chunks()))
    if count:
        commit.publish()
    # Only now: until here whoever is killed finds the rows that were there, some of them twice.
    kept = {root / layout.numbered(layout.EPISODES_PATH, number) for number in range(count)}
    for path in root.glob("meta/episodes/*/*.parquet"):
        if path not in kept:
            path.unlink()
    return lacking


def _found(root: Path, schema: pa.Schema) -> tuple[dict[int, pa.Table], bool]:
    """Episode → its row, of those that can be read; and whether a file of rows is damaged or rows are there twice."""
    found: dict[int, pa.Table] = {}
    damaged = False
    for path in sorted(root.glob("meta/episodes/*/*.parquet")):
        name = str(path.relative_to(root))
        try:
            table = conformed(layout.read_parquet(root, name), schema, what=f"data set {root}: {name}")
        except BadInput:
            damaged = True
            continue
        for i, index in enumerate(table["episode_index"].to_pylist()):
            damaged |= index in found
            found[index] = table.slice(i, 1)
    return found, damaged


def _made(root: Path, info: Mapping[str, Any], schema: pa.Schema, lacking: set[int]) -> dict[int, pa.Table]:
    """Episode → its row, of those that are `lacking`."""
    features = info["features"]
    sizes = {name: int(np.prod(f["shape"])) for name, f in features.items() if f["dtype"] != "video"}
    cameras = [name for name, feature in features.items() if feature["dtype"] == "video"]
    words = tasks_of(layout.read_parquet(root, layout.TASKS_PATH), what=f"data set {root}: {layout.TASKS_PATH}")
    files = _frames(root, info)
    made: dict[int, pa.Table] = {}
    first = 0
    for index in range(info["total_episodes"]):
        what = f"data set {root}: episode {index}, which has no row in meta/episodes"
        if index not in files:
            raise BadInput(what, got="no frames", expected="them, to make its row again")
        number, table = files[index]
        length = table.num_rows
        start, first = first, first + length
        if index not in lacking:
            continue
        if table["index"].to_pylist() != list(range(start, first)):
            raise BadInput(what, got="frames with a hole", expected=f"frames from {start} on, to make its row again")
        columns = [array_of(table[name], (size,), "float64", what=f"{what}: {name}") for name, size in sizes.items()]
        stats = split(describe(np.concatenate(columns, axis=1)), sizes)
        chunk, file = divmod(number, layout.CHUNKS_SIZE)
        facts: dict[str, int | float] = {
            "episode_index": index,
            "length": length,
            "data/chunk_index": chunk,
            "data/file_index": file,
            "dataset_from_index": start,
            "dataset_to_index": first,
            **dict.fromkeys(WHERE, 0),
        }
        for name in cameras:
            facts[f"videos/{name}/chunk_index"], facts[f"videos/{name}/file_index"] = divmod(index, layout.CHUNKS_SIZE)
            facts[f"videos/{name}/from_timestamp"] = 0.0
            facts[f"videos/{name}/to_timestamp"] = length / float(info["fps"])
            height, width, channels = features[name]["shape"]
            reader = VideoReader(
                root, name, (height, width, channels), np.array([length]), [layout.video_path(name, index)],
                np.zeros(1), float(info["fps"]),
            )  # fmt: skip
            stats[name] = describe_frames(reader.decode(0))
        spoken = dict.fromkeys(table["task_index"].to_pylist())
        if not all(0 <= task < len(words) for task in spoken):
            raise BadInput(what, got=f"tasks {list(spoken)}", expected=f"0 to {len(words) - 1}")
        made[index] = episode_row(schema, facts, [words[task] for task in spoken], stats)
    return made


def _frames(root: Path, info: Mapping[str, Any]) -> dict[int, tuple[int, pa.Table]]:
    """Episode → the number of its data file, and its frames."""
    schema = schema_of(info["features"])
    found: dict[int, tuple[int, pa.Table]] = {}
    for number in itertools.count():
        name = layout.numbered(layout.DATA_PATH, number)
        if not (root / name).exists():
            return found
        table = conformed(layout.read_parquet(root, name), schema, what=f"data set {root}: {name}")
        indices = table["episode_index"].to_numpy()
        edges = np.flatnonzero(np.diff(indices, prepend=-1))
        for start, end in itertools.pairwise([*edges.tolist(), len(indices)]):
            found[int(indices[start])] = number, table.slice(start, end - start)
    raise AssertionError
