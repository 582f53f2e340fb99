"""``robolearn dataset stats``: exact statistics of every feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import episode_list
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = ("min", "q01", "mean", "std", "q99", "max")


@dataclass(frozen=True, kw_only=True)
class StatsCommand(Command):
    """Exact statistics of every vector of a data set, over all its frames.

    Example: robolearn dataset stats data/lift --episodes 0-9
    """

    data: tyro.conf.Positional[Path]
    """The data set."""
    episodes: str = ""
    """Which episodes, such as 3,7,10-19; all of them if not given."""

    def run(self) -> dict[str, Any]:
        """``{"features": {name: {"names": […], "min": […], …}}}``."""
        from robolearn.data.convert.dataset_source import open_numbers

        dataset = open_numbers(self.data)
        chosen = episode_list(self.episodes, dataset.episodes) if self.episodes else None
        specs = {**dataset.interface.observation, "action": dataset.interface.action}
        return {
            "dataset": str(self.data),
            "episodes": dataset.episodes if chosen is None else len(chosen),
            "features": {
                key: {"names": list(specs[key].names), **{name: values.tolist() for name, values in stats.items()}}
                for key, stats in dataset.statistics(chosen).items()
            },
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        from rich.table import Table

        table = Table("feature", "component", *SHOWN, box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for key, stats in result["features"].items():
            names = stats["names"] or [str(i) for i in range(len(stats["mean"]))]
            for i, name in enumerate(names):
                table.add_row(key if not i else "", name, *(f"{stats[column][i]:.4g}" for column in SHOWN))
        console.print(table)
