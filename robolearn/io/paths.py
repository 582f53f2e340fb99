"""Checks of a place before anything is written there."""

from __future__ import annotations

from pathlib import Path

from robolearn.core import BadInput


def check_folder(path: Path, what: str) -> None:
    """Raise `BadInput` unless `path` is a folder, or may become one."""
    for place in (path, *path.parents):
        if place.is_dir():
            return
        if place.exists():
            raise BadInput(
                what, got="a file" if place == path else f"{place}, which is a file", expected="a folder, or a new name"
            )
