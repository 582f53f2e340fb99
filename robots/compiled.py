"""Compiled loops, kept on disk for as long as their sources stay as they are.

numba keeps machine code beside a source file and asks that file's date alone. A function whose callee or argument type
has changed in *another* file then runs as it was before the update, or cannot be read, and no safety node starts. Here
the folder of the code is named by a hash of all sources that may take part: those of the function's package and ours.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config

from robolearn.io.paths import user_cache


def compiled(**options: Any) -> Callable[[Callable], Any]:
    """`numba.njit` with `options`, without the interpreter's lock, and its result kept on disk."""

    def decorate(function: Callable) -> Any:
        before = vars(config)["CACHE_DIR"]
        folder = Path(function.__code__.co_filename).resolve().parent
        config.CACHE_DIR = str(_store(folder, before))  # pyright: ignore[reportAttributeAccessIssue]
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        finally:
            config.CACHE_DIR = before  # pyright: ignore[reportAttributeAccessIssue]

    return decorate


@cache
def _store(folder: Path, chosen: str) -> Path:
    """Folder for what the modules in `folder` compile to: below `chosen`, beside them, or with the user's caches."""
    digest = hashlib.sha256()
    for room in dict.fromkeys((Path(__file__).resolve().parent, folder)):
        for source in sorted(room.glob("*.py")):
            digest.update(source.read_bytes())
    if chosen:
        root = Path(chosen)
    elif os.access(folder, os.W_OK):
        root = folder / "__pycache__"
    else:
        root = user_cache()
    return root / f"numba-{digest.hexdigest()[:16]}"
