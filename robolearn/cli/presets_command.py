"""``robolearn presets``: the settings that have a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robolearn.presets import NAMED, PRESETS
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console


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
        from rich.table import Table

        for heading, rows, begin in (
            ("--task", result["tasks"], ""),
            ("--config", result["configs"], "robolearn {command}: "),
        ):
            table = Table(heading, "", box=None, pad_edge=False, padding=(0, 3, 0, 0))
            for row in rows:
                table.add_row(row["name"], begin.format_map(row) + row["line"])
            console.print(table)
