"""``--config FILE``: flags in a YAML file, or a preset by its name; and the flags of a run, stored to be one.

The keys are the flags without their dashes, in any grouping::

    # lift.yaml                        robolearn finetune --config lift.yaml --seed 1
    task: lift
    settings: {worlds: 128, gamma: 0.99}

What the command line says comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.core import BadInput
from robolearn.io.atomic import write_text
from robolearn.presets import NAMED, PRESETS
from robolearn.runs.command import NOT_THE_WORK, PLAIN, Command, flags, print_table, stored, words

if TYPE_CHECKING:
    from rich.console import Console

FLAGS = "flags.yaml"  # in a run folder
LARGEST = 1_000_000  # [bytes]
NOT_STORED = NOT_THE_WORK | {"out"}


def expand(name: str, args: Sequence[str]) -> tuple[list[str], str]:
    """`args` with the flags of ``--config`` in front, where they are named, and what was named ("" for nothing).

    Args:
      name: of the command.
      args: words after it.

    Raises:
      BadInput: there is no such file or preset, or it is none of flags.
    """
    given, chosen = list(args), ""
    end = given.index("--") if "--" in given else len(given)  # what stands behind are the words of another command
    for i, word in enumerate(given[:end]):
        if word == "--config" or word.startswith("--config="):
            inline = "=" in word
            if not inline and i + 1 >= end:
                raise BadInput("--config", got="nothing", expected="a YAML file or a preset", available=NAMED)
            chosen = word.split("=", 1)[1] if inline else given[i + 1]
            del given[i : i + (1 if inline else 2)]
            break
    if not chosen:
        return given, ""
    tree = _read(chosen, name)
    _check_lists(tree, chosen)
    return [*words(tree), *given], chosen


def _read(chosen: str, name: str) -> Mapping[str, Any]:
    if chosen in NAMED:
        preset = NAMED[chosen]
        if name not in (preset.command, *preset.also):
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


def _check_lists(tree: Mapping[str, Any], chosen: str) -> None:
    """Raise `BadInput` for a list of lists."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            _check_lists(value, chosen)
        elif isinstance(value, list) and any(isinstance(item, list | Mapping) for item in value):
            raise BadInput(f"--config {chosen}: {key}", got="a list of lists", expected="words or numbers")


def flags_of(command: Any) -> dict[str, Any]:
    """Flag without dashes → its value, of all settings of `command`; those that are empty are left out."""
    return {
        flag.name: stored(flag.value)
        for flag in flags(command)
        if flag.field not in NOT_STORED and not (flag.value in (None, ()) and flag.value == flag.default)
    }


def write_flags(command: Any, name: str, folder: Path) -> None:
    """Store the flags of `command` in the run `folder`, for ``robolearn NAME --config FOLDER/flags.yaml --out …``."""
    import yaml

    head = f"# robolearn {name} --config {FLAGS} --out … does the same again; any flag may follow.\n"
    text = yaml.safe_dump({"command": name, **flags_of(command)}, sort_keys=False, allow_unicode=True)
    write_text(folder / FLAGS, head + text)


@dataclass(frozen=True, kw_only=True)
class Presets(Command):
    """List the presets with a line each.

    Those of tasks are the defaults of collect, train, finetune and quickstart, by --task. The others are chosen by
    --config NAME, as a file of flags is; what the command line says comes on top.
    """

    def run(self) -> dict[str, Any]:
        """``{"tasks": [{"name", "line", "settings"}], "configs": [{"name", "command", "line", "flags"}]}``."""
        return {
            "tasks": [{"name": name, "line": preset.line, "settings": preset} for name, preset in PRESETS.items()],
            "configs": [
                {"name": name, "command": named.command, "line": named.line, "flags": named.flags}
                for name, named in NAMED.items()
            ],
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        for heading, rows, begin in (
            ("--task", result["tasks"], ""),
            ("--config", result["configs"], "robolearn {command}: "),
        ):
            lines = [(row["name"], begin.format_map(row) + row["line"]) for row in rows]
            print_table(console, (heading, ""), lines, **PLAIN)
