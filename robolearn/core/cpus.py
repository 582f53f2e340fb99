"""How many CPUs there are to use."""

from __future__ import annotations

import os


def available_cpus() -> int:
    """How many CPUs this process may run on, which containers and ``taskset`` make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
