"""``robolearn runs``: lists runs; ``runs compare`` sets them side by side, ``runs rm`` removes them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import megabytes
from robolearn.core import BadInput
from robolearn.io.json_files import flatten, read_json
from robolearn.io.paths import no_such_folder
from robolearn.runs import find_runs, inspect_run
from robolearn.runs.command import PLAIN, Command, last_row, print_table, rate_text
from robolearn.runs.run import CONFIG, RESULT

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT = Path("runs")
COLOURS = {"finished": "green", "resumable": "yellow", "in use": "cyan"}


@dataclass(frozen=True, kw_only=True)
class Runs(Command):
    """List runs and say which are finished, which --resume would go on with, and which are in use.

    Example: robolearn runs runs/quickstart. See also robolearn runs compare, and robolearn runs rm.
    """

    folder: tyro.conf.Positional[Path] = DEFAULT
    """Folder of the runs, subfolders included."""

    def run(self) -> dict[str, Any]:
        """``{"runs": [{"path", "status", "step", "done", "unit", "wall_s", "age_s"}, …]}``."""
        if not self.folder.is_dir():
            if self.folder == DEFAULT and not self.folder.exists():
                return {"runs": []}
            raise BadInput(f"runs folder {self.folder}: {no_such_folder(self.folder)}")
        now = time.time()
        same = ("status", "step", "done", "unit", "wall_s")
        return {
            "runs": [
                {"path": str(info.path), **{name: getattr(info, name) for name in same},
                 "age_s": round(max(0.0, now - info.modified), 1)}
                for info in find_runs(self.folder)
            ]
        }  # fmt: skip

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        """A table of the runs."""
        if not result["runs"]:
            console.print(f"no runs in {self.folder}")
            return
        rows = []
        for run in result["runs"]:
            colour = COLOURS[run["status"]]
            status = f"[{colour}]{run['status']}[/{colour}]"
            done = "–" if run["done"] is None else f"{run['done']:,} {run['unit']}"
            rows.append((run["path"], status, done, _duration(run["wall_s"]), f"{_duration(run['age_s'])} ago"))
        print_table(console, ("run", "status", "done", "worked", "changed"), rows, **PLAIN)


def _duration(seconds: float | None) -> str:
    """Seconds in the largest unit that keeps it readable."""
    if seconds is None:
        return "–"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


RATE = {"rate", "low", "high", "episodes"}
NOT_SETTINGS = ("interface", "sha256")  # of a configuration: what is made of the settings, and of the data


@dataclass(frozen=True, kw_only=True)
class RunsCompare(Command):
    """Show the settings in which runs differ, and their last metrics and results side by side.

    Which of two policies is better, and how sure that is, `robolearn evaluate --policy A --against B` says.

    Example: robolearn runs compare runs/a runs/b
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, two at least."""
    all: bool = False
    """Show also the settings that are the same."""

    def run(self) -> dict[str, Any]:
        """``{"runs", "settings": {name: [value of each run]}, "metrics": …, "results": …}``."""
        if len(self.runs) < 2:
            raise BadInput("runs compare", got=f"{len(self.runs) or 'no'} run", expected="two or more")
        infos = [inspect_run(path) for path in self.runs]
        configs = [read_json(info.path / CONFIG, what=f"run {info.path}") for info in infos]
        results = [read_json(info.path / RESULT, what=f"run {info.path}") if (info.path / RESULT).exists() else {}
                   for info in infos]  # fmt: skip
        settings = side_by_side([{k: v for k, v in c.items() if k not in NOT_SETTINGS} for c in configs])
        return {
            "runs": [str(info.path) for info in infos],
            "status": [info.status for info in infos],
            "settings": settings if self.all else {k: v for k, v in settings.items() if differ(v)},
            "same_settings": sum(not differ(v) for v in settings.values()),
            "metrics": side_by_side([last_row(info.path) for info in infos]),
            "results": side_by_side(results),
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        for part, heading in (("settings", "setting"), ("metrics", "last metrics"), ("results", "result")):
            rows = {k: v for k, v in result[part].items() if part != "results" or _is_outcome(k, v)}
            if not rows:
                continue
            lines = [(name, *map(_text, values)) for name, values in rows.items()]
            print_table(console, (heading, *result["runs"]), lines, **PLAIN)
            console.print()
        if not self.all:
            console.print(f"{result['same_settings']} settings are the same; --all shows them")


def differ(values: list[Any]) -> bool:
    """True unless all are the same."""
    return any(value != values[0] for value in values[1:])


def side_by_side(trees: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Dotted name → its value in each of `trees`, None where one has none; successes stay whole."""
    flat = [flatten(tree, whole=RATE) for tree in trees]
    names = list(dict.fromkeys(name for one in flat for name in one))
    return {name: [one.get(name) for one in flat] for name in names}


def _is_outcome(name: str, values: list[Any]) -> bool:
    """True for what is shown of a result: paths and calibration stay in the JSON."""
    return not name.startswith(("calibration.", "run", "policy")) and not any(isinstance(v, list | str) for v in values)


def _text(value: Any) -> str:
    if isinstance(value, Mapping) and value.keys() >= RATE:
        return rate_text(value)
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class RunsRm(Command):
    """Remove run folders with everything in them; without --yes, only say what would go.

    Nothing but run folders is removed, and none in which a process works.

    Example: robolearn runs rm runs/try-1 runs/try-2 --yes
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders."""
    yes: bool = False
    """Remove them."""

    def run(self) -> dict[str, Any]:
        """``{"runs": [{"path", "status", "bytes"}, …], "removed": whether}``."""
        if not self.runs:
            raise BadInput("runs rm", got="no run", expected="one or more")
        infos = [inspect_run(path) for path in self.runs]  # all, before the first is touched
        for info in infos:
            if info.status == "in use":
                raise BadInput(f"run {info.path}", got="one that a process works in", expected="it to be stopped first")
            if info.path.is_symlink():
                raise BadInput(f"run {info.path}", got="a link", expected=f"the folder itself, {info.path.resolve()}")
        rows = [{"path": str(info.path), "status": info.status, "bytes": _size(info.path)} for info in infos]
        if self.yes:
            for info in infos:
                _remove(info.path)
        return {"runs": rows, "removed": self.yes}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        for row in result["runs"]:
            did = "removed" if result["removed"] else "would be removed"
            console.print(f"{row['path']}: {row['status']}, {megabytes(row['bytes'])}: {did}")
        if not result["removed"]:
            console.print("--yes removes them")


def _size(folder: Path) -> int:
    """Bytes of the files below `folder`."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def _remove(path: Path) -> None:
    # Under another name first: what a kill leaves is then no run any more that --resume might go on with.
    aside = path.with_name(f".{path.name}.removed.{os.getpid()}")
    os.rename(path, aside)
    shutil.rmtree(aside)
