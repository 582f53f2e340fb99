"""``robolearn station``: contract, calibration and dynamics of a station in one folder, with versions."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro

from robolearn.cli.choices import Station
from robolearn.core import BadInput
from robolearn.runs.command import Command


@dataclass(frozen=True, kw_only=True)
class StationFolder(Command):
    """Make the folder of a station, keep its files as the next version, or list its versions.

    The folder serves as --robot and, once `identify --write` has been there, as --dynamics. `calibrate --write` and
    `identify --write` keep a version each time; after an edit by hand, --note does.

    Example: robolearn station lab --contract ur5e --note "as shipped"
    """

    folder: tyro.conf.Positional[Path]
    """The station's folder."""
    contract: Station = ""
    """Make the folder, with a copy of this contract."""
    note: str = ""
    """Keep the files as the next version, with these words."""

    def run(self) -> dict[str, Any]:
        """``{"folder", "robot", "version", "versions": [{"number", "made", "note", "files"}], "changed": [file]}``."""
        from robots.own import STATION
        from robots.stations import load_contract
        from robots.stations.folder import changes, keep, version_of, versions

        if self.contract:
            source = Path(load_contract(self.contract).path)
            if (self.folder / STATION).exists():
                raise BadInput(f"station {self.folder}", got=f"a {STATION}", expected="a new folder")
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, self.folder / STATION)
        elif not self.folder.is_dir():
            raise BadInput("station", got=f"no folder {self.folder}", expected="one", hint="--contract NAME makes it")
        robot = load_contract(self.folder).robot.name  # a contract that cannot be read is no version
        if self.note or self.contract:
            keep(self.folder, self.note or f"a copy of {self.contract}")
        past = versions(self.folder)
        return {
            "folder": str(self.folder),
            "robot": robot,
            "version": version_of(self.folder / STATION) or None,
            "versions": [asdict(one) for one in past],
            "changed": changes(self.folder, past[-1]) if past else [],
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        before: dict[str, str] = {}
        for one in result["versions"]:
            files = [name for name in {**before, **one["files"]} if before.get(name) != one["files"].get(name)]
            console.print(f"{one['number']:>3}  {one['made']}  {', '.join(files)}: {one['note']}", markup=False)
            before = one["files"]
        if result["changed"]:
            console.print(f"changed since: {', '.join(result['changed'])}; --note WORDS keeps it as the next version")
        if not result["versions"]:
            console.print("no version yet; --note WORDS keeps the first")
