"""``robolearn dataset edit merge``: one new set of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import show_stored, write_set
from robolearn.core import BadInput
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Merge(Command):
    """Write the episodes of several sets of one interface into a new one.

    Example: robolearn dataset edit merge data/monday data/tuesday --out data/week
    """

    data: tyro.conf.Positional[tuple[Path, ...]]
    """The data sets, in order; they stay as they are."""
    out: Path
    """The new data set's folder."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert import edit
        from robolearn.data.convert.dataset_source import open_numbers
        from robolearn.data.convert.source import check_new

        if len(self.data) < 2:
            raise BadInput("merge", got=f"{len(self.data)} data sets", expected="two or more")
        check_new(self.out)
        return write_set(edit.merge([open_numbers(path) for path in self.data]), self.out, "merging", self.json)

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        show_stored(result, console)
