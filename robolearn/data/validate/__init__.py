"""Every check of a data set: pure functions from what could be read to findings; none stops at the first fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from robolearn.data.validate import tables, videos
from robolearn.data.validate.checksums import compared
from robolearn.data.validate.opened import Defect, Tolerances, opened

__all__ = ["CHECKS", "Defect", "Tolerances", "validate"]

CHECKS = (*tables.CHECKS, videos.videos)


def validate(
    root: str | Path,
    limits: Tolerances | None = None,
    seen: Callable[[str], None] | None = None,
    notes: list[str] | None = None,
) -> Iterator[Defect]:
    """All faults of the data set in the folder `root`; `seen` is called with every video that has been checked, and
    `notes` takes, at the end, what is no fault and good to know. Raises `BadInput`: `root` is no data set."""
    data = opened(Path(root), seen)
    yield from data.findings
    for check in CHECKS:
        yield from check(data, limits or Tolerances())
    damage, stale = compared(data, limits or Tolerances())
    yield from damage
    if notes is not None:
        notes += [*tables.unscaled(data), *tables.unchanging(data), *tables.wordless(data), *stale]
