"""The machine under a process: its CPUs and memory, freed blocks, Python's garbage collection, real-time priority."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def available_cpus() -> int:
    """How many CPUs this process may run on, which containers and ``taskset`` make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that this process may still take, which limits of a container or of the process make fewer than are free.

    Args:
      proc, cgroups: where Linux tells its figures; without them half of the machine's memory is taken to be free.
    """
    left = [_of_container(folder) for folder in _folders(proc, cgroups)] + _of_process(proc)
    try:
        facts = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines() if ":" in line)
        left.append(1024 * int(facts["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        left.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    return max(0, int(min(left)))


def _of_process(proc: Path) -> list[int]:
    """What the limits of this process (``ulimit -v`` and ``-d``) leave [bytes]."""
    try:
        lines = (proc / "self/status").read_text().splitlines()
        kb = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmSize:", "VmData:"))}
    except (OSError, ValueError, IndexError):
        return []
    pairs = ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData"))
    limits = [(resource.getrlimit(kind)[0], kb[name]) for kind, name in pairs if name in kb]
    return [limit - 1024 * used for limit, used in limits if limit != resource.RLIM_INFINITY]


def _folders(proc: Path, cgroups: Path) -> list[Path]:
    """The control groups of this process, of both versions, and all around them."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, kinds, own = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top = cgroups / "memory" if kinds else cgroups
        inner = top / own.lstrip("/")
        folders += [folder for folder in (inner, *inner.parents) if folder == top or top in folder.parents]
    return folders


def _of_container(folder: Path) -> float:
    """What the control group `folder` has left [bytes], what it could drop of its files included."""
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        try:
            most, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
            if most == "max":
                return math.inf
            lines = (folder / "memory.stat").read_text().splitlines()
            files = [int(line.split()[1]) for line in lines if line.split()[0].endswith("inactive_file")]
            return int(most) - used + max(files, default=0)
        except (OSError, ValueError, IndexError):
            continue
    return math.inf


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h
NEVER = 2**31 - 1  # [bytes] free at the top of the heap


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, for what it takes next; whether its C library can. Results stay the same."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no glibc
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, NEVER))


@contextmanager
def searched_before() -> Iterator[None]:
    """Search now; whatever lives by now is left alone until the end.

    Not longer: the interpreter cannot take down what is frozen, and native modules complain of leaks.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


HIGHEST = 99
Schedule = tuple[int, int]  # scheduling policy of the kernel, real-time priority


def threads() -> list[int]:
    """Ids of this process's threads; none where threads have no such priority."""
    return [int(name) for name in os.listdir("/proc/self/task")] if sys.platform == "linux" else []


def own_schedule() -> Schedule | None:
    """What the calling thread has; None where threads have no such priority."""
    return (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority) if sys.platform == "linux" else None


def set_schedule(thread: int, schedule: Schedule) -> None:
    """Give a thread of this process another policy and priority.

    Raises:
      OSError: it is not permitted, or the thread has ended.
    """
    policy, priority = schedule
    if thread != threading.get_native_id():
        os.sched_setscheduler(thread, policy, os.sched_param(priority))
        return
    own, given = ctypes.c_ulong(threading.get_ident()), (ctypes.c_int * 16)(priority)  # struct sched_param, and room
    code = ctypes.CDLL(None).pthread_setschedparam(own, policy, given)
    if code:
        raise OSError(code, os.strerror(code))


def make_ordinary(at_least: int = 1) -> None:
    """Take the SCHED_FIFO priority from all threads that have `at_least` this much."""
    for thread in threads():
        with suppress(OSError):  # it has ended meanwhile
            if os.sched_getscheduler(thread) == os.SCHED_FIFO and os.sched_getparam(thread).sched_priority >= at_least:
                set_schedule(thread, (os.SCHED_OTHER, 0))
