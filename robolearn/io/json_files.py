"""JSON in files: written atomically, read within limits, for a file may come from a stranger."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from robolearn.core import BadInput
from robolearn.io.atomic import write_text

LIMIT = 64_000_000  # [bytes]; the statistics of a set with hundreds of features are a few hundred kB


def plain(value: Any) -> Any:
    """`value` in JSON's types: tuples become lists, dataclasses objects, paths text, numpy scalars and arrays numbers.

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


def flatten(tree: Mapping[str, Any], prefix: str = "", *, whole: Collection[str] = ()) -> dict[str, Any]:
    """The leaves of nested mappings by dotted names: ``{"a": {"b": 1}}`` → ``{"a.b": 1}``; empty ones are leaves, and
    so are those that have all the keys of `whole`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        inner = isinstance(value, Mapping) and value and not (whole and value.keys() >= set(whole))
        flat |= flatten(value, f"{prefix}{key}.", whole=whole) if inner else {f"{prefix}{key}": value}
    return flat


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `plain(value)` as JSON; a reader sees the old file or the new one, never half of it."""
    write_text(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def parse_json(path: Path) -> Any:
    """The JSON value in `path`; raises as `json_in` does, and `OSError` where it cannot be opened."""
    with path.open("rb") as file:
        return json_in(file)


def json_in(file: BinaryIO) -> Any:
    """The JSON value in an open file.

    Raises:
      ValueError: the file is larger than `LIMIT`, is not JSON in UTF-8, or nests deeper than Python recurses.
      OSError: it cannot be read.
    """
    content = file.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise ValueError(f"larger than {LIMIT / 1e6:g} MB")
    try:
        value = json.loads(content)
        if b"\\ud" in content.lower():  # half of a character that takes two can be escaped, but not be written again
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path, *, what: str) -> dict[str, Any]:
    """The JSON object in `path`. Raises `BadInput`: the file is missing, is not JSON, or holds something else than an
    object."""
    try:
        value = parse_json(path)
    except FileNotFoundError:
        raise BadInput(what, got=f"no {path.name} in {path.parent}", expected=path.name) from None
    except (OSError, ValueError) as error:
        raise BadInput(what, got=f"unreadable {path} ({error})", expected="a JSON object") from error
    if not isinstance(value, dict):
        raise BadInput(what, got=f"{type(value).__name__} in {path}", expected="a JSON object")
    return value
