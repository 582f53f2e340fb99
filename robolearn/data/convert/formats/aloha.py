"""A folder with an HDF5 file per episode, as ALOHA and ACT record it (Zhao et al., *Learning Fine-Grained Bimanual
Manipulation with Low-Cost Hardware*, 2023).

    episode_<i>.hdf5
      action                        (T, 14)     positions: for each arm six joints [rad] and its gripper
      observations/qpos             (T, 14)     the same, measured: ``proprio``
      observations/qvel, effort     (T, 14)     left out unless they are mapped
      observations/images/<camera>  (T, H, W, 3) uint8, or (T, N): JPEG, filled up to N bytes
      base_action                   (T, 2)      of Mobile ALOHA, left out unless it is mapped

Files do not say how an episode ended, nor their rate: 50 Hz is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.convert.formats.arrays import Head, NamedArrays, Pictures, decoded, episodes_of
from robolearn.data.convert.formats.config import ARRAYS, FormatConfig
from robolearn.data.convert.formats.hdf5 import check_own, damage, open_file
from robolearn.data.convert.options import Account, ReadOptions, sound
from robolearn.data.convert.source import EpisodeSource
from robolearn.data.lerobot.features import IMAGES

CONTROL_HZ = 50.0  # ALOHA's DT is 0.02 s
BLOCK = 16  # pictures that are in memory together
_PICTURES, _QPOS = "observations/images/", "observations/qpos"
_LENGTHS = "compress_len"
_JOINTS = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")


def here(path: Path) -> bool:
    return path.is_dir() and any(_number(file) is not None for file in path.glob("episode_*.hdf5"))


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the folder `path`. Raises `BadInput`: no episodes, a file that is damaged or leads elsewhere, or
    arrays that do not fit; file and array are named."""
    found = [(number, file) for file in path.glob("episode_*.hdf5") if (number := _number(file)) is not None]
    files = [file for _, file in sorted(found)]
    if not files:
        raise BadInput(f"ALOHA folder {path}", got="no episode_<i>.hdf5", expected="one per episode")
    account = Account()
    first, heads = next(iter(sound(_heads, files, [], options)), (None, {}))
    if first is None:
        raise BadInput(f"ALOHA folder {path}", got="no file that can be read", expected="one per episode")
    cameras = [name for name, head in heads.items() if name.startswith(_PICTURES) and head.is_picture]
    usual = {_QPOS: "proprio"} | {name: IMAGES + name.removeprefix(_PICTURES) for name in cameras}
    if not options.hz:
        account.changed.append(f"what the file does not say is assumed: {CONTROL_HZ:g} Hz; --hz changes it")
    with open_file(first) as file:
        coded = any(_is_coded(file[name]) for name in cameras)
    if coded:
        account.changed.append("pictures of JPEG are decoded")
    with open_file(first) as file:
        account.left_out += [f"{_LENGTHS}: lengths of files, which are decoded without them"] * (_LENGTHS in file)
    seen, rest = heads.keys() | {_LENGTHS}, dict[str, str]()
    later = partial(_heads, known=seen)
    for _, more in sound(later, files, [], replace(options, skip_bad=True)):  # a draft names those that are none
        rest |= {name: f"{name} ({head}): not in {first.name}" for name, head in more.items()}
    account.left_out += [rest[name] for name in sorted(rest)]
    own = {first}  # files that lead to no other

    def numbers(number: int, name: str) -> NDArray:
        with open_file(files[number]) as file, damage(files[number], name):
            if files[number] not in own:
                check_own(file, files[number])
                own.add(files[number])
            return np.asarray(file[name][()])

    def pictures(number: int, name: str) -> Pictures:
        with open_file(files[number]) as file, damage(files[number], name):
            data, coded = file[name], _is_coded(file[name])
            for begin in range(0, len(data), BLOCK):
                for t, row in enumerate(data[begin : begin + BLOCK], begin):
                    yield decoded(row.tobytes(), f"{files[number].name}: {name} at frame {t}") if coded else row

    task = path.resolve().name.replace("_", " ")
    return episodes_of(
        NamedArrays(
            f"ALOHA folder {path}", [file.name for file in files], heads, numbers, pictures, usual, "action",
            lambda _: (task,), options.hz or CONTROL_HZ, components=_components,
        ),
        options,
        account,
    )  # fmt: skip


def _number(file: Path) -> int | None:
    found = re.fullmatch(r"episode_(\d+)\.hdf5", file.name)
    return int(found[1]) if found else None


def _is_coded(data: Any) -> bool:
    """True where each row of a camera's array is a file."""
    return data.ndim == 2 or data.dtype.kind == "O"


def _heads(path: Path, known: Collection[str] = ()) -> dict[str, Head]:
    """The arrays of an episode that are not `known`; of pictures that are files, their size when decoded."""
    import h5py

    heads: dict[str, Head] = {}

    def visit(name: str, item: object) -> None:
        if not isinstance(item, h5py.Dataset) or not item.ndim or name in (_LENGTHS, *known):
            return
        shape, kind = tuple(item.shape[1:]), item.dtype
        if name.startswith(_PICTURES) and _is_coded(item) and len(item):
            shape, kind = decoded(item[0].tobytes(), f"{path.name}: {name} at frame 0").shape, np.dtype(np.uint8)
        heads[name] = Head(shape, kind)

    with open_file(path) as file, damage(path, "arrays"):
        check_own(file, path)
        file.visititems(visit)
    return heads


def _components(name: str, shape: tuple[int, ...]) -> list[str]:
    """A name for each component of the vector `name`."""
    size = int(np.prod(shape)) if shape else 1
    key = name.rsplit("/", 1)[-1]
    if size == 2 * len(_JOINTS):
        return [f"{arm}_{joint}.{key}" for arm in ("left", "right") for joint in _JOINTS]
    return [f"{key}.{i}" for i in range(size)]


FORMAT = FormatConfig(
    "aloha", "a folder with an HDF5 file per episode, of ALOHA or ACT", here, read,
    needs_extra="formats", options=ARRAYS,
)  # fmt: skip
