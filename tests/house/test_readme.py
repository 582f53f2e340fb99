"""Every command that a page shows is one that the program understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from robolearn.cli.main import parse
from robolearn.cli.registry import find

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(page for room in ("robolearn", "robots", "sim", "policies", "hardware")
                                     for page in (ROOT / room).rglob("README.md"))]  # fmt: skip


def commands(page: Path) -> list[list[str]]:
    """Every `robolearn …` line of the page's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("robolearn ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_parses(page: Path) -> None:
    lines = commands(page)
    assert page != ROOT / "README.md" or len(lines) >= 5
    for args in lines:
        entry, rest = find(args)
        parse(entry, rest)
