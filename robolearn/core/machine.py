"""The machine under a process: CPUs, memory, device of tensors, garbage collection, real-time priority of threads."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import math
import os
import re
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from robolearn.core.errors import BadInput


def available_cpus() -> int:
    """Number of CPUs that this process may run on, within the limits of containers and ``taskset``."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that this process may still take, which limits of a container or of the process make fewer than are free.
    `proc`, `cgroups`: where Linux tells its figures; without them half of the machine's memory is taken to be free."""
    left = [_of_container(folder) for folder in _folders(proc, cgroups)] + _of_process(proc)
    try:
        facts = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines() if ":" in line)
        left.append(1024 * int(facts["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        left.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    return max(0, int(min(left)))


def _of_process(proc: Path) -> list[int]:
    """Bytes that the limits of this process (``ulimit -v`` and ``-d``) leave."""
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
    """Bytes that the control group `folder` has left, droppable pages of files included."""
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
    """Let this process keep freed memory for its next blocks; true where its C library can. Results stay the same.

    glibc returns large blocks to the kernel when they are freed, and the kernel fills the next ones with zeros, page by
    page: a third to a half of the time of a gradient step on pictures.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no glibc
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, NEVER))


@contextmanager
def searched_before() -> Iterator[None]:
    """Search for dead cycles now; whatever lives by now is left alone until the end.

    A search through all that a program has loaded holds the interpreter for half a second: longer than a leader arm may
    be silent, or the safety filter lets a joint state be old. Frozen no longer than this: the interpreter cannot take
    down what is frozen, and native modules complain of leaks.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def leave(code: int) -> NoReturn:
    """End this process, which has closed all that it opened, at once. The interpreter takes a second to take down what
    it imported, and whoever ended the process waits for that."""
    gc.collect()  # the middleware's handles: the shared memory that they hold outlives the process
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Torch's number of threads, within. Sums come out bit for bit the same only for the same number."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


HIGHEST = 99
Schedule = tuple[int, int]  # scheduling policy of the kernel, real-time priority


def threads() -> list[int]:
    """Ids of this process's threads; none where threads have no such priority."""
    return [int(name) for name in os.listdir("/proc/self/task")] if sys.platform == "linux" else []


def own_schedule() -> Schedule | None:
    """Schedule of the calling thread; None where threads have no such priority."""
    return (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority) if sys.platform == "linux" else None


def set_schedule(thread: int, schedule: Schedule) -> None:
    """Give a thread of this process another policy and priority: SCHED_FIFO has 1 to 99, where Linux permits it.

    The calling thread's is set through the C library, which remembers it; `sched_setscheduler` does not reach that
    memory. Threads inherit it, and Fast DDS, whose threads set their own priority again, then runs at what it says.
    Raises `OSError`: it is not permitted, or the thread has ended.
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


@contextlib.contextmanager
def ordinary_priority() -> Iterator[None]:
    """For opening an encoder: no thread has the highest priority afterwards, and this one keeps what it had.

    SVT-AV1 gives each of its threads, dozens for one camera, and its caller the highest real-time priority (SCHED_FIFO
    99) where the process may, as root may: a video would come before the nodes that move and stop the arm. Nodes that
    ask for real-time priority ask for less, and keep it: with none, a thread that holds the interpreter's lock may not
    run, and then the thread that moves the arm does not either.
    """
    own = own_schedule()
    try:
        yield
    finally:
        make_ordinary(HIGHEST)
        if own is not None:
            with contextlib.suppress(OSError):
                set_schedule(threading.get_native_id(), own)


def _without_gpu() -> str:
    """Reason why torch computes on no GPU."""
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} was built for CPUs alone (robolearn doctor)"
    return f"torch {torch.__version__} finds no GPU on this machine (nvidia-smi shows what the driver finds)"


def resolve_device(text: str) -> str:
    """``auto``, ``cpu``, ``cuda`` or ``cuda:<i>`` → a name that torch takes; auto is a GPU where there is one. Raises
    `BadInput`: another word, or a GPU that is not there."""
    if text == "cpu":
        return text
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if text == "auto":
        return "cuda" if gpus else "cpu"
    available = ["auto", "cpu", *(["cuda"] if gpus else []), *(f"cuda:{i}" for i in range(gpus))]
    if not re.fullmatch(r"cuda(:\d+)?", text) or text not in available:
        if text.startswith("cuda") and not gpus:  # a list of names would propose cpu as a spelling of it
            raise BadInput("--device", got=text, expected="auto or cpu here", hint=_without_gpu())
        raise BadInput("--device", got=text, available=available, hint="" if gpus else _without_gpu())
    return text
