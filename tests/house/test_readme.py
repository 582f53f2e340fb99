"""The README's example of a user's own world, as written, with less training."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.cli.main import main

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """Every `robolearn …` line of the README's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("robolearn ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_a_world_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    catch = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "class Catch" in block)
    (tmp_path / "catch.py").write_text(catch, encoding="utf-8")
    done = subprocess.run([sys.executable, "catch.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    less = {"--steps": "100", "--env-steps": "20000", "--episodes": "16"}
    ran = 0
    for args in (args for args in commands() if any("catch" in arg for arg in args)):
        for flag, value in less.items():
            if flag in args:
                args[args.index(flag) + 1] = value
        extra = ["--worlds", "16"] if args[0] in ("finetune", "evaluate") else []
        assert main([*args, *extra, "--json"]) == 0
        ran += 1
    assert ran == 3
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["success"]["episodes"] == result["against"]["success"]["episodes"] == 16
    assert result["verdict"]["paired"]


def test_every_command_of_the_readme_parses() -> None:
    from robolearn.cli.main import parse
    from robolearn.cli.registry import find

    lines = commands()
    assert len(lines) >= 10
    for args in lines:
        entry, rest = find(args)
        parse(entry, rest)
