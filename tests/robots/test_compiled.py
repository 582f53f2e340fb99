"""Compiled code is as new as every source that it was made of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

CALLER = """
from typing import NamedTuple
from robots.compiled import compiled
from .callee import ARM, gap

@compiled()
def outer(arm):
    return gap(arm)

print(outer(ARM), sum(outer.stats.cache_hits.values()))
"""
CALLEE = """
from typing import NamedTuple
from robots.compiled import compiled

class {name}(NamedTuple):
    reach: float

@compiled()
def gap(arm):
    return arm.reach * {factor}

ARM = {name}(2.0)
"""


def _run(folder: Path, name: str, factor: float) -> list[float]:
    (folder / "callee.py").write_text(CALLEE.format(name=name, factor=factor))
    # Python's own stored code is as old as its source by the second and the size: two writes of one second look alike.
    command = [sys.executable, "-B", "-c", "import example.caller"]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def test_a_change_in_another_file_is_compiled_anew_and_what_stands_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "caller.py").write_text(CALLER)
    assert _run(folder, "Arm", 1.0) == [2.0, 0]
    assert _run(folder, "Arm", 1.0) == [2.0, 1]  # read
    assert _run(folder, "Arm", 3.0) == [6.0, 0]  # the callee has changed, its caller's file has not
    assert _run(folder, "Links", 3.0) == [6.0, 0]  # the type of the argument has another name: not an error
