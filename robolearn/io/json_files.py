"""JSON objects in files, written atomically."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from robolearn.core import BadInput
from robolearn.io.atomic import write_text


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


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `plain(value)` as JSON; a reader sees the old file or the new one, never half of it."""
    write_text(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


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
