"""Files and folders that are either whole or absent: written beside their place, synced, then renamed into it.

Several files are replaced together with one of them, renamed last, as the commit point.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from robolearn.core import RobolearnError


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
    """Put the folder `finished` where nothing is, or an empty folder, on the same file system. Raises `OSError`:
    `place` has content, or is a file; `finished` stays where it is."""
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


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


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


SYNC_THREADS = 16


class Commit:
    """A set of files that are replaced together, in the order in which they were staged.

    All content is on the disk before the first rename, so no file is ever half-written, and the last file staged
    is the commit point.

    Args:
      root: the folder in which they lie.
      what: `root` in the words of a message, e.g. ``"data set data/lift"``.
      suffix: of what is staged.
    """

    def __init__(self, root: Path, what: str, suffix: str = ".tmp") -> None:
        self._root, self._what, self._suffix = root, what, suffix
        self._staged: list[tuple[Path, Path, int | None]] = []  # what is written, its place, its open descriptor
        self._folders: set[Path] = set()  # in which a name is new or stands for something else

    def stage(self, name: str, content: Any) -> None:
        """Write the buffer `content` (bytes, a table's, …) as ``<name>.tmp``, or with another suffix. Raises
        `RobolearnError`: the disk is full or not writable; nothing in `root` has changed then."""
        with self._place(name) as (temporary, path):
            descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            self._staged.append((temporary, path, descriptor))
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]

    def adopt(self, name: str, source: Path) -> None:
        """Stage the finished file `source`, which stays where it is; it must not be written to any more.

        Raises as `stage` does.
        """
        with self._place(name) as (temporary, path):
            if source != temporary:
                temporary.unlink(missing_ok=True)
                try:
                    os.link(source, temporary)
                except OSError:
                    shutil.copyfile(source, temporary)
            self._staged.append((temporary, path, None))

    @contextlib.contextmanager
    def _place(self, name: str) -> Iterator[tuple[Path, Path]]:
        path = self._root / name
        try:
            self._make_folder(path.parent)
            yield path.with_name(path.name + self._suffix), path
        except OSError as error:
            self._abandon()
            raise RobolearnError(f"{self._what}: {name} cannot be written ({error.strerror})") from error

    def publish(self, *, durable: bool = True) -> None:
        """Sync everything that was staged and rename it into place; raises as `stage` does.

        All renames are on the disk before that of the commit point, and that is there on return: whatever a power cut
        undoes, it is the whole commit. `durable`: false where the files of a process that dies are worthless: nothing
        is synced then.
        """
        try:
            # Side by side, because syncs that overlap share one commit of the file system's journal.
            with ThreadPoolExecutor(min(len(self._staged), SYNC_THREADS)) as pool:
                list(pool.map(_sync_staged, self._staged if durable else ()))
        except OSError as error:
            self._abandon()
            raise RobolearnError(f"{self._what} cannot be written ({error.strerror})") from error
        folders = sorted(self._folders, reverse=True) if durable else []
        for number, (temporary, path, descriptor) in enumerate(self._staged, 1):
            if descriptor is not None:
                os.close(descriptor)
            last = number == len(self._staged)
            for folder in folders if last else ():
                sync_folder(folder)
            os.replace(temporary, path)
            if durable and last:
                sync_folder(path.parent)
        self._staged.clear()
        self._folders.clear()

    def _make_folder(self, folder: Path) -> None:
        missing = folder
        while not missing.is_dir():
            missing = missing.parent
            self._folders.add(missing)
        folder.mkdir(parents=True, exist_ok=True)
        self._folders.add(folder)

    def _abandon(self) -> None:
        for temporary, _, descriptor in self._staged:
            if descriptor is not None:
                os.close(descriptor)
            temporary.unlink(missing_ok=True)
        self._staged.clear()
        self._folders.clear()


def _sync_staged(staged: tuple[Path, Path, int | None]) -> None:
    temporary, _, descriptor = staged
    if descriptor is not None:
        os.fsync(descriptor)
    else:
        sync_file(temporary)
