"""Memory that is freed and taken again at once, as by every gradient step on pictures.

glibc returns large blocks to the kernel when they are freed, and the kernel fills the next ones with zeros, page by
page: a third to a half of a step's time. A program that trains takes as much again a moment later.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h
NEVER = 2**31 - 1  # [bytes] free at the top of the heap


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, for what it takes next; whether its C library can. Results stay the same."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no glibc
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, NEVER))
