"""One process at a time: an exclusive lock on a file, released by the end of its process, however that comes.

`filelock` takes the lock (`flock`), and closes it in forked workers, so that one which outlives its killed parent does
not keep it. Its lock files stay on the disk: a file without a live holder is no lock. Two things are added here: the
holder's process id, and a look from outside by a shared lock, which `filelock` does not offer.
"""

from __future__ import annotations

import fcntl
import math
import os
from pathlib import Path

from filelock import FileLock, Timeout

from robolearn.core import RobolearnError

# `is_locked` holds the file for some microseconds: an owner-to-be tries again, POLL_S apart.
TIMEOUT_S = 0.1
POLL_S = 0.05


class LockHeld(RobolearnError):
    """A live process holds the lock.

    Attributes:
      holder: its process id as text, or "?" where that is not known.
    """

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is locked by process {holder}")
        self.holder = holder


class Lock:
    """Holds the lock file `path` until `release`, the garbage collection of this object or the death of this process.

    A forked worker does not hold it: `held` is false there. Use as a context manager, or `release` it.

    Args:
      path: made if need be; its folder is there. It stays when the lock is released.
      timeout_s: how long to wait for another holder [s]; infinity waits for ever.

    Raises:
      LockHeld: a live process, this one included, holds it.
      OSError: the file cannot be made, or its file system has no locks.
    """

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._lock = FileLock(
            path,
            timeout=-1 if timeout_s == math.inf else timeout_s,
            poll_interval=POLL_S,
            thread_local=False,
            fallback_to_soft=False,  # a soft lock outlives a killed holder
            preserve_lock_file=True,
            on_acquired=_write_process_id,
        )
        try:
            self._lock.acquire()
        except Timeout:
            raise LockHeld(path, _holder(path)) from None

    @property
    def held(self) -> bool:
        """True where this process holds the lock."""
        return self._lock.is_locked

    def release(self) -> None:
        """Let others have the lock. May be called twice."""
        self._lock.release(force=True)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """True where a live process holds the lock file `path`; false where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, so that two who look at the same moment do not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _write_process_id(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _holder(path: Path) -> str:
    try:
        return path.read_bytes()[:32].decode(errors="replace").strip() or "?"
    except OSError:
        return "?"
