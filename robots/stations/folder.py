"""A station in one folder, with versions: its contract, what was calibrated, the dynamics that were identified.

    station.yaml             the contract, in which `calibrate --write` puts poses and lenses: --robot FOLDER
    dynamics.json            the dynamics of this very arm, by `identify --write`: --dynamics FOLDER
    robot.yaml, model.xml    of an arm of one's own (`robots.own`)
    versions/<n>/            a copy of these files as they were, and version.json: number, time, note, file → sha256

A version is a new folder, made whole or not at all; none is ever written again.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from robolearn.core.errors import BadInput
from robolearn.io.atomic import place_folder
from robolearn.io.hashes import sha256_file
from robolearn.io.json_files import read_json
from robots.own import FACTS, MODEL, STATION

DYNAMICS = "dynamics.json"
FILES = (STATION, DYNAMICS, FACTS, MODEL)
VERSIONS, VERSION = "versions", "version.json"


@dataclass(frozen=True)
class StationVersion:
    """A station as it was.

    Attributes:
      number: 1, 2, …
      made: when, UTC.
      note: what was done to it.
      files: file → sha256.
    """

    number: int
    made: str
    note: str
    files: dict[str, str]


def in_station(path: Path, name: str) -> Path:
    """The file `name` of the station's folder `path`; `path` itself where that is no folder."""
    return path / name if path.is_dir() else path


def versions(folder: Path) -> list[StationVersion]:
    """The versions in `folder`, in their order. Raises `BadInput`: one that is damaged."""
    found = []
    for file in (folder / VERSIONS).glob(f"*/{VERSION}"):
        try:
            found.append(StationVersion(**read_json(file, what="version of a station")))
        except TypeError as error:
            raise BadInput(f"{file}", got=f"no version of a station ({error})", expected="one") from None
    return sorted(found, key=lambda one: one.number)


def changes(folder: Path, since: StationVersion) -> list[str]:
    """The files of `folder` that are not as they were."""
    now = _files(folder)
    return [name for name in FILES if now.get(name) != since.files.get(name)]


def keep(folder: Path, note: str) -> StationVersion:
    """Keep the files of `folder` as its next version; where nothing has changed, the last one is returned.

    Raises:
      BadInput: there is no contract in it.
    """
    if not (folder / STATION).is_file():
        raise BadInput(f"station {folder}", got=f"no {STATION}", expected="a contract")
    past = versions(folder)
    if past and not changes(folder, past[-1]):
        return past[-1]
    number = past[-1].number + 1 if past else 1
    made = StationVersion(number, datetime.now(UTC).isoformat(timespec="seconds"), note, _files(folder))
    part = folder / VERSIONS / f".{number}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in made.files:
        shutil.copyfile(folder / name, part / name)
    (part / VERSION).write_text(json.dumps(asdict(made), indent=2) + "\n")
    place_folder(part, folder / VERSIONS / str(number))
    return made


def version_of(contract: Path) -> str:
    """The version of the station whose contract this is: ``"3"``, ``"3, changed since: station.yaml"``, or ``""``."""
    folder = contract.parent
    if contract.name != STATION or not (past := versions(folder)):
        return ""
    changed = changes(folder, past[-1])
    return f"{past[-1].number}" + (f", changed since: {', '.join(changed)}" if changed else "")


def _files(folder: Path) -> dict[str, str]:
    return {name: sha256_file(folder / name) for name in FILES if (folder / name).is_file()}
