"""Checks of a place before anything is written or read there."""

from __future__ import annotations

import os
from pathlib import Path

from robolearn.core import BadInput
from robolearn.core.errors import nearest


def user_cache() -> Path:
    """The folder of this user for what can be made again: ``~/.cache/robolearn``, or under XDG_CACHE_HOME."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "robolearn"


def check_folder(path: Path, what: str) -> None:
    """Raise `BadInput` unless `path` is a folder, or may become one."""
    for place in (path, *path.parents):
        if place.is_dir():
            return
        if place.exists():
            got = "a file" if place == path else f"{place}, which is a file"
            raise BadInput(what, got=got, expected="a folder, or a new name")


def check_writable(path: Path, what: str) -> None:
    """Make sure that `path`, a file or a folder that may be missing, can be written, before the work that ends there.

    A file is written where `path` will be, and is gone again. Raises `BadInput`: a file stands on the way, the name is
    none, or the machine lets nothing be written there.
    """
    import tempfile  # late: `robolearn --help` does without

    try:
        place = path
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            if place != path:
                raise BadInput(what, got=f"{place}, which is a file", expected="a folder on the way, or a new name")
            place = place.parent
        # Not os.access: it promises a root user every folder, also those of /proc and of a read-only disk.
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"?")
    except OSError as error:
        got = f"a place that cannot be written ({spoken(error)})"
        raise BadInput(what, got=got, expected="a folder of yours, or another name") from None


def spoken(error: OSError) -> str:
    """An error of the machine in lower case: ``no space left on device``, without number and path."""
    text = error.strerror or type(error).__name__
    return text[:1].lower() + text[1:]


def no_such_folder(path: Path) -> str:
    """A message that the folder is missing, with one beside it that has nearly its name."""
    said, parent = "there is no such folder", path.parent
    beside = [one.name for one in parent.iterdir() if one.is_dir()] if parent.is_dir() else []
    return said + nearest(path.name, beside, 0.6, f"{parent}/" if parent != Path() else "")
