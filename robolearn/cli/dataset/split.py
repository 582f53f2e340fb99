"""``robolearn dataset edit split``: the episodes of a set, divided over new sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import show_stored, write_sets
from robolearn.core import BadInput
from robolearn.runs.command import Command, check_seed

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Split(Command):
    """Divide the episodes of a set over new ones.

    Example: robolearn dataset edit split data/lift --fractions 0.9 0.1 --out data/train data/val --seed 0
    """

    data: tyro.conf.Positional[Path]
    """The data set; it stays as it is."""
    out: tuple[Path, ...]
    """The folders of the new sets."""
    fractions: tuple[float, ...] = ()
    """The share of the episodes that each gets, made to add up to 1; equal ones if not given."""
    seed: int | None = None
    """Deal the episodes at random; without it the first ones go to the first set."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert import edit
        from robolearn.data.convert.dataset_source import open_numbers
        from robolearn.data.convert.source import check_new

        fractions = self.fractions or (1.0,) * len(self.out)
        if len(self.out) < 2 or len(set(self.out)) != len(self.out):
            raise BadInput("--out", got=f"{len(self.out)} folders", expected="two or more, all different")
        if len(fractions) != len(self.out):
            raise BadInput("--fractions", got=f"{len(fractions)} numbers", expected=f"{len(self.out)}, one per --out")
        if self.seed is not None:
            check_seed(self.seed)
        for out in self.out:
            check_new(out)
        dataset = open_numbers(self.data)
        parts = edit.split(dataset, fractions, self.seed)
        written = write_sets([edit.keep(dataset, episodes) for episodes in parts], self.out, "writing", self.json)
        return {"datasets": [{**one, "from_episodes": part} for one, part in zip(written, parts, strict=True)]}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        for one in result["datasets"]:
            show_stored(one, console)
