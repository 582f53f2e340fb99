"""Commands run in this process, and the files of a base that stay as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.main import main


def result(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """The JSON of a command that succeeds."""
    capsys.readouterr()
    assert main([str(word) for word in (*words, "--json")]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def content(folder: Path) -> dict[str, bytes]:
    """Name → bytes of the files in `folder`."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
