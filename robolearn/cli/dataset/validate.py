"""``robolearn dataset validate``: every fault of a data set, with its place."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.core import BadInput
from robolearn.core.switches import switch
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Validate(Command):
    """Check everything about a data set and list every fault with its file, episode and frame. Exit code 1 if any.

    Example: robolearn dataset validate data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set."""
    video: Annotated[bool, switch("video")] = True
    """Decode every frame of every video; without it only their headers are read."""
    frozen_s: float = 1.0
    """How long a camera may show the same picture while the arm moves [s]."""
    gap_s: float = 0.25
    """How long a raw timestamp may stand still, or jump [s]."""

    def run(self) -> dict[str, Any]:
        """``{"dataset", "ok", "checked", "findings": [{"check", "where", "what", "file", "episode", "frame"}]}``."""
        from robolearn.data.lerobot import layout
        from robolearn.data.validate import Limits, validate
        from robolearn.io.missing import no_such_folder
        from robolearn.runs import Progress

        if not self.data.is_dir():
            raise BadInput(f"data set {self.data}: {no_such_folder(self.data)}", hint=layout.A_SET)
        for flag, value in (("--frozen-s", self.frozen_s), ("--gap-s", self.gap_s)):
            if not value > 0:
                raise BadInput(flag, got=value, expected="a positive number")
        limits = Limits(decode=self.video, frozen_s=self.frozen_s, gap_s=self.gap_s)
        total = sum(1 for _ in self.data.glob("videos/*/*/*.mp4"))
        with Progress("checking", total=total, unit="videos", quiet=self.json or not total) as progress:
            count = itertools.count(1)
            findings = list(validate(self.data, limits, lambda name: progress(next(count), {})))
        return {
            "dataset": str(self.data),
            "ok": not findings,
            "findings": [{"where": finding.where, **asdict(finding)} for finding in findings],
        }

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return 0 if result["ok"] else 1

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        if result["ok"]:
            console.print(f"[green]{result['dataset']}: nothing wrong[/green]")
            return
        from rich.markup import escape
        from rich.table import Table

        table = Table("check", "where", "what", box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for finding in result["findings"]:
            table.add_row(f"[red]{finding['check']}[/red]", escape(finding["where"]), escape(finding["what"]))
        console.print(table)
        console.print(f"\n[red]{result['dataset']}: {len(result['findings'])} faults[/red]")
