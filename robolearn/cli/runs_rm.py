"""``robolearn runs rm``: remove runs that nobody works in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import megabytes
from robolearn.core import BadInput
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console


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
        from robolearn.runs import inspect_run

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
