"""Several files replaced together, with one of them, renamed last, as the commit point."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from robolearn.core import RobolearnError
from robolearn.io.atomic import sync_file, sync_folder

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
        """Write the buffer `content` (bytes, a table's, …) as ``<name>.tmp``, or with another suffix.

        Raises:
          RobolearnError: the disk is full or not writable; nothing in `root` has changed then.
        """
        path = self._root / name
        temporary = path.with_name(path.name + self._suffix)
        try:
            self._make_folder(path.parent)
            descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            self._staged.append((temporary, path, descriptor))
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError as error:
            self._abandon()
            raise RobolearnError(f"{self._what}: {name} cannot be written ({error.strerror})") from error

    def adopt(self, name: str, source: Path) -> None:
        """Stage the finished file `source`, which stays where it is; it must not be written to any more.

        Raises as `stage` does.
        """
        path = self._root / name
        temporary = path.with_name(path.name + self._suffix)
        try:
            self._make_folder(path.parent)
            if source != temporary:
                temporary.unlink(missing_ok=True)
                try:
                    os.link(source, temporary)
                except OSError:
                    shutil.copyfile(source, temporary)
            self._staged.append((temporary, path, None))
        except OSError as error:
            self._abandon()
            raise RobolearnError(f"{self._what}: {name} cannot be written ({error.strerror})") from error

    def publish(self, *, durable: bool = True) -> None:
        """Sync everything that was staged and rename it into place; raises as `stage` does.

        All renames are on the disk before that of the commit point, and that is there on return: whatever a power cut
        undoes, it is the whole commit.

        Args:
          durable: false where the files of a process that dies are worthless: nothing is synced then.
        """
        try:
            # Side by side, because syncs that overlap share one commit of the file system's journal.
            with ThreadPoolExecutor(min(len(self._staged), SYNC_THREADS)) as pool:
                list(pool.map(_sync, self._staged if durable else ()))
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


def _sync(staged: tuple[Path, Path, int | None]) -> None:
    temporary, _, descriptor = staged
    if descriptor is not None:
        os.fsync(descriptor)
    else:
        sync_file(temporary)
