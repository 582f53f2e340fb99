"""Leftovers of killed edits, imports, exports and repairs: hidden copies that nothing refers to.

    .<name>.part/           beside what was to become <name>; its set is in set/, and whole where only the last rename
                            is lacking; together.json names the other parts of a split
    .<name>.part            a file, in the same place
    <set>/.unfinished/beyond-<number>/      what no episode is whole of: see `repair`

What a living process is filling is not among them: it holds the lock of the folder.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.io.locks import is_locked

PART, INNER, TOGETHER = ".part", "set", "together.json"


@dataclass(frozen=True)
class Leftover:
    """A copy that a killed process left.

    Attributes:
      path: of the hidden file or folder.
      size: of its files [bytes].
      what: in words.
    """

    path: Path
    size: int
    what: str


def part_of(place: Path) -> Path:
    """The place at which the future `place` is written.

    Raises:
      BadInput: a link lies there: what it leads to would be emptied.
    """
    part = place.with_name(f".{place.name}{PART}")
    if part.is_symlink():
        raise BadInput(f"--out {place}", got=f"a link {part}", expected="none: what it leads to would be emptied")
    return part


def note_together(part: Path, places: Sequence[Path]) -> None:
    """Write down in the folder `part` which sets are made together."""
    (part / TOGETHER).write_text(json.dumps([str(place) for place in places]))


def leftovers(folder: Path) -> Iterator[Leftover]:
    """The leftovers in `folder`, which holds data sets, and in each of these sets."""
    for path in sorted(folder.glob(f".*{PART}")):
        if not path.is_symlink() and not is_locked(path / layout.LOCK_PATH):
            place = folder / path.name.removeprefix(".").removesuffix(PART)
            yield Leftover(path, _size(path), _words(path, place))
    for path in sorted(folder.glob(f"*/{layout.UNFINISHED_PATH}/{layout.UNCOMMITTED}*")):
        if not is_locked(path.parents[1] / layout.LOCK_PATH):
            yield Leftover(path, _size(path), "what a repair found of episodes that are not whole")


def clear(left: Leftover) -> None:
    """Remove it; a folder that held nothing else goes with it."""
    if left.path.is_dir():
        shutil.rmtree(left.path)
    else:
        left.path.unlink()
    if left.path.parent.name == layout.UNFINISHED_PATH:
        with contextlib.suppress(OSError):  # there are other things in it
            left.path.parent.rmdir()


def _words(part: Path, place: Path) -> str:
    try:
        others = [Path(name) for name in json.loads((part / TOGETHER).read_text())]
    except (OSError, ValueError, TypeError):
        return f"a copy that was to become {place}, of a command that was killed"
    there = [other.name for other in others if other.exists()]
    missing = [other.name for other in others if not other.exists()]
    return (
        f"a part of a split that was killed: {', '.join(there) or 'none'} of {len(others)} parts "
        f"{'is' if len(there) == 1 else 'are'} there, {', '.join(missing)} not"
    )


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
