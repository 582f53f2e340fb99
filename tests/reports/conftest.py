"""One test for each public report of what broke for others, named by its repository and number.

The situation is rebuilt, and what must happen here is asserted; nothing of a report is copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import EpisodeWriter

HZ = 10.0
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("dataset", "import", …)`` → (exit code, its JSON, or what it says where it fails)."""

    def do(*words: Any) -> tuple[int, Any]:
        capsys.readouterr()
        code = main([*map(str, words), "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out.splitlines()[-1]) if said.out.strip().endswith("}") else said.err

    return do


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """``make("name", lengths)``: a set whose proprio is (episode, frame, sin), without pictures."""

    def write(name: str = "set", lengths: tuple[int, ...] = (8, 6, 7), width: float = 1.0, task: str = "lift") -> Path:
        interface = Interface(
            {"proprio": ArraySpec((3,))}, ArraySpec((2,), names=("dx", "gripper")), HZ, "panda", "tcp_delta"
        )
        with EpisodeWriter(tmp_path / name, interface) as writer:
            for e, length in enumerate(lengths):
                t = np.arange(length)
                proprio = np.stack([np.full(length, e), t, width * np.sin(t + e)], 1).astype(np.float32)
                action = np.stack([0.9 * np.sin(t + e), np.where(t < 3, 1.0, -1.0)], 1).astype(np.float32)
                reward = (t == length - 1).astype(np.float32)
                writer.write(Episode({"proprio": proprio}, action, reward, True, True, False, task))
        return tmp_path / name

    return write
