"""Files and folders that are either whole or absent: written beside their place, synced, then renamed into it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Replace `path` by `content`; a reader sees the old file or the new one, never half of it."""
    with replacing(path) as beside:
        beside.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write a file to, which takes the place of `path` at the end; after an error `path` is as it was."""
    # Each process has its own, so that two who write one file at a time do not mix.
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield beside
        place_file(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def is_leftover(path: Path, name: str) -> bool:
    """True where `path` is what a kill leaves of writing the file `name`."""
    return path.name.startswith(f".{name}.") and path.name.endswith(".tmp")


def place_file(finished: Path, place: Path) -> None:
    """Put the file `finished` in the place of the file `place`, which may exist, on the same file system."""
    sync_file(finished)
    os.replace(finished, place)
    sync_folder(place.parent)


def place_folder(finished: Path, place: Path) -> None:
    """Put the folder `finished` where nothing is, or an empty folder, on the same file system.

    Raises:
      OSError: `place` has content, or is a file; `finished` stays where it is.
    """
    sync_tree(finished)
    os.rename(finished, place)
    sync_folder(place.parent)


def replace_folder(finished: Path, place: Path) -> None:
    """Put the folder `finished` in the place of the folder `place`, which may exist, on the same file system.

    A kill between the two renames leaves no `place`; whoever owns it writes it again on resume.
    """
    sync_tree(finished)
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        os.rename(place, old)
    os.rename(finished, place)
    sync_folder(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def move(source: Path, place: Path) -> None:
    """Rename a file or folder to `place`, which does not exist, on the same file system; durable on return."""
    os.rename(source, place)
    sync_folder(place.parent)
    sync_folder(source.parent)


def sync_tree(folder: Path) -> None:
    """Force every file under `folder`, and the folders themselves, to the disk."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            sync_folder(path)
        elif path.is_file():
            sync_file(path)
    sync_folder(folder)


def sync_file(path: Path) -> None:
    """Force the content of a file to the disk."""
    _sync(path, os.O_RDONLY | os.O_CLOEXEC)


def sync_folder(folder: Path) -> None:
    """Force the names in `folder` to the disk, so that a rename survives a power cut."""
    with contextlib.suppress(PermissionError):  # names may be made in a folder that cannot be opened for reading
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write a file that by default only its owner can read, not even for a moment."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path) as part, os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
