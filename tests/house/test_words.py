"""The field's words: what is retired does not come back, classes have one name each, docstrings are noun phrases."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
ROOMS = ("robolearn", "robots", "sim", "policies", "hardware")

# Where: the part of a name that is retired there, and what the field says. Names are split at capitals and underscores.
RETIRED = {
    "robolearn/hil": {
        "desk": "learner service",
        "intake": "transition receiver",
        "door": "gRPC server",
        "spool": "outbox",
        "doubt": "failure prediction",
        "doubts": "failure prediction",
        "lesson": "learner config",
        "hand": "device operator",
        "person": "operator console",
        "teaching": "learner arguments",
        "playing": "world arguments",
        "halves": "processes",
    },
    "robolearn/cli": {"judge": "evaluator", "swing": "sine policy", "spoil": "inject fault", "blind": "sees_images"},
    "policies": {
        "chosen": "best of n",
        "late": "delay compensation",
        "steered": "noise-steered",
        "eyes": "encoder",
        "aim": "set goal",
        "tell": "set prompt",
    },
    "robolearn/rollout": {"taught": "DAgger"},
    "sim": {"wardrobe": "visual randomisation", "develop": "postprocess", "bench": "workspace layout"},
    "hardware": {
        "border": "workspace clamp",
        "stranger": "unauthorised caller",
        "renewed": "reconnecting",
        "farewell": "session end",
        "doubles": "driver emulators",
    },
}
# A phrase that stands in no message, help text, docstring or page, and what the field says.
PHRASES = {
    r"[Ff]rom state to sight": "distillation to cameras",
    r"(policy|policies|critic|[Rr]ewards|[Aa]ctors?|one) that (sees?|knows?)\b": "visuomotor, privileged, from images",
    r"(half that sees|taught to see)\b": "visuomotor",
    r"(?<!tests/)\bthe house\b": "the rooms",
    r"\b(had|has|have) (not|never) met": "unseen, held-out",
    r"\b[Mm]end(s|ed|ing)?\b(?![':])": "fix, how to fix it; 'mend' is a key of contracts",
    r"got (none|nothing),": "missing; by BadInput",
    r"with less weight": "at a lower weight",
}
MESSAGES = {r"\bSTART\b": "Start, as the button is called"}  # not in docstrings, where it is an event
KEPT = {"policies": {"NoiseSteeredPolicy", "NoiseSteeredConfig"}}  # the field's own words hold a retired part


def modules(room: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def names(path: Path, tree: ast.Module) -> Iterator[str]:
    """The module's own name, and those of its classes and functions."""
    yield path.stem
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def parts(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


@pytest.mark.parametrize("room", RETIRED)
def test_retired_words_do_not_come_back(room: str) -> None:
    found = [
        f"{path}: {name}: {RETIRED[room][word]}"
        for path, tree in modules(room)
        for name in names(path, tree)
        if name not in KEPT.get(room, ())
        for word in parts(name) & RETIRED[room].keys()
        if not (word == "steered" and "noise" in parts(name))
    ]
    assert found == []


def texts() -> Iterator[tuple[str, str, bool]]:
    """(place, text, whether it is a docstring and no help text) of every page, and of every string of a program."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / ".ci" / "docs", ROOT / ".ci" / "reference.py"]
    for room in (*ROOMS, "launch"):
        pages += [path for ending in ("md", "html", "js") for path in sorted((ROOT / room).rglob(f"*.{ending}"))]
        for path, tree in modules(room):
            inner = (
                set()
                if path.is_relative_to("robolearn/cli")
                else {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            )
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{path}:{node.lineno}", " ".join(node.value.split()), id(node) in inner
    for page in pages:
        yield str(page.relative_to(ROOT)), " ".join(page.read_text(encoding="utf-8").split()), False


def test_retired_phrases_do_not_come_back() -> None:
    found = [
        f"{place}: {match[0]}: {instead}"
        for place, text, inner in texts()
        for phrase, instead in (PHRASES if inner else PHRASES | MESSAGES).items()
        for match in re.finditer(phrase, text)
    ]
    assert found == []


def test_every_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for room in ROOMS:
        for path, tree in modules(room):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_docstrings_are_noun_phrases() -> None:
    """None begins with a question word: "Features of …", "True where …" say the same."""
    found = []
    for room in ROOMS:
        for path, tree in modules(room):
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    first = (ast.get_docstring(node) or "").partition("\n")[0]
                    if re.match(r"(What|Whether|How|Who)\b(?!.*\?)", first):
                        found.append(f"{path}: {first}")
    assert found == []


def test_an_extra_is_added_to_the_installation_that_is_there() -> None:
    """No index has this robolearn, and an installation that is not editable loses the checkout: pages say `-e`, and
    messages the command of `install_command`."""
    kinds, rooms = ("*.md", "*.py", "*.yaml", "*.ipynb"), (*ROOMS, "launch")
    texts = [path for room in rooms for kind in kinds for path in (ROOT / room).rglob(kind)]
    wrong = re.compile(r"""pip install\s+['"]?(robolearn\[|\.)""")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (*texts, *ROOT.glob("*.md"))
        if path.name != "CHANGELOG.md"
        for match in wrong.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
