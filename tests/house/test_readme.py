"""Every command that a page shows is one that the program understands, and every link leads somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from robolearn.cli.main import parse
from robolearn.cli.registry import find

ROOT = Path(__file__).parents[2]
ROOMS = ("robolearn", "robots", "sim", "policies", "hardware")
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted(page for room in ROOMS for page in (ROOT / room).rglob("README.md")),
]


def commands(page: Path) -> list[list[str]]:
    """The arguments of every `robolearn …` line in the page's shell blocks, and of every benchmark in its prose."""
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    lines = [line.removeprefix(".venv/bin/") for line in blocks.splitlines()]
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines += [" ".join(code.split()) for code in re.findall(r"`(robolearn benchmark \w[^`]*)`", prose)]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("robolearn ")]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_command_of_a_page_parses(page: Path) -> None:
    lines = commands(page)
    assert page != README or len(lines) >= 5
    for args in lines:
        entry, rest = find(args)
        parse(entry, rest)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_first_page_is_short_and_leads_to_every_other() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    others = [page.relative_to(ROOT) for page in PAGES if page != README]
    assert [str(page) for page in others if f"({page})" not in text] == []
