"""The examples, run by the commands that their page shows, with less training."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.cli.main import main
from robolearn.data.reading.reader import Dataset

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "robolearn" / "examples" / "README.md").read_text(encoding="utf-8")


def commands(word: str) -> list[list[str]]:
    """The lines of the page's shell block that mentions `word`."""
    (block,) = (block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if word in block)
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_a_world_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    record, *rest = commands("catch")
    assert record == ["python", "-m", "robolearn.examples.catch"]
    done = subprocess.run([sys.executable, *record[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    less = {"--steps": "100", "--env-steps": "20000", "--episodes": "16"}
    for program, *args in rest:
        assert program == "robolearn"
        for flag, value in less.items():
            if flag in args:
                args[args.index(flag) + 1] = value
        extra = ["--worlds", "16"] if args[0] in ("finetune", "evaluate") else []
        assert main([*args, *extra, "--json"]) == 0
    assert [args[1] for args in rest] == ["train", "finetune", "evaluate"]
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["success"]["episodes"] == result["against"]["success"]["episodes"] == 16
    assert result["verdict"]["paired"]


def test_a_copy_in_the_folder_is_a_task_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sim.registry import make_env

    source = Path(importlib.import_module("robolearn.examples.catch").__file__ or "")
    (tmp_path / "mycatch.py").write_text(source.read_text().replace("Catch-v0", "MyCatch-v0"))
    monkeypatch.chdir(tmp_path)
    env = make_env("gym:mycatch:MyCatch-v0", 2)
    assert env.max_episode_steps == 40
    env.close()


def test_robosuite_demonstrations(tmp_path: Path) -> None:
    pytest.importorskip("robosuite")
    from robolearn.examples.robosuite_demos import WORLDS, record

    shown = commands("robosuite_demos")
    assert shown[0] == ["python", "-m", "robolearn.examples.robosuite_demos"]
    assert shown[1][3] == "data/robosuite-lift"
    record(tmp_path / "lift", episodes=WORLDS)
    dataset = Dataset.open(tmp_path / "lift", images=False)
    assert dataset.episodes == WORLDS
    assert dataset.interface.action.shape == (7,)
