"""The actor's outbox: a log of its transitions, on its disk before anything is sent, read back for sending.

    <folder>/<actor>.transitions     records, as in `robolearn.data.replay.records`
    <folder>/<actor>.run             the run of the learner that they belong to

Records stay in it: those that a learner loses with its machine can be sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from robolearn.core import BadInput
from robolearn.data.replay import Record, RecordSchema, ReplayStep, TransitionLog
from robolearn.data.replay.records import check_actor
from robolearn.io.append_only import RecordReader, records
from robolearn.io.atomic import write_text
from robolearn.io.locks import Lock, LockHeld


class Outbox:
    """The records of the actor called `actor`; goes on after what is there.

    Raises:
      BadInput: a name that is no file's, or another process has it open.
    """

    def __init__(self, folder: Path, actor: str, schema: RecordSchema) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._schema = schema
        check_actor(actor)
        try:
            self._lock = Lock(folder / f".{actor}.lock")
        except LockHeld as held:
            raise BadInput(f"actor {actor!r}", got=f"in use by process {held.holder}", expected="a free one") from None
        try:
            self.log = TransitionLog(folder, actor, schema)  # it cuts what a kill has torn: only after the lock
        except BaseException:
            self._lock.release()
            raise
        self._run = folder / f"{actor}.run"
        self._reader = RecordReader(self.log.path, (len(content) for content in records(self.log.path)))

    def __len__(self) -> int:
        return len(self._reader)

    def encode(self, record: Record) -> bytes:
        """The bytes that `append` would store."""
        return self._schema.encode(record)

    def append(self, record: Record) -> None:
        """Store it; it survives a kill from here on."""
        content = self.encode(record)
        self.log.append(content)
        self._reader.add(len(content))

    def raw(self, number: int) -> bytes:
        """The bytes of the record with this number."""
        return self._reader.read(number)

    def batch(self, first: int, most_records: int, most_bytes: int) -> list[bytes]:
        """Records from number `first` on, at least one if there is one, within `most_records` and `most_bytes`
        [bytes]."""
        found: list[bytes] = []
        size = 0
        for number in range(first, min(len(self), first + most_records)):
            content = self.raw(number)
            size += len(content)
            if found and size > most_bytes:
                break
            found.append(content)
        return found

    def tail(self) -> tuple[int, int]:
        """(the episode that is to be played next, the number of its first record): of one that a kill cut short its
        first step, and otherwise the number of all records."""
        number = len(self)
        if not number:
            return 0, 0
        last = self._schema.decode(self.raw(number - 1))
        return (last.episode, number - 1 - last.index) if isinstance(last, ReplayStep) else (last.episode + 1, number)

    def read(self) -> Iterator[Record]:
        return self.log.read()

    def belongs_to(self, run: str) -> None:
        """Note that the records are of the learner's run `run`.

        Raises:
          BadInput: they are of another one.
        """
        if self._run.exists() and (known := self._run.read_text().strip()) != run:
            raise BadInput(
                f"outbox {self.log.path}", got=f"transitions of run {known}", expected=f"of {run}",
                hint="Take another folder, or another --name",
            )  # fmt: skip
        if not self._run.exists():
            write_text(self._run, run + "\n")

    def close(self) -> None:
        """May be called twice."""
        self.log.close()
        self._reader.close()
        self._lock.release()
