"""The way into the `robolearn` program: find the command, parse its flags, run it, show its result.

Exit codes: 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn import __version__
from robolearn.cli.console import make_console
from robolearn.cli.registry import ENTRIES, EXAMPLES, Entry, find
from robolearn.core import BadInput, RobolearnError
from robolearn.io.json_files import plain
from robolearn.io.log_lines import LogLines
from robolearn.io.paths import spoken

if TYPE_CHECKING:
    from robolearn.runs.command import Command

log = logging.getLogger(__name__)

# Before torch is loaded. Its threads otherwise wait for each other by turning in circles: where a core is shared with
# other work, that takes ten times as long as the computation.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Troubles of the machine, not of the program: a traceback would not help.
_MACHINE_ERRORS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
_MACHINE_ERRORS |= {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}

_CURES = {
    errno.ENOSPC: ". Make room, then run it again",
    errno.EDQUOT: ". Make room, then run it again",
    errno.EACCES: ". Take a place of your own, or ask for the right to it",
    errno.EPERM: ". Take a place of your own, or ask for the right to it",
    errno.EROFS: ". Take a place on another disk",
    errno.ENAMETOOLONG: ". Take a shorter name",
}


def main(argv: Sequence[str] | None = None, entries: tuple[Entry, ...] = ENTRIES) -> int:
    """Run one command line; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    command: Command | None = None
    try:
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]  # `robolearn help train` is `robolearn train --help`
        if not args or args[0] in ("-h", "--help") or args == ["list"]:
            print_help(entries)
            return 0
        if args[0] in ("-V", "--version", "version"):
            print(f"robolearn {__version__}")
            return 0
        if args[0] in ("--complete", "--install-completion"):
            return _complete(args, entries)
        words = args[:-1] if args[-1] in ("-h", "--help") else args
        below = [entry for entry in entries if _is_below(entry, words)]
        if below and " ".join(words) not in {entry.name for entry in entries}:
            print_help(tuple(below))  # `robolearn dataset` alone asks for the same as with --help
            return 0
        entry, rest = find(args, entries)
        command = parse(entry, rest)
        set_up_logging(command.verbose)
        command.check_outputs()
        result = command.run()
        show(command, result)
        sys.stdout.flush()
        return command.exit_code(result)
    except RobolearnError as error:
        return _complain(error, command, error.exit_code)
    except KeyboardInterrupt:
        print(f"\nrobolearn: stopped. {_way_on(command, args)}", file=sys.stderr)
        return 130
    except (ImportError, AttributeError, RuntimeError) as error:
        if not _gl_is_missing():
            if (bad := _plug_in_error(error)) is not None:
                return _complain(bad, command, 1)
            raise
        bad = BadInput(
            "MUJOCO_GL",
            got=f"{os.environ['MUJOCO_GL']} ({type(error).__name__}: {error})",
            expected="egl, osmesa or glfw, installed",
            hint="Without it and without a display EGL is used where it is installed",
        )
        return _complain(bad, command, bad.exit_code)
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError as error:
        short = RobolearnError(f"out of memory ({error})" if str(error) else "out of memory")
        return _complain(short.with_traceback(error.__traceback__), command, 1)
    except OSError as error:
        if error.errno not in _MACHINE_ERRORS:
            raise
        return _complain(_machine_error(error), command, 1)
    except Exception as error:
        if (bad := _plug_in_error(error)) is None:
            raise
        return _complain(bad, command, 1)


def _complete(args: list[str], entries: tuple[Entry, ...]) -> int:
    from robolearn.cli.completion import candidates, install_completion

    if args[0] == "--complete":
        print("\n".join(candidates(args[1:], entries)))
    else:
        path, rest = install_completion(args[1] if len(args) > 1 else os.environ.get("SHELL", ""), Path.home())
        print(f"wrote {path}\nnext: {rest}")
    return 0


BEGUN = ("config.json", "plan.json", "settings.json", "meta/info.json")  # of a run, a sweep, a quickstart, a data set


def _way_on(command: Command | None, args: list[str]) -> str:
    """The state after Ctrl-C, and the line that goes on with it."""
    out = getattr(command, "out", None)
    if hasattr(command, "resume") and isinstance(out, Path) and not any((out / name).exists() for name in BEGUN):
        return "Nothing had begun in --out; the same command begins anew."  # --resume would find nothing there
    finished = "What was finished is on disk."
    if hasattr(command, "resume"):
        return f"{finished} Go on: {shlex.join(['robolearn', *_resumed(args)])}"
    again = command is not None and command.goes_on()
    return f"{finished} Go on: {shlex.join(['robolearn', *args])}" if again else finished


def _resumed(args: list[str]) -> list[str]:
    """`args` with --resume; what stands behind two dashes are the flags of another command."""
    end = args.index("--") if "--" in args else len(args)
    own = args[:end]
    return [*own, *([] if "--resume" in own else ["--resume"]), *args[end:]]


def parse(entry: Entry, args: list[str]) -> Command:
    """The command of `entry` with `args` as its flags.

    Raises:
      BadInput: a flag is unknown, missing or has a wrong value.
      SystemExit: help was asked for and printed.
    """
    from robolearn.cli.config_file import expand
    from robolearn.cli.flags import by_names_of_today, parse_flags  # late: `robolearn --help` does without tyro

    kind = entry.load()
    words, config = expand(entry.name, args)
    words = by_names_of_today(kind.former, args, words)
    try:
        return parse_flags(kind, f"robolearn {entry.name}", words, _defaults(kind, words))
    except BadInput as error:
        if config:
            error.add_note(f"with --config {config}")
        raise


def _defaults(kind: type[Command], args: list[str]) -> Command | None:
    """The instance whose values are the defaults, where they depend on `args`."""
    import tyro

    defaults = kind.defaults(args)
    if not defaults:
        return None
    required = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    return kind(**dict.fromkeys(required, tyro.MISSING), **defaults)


def show(command: Command, result: dict[str, Any]) -> None:
    """Print `result`: with --json as one line, otherwise for people."""
    if command.json:
        print(json.dumps(plain(result), allow_nan=False))
        return
    command.show(result, make_console(piped=160))


def set_up_logging(verbose: bool) -> None:
    """Log to stderr: stdout belongs to the result."""
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=[LogLines()])
    for room in ("robolearn", "robots", "sim", "policies", "hardware"):
        logging.getLogger(room).setLevel(logging.DEBUG if verbose else logging.INFO)


def print_help(entries: tuple[Entry, ...]) -> None:
    """The overview: what the program is for, its commands by group, and how to begin."""
    from rich.table import Table

    console = make_console(piped=120)
    console.print("[bold]robolearn[/bold]: from demonstrations to a robot policy that RL has made reliable\n")
    console.print(
        "usage: [bold]robolearn[/bold] COMMAND [FLAGS]    ([bold]robolearn[/bold] COMMAND --help lists the flags)\n"
    )
    width = max(len(entry.name) for entry in entries)
    for group in dict.fromkeys(entry.group for entry in entries):
        console.print(f"[bold cyan]{group}[/bold cyan]")
        table = Table.grid(padding=(0, 2))
        table.add_column(width=width + 2)
        for entry in entries:
            if entry.group == group:
                table.add_row(f"  [bold]{entry.name}[/bold]", entry.summary)
        console.print(table)
        console.print()
    console.print("[bold cyan]Examples[/bold cyan]")
    longest = max(len(line) for line, _ in EXAMPLES)
    for line, meaning in EXAMPLES:
        console.print(f"  {line:<{longest}}  [dim]# {meaning}[/dim]")
    console.print(
        "\nEvery command shows its progress and takes --json to end with one JSON object."
        "\nrobolearn --install-completion lets the shell complete commands and flags."
        "\nExit codes: 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C."
    )


def _is_below(entry: Entry, words: list[str]) -> bool:
    """True where the name of `entry` begins with all of `words` and has more."""
    return entry.name.startswith(" ".join([*words, ""]))


def _complain(error: Exception, command: Command | None, exit_code: int) -> int:
    if command is not None and command.verbose:
        log.error("the traceback, because of --verbose", exc_info=error)
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    print(f"robolearn: error: {' '.join(str(error).split())}{notes}", file=sys.stderr)
    return exit_code


def _plug_in_error(error: Exception) -> RobolearnError | None:
    """`error` as one of ours, where the code of a plug-in raised it; --verbose shows its traceback."""
    plugins = sys.modules.get("robolearn.core.plugins")  # not imported: there is none
    where = "" if plugins is None else plugins.blamed(error)
    found = RobolearnError(f"{where}: {type(error).__name__}: {error}") if where else None
    return found and found.with_traceback(error.__traceback__)


def _machine_error(error: OSError) -> RobolearnError:
    """The error of the operating system as one of ours, with its cure."""
    place = f"{error.filename}: " if error.filename else ""
    told = RobolearnError(f"{place}{spoken(error)}{_CURES.get(error.errno or 0, '')}")
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told.with_traceback(error.__traceback__)


def _gl_is_missing() -> bool:
    """True where the import of mujoco failed because of its GL back end, which leaves it unimported."""
    return "MUJOCO_GL" in os.environ and "mujoco" not in sys.modules and "mujoco.rendering" in sys.modules
