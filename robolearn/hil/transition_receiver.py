"""Receiver of transitions: checks records, appends them to the learner's log, acknowledges and queues them.

A record counts when it is in the log. Records that are sent again are passed over, a gap is refused, and so is a
record that is not the next of its episode: the log of an actor always reads as episodes, one after the other, of which
a crash may have cut one short.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import grpc

from robolearn.core import BadInput
from robolearn.data.replay import Record, RecordSchema, ReplayStep, TransitionLog
from robolearn.io.wire.server import CallRefused

QUEUED_BYTES = 64_000_000  # records that wait to be learned from; beyond that actors keep theirs


@dataclass(frozen=True)
class EpisodeOrder:
    """Position of the next record of an actor.

    Attributes:
      episode: the newest.
      index: its next step; 0: it has ended, or there is none.
    """

    episode: int = -1
    index: int = 0

    def after(self, record: Record) -> EpisodeOrder:
        """The position after `record`.

        Raises:
          BadInput: `record` may not come here.
        """
        if isinstance(record, ReplayStep):
            begins = record.index == 0 and record.episode > self.episode
            goes_on = record.index == self.index > 0 and record.episode == self.episode
            if begins or goes_on:
                return EpisodeOrder(record.episode, record.index + 1)
            got = f"step {record.index} of episode {record.episode}"
        else:
            if self.index > 0 and record.episode == self.episode and record.length == self.index:
                return EpisodeOrder(record.episode, 0)
            got = f"the end of episode {record.episode} after {record.length} steps"
        on = f"step {self.index} of episode {self.episode}, its end, or " if self.index else ""
        raise BadInput("record", got=got, expected=f"{on}a later episode's first step")


class ActorLog:
    """One actor's records on the learner's disk."""

    def __init__(self, folder: Path, actor: str, schema: RecordSchema) -> None:
        self.actor = actor
        self.log = TransitionLog(folder, actor, schema)
        self.count = 0
        self.lock = threading.Lock()
        self.session, self.ended = 0, set[int]()  # the sessions of this actor that are over
        self.order = EpisodeOrder()
        for record in self.log.read():
            self.order = self.order.after(record)
            self.count += 1


class TransitionReceiver:
    """Logs of all actors, and the queue of records to learn from.

    Args:
      folder: of the logs.
      single: there may be only one actor.

    Attributes:
      arrived: notified when a record has been queued.
      failure: error of a log that could not be written; no record is accepted after it.
    """

    def __init__(self, folder: Path, schema: RecordSchema, *, single: bool) -> None:
        self._folder, self._schema, self._single = folder, schema, single
        self._lock = threading.Lock()  # of the table of actors
        self._queue: deque[tuple[str, Record, int]] = deque()
        self._queued = 0
        self.arrived = threading.Condition()
        self.actors: dict[str, ActorLog] = {}
        self.failure: OSError | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.transitions")):
            self._open(path.stem)

    def stored(self, actor: str) -> Iterator[Record]:
        """The records of an actor that are in its log now, oldest first, read one by one."""
        log = self.actors[actor]
        return islice(log.log.read(), log.count)

    def connect(self, actor: str, stored: int) -> ActorLog:
        """Begin a session of `actor`, whose outbox has `stored` records: one that is running ends.

        Raises:
          BadInput: a name that cannot be one, or a second actor where there may be only one.
          CallRefused: fewer records than are here; the session that is running goes on.
        """
        with self._lock:
            if actor not in self.actors:
                if self._single and self.actors:
                    raise BadInput("actor", got=repr(actor), expected=f"{next(iter(self.actors))!r} alone, in lockstep")
                self._open(actor)
            log = self.actors[actor]
        with log.lock:
            if stored < log.count:
                why = f"{log.count} records of actor {actor!r} are here, its outbox has {stored}: another name?"
                raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, why)
            log.ended.add(log.session)
            log.session = secrets.randbelow(2**62) + 1
        return log

    def of_session(self, session: int) -> ActorLog:
        """The log of the actor with this session.

        Raises:
          CallRefused: it is over, or of a learner that has ended.
        """
        for log in list(self.actors.values()):
            if log.session == session:
                return log
            if session in log.ended:
                raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, f"another process is actor {log.actor!r} now")
        raise CallRefused(grpc.StatusCode.ABORTED, "an unknown session", logged=False)

    def append(self, log: ActorLog, session: int, first: int, contents: Sequence[bytes]) -> int:
        """Store records; returns how many there are of this actor now.

        Raises:
          BadInput: no record, or not the next one. Those before it are stored.
          CallRefused: a gap; the session is over; the queue is full.
        """
        with log.lock:
            if log.session != session:
                raise CallRefused(grpc.StatusCode.ABORTED, "the session is over", logged=False)
            if not 0 <= first <= log.count:
                raise CallRefused(grpc.StatusCode.ABORTED, f"record {first}, {log.count} is next")
            for content in contents[log.count - first :]:
                record = self._schema.decode(content)
                if self._queued + len(content) > max(QUEUED_BYTES, self._schema.limit):
                    raise CallRefused(grpc.StatusCode.UNAVAILABLE, "the queue is full", logged=False)
                order = log.order.after(record)
                try:
                    log.log.append(content)
                except OSError as error:  # part of the record may be in the log: nothing may come after it
                    self.failure = error
                if self.failure is not None:
                    raise CallRefused(grpc.StatusCode.UNAVAILABLE, f"the log cannot be written ({self.failure})")
                log.order = order
                log.count += 1
                with self.arrived:
                    self._queue.append((log.actor, record, len(content)))
                    self._queued += len(content)
                    self.arrived.notify_all()
            return log.count

    def take(self) -> tuple[str, Record] | None:
        """The next record to learn from, or None."""
        with self.arrived:
            if not self._queue:
                return None
            actor, record, size = self._queue.popleft()
            self._queued -= size
            return actor, record

    @property
    def waits(self) -> bool:
        """True where records wait to be learned from."""
        return bool(self._queue)

    def wait(self, timeout_s: float, *, held: bool = False) -> None:
        """Wait until a record has arrived, another one where those that are queued are `held`, or `wake` is called."""
        with self.arrived:
            if held or not self._queue:
                self.arrived.wait(timeout_s)

    def wake(self) -> None:
        """End a `wait`; any thread may call it."""
        with self.arrived:
            self.arrived.notify_all()

    def sync(self) -> None:
        """Make what was appended survive a power cut."""
        for log in list(self.actors.values()):
            log.log.sync()

    def close(self) -> None:
        """May be called twice."""
        for log in self.actors.values():
            log.log.close()

    def _open(self, actor: str) -> None:
        self.actors[actor] = ActorLog(self._folder, actor, self._schema)
