"""Files that are either whole or absent: written beside their place, synced, then renamed into it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

from robolearn.core import BadInput


def plain(value: Any) -> Any:
    """`value` as JSON knows it: tuples become lists, dataclasses objects, paths text, numpy scalars and arrays numbers.

    NaN and infinities become None, because JSON has no word for them.
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # numpy and torch, without importing either
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    return str(value)


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as JSON; a reader sees the old file or the new one, never half of it."""
    text = json.dumps(plain(value), indent=2, allow_nan=False) + "\n"
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` atomically and durably."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_directory(path.parent)


def read_json(path: Path, *, what: str) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
      BadInput: the file is missing, is not JSON, or holds something else than an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(what, got=f"no {path.name} in {path.parent}", expected=path.name) from None
    except (OSError, ValueError) as error:
        raise BadInput(what, got=f"unreadable {path} ({error})", expected="a JSON object") from error
    if not isinstance(value, dict):
        raise BadInput(what, got=f"{type(value).__name__} in {path}", expected="a JSON object")
    return value


def check_folder(path: Path, what: str) -> None:
    """Raise `BadInput` unless `path` is a folder, or may become one."""
    for place in (path, *path.parents):
        if place.is_dir():
            return
        if place.exists():
            raise BadInput(
                what, got="a file" if place == path else f"{place}, which is a file", expected="a folder, or a new name"
            )


def replace_directory(new: Path, place: Path) -> None:
    """Put the finished folder `new` in the place of `place`, which may exist.

    A kill between the two renames leaves no `place`; whoever owns it writes it again on resume.
    """
    sync_tree(new)
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    new.rename(place)
    sync_directory(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_tree(folder: Path) -> None:
    """Force every file under `folder`, and the folders themselves, to the disk."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            sync_directory(path)
        elif path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_directory(folder)


def sync_directory(folder: Path) -> None:
    """Force the names in `folder` to the disk, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
