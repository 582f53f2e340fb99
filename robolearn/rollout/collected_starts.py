"""Starts of collected episodes: the seeds and the worlds that a data set was collected in, stored beside it.

    meta/robolearn_starts.json     one entry for each time that `robolearn collect` wrote into the set

A world draws an episode's start by seed, start id and number, so these are all that it needs to begin it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from robolearn.core import BadInput
from robolearn.io.json_files import read_json, write_json

PATH = "meta/robolearn_starts.json"


@dataclass(frozen=True)
class CollectedStarts:
    """Episodes that were collected at one time."""

    task: str
    robot: str
    start_range: float | None  # share of the ranges of starts
    dynamics: str  # a level or a file
    seed: int
    worlds: int  # side by side
    episodes: int  # to be made

    def each(self) -> Iterator[tuple[int, int, int]]:
        """(seed, start id, number) of each episode, those that an interruption left out among them."""
        share, rest = divmod(self.episodes, self.worlds)
        for world in range(self.worlds):
            yield from ((self.seed, world, number) for number in range(share + (world < rest)))


def note_starts(root: Path, starts: CollectedStarts) -> None:
    """Add `starts` to those of the set in the folder `root`."""
    found = [asdict(one) for one in stored_starts(root)] if (root / PATH).is_file() else []
    write_json(root / PATH, {"collected": [*found, asdict(starts)]})


def stored_starts(root: Path, flag: str = "data set") -> list[CollectedStarts]:
    """The starts of the set in the folder `root`, which `flag` gave. Raises `BadInput`: none are stored."""
    what = f"{flag} {root}"
    if not (root / PATH).is_file():
        hint = "Only robolearn collect stores them; people, older versions and edited sets have none"
        raise BadInput(what, got="episodes without the seeds of their starts", expected=PATH, hint=hint)
    names = {one.name for one in fields(CollectedStarts)}
    entries = read_json(root / PATH, what=what).get("collected")
    if not isinstance(entries, list) or not all(isinstance(one, dict) and one.keys() == names for one in entries):
        raise BadInput(f"{what}: {PATH}", got="other entries", expected=sorted(names))
    return [CollectedStarts(**one) for one in entries]
