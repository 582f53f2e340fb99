"""The image of a robot PC can be built of this checkout: its files, packages, extras and user."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())
IGNORED = {".", "..", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().split())}


@pytest.fixture
def text() -> str:
    return (ROOT / "launch" / "Dockerfile").read_text()


@pytest.fixture
def steps(text: str) -> list[tuple[str, list[str]]]:
    """(instruction, its words), lines that go on joined."""
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(words[0], words[1:]) for line in lines if (words := line.split())]


def test_what_it_copies_is_there_and_all_that_an_installation_needs(steps: list[tuple[str, list[str]]]) -> None:
    copied = {name for step, words in steps if step == "COPY" for name in words[:-1]}
    assert [name for name in copied if not (ROOT / name).exists() or IGNORED & set(Path(name).parts)] == []
    tools = SETUP["tool"]["setuptools"]
    needed = {Path(name).parts[0] for names in tools["data-files"].values() for name in names}
    needed |= {name.removesuffix(".*") for name in tools["packages"]["find"]["include"]}
    assert needed | {"pyproject.toml", SETUP["project"]["readme"], *SETUP["project"]["license-files"]} <= copied
    for file in (".dockerignore", "launch/Dockerfile.dockerignore"):
        assert not (ROOT / file).exists()  # this test does not read one


def test_a_page_names_each_package_that_it_installs(steps: list[tuple[str, list[str]]]) -> None:
    (line,) = (" ".join(words) for step, words in steps if step == "RUN" and "apt-get" in words)
    packages = re.search(r"apt-get install ([^&]*)", line)
    assert packages is not None
    sources = [
        ROOT / "README.md",
        ROOT / "hardware/README.md",
        *(one for one in (ROOT / ".ci").iterdir() if one.is_file()),
    ]
    named = set(re.findall(r"[\w.-]+", " ".join(source.read_text() for source in sources)))
    assert [name for name in packages[1].split() if not name.startswith("-") and name not in named] == []


def test_its_extras_are_those_of_the_distribution(text: str) -> None:
    extras = [name for names in re.findall(r"EXTRAS=([\w,-]+)", text) for name in names.split(",")]
    assert len(extras) == 5 and set(extras) <= SETUP["project"]["optional-dependencies"].keys()


def test_its_user_is_not_root(steps: list[tuple[str, list[str]]]) -> None:
    users = [words[0].partition(":")[0] for step, words in steps if step == "USER"]
    assert users and users[-1] not in ("root", "0")
