"""One small data set and one small policy, made by the commands themselves, for all tests of commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.main import main


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


@pytest.fixture(scope="session")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 demonstrations of `lift`."""
    out = tmp_path_factory.mktemp("cli") / "demos"
    assert run("collect", "--task", "lift", "--episodes", 8, "--worlds", 8, "--out", out, "--json") == 0
    return out


@pytest.fixture(scope="session")
def bc(demos: Path) -> Path:
    """A run folder of `train`."""
    out = demos.parent / "bc"
    assert run("train", "--data", demos, "--out", out, "--steps", 100, "--batch", 64, "--json") == 0
    config = json.loads((out / "policy" / "config.json").read_text())
    assert config["kind"] == "flow"
    return out


@pytest.fixture
def terminal() -> Iterator[Any]:
    """A `teaching.Terminal`."""
    sys.path.insert(0, str(Path(__file__).parent))
    from teaching import Terminal

    made = Terminal()
    yield made
    os.close(made.person)
    os.close(made.program)
