"""The command that adds an extra names what was installed here, as pip itself wrote it down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.core.installation import install_command


@pytest.mark.long
def test_pip_understands_the_command_of_this_installation() -> None:
    command = install_command("ros")
    assert command.startswith(f"{sys.executable} -m pip install ") and command.endswith("[ros]'")
    code = f"{command} --dry-run --no-deps --no-build-isolation --quiet"
    done = subprocess.run(code, shell=True, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ({"url": "file:///home/a%20b/clone", "dir_info": {"editable": True}}, "-e '/home/a b/clone[ros]'"),
        ({"url": "file:///home/u/clone", "dir_info": {}}, "'/home/u/clone[ros]'"),
        (
            {"url": "https://example.org/r.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            "'robolearn[ros] @ git+https://example.org/r.git'",
        ),
    ],
)
def test_it_names_a_place_and_never_the_index(
    origin: dict, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "robolearn-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: robolearn\nVersion: 0.1.0\n")
    (folder / "direct_url.json").write_text(json.dumps(origin))
    built = tmp_path / "checkout" / "robolearn.egg-info"
    built.mkdir(parents=True)
    (built / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: robolearn\nVersion: 0.1.0\n")
    monkeypatch.setattr(sys, "path", [str(built.parent), str(tmp_path)])
    assert install_command("ros").split(" install ")[1] == source
