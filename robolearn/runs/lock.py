"""One process per run folder: an advisory lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import Protocol

from robolearn.core import BadInput

LOCK_NAME = ".lock"


class Lock(Protocol):
    """What holds an open file that is locked."""

    def close(self) -> None:
        """Close the file; without a word to the lock, which others may share."""
        ...


class FolderLock:
    """Holds `folder`/.lock until `release` or the death of this process.

    Raises:
      BadInput: a live process (this one included) holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        if not _try_lock(self._handle, fcntl.LOCK_EX):
            holder = os.read(self._handle, 32).decode(errors="replace").strip()
            self.close()
            raise BadInput(
                f"run {folder}",
                got=f"in use by process {holder or '?'}",
                expected="a run that no process works on",
                hint="Wait for it, stop it, or name another --out",
            )
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)
        forget_in_children(self)

    def release(self) -> None:
        """Let others have the folder. Safe to call twice."""
        _held.discard(self)
        if self._handle is not None:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self.close()

    def close(self) -> None:
        """Close the file; what a forked worker shares stays locked."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def is_locked(folder: Path) -> bool:
    """Whether a live process holds `folder`."""
    try:
        handle = os.open(folder / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        # A shared lock, so that two onlookers do not take each other for the owner.
        return not _try_lock(handle, fcntl.LOCK_SH, attempts=1)
    finally:
        os.close(handle)


def _try_lock(handle: int, kind: int, attempts: int = 3) -> bool:
    # An onlooker in `is_locked` may hold the file for a moment, hence more than one attempt.
    for attempt in range(attempts):
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt + 1 < attempts:
                time.sleep(0.05)
        else:
            return True
    return False


_held: weakref.WeakSet[Lock] = weakref.WeakSet()


def forget_in_children(lock: Lock) -> None:
    """Let forked workers close `lock` when they begin.

    They share the open file: one that outlived its killed parent would keep it locked.
    """
    _held.add(lock)


def _forget() -> None:
    for lock in list(_held):
        lock.close()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
