"""SHA-256, to know the same content again wherever it lies; SHA-1 where git has named it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any


def sha256(*parts: Any) -> str:
    """The digest, in hexadecimal, of arrays, bytes and texts (UTF-8) one after the other.

    Only the bytes count: neither the shapes of arrays, in C order, nor where one part ends and the next begins.
    """
    total = hashlib.sha256()
    for part in parts:
        view = memoryview(part.encode() if isinstance(part, str) else part)
        total.update(view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes())
    return total.hexdigest()


def sha256_weights(module: Any) -> str:
    """The digest, in hexadecimal, of all tensors of a torch module, a policy's normalisation included."""
    return sha256(*(value.cpu().numpy() for value in module.state_dict().values()))


def sha256_file(path: Path) -> str:
    """The digest, in hexadecimal, of the bytes of a file. Raises `OSError`: it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git_blob(content: bytes) -> str:
    """The name, in hexadecimal, that git gives the content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def sha256_folder(folder: Path, leave_out: Collection[str] = ()) -> str:
    """The digest of the names and bytes of all files below `folder`, without Python's caches, hidden files and what is
    called `leave_out` in it."""
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    kept = [name for name in names if not any(part.startswith((".", "__pycache__")) for part in name.parts)]
    kept = [name for name in kept if name.parts[0] not in leave_out]
    return sha256(*(part for name in kept for part in (f"{name.as_posix()}\0", sha256_file(folder / name))))
