"""Settings as the words of a command line, for programs that start another command in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import fields
from typing import Any

PROGRAM = (sys.executable, "-P", "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())")
"""The program `robolearn`, by the interpreter that runs now."""


def words_of(settings: Any, only: Collection[str] | None = None) -> list[str]:
    """The words that say on a command line what a settings dataclass says; of the fields `only`, where given."""
    names = [f.name for f in fields(settings) if only is None or f.name in only]
    return [word for name in names for word in _flag(name, getattr(settings, name))]


def _flag(name: str, value: Any) -> list[str]:
    if value is None or value is False or value == "":
        return []
    words = [f"--{name.replace('_', '-')}"]
    return words if value is True else [*words, str(value)]
