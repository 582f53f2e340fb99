"""`record --policy`: loaded once, and refused before a device is asked for."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from untrained import make_constant

import policies.storage.lerobot_policy
from policies.storage.loading import open_policy
from robolearn.cli import record
from robolearn.cli.main import main
from robolearn.core import BadInput
from robots.stations import load_contract


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of LeRobot's loader, which returns a policy of ours for the arm that the folder is named after."""
    found: list[str] = []

    def load(path: str, device: str = "cpu") -> Any:
        interface = load_contract("sim").interface
        found.append(path)
        return open_policy(make_constant(tmp_path / path, replace(interface, embodiment=path), x=0.1))

    monkeypatch.setattr(policies.storage.lerobot_policy, "load_lerobot_policy", load)
    return found


def test_a_policy_of_lerobots_is_loaded_once(
    loads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*args: Any, **named: Any) -> None:
        raise BadInput("this is as far as it goes", got="a writer", expected="none")

    monkeypatch.setattr(record, "make_writer", stop)
    line = ["record", "--teleop", "browser", "--port", "0", "--episodes", "1", "--out", str(tmp_path / "set")]
    assert main([*line, "--policy", "lerobot:panda"]) == 2
    assert "as far as it goes" in capsys.readouterr().err and loads == ["panda"]


def test_one_for_another_arm_is_refused_before_the_terminal_that_is_missing(
    loads: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", "--policy", "lerobot:ur5e", "--out", str(tmp_path / "set")]) == 2
    assert "it was made for ur5e, this is panda" in capsys.readouterr().err and loads == ["ur5e"]
