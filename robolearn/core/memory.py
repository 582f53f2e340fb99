"""How much memory there is to use."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path


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
