"""Every mutant of `make test-mutants` still finds its place: a text that has moved on would end the whole program."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs"
ROOT = PROGRAMS.parents[1]
NAMES = sorted(path.stem for path in PROGRAMS.glob("mutants_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_every_mutant_has_its_text_once_and_its_tests(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    mutants = importlib.import_module(name).MUTANTS
    sys.modules.pop(name)
    assert len(mutants) >= 10
    wrong = [key for key, mutant in mutants.items() if (ROOT / mutant.file).read_text().count(mutant.old) != 1]
    assert not wrong
    unknown = {test for mutant in mutants.values() for test in mutant.tests if not _there(test)}
    assert not unknown


def _there(test: str) -> bool:
    path, *names = test.split("::")
    file = ROOT / path
    return file.exists() and all(f"def {name.partition('[')[0]}(" in file.read_text() for name in names)
