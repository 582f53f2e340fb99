"""Clear away what no committed episode of a set lies in: the rest of a killed commit is removed, all else set aside."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from robolearn.data.lerobot import layout
from robolearn.io.atomic import move

log = logging.getLogger(__name__)


def unfinished_folder(root: Path, prefix: str = "") -> Path:
    """A path in `layout.UNFINISHED_PATH` that is not there yet: `prefix` and a number."""
    folder = root / layout.UNFINISHED_PATH
    folder.mkdir(exist_ok=True)
    taken = [path.name.removeprefix(prefix) for path in folder.glob(f"{prefix}*")]
    return folder / f"{prefix}{1 + max((int(name) for name in taken if name.isdigit()), default=-1):03d}"


def clean_up(root: Path, newest: Mapping[str, int], *, torn: bool, cut: Sequence[str] = ()) -> None:
    """Clear away .tmp files but that of info.json, and the files after the `newest` of each pattern.

    Args:
      newest: pattern of a path → number of the last file that an episode lies in, -1 for none.
      torn: the others are the rest of a killed commit, and are removed.
      cut: files that lose rows; where these are no rest of a killed commit, copies are set aside.
    """
    for name in root.rglob("*.tmp"):
        if name != root / layout.INFO_TMP_PATH:
            name.unlink()
    strays = [file for pattern, last in newest.items() for file in _after(root, pattern, last)]
    if torn:
        for file in strays:
            file.unlink()
    elif strays or cut:
        folder = unfinished_folder(root, layout.UNCOMMITTED)
        for file in (*strays, *(root / name for name in cut)):
            place = folder / file.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            if file in strays:
                move(file, place)
            else:
                shutil.copy2(file, place)
        log.warning("%s: what %s does not count is set aside in %s", root, layout.INFO_PATH, folder)


def _after(root: Path, pattern: str, last: int) -> list[Path]:
    """The files of `pattern` with a higher number than `last`."""
    return [
        file
        for chunk in (root / pattern).parent.parent.glob("chunk-*")
        for file in chunk.glob(f"file-*{Path(pattern).suffix}")
        if _number(chunk, file) > last
    ]


def _number(chunk: Path, file: Path) -> int:
    """Of a file in the layout; -1 for other files beside them."""
    of_chunk, of_file = chunk.name.removeprefix("chunk-"), file.stem.removeprefix("file-")
    return int(of_chunk) * layout.CHUNKS_SIZE + int(of_file) if of_chunk.isdecimal() and of_file.isdecimal() else -1
