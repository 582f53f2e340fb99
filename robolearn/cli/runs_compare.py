"""``robolearn runs compare``: settings in which runs differ, and what came of them, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.core import BadInput
from robolearn.runs.command import Command, last_row, rate_text

if TYPE_CHECKING:
    from rich.console import Console

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
        from robolearn.io.json_files import read_json
        from robolearn.runs import inspect_run
        from robolearn.runs.run import CONFIG, RESULT

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
        from rich.table import Table

        for part, heading in (("settings", "setting"), ("metrics", "last metrics"), ("results", "result")):
            rows = {k: v for k, v in result[part].items() if part != "results" or _is_outcome(k, v)}
            if not rows:
                continue
            table = Table(heading, *result["runs"], box=None, pad_edge=False, padding=(0, 3, 0, 0))
            for name, values in rows.items():
                table.add_row(name, *(_text(value) for value in values))
            console.print(table)
            console.print()
        if not self.all:
            console.print(f"{result['same_settings']} settings are the same; --all shows them")


def differ(values: list[Any]) -> bool:
    """Whether not all are the same."""
    return any(value != values[0] for value in values[1:])


def side_by_side(trees: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Dotted name → its value in each of `trees`, None where one has none; successes stay whole."""
    flat = [_flat(tree) for tree in trees]
    names = list(dict.fromkeys(name for one in flat for name in one))
    return {name: [one.get(name) for one in flat] for name in names}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value and not value.keys() >= RATE:
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _is_outcome(name: str, values: list[Any]) -> bool:
    """Whether people look for it in a result: paths and noise that was tried stay in the JSON."""
    return not name.startswith(("calibration.", "run", "policy")) and not any(isinstance(v, list | str) for v in values)


def _text(value: Any) -> str:
    if isinstance(value, Mapping) and value.keys() >= RATE:
        return rate_text(value)
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
