"""Ranges in the annotations of settings: each is held to, whatever class a command gets its fields by."""

import dataclasses
import importlib
import inspect
import math
import re
import sys
from pathlib import Path

import pytest

from robolearn.cli.registry import ENTRIES
from robolearn.core import BadInput
from robolearn.core.switches import Within

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile("Within|Count|Share|Inside|Positive|NotNegative|Seed|SEEDS")
ROOMS = ("robolearn", "policies", "sim", "hardware", "robots")


def settings() -> dict[str, type]:
    """All dataclasses that have a range, by module and name: those of the modules that import one, and the commands."""
    modules = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if re.search(r"^from robolearn\.core\.switches import", path.read_text(encoding="utf-8"), re.MULTILINE):
                modules.append(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found = [one for name in modules for _, one in inspect.getmembers(importlib.import_module(name), inspect.isclass)]
    found += [entry.load() for entry in ENTRIES]
    return {
        f"{one.__module__}.{one.__qualname__}": one for one in found if dataclasses.is_dataclass(one) and ranges(one)
    }


def ranges(kind: type) -> dict[str, Within]:
    """Field → range, of the class and its bases."""
    found = {}
    for each in kind.__mro__:
        for name, hint in vars(each).get("__annotations__", {}).items():
            if isinstance(hint, str) and NAMED.search(hint):
                hint = eval(hint, vars(sys.modules[each.__module__]))
            for note in getattr(hint, "__metadata__", ()):
                if isinstance(note, Within):
                    found[name] = note
    return found


def test_each_range_is_held_to() -> None:
    kinds = settings()
    assert len(kinds) > 60, "the search has come to an end"
    for where, kind in kinds.items():
        if any(kind in other.__mro__[1:] for other in kinds.values()):
            continue  # part of another
        for name, within in ranges(kind).items():
            made = object.__new__(kind)
            for field in dataclasses.fields(kind):
                value = None
                if field.default is not dataclasses.MISSING:
                    value = field.default
                elif field.default_factory is not dataclasses.MISSING:
                    value = field.default_factory()
                object.__setattr__(made, field.name, value)
            object.__setattr__(made, name, math.nextafter(within.low, -math.inf) - (not within.open))
            with pytest.raises(BadInput, match=name.replace("_", "-") if name != "num_envs" else "worlds"):
                made.__post_init__()
                pytest.fail(f"{where}: {name} is not held to its range, {within}")
