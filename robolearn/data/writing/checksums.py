"""Checksums of a set, written beside its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from robolearn.core import BadInput, RobolearnError
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.checksums import CHECKSUMS_PATH, FileSums, blocks_of, files_of, written_as
from robolearn.data.lerobot.texts import encodes
from robolearn.io.json_files import LIMIT


def write_checksums(root: Path, progress: Callable[[int, dict[str, float]], None] | None = None) -> dict[str, FileSums]:
    """Replace the checksums of the data set in the folder `root`; returns them by path.

    Args:
      progress: what is called after each file.

    Raises:
      BadInput: no data set, one that is being recorded, or one of more files than a reader takes.
      RobolearnError: a file that changed or vanished meanwhile, or a disk that is full.
    """
    layout.check_version(layout.read_info(root), f"data set {root}")
    with layout.lock(root):
        found: dict[str, FileSums] = {}
        for number, name in enumerate(files_of(root), 1):
            if not encodes(name):
                raise BadInput(f"data set {root}", got=f"a file called {name!r}", expected="names in UTF-8")
            found[name] = _summed(root / name)
            if progress is not None:
                progress(number, {})
        content = layout.json_bytes(written_as(found))
        if len(content) > LIMIT:
            raise BadInput(f"data set {root}", got=f"{len(content) / 1e6:.0f} MB of checksums", expected="64 MB")
        commit = layout.commit(root)
        commit.stage(CHECKSUMS_PATH, content)
        commit.publish()
    return found


def _summed(path: Path) -> FileSums:
    try:
        before = path.stat()
        digests = tuple(blocks_of(path))
        after = path.stat()
    except OSError as error:
        raise RobolearnError(f"{path} cannot be read ({error.strerror})") from error
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise RobolearnError(f"{path} was changed while it was read. Run the command again")
    return FileSums(after.st_size, after.st_mtime_ns, digests)
