"""The site is built of all pages, strictly: a link or an anchor that leads nowhere ends it with an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.cli.registry import ENTRIES

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long


def build(folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(root / ".ci" / "docs"), str(folder)]
    return subprocess.run(program, capture_output=True, text=True, timeout=200)


def test_the_site_has_every_page_and_every_command(tmp_path: Path) -> None:
    done = build(tmp_path / "docs")
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "docs" / "site"
    for page in (ROOT / "robolearn" / "docs").glob("*.md"):
        assert (site / "robolearn" / "docs" / f"{page.stem}.html").is_file()
        assert f"robolearn/docs/{page.name}" in (ROOT / ".ci" / "docs").read_text()  # in the navigation
    commands = (site / "commands.html").read_text()
    assert [entry.name for entry in ENTRIES if f"robolearn {entry.name}<" not in commands] == []
    assert "usage: robolearn train" in commands and "--width INT" in commands
    assert "make_env" in (site / "python.html").read_text()
    outside = [line for page in site.rglob("*.html") for line in page.read_text().splitlines() if "fonts.g" in line]
    assert outside == []  # it is read without a network, too


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "clone"
    (root / ".ci").mkdir(parents=True)
    (root / ".ci" / "docs").write_text((ROOT / ".ci" / "docs").read_text())
    (root / "README.md").write_text("[gone](robolearn/gone.md)")
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        (root / name).write_text("")
    done = build(tmp_path / "docs", root)
    assert done.returncode != 0 and "gone.md" in done.stdout + done.stderr
