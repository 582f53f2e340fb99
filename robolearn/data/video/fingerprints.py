"""Digests of whole files, kept while a file stays as it is: half a second for 400 MB, which take minutes to decode.

A digest is kept for as long as the file's size, times and inode stay as they were, in this process and, where there
is a folder for it, in ``<folder>/fingerprints.jsonl``: one line [path, size, modified, changed, inode, digest] each.
That file may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from robolearn.data.lerobot.remote import RemotePath
from robolearn.io.append_only import AppendOnlyFile
from robolearn.io.hashes import sha256_file

MEMO = "fingerprints.jsonl"
RESTED_NS = 2_000_000_000  # a file that changed later than this before it was read may change again unnoticed

_Facts = tuple[str, int, int, int, int]
_known: dict[_Facts, str] = {}
_read: set[Path] = set()


def fingerprint(path: Path | RemotePath, folder: Path | None = None) -> str:
    """The digest of the file `path`, remembered in `folder`; of a file on a server, one of what that says of it.

    Raises:
      OSError: it cannot be read.
    """
    if isinstance(path, RemotePath):
        return path.identity()
    before = _facts(path)
    if folder is not None and folder not in _read:
        _recall(folder)
    if before not in _known:
        begun = time.time_ns()
        digest = sha256_file(path)
        if _facts(path) != before or begun - max(before[2:4]) < RESTED_NS:
            return digest
        _known[before] = digest
        if folder is not None:
            _note(folder, [*before, digest])
    return _known[before]


def _facts(path: Path) -> _Facts:
    found = os.stat(path)
    return os.path.abspath(path), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _recall(folder: Path) -> None:
    _read.add(folder)
    with contextlib.suppress(OSError):
        for line in (folder / MEMO).read_bytes().splitlines():
            with contextlib.suppress(ValueError, TypeError):  # a line that a killed process did not finish
                path, size, modified, changed, inode, digest = json.loads(line)
                _known[path, size, modified, changed, inode] = digest


def _note(folder: Path, entry: list[str | int]) -> None:
    with contextlib.suppress(OSError):  # a folder that cannot be written only costs time
        folder.mkdir(parents=True, exist_ok=True)
        with AppendOnlyFile(folder / MEMO) as file:
            file.append(json.dumps(entry).encode() + b"\n")
