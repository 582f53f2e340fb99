"""A zarr store of all frames, as Diffusion Policy and UMI keep it (Chi et al., *Diffusion Policy*, RSS 2023).

    data/action                (N, Da)      frames of all episodes, one after the other
    data/<name>                (N, …)       ``state`` and ``robot<i>_eef_pos`` … are ``proprio``; pictures (H, W, 3),
                                            also of whole floats from 0 to 255, are cameras; the others are left out
                                            unless they are mapped
    data/<text>                (N,)         of strings: a feature of text
    data/timestamp             (N,) [s]     judged against the rate, and left out
    meta/episode_ends          (E,)         the frame behind the last of each episode

A folder, or a .zip of one, of version 2 or 3. Codecs that are not listed here are refused before anything is decoded:
zarr's pickles are code of a stranger's.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.core.installation import install_command
from robolearn.data.convert.formats.arrays import Head, NamedArrays, Pictures, episodes_of
from robolearn.data.convert.formats.config import ARRAYS, FormatConfig
from robolearn.data.convert.options import Account, ReadOptions
from robolearn.data.convert.source import EpisodeSource
from robolearn.data.lerobot.features import IMAGES, text_names
from robolearn.io.json_files import json_in, parse_json

CODECS = ("blosc", "bytes", "bz2", "crc32c", "delta", "gzip", "lz4", "lzma", "shuffle", "sharding_indexed", "transpose",
          "vlen-utf8", "zlib", "zstd")  # fmt: skip
CHUNK = 1 << 30  # bytes of one chunk when decoded
LARGEST = 1 << 20  # bytes of a description
BLOCK = 32  # pictures that are in memory together
ENDS = "meta/episode_ends"
_PROPRIO = r"state|agent_pos|robot\d+_(eef_pos|eef_quat|eef_rot_axis_angle|gripper_width|gripper_qpos)"
_META = (".zarray", "zarr.json")


def here(path: Path) -> bool:
    if path.is_file():
        return path.name.endswith(".zarr.zip")
    return path.is_dir() and any((path / ENDS / name).is_file() for name in _META)


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the store `path`. Raises `BadInput`: no store, a codec that is not known, boundaries that do not
    rise, or arrays that do not fit."""
    what = f"zarr store {path}"
    _check(path, what)
    zarr = _library()
    with _damage(what, ENDS):
        kept = zarr.storage.ZipStore(str(path), mode="r") if path.is_file() else str(path)
        store = zarr.open_group(kept, mode="r")
        if ENDS not in store or "data" not in store:
            raise BadInput(what, got="no data and meta/episode_ends", expected="them", available=list(store))
        ends = np.asarray(store[ENDS][()]).reshape(-1)
        arrays = {name: item for name, item in store["data"].arrays() if item.ndim}
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    if not len(ends) or ends.dtype.kind not in "iu" or (ends <= starts).any():
        raise BadInput(f"{what}: {ENDS}", got=ends[:8], expected="numbers of frames that rise")
    total, account = int(ends[-1]), Account()
    heads = {name: Head(tuple(item.shape[1:]), item.dtype) for name, item in arrays.items() if item.shape[0] >= total}
    account.left_out += [
        f"{name} ({item.shape[0]} frames of {total})" for name, item in arrays.items() if name not in heads
    ]
    floats = {name for name, head in heads.items() if head.dtype.kind == "f" and _is_picture(head)}
    heads |= {name: Head(heads[name].shape, np.dtype(np.uint8)) for name in floats}
    usual = {name: "proprio" for name in heads if re.fullmatch(_PROPRIO, name)}
    usual |= {name: IMAGES + re.sub(r"_(rgb|image)$", "", name) for name, head in heads.items() if head.is_picture}
    if floats and options.cameras != ():
        account.changed.append(f"pictures of floats are stored as uint8: {', '.join(sorted(floats))}")

    def rows(name: str, begin: int, end: int) -> NDArray:
        with _damage(what, name):
            return np.asarray(arrays[name][begin:end])

    def numbers(number: int, name: str) -> NDArray:
        return rows(name, int(starts[number]), int(ends[number]))

    def pictures(number: int, name: str) -> Pictures:
        for begin in range(int(starts[number]), int(ends[number]), BLOCK):
            block = rows(name, begin, min(begin + BLOCK, int(ends[number])))
            if name in floats:
                if not np.isin(block, np.arange(256)).all():
                    got = f"{block.min():.4g} to {block.max():.4g}"
                    raise BadInput(f"{what}: {name} from frame {begin} on", got=got, expected="whole numbers 0 to 255")
                block = block.astype(np.uint8)
            yield from block

    texts = {
        name: name for name, head in heads.items()
        if head.dtype.kind in "UTO" and not head.shape and text_names({name: {"dtype": "string", "shape": [1]}})
    }  # fmt: skip

    def strings(number: int, name: str) -> list[str]:
        return [str(one) for one in numbers(number, name)]

    task = re.sub(r"\.zarr(\.zip)?$", "", path.resolve().name).replace("_", " ")
    names = [f"episode {i} of {path.name}" for i in range(len(ends))]
    found = NamedArrays(what, names, heads, numbers, pictures, usual, "action", lambda _: (task,), texts=texts,
                        strings=strings)  # fmt: skip
    return episodes_of(found, options, account)


def _is_picture(head: Head) -> bool:
    return len(head.shape) == 3 and head.shape[2] == 3


def _library() -> Any:
    try:
        import zarr
    except ImportError:
        raise BadInput("zarr", got="no zarr", expected="it", hint=install_command("formats")) from None
    return zarr


@contextmanager
def _damage(what: str, part: str) -> Iterator[None]:
    """Turn the library's errors on a damaged store into `BadInput`."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # each codec raises its own types
        raise BadInput(f"{what}: {part}", got=f"unreadable ({error})") from None


def _check(path: Path, what: str) -> None:
    """Raise `BadInput` where the description of an array asks for more than numbers that are packed."""
    for name, described in _descriptions(path, what):
        if not isinstance(described, dict):
            raise BadInput(f"{what}: {name}", got="no description of an array", expected="one")
        kind = described.get("dtype", described.get("data_type", ""))
        if isinstance(kind, str) and kind.endswith("O") and "vlen-utf8" not in _codecs(described):
            raise BadInput(f"{what}: {name}", got="objects", expected="numbers or text")
        for codec in _codecs(described):
            if codec not in CODECS:
                raise BadInput(f"{what}: {name}", got=f"codec {codec!r}", available=CODECS)
        grid = described.get("chunk_grid")
        chunk = grid.get("configuration", {}).get("chunk_shape") if isinstance(grid, dict) else described.get("chunks")
        if isinstance(chunk, list) and np.prod([float(edge) for edge in chunk]) * 8 > CHUNK:
            raise BadInput(
                f"{what}: {name}", got=f"chunks of {chunk}", expected=f"at most {CHUNK >> 23} million numbers"
            )


def _descriptions(path: Path, what: str) -> Iterator[tuple[str, Any]]:
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.name in _META:
                    if path.resolve() not in file.resolve().parents:
                        raise BadInput(f"{what}: {file.parent.name}", got="a link", expected="a part of the store")
                    if file.stat().st_size > LARGEST:
                        raise ValueError(f"{file.name} of {file.stat().st_size} bytes")
                    yield str(file.parent.relative_to(path)), parse_json(file)
        else:
            with zipfile.ZipFile(path) as archive:
                for one in archive.infolist():
                    if one.filename.rsplit("/", 1)[-1] in _META:
                        if one.file_size > LARGEST:
                            raise ValueError(f"{one.filename} of {one.file_size} bytes")
                        with archive.open(one) as member:
                            yield one.filename, json_in(BytesIO(member.read()))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise BadInput(what, got=f"no readable zarr store ({error})") from None


def _codecs(described: Mapping[str, Any]) -> Iterator[str]:
    """The names of the codecs of an array, those within shards too."""
    stack: list[Any] = [
        described.get("compressor"),
        *_listed(described.get("filters")),
        *_listed(described.get("codecs")),
    ]
    while stack:
        codec = stack.pop()
        if codec is None:
            continue
        if not isinstance(codec, dict):
            yield str(codec)
            continue
        yield str(codec.get("id", codec.get("name"))).removeprefix("numcodecs.")
        inner = codec.get("configuration")
        if isinstance(inner, dict):
            stack += [*_listed(inner.get("codecs")), *_listed(inner.get("index_codecs"))]


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


FORMAT = FormatConfig(
    "zarr", "a zarr store of Diffusion Policy or UMI", here, read, needs_extra="formats", options=ARRAYS,
)  # fmt: skip
