"""Base of all commands: a frozen dataclass whose fields are its flags, with a `run` that returns its result.

`words_of` turns settings into the words of a command line: for files of flags, for commands that are started, for
reports. `robolearn.cli.main` reads them back: ``parse(words_of(command)) == command``.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tyro

from robolearn.core import BadInput
from robolearn.core.switches import SEEDS, check_ranges
from robolearn.io.paths import check_writable, spoken
from robolearn.runs import read_metrics

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column


PLAIN: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 3, 0, 0)}  # of a table without lines
OUTPUTS = ("out", "logs", "board", "save", "video", "record")  # flags that name what a command writes


@dataclass(frozen=True, kw_only=True)
class Command:
    """The flags that all commands share, and the way in which results are shown.

    Attributes:
      former: flags by their names of before → what they are called now.
    """

    former: ClassVar[Mapping[str, str]] = {}

    json: bool = False
    """Print the result as one JSON object, the last line of stdout."""
    config: str = ""
    """Flags from a YAML file, or from a preset (see robolearn presets); flags that are given beside it come on top."""
    verbose: bool = False
    """Log details, and show the traceback when something fails."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        """Defaults that depend on other flags (the settings of the algorithm that is asked for), read from `args`."""
        return {}

    def check_outputs(self) -> None:
        """Raise `BadInput` where --out, --logs or the like is no place that can be written: before any work."""
        for name in OUTPUTS:
            given = getattr(self, name, None)
            for path in given if isinstance(given, tuple) else (given,):
                if isinstance(path, Path):
                    check_writable(path, f"--{name} {path}")

    def run(self) -> dict[str, Any]:
        """Do the work and return the result; its keys are an interface for scripts."""
        raise NotImplementedError

    def goes_on(self) -> bool:
        """True where the same command, without a flag, goes on with what it has done before it was stopped."""
        return False

    def exit_code(self, result: Mapping[str, Any]) -> int:
        """The exit code after `result` was shown: 1 where it says itself that something failed, as a report did."""
        return 1 if result.get("report_error") else 0

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        """Print `result` for people: by default one line per value, successes as "93.5% (90.1–95.9, 400 episodes)"."""
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for line in _lines(result):
            table.add_row(*line)
        console.print(table)


def print_table(console: Console, heads: Sequence[str | Column], rows: Iterable[Sequence[str]], **options: Any) -> None:
    """Print a table with these heads of its columns; `options` as `rich.table.Table` has them."""
    from rich.table import Table

    table = Table(*heads, **options)
    for row in rows:
        table.add_row(*row)
    console.print(table, soft_wrap=False)  # a title is broken


def peek(args: Sequence[str], flag: str, default: str) -> str:
    """The value of ``--flag VALUE`` or ``--flag=VALUE`` in `args`, before they are parsed."""
    for i, word in enumerate(args):
        if word.startswith(f"{flag}="):
            return word.split("=", 1)[1]
        if word == flag and i + 1 < len(args):
            return args[i + 1]
    return default


def check_port(port: int) -> None:
    """Raise `BadInput` unless `port` is one; 0 is any."""
    if not 0 <= port < 65536:
        raise BadInput("--port", got=port, expected="0 to 65535")


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise `BadInput` unless there is a seed, and none twice: a run that counts twice narrows every interval."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise BadInput("--seeds", got=" ".join(map(str, seeds)) or "nothing", expected="different numbers")


def check_seed(seed: int) -> None:
    """Raise `BadInput` unless numpy, torch and a signed 64-bit number can all take `seed`."""
    if seed not in SEEDS:
        raise BadInput("--seed", got=seed, expected=str(SEEDS))


def rate_text(rate: Mapping[str, Any]) -> str:
    """A success ``{"rate", "low", "high", "episodes"}`` for people: ``93.5% (90.1–95.9, 400 episodes)``."""
    low, high = 100 * rate["low"], 100 * rate["high"]
    return f"{100 * rate['rate']:.1f}% ({low:.1f}–{high:.1f}, {rate['episodes']} episodes)"


def reported(write: Callable[[], Path]) -> dict[str, str | None]:
    """``{"report": its path}``; where `write` fails, with ``"report_error"``: what was measured before is shown anyway.

    A disk may be full, or a folder gone, after hours of work whose result needs neither.
    """
    try:
        return {"report": str(write())}
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        return {"report": None, "report_error": f"could not be written{place}: {spoken(error)}"}


def last_row(run: Path) -> dict[str, Any]:
    """The metrics of a run's last iteration, without those that are no number there; empty before the first."""
    rows = [{}, *read_metrics(run)]
    return {key: value for key, value in rows[-1].items() if value is not None}


def _lines(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for key, value in result.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and {"rate", "low", "high", "episodes"} <= value.keys():
            lines.append((name, rate_text(value)))
        elif isinstance(value, Mapping):
            lines.extend(_lines(value, f"{name}."))
        elif isinstance(value, float):
            lines.append((name, f"{value:.4g}"))
        else:
            lines.append((name, str(value)))
    return lines


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
