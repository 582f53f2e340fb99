"""Every command that a page shows is one that the program understands, and every link leads somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from policies.settings import POLICIES
from robolearn.cli.main import parse
from robolearn.cli.registry import find

ROOT = Path(__file__).parents[2]
ROOMS = ("robolearn", "robots", "sim", "policies", "hardware")
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted(page for room in ROOMS for page in (ROOT / room).rglob("*.md")),
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


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_command_of_a_page_parses(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Training that begins --from a policy takes its settings, and the policies of a page are not there.
    monkeypatch.setattr("robolearn.cli.train._of_policy", lambda path: ("flow", POLICIES["flow"]()))
    lines = commands(page)
    assert page != README or len(lines) >= 5
    for args in lines:
        entry, rest = find(args)
        parse(entry, rest)


def test_a_set_or_a_run_is_made_by_one_command_on_all_pages() -> None:
    """A name below data/ or runs/ means one thing, whatever the order of the flags."""
    made: dict[str, dict[frozenset[str], str]] = {}
    for page in PAGES:
        for args in commands(page):
            words = " ".join(args).split(" --")
            for out in (name for word in words if word.startswith("out ") for name in word.split()[1:]):
                if out.startswith(("data/", "runs/")) and "resume" not in words:
                    made.setdefault(out, {})[frozenset(words)] = f"{page_name(page)}: {' '.join(args)}"
    assert {out: [*ways.values()] for out, ways in made.items() if len(ways) > 1} == {}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    def headings(file: Path) -> set[str]:
        titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}  # as GitHub does

    links = re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    there = [(page.parent / link if link else page, name) for link, name in links if "://" not in link]
    assert [name for file, name in there if name not in headings(file)] == []


def test_the_python_of_the_first_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """With an untrained policy in place of a trained one, and fewer episodes."""
    import robolearn
    from policies.normalize import Normalizer
    from policies.policy import ChunkPolicy
    from policies.settings import FlowConfig, NetworkConfig
    from policies.storage.checkpoint import save_policy

    text = README.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    prose = text[: text.index("```python")].split("`import robolearn` has ten names:")[1]
    assert re.findall(r"`(\w+)`", prose) == sorted(robolearn.__all__[1:], key=prose.index)
    assert len(robolearn.__all__) == 11 and all(getattr(robolearn, name) for name in robolearn.__all__)
    interface = robolearn.make_env("lift", 1).interface
    net = FlowConfig(network=NetworkConfig(width=16, depth=1)).build(interface)
    save_policy(ChunkPolicy(net, Normalizer(interface), interface), tmp_path / "runs" / "rl")
    monkeypatch.chdir(tmp_path)
    exec(code.replace("64", "2"), {})
    assert "of 2" in capsys.readouterr().out
    with pytest.raises(AttributeError, match=r"no 'evalute'; it has .*evaluate"):
        robolearn.evalute  # noqa: B018


def test_the_first_page_is_short_and_leads_to_every_other() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    bullets = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(bullets) == 5 and max(map(len, bullets)) <= 130
    others = [page.relative_to(ROOT) for page in PAGES if page != README]
    assert [str(page) for page in others if f"({page})" not in text] == []
