"""The way of a task's name from a command to its worlds is short: nothing stands between that only hands it on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from robolearn.cli.main import main
from sim.embedded.world import MujocoWorlds

OURS = ("robolearn", "robots", "sim", "policies", "hardware")


def test_a_tasks_name_passes_through_at_most_four_functions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Frames of our modules between the `run` of a command and the constructor of the worlds."""
    between: list[list[str]] = []
    construct = MujocoWorlds.__init__

    def constructed(self: MujocoWorlds, *args: Any, **options: Any) -> None:
        found: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "run":
            found.append(f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        assert frame is not None, "no command's run has made these worlds"
        between.append([name for name in reversed(found) if name.partition(".")[0] in OURS])
        construct(self, *args, **options)

    monkeypatch.setattr(MujocoWorlds, "__init__", constructed)
    assert main(["collect", "--task", "lift", "--episodes", "1", "--out", str(tmp_path / "data")]) == 0
    assert between and all(way[-1] == "sim.embedded.build:make" for way in between)
    assert max(map(len, between)) <= 4, between
