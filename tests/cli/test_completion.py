"""Completion of commands and flags: by the program, and by a real bash that sources what it installs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.cli.completion import candidates
from robolearn.cli.main import main
from robolearn.cli.registry import ENTRIES

PROGRAM = Path(sys.executable).parent / "robolearn"


@pytest.mark.parametrize(
    ("words", "has", "lacks"),
    [
        ([""], {"train", "dataset", "reward"}, {"info"}),
        (["tr"], {"train", "trial"}, {"collect"}),
        (["dataset", "i"], {"info", "import"}, {"train"}),
        (["train", ""], set(), {"train"}),
        (["train", "--da"], {"--data"}, {"--out"}),
        (["reward", "train", "--"], {"--data", "--json"}, {"--policy"}),
        (["robots", "new", "--"], {"--urdf"}, {"--name"}),  # which is positional
        (["--"], {"--help", "--install-completion"}, {"--data"}),
    ],
)
def test_the_last_word_is_completed(words: list[str], has: set[str], lacks: set[str]) -> None:
    found = set(candidates(words, ENTRIES))
    assert has <= found and not lacks & found
    assert all(one.startswith(words[-1]) for one in found)


def test_a_real_bash_completes_by_what_is_installed(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--install-completion", "/bin/bash"]) == 0
    path = tmp_path / ".local/share/bash-completion/completions/robolearn"
    said = capsys.readouterr().out
    assert str(path) in said and f"in ~/.bashrc: . ~/{path.relative_to(tmp_path)}" in said  # a bare bash loads nothing
    asked = (
        f'. {path}; COMP_WORDS=({PROGRAM} dataset edit dr); COMP_CWORD=3; _robolearn; printf "%s|" "${{COMPREPLY[@]}}"'
    )
    ran = subprocess.run([shutil.which("bash") or "bash", "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout == "drop|" and not ran.stderr


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--install-completion", "csh"]) == 2
    assert "got csh; available: bash, zsh, fish" in capsys.readouterr().err
