"""The append-only log of an actor's transitions: on disk before they are acknowledged, whole after any kill.

    <folder>/<actor>.transitions        records with their length and checksum; see `robolearn.io.append_only`

Frames are stored once, as uint8. A record that a kill cut short is dropped when the log is opened again: it was never
acknowledged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from robolearn.core import BadInput
from robolearn.data.replay.records import Record, RecordSchema
from robolearn.io.append_only import Journal, records, whole_length

SUFFIX = ".transitions"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class TransitionLog:
    """Appends the records of the actor called `actor`; goes on after what is there.

    Raises:
      BadInput: a name that is no file's.
    """

    def __init__(self, folder: Path, actor: str, schema: RecordSchema) -> None:
        if not NAME.fullmatch(actor):
            raise BadInput("actor's name", got=repr(actor[:80]), expected="letters, digits, - and _, at most 64")
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{actor}{SUFFIX}"
        self._schema = schema
        if self.path.exists():
            os.truncate(self.path, whole_length(self.path))
        self._journal = Journal(self.path, resume=True)

    def append(self, content: bytes) -> None:
        """Add a record as `RecordSchema.encode` made it; it survives a kill from here on.

        Raises `OSError` where the disk is full.
        """
        self._journal.append(content)

    def sync(self) -> None:
        """What was appended survives a power cut from here on."""
        self._journal.sync()

    def read(self) -> Iterator[Record]:
        """All records, oldest first."""
        return (self._schema.decode(content) for content in records(self.path))

    def close(self) -> None:
        """May be called twice."""
        self._journal.close()


def actors(folder: Path) -> list[str]:
    """The actors that have a log in `folder`."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
