"""What the kernel counts: pages that it had to provide for blocks that are taken, written and freed in turn."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

COUNT = """
import resource, sys
import torch
from robolearn.core.machine import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
torch.ones(12_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(60):
    torch.ones(12_000_000)  # 48 MB, more than glibc ever keeps by itself
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_what_is_freed_is_not_asked_for_again() -> None:
    def pages(how: str) -> int:
        return int(
            subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True).stdout
        )

    usual, kept = pages("usual"), pages("kept")
    assert usual > 60 * 11_000, f"{usual}: what this is about"
    assert kept < usual / 5, f"{kept}: for the first few only"
