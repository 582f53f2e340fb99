"""Settings as the words of a command line: one way for files of flags, for commands that are started, for reports.

`robolearn.cli.main` reads the words back: ``parse(words_of(command)) == command``.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import tyro

PROGRAM = (sys.executable, "-P", "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())")
"""The program `robolearn`, by the interpreter that runs now."""

NOT_THE_WORK = frozenset({"json", "verbose", "config", "resume"})
"""Fields of a command that do not change what it does."""

SUPPRESSED = typing.get_args(tyro.conf.Suppress[str])[1]
POSITIONAL = typing.get_args(tyro.conf.Positional[str])[1]


@dataclasses.dataclass(frozen=True)
class SettingFlag:
    """A field of settings as a flag.

    Attributes:
      field: its name in the dataclass.
      name: of the flag, without dashes.
      value: of the field.
      default: of the class; `dataclasses.MISSING` where it has none.
      positional: the value stands on the command line without the name.
    """

    field: str
    name: str
    value: Any
    default: Any
    positional: bool


def flags(settings: Any, only: Collection[str] | None = None) -> Iterator[SettingFlag]:
    """The flags of a settings dataclass and of those that are nested in it; of its fields `only`, where given."""
    hints = typing.get_type_hints(type(settings), include_extras=True)
    for field in dataclasses.fields(settings):
        value, notes = getattr(settings, field.name), getattr(hints[field.name], "__metadata__", ())
        if (only is not None and field.name not in only) or SUPPRESSED in notes:  # a checkpoint's alone, no flag
            continue
        if dataclasses.is_dataclass(value):
            yield from flags(value)
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if value is None and dataclasses.is_dataclass(default):  # nested settings that do not apply
            continue
        named = next((note.name for note in notes if getattr(note, "name", None)), field.name.replace("_", "-"))
        yield SettingFlag(field.name, named, value, default, POSITIONAL in notes)


def stored(value: Any) -> Any:
    """A field's value as a file of flags has it: None as a word, paths as text, tuples as lists."""
    if isinstance(value, tuple):
        return [stored(item) for item in value]
    return value if isinstance(value, bool | int | float) else str(value)


def words(tree: Mapping[str, Any]) -> list[str]:
    """Flags and their values, which may be grouped, as words: ``{"steps": 5, "video": False}`` → ``--steps 5
    --no-video``. None: the flag is left out."""
    found: list[str] = []
    for name, value in tree.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, Mapping):
            found += words(value)
        elif isinstance(value, bool):
            found += [flag if value else f"--no-{flag[2:]}"]
        elif isinstance(value, list | tuple):
            found += [flag, *map(str, value)]
        elif value is not None:
            found += [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]
    return found


def words_of(settings: Any, only: Collection[str] | None = None, *, changed: bool = False) -> list[str]:
    """The words that say on a command line what a settings dataclass says; a default None or () is left out.

    Args:
      only: names of its fields; None: all.
      changed: leave out what is as the class has it.
    """
    found: dict[str, Any] = {}
    stand: list[str] = []
    for flag in flags(settings, only):
        if flag.value in (None, ()) and flag.value == flag.default:
            continue
        if flag.positional:
            stand += map(str, flag.value if isinstance(flag.value, tuple) else (flag.value,))
        elif not (changed and flag.value == flag.default):
            found[flag.name] = stored(flag.value)
    if any(word.startswith("-") for word in stand):
        return [*words(found), "--", *stand]
    return [*stand, *words(found)]  # the other way round a flag with several values would take them


def command_text(name: str, command: Any) -> str:
    """The line that runs `command`, whose name it is, once more; without what is as by default or only shown."""
    only = {field.name for field in dataclasses.fields(command)} - NOT_THE_WORK
    return shlex.join(["robolearn", *name.split(), *words_of(command, only, changed=True)])
