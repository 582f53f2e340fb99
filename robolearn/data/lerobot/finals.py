"""The observation after the last action of an episode, in a file of its own that other readers of the format pass over.

    meta/robolearn_final/chunk-000/file-000.parquet     one row per file, the file's number is the episode's

The format has a frame for each action, so the state that the last action led to has no frame. Columns are LeRobot's
names of the features: vectors as lists, pictures as PNG; ``length`` is the number of steps that came before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface, Observation
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import column, is_image

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
