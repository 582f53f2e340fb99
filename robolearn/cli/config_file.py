"""``--config FILE``: flags in a YAML file, or a preset by its name; and the flags of a run, stored to be one.

The keys are the flags without their dashes, in any grouping::

    # lift.yaml                        robolearn finetune --config lift.yaml --seed 1
    task: lift
    settings: {worlds: 128, gamma: 0.99}

What the command line says comes on top.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from robolearn.core import BadInput
from robolearn.io.atomic import write_text
from robolearn.io.json_files import plain
from robolearn.presets import NAMED

FLAGS = "flags.yaml"  # in a run folder
LARGEST = 1_000_000  # [bytes]
SUPPRESSED = typing.get_args(tyro.conf.Suppress[str])[1]
NOT_STORED = {"json", "verbose", "resume", "out", "config"}  # of a run: how it was shown, and where it is


def expand(name: str, args: Sequence[str], on: frozenset[str]) -> tuple[list[str], str]:
    """`args` with the flags of ``--config`` in front, where they are named, and what was named ("" for nothing).

    Args:
      name: of the command.
      args: words after it.
      on: switches of the command that are on by default, as ``--name``.

    Raises:
      BadInput: there is no such file or preset, or it is none of flags.
    """
    words, chosen = list(args), ""
    end = words.index("--") if "--" in words else len(words)  # what stands behind are the words of another command
    for i, word in enumerate(words[:end]):
        if word == "--config" or word.startswith("--config="):
            inline = "=" in word
            if not inline and i + 1 >= end:
                raise BadInput("--config", got="nothing", expected="a YAML file or a preset", available=NAMED)
            chosen = word.split("=", 1)[1] if inline else words[i + 1]
            del words[i : i + (1 if inline else 2)]
            break
    if not chosen:
        return words, ""
    return [*_words(_read(chosen, name), on, chosen), *words], chosen


def _read(chosen: str, name: str) -> Mapping[str, Any]:
    if chosen in NAMED:
        preset = NAMED[chosen]
        if preset.command != name:
            raise BadInput(f"--config {chosen}", got=f"robolearn {name}", expected=f"robolearn {preset.command}")
        return preset.flags
    import yaml

    path = Path(chosen)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise BadInput(f"--config {chosen}", got=f"more than {LARGEST:,} bytes", expected="a file of flags")
        tree = yaml.safe_load(content)
    except FileNotFoundError:
        raise BadInput(f"--config {chosen}: there is no such file, and no such preset", available=NAMED) from None
    except (OSError, yaml.YAMLError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "strerror", None) or "it is not text"
        at = f", line {place.line + 1}" if place else ""
        raise BadInput(
            f"--config {chosen} cannot be read: {what}{at}", hint="It is YAML, with a line such as `steps: 500` a flag"
        ) from None
    if not isinstance(tree, Mapping):
        raise BadInput(f"--config {chosen}", got=type(tree).__name__, expected="flags: a line `steps: 500` for each")
    meant = tree.get("command", name)
    if meant != name:
        raise BadInput(f"--config {chosen}", got=f"flags of robolearn {meant}", expected=f"those of robolearn {name}")
    return {key: value for key, value in tree.items() if key != "command"}


def _words(tree: Mapping[str, Any], on: frozenset[str], chosen: str) -> list[str]:
    """Flags and their values as words."""
    words: list[str] = []
    for key, value in tree.items():
        flag = f"--{str(key).replace('_', '-')}"
        if isinstance(value, Mapping):
            words += _words(value, on, chosen)
        elif isinstance(value, bool):
            words += [flag] if value else [flag.replace("--", "--no-", 1)] if flag in on else []
        elif isinstance(value, list):
            if any(isinstance(item, list | Mapping) for item in value):
                raise BadInput(f"--config {chosen}: {key}", got="a list of lists", expected="words or numbers")
            words += [flag, *map(str, value)]
        elif value is not None:
            words += [flag, str(value)]
    return words


def flags_of(command: Any) -> dict[str, Any]:
    """Flag without dashes → its value, of all settings of `command`; those that are empty are left out."""
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(type(command), include_extras=True)
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if field.name in NOT_STORED or value is None or value == ():
            continue
        if dataclasses.is_dataclass(value):
            found |= flags_of(value)
            continue
        notes = getattr(hints[field.name], "__metadata__", ())
        if SUPPRESSED in notes:  # a checkpoint's alone, no flag
            continue
        told = [getattr(note, "name", None) for note in notes]
        name = next((name for name in told if name), field.name.replace("_", "-"))
        found[name] = plain(value)
    return found


def write_flags(command: Any, name: str, folder: Path) -> None:
    """Store the flags of `command` in the run `folder`, for ``robolearn NAME --config FOLDER/flags.yaml --out …``."""
    import yaml

    head = f"# robolearn {name} --config {FLAGS} --out … does the same again; any flag may follow.\n"
    text = yaml.safe_dump({"command": name, **flags_of(command)}, sort_keys=False, allow_unicode=True)
    write_text(folder / FLAGS, head + text)
