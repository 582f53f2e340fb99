"""The actor's side of the link: sends what is in the spool, fetches weights, and comes back whenever it is cut.

Two threads: one sends records as they come, one beats, and fetches weights. Neither is ever waited for by the control
loop; what the loop waits for between two episodes is said by `synchronize` and `hold`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from robolearn.core import BadInput, RobolearnError
from robolearn.hil.board import Period, Progress
from robolearn.hil.settings import Lesson
from robolearn.hil.spool import Spool
from robolearn.hil.weights import TwoSets
from robolearn.hil.wire import messages as m
from robolearn.hil.wire.client import Client, LinkDown, SessionLost

log = logging.getLogger(__name__)

BEAT_S = 0.5
DEAD_S = 2.0  # without an answer to a beat the learner counts as dead
CALL_S = 5.0  # an answer takes no longer, or the call is made again
RETRY_S = 0.2
NOTHING = Period(0.0, 0.0, 0)

Caller = Callable[[int], Client]
"""largest answer [bytes] → a connection"""


class Link:
    """Connects the actor called `actor`.

    Args:
      call: makes the connection.
      spool: what is sent.
      interface, policy: hashes; the learner must have the same.
      record_limit: no record is longer [bytes].

    Attributes:
      measure: what the learner is told of the control steps; called by a thread of the link.
      period: as it was told last.
      progress: of the learner, as it said last.
      finished: the learner has said that the run is over.
      connections: how often a session was begun.
    """

    def __init__(self, call: Caller, spool: Spool, actor: str, interface: str, policy: str, record_limit: int) -> None:
        self._call, self._spool, self._actor = call, spool, actor
        self._interface, self._policy = interface, policy
        self._append = m.append_schema(record_limit)
        self._client = call(m.WELCOME.limit)
        self._sets: TwoSets | None = None
        self._session, self._next = 0, 0
        self._task = ""
        self._heard = -float("inf")
        self._changed = threading.Condition()
        self._wake_sender, self._wake_beat = threading.Event(), threading.Event()
        self._wait_for = self._processed = -1
        self._closed = False
        self._failure: BadInput | None = None
        self._threads: list[threading.Thread] = []
        self.measure: Callable[[], Period] = lambda: NOTHING
        self.period = NOTHING
        self.progress = Progress()
        self.finished = False
        self.connections = 0

    @property
    def alive(self) -> bool:
        """Whether the learner has answered lately."""
        return time.monotonic() - self._heard < DEAD_S

    @property
    def acknowledged(self) -> int:
        """So many records are on the learner's disk."""
        return self._next

    def open(self, stop: Callable[[], bool]) -> Lesson | None:
        """Connect for the first time, however long that takes; None if `stop` said so.

        Raises:
          BadInput: the learner refuses.
        """
        said = False
        while not stop():
            try:
                self._connect()
                return Lesson.from_text(self._task)
            except LinkDown as down:
                if not said:
                    log.warning("waiting for the learner: %s", down)
                    said = True
                time.sleep(RETRY_S)
        return None

    def start(self, sets: TwoSets) -> None:
        """Begin to send, and to fetch weights into `sets`."""
        first, self._client = self._client, self._call(max(m.weights_limit(sets.like), m.WELCOME.limit))
        first.close()
        self._sets = sets
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=f"hil-{work.__name__}", daemon=True)
            for work in (self._send, self._beat)
        ]
        for thread in self._threads:
            thread.start()

    def notify(self) -> None:
        """There is something new in the spool."""
        self._wake_sender.set()

    def synchronize(self, stop: Callable[[], bool]) -> bool:
        """Wait until the learner has done all that the spool is good for, and its weights are loaded.

        False where the run is over, or `stop` says so.

        Raises:
          BadInput: the learner refuses what it is sent.
        """
        wanted = len(self._spool)
        with self._changed:
            self._processed, self._wait_for = -1, wanted
        self._wake_beat.set()
        done = self._until(lambda: self._processed >= wanted, stop)
        self._wait_for = -1
        return done

    def hold(self, stop: Callable[[], bool]) -> bool:
        """Wait while the learner is dead, or has shown no weights yet; False as in `synchronize`."""
        return self._until(lambda: self.alive and self._sets is not None and self._sets.loaded, stop)

    def drain(self, timeout_s: float) -> None:
        """Wait until all records are acknowledged, but no longer than that."""
        until = time.monotonic() + timeout_s
        while self._next < len(self._spool) and time.monotonic() < until and self._failure is None:
            self._wake_sender.set()
            time.sleep(0.02)

    def close(self) -> None:
        """May be called twice."""
        self._closed = True
        self._wake_sender.set()
        self._wake_beat.set()
        self._client.close()
        for thread in self._threads:
            thread.join(CALL_S)

    def _until(self, ready: Callable[[], bool], stop: Callable[[], bool]) -> bool:
        said = False
        while not ready():
            if self._failure is not None:
                raise self._failure
            if self.finished or stop():
                return False
            if not said and not self.alive and self._heard > 0:
                log.warning("the learner does not answer: holding")
                said = True
            with self._changed:
                self._changed.wait(0.05)
        return not self.finished

    # --- threads --------------------------------------------------------------------------------------------------

    def _run(self, work: Callable[[], None]) -> None:
        while not self._closed and self._failure is None:
            try:
                work()
            except LinkDown:
                time.sleep(RETRY_S)
            except SessionLost:
                self._session = 0
                time.sleep(RETRY_S)
            except BadInput as refused:
                self._failure = refused
            except RobolearnError as error:
                log.warning("link: %s", error)
                time.sleep(RETRY_S)

    def _connect(self) -> None:
        hello = m.HELLO.pack(
            protocol=m.PROTOCOL,
            actor=self._actor,
            interface=self._interface,
            policy=self._policy,
            spooled=len(self._spool),
        )
        answer = m.WELCOME.unpack(self._client.call(m.CONNECT, hello, CALL_S))
        if self._task and answer["task"] != self._task:
            raise BadInput("learner", got="other settings than before", hint="Start the actor anew")
        self._spool.belongs_to(answer["run"])
        self._task, self._next, self._session = answer["task"], answer["expects"], answer["session"]
        self.connections += 1

    def _send(self) -> None:
        if not self._session:
            self._connect()
        session, first = self._session, self._next
        records = self._spool.batch(first, m.MOST_RECORDS, m.MOST_BYTES)
        if not records:
            self._wake_sender.wait(BEAT_S)
            self._wake_sender.clear()
            return
        message = m.pack_records(self._append, session, first, records)
        count = m.ACKNOWLEDGED.unpack(self._client.call(m.APPEND, message, CALL_S))["records"]
        if not first <= count <= len(self._spool):
            raise BadInput("learner", got=f"{count} records acknowledged", expected=f"{first} to {len(self._spool)}")
        self._next = count

    def _beat(self) -> None:
        session = self._session
        if not session:
            time.sleep(RETRY_S)
            return
        period = self.period = self.measure()
        asked = m.BEAT_ASKED.pack(
            session=session,
            wait_for=self._wait_for,
            period_p50_ms=period.p50,
            period_p99_ms=period.p99,
            periods=period.count,
        )
        answer = m.BEAT_ANSWERED.unpack(self._client.call(m.BEAT, asked, CALL_S))
        self._heard = time.monotonic()
        self.progress = Progress(**{key: _known(answer[key]) for key in vars(self.progress)})
        assert self._sets is not None
        if answer["version"] >= 0 and answer["version"] != self._sets.newest:
            content = self._client.call(m.WEIGHTS, m.WEIGHTS_ASKED.pack(session=session), CALL_S)
            self._sets.load(*m.unpack_weights(content, self._sets.like))
        with self._changed:
            if answer["finished"]:
                self.finished = True
            self._processed = answer["processed"]
            self._changed.notify_all()
        if self._wait_for < 0 or self._processed >= self._wait_for:
            self._wake_beat.wait(BEAT_S)
            self._wake_beat.clear()


def _known(value: float) -> float:
    return float("nan") if value == m.UNKNOWN else value


@contextlib.contextmanager
def opened(link: Link) -> Iterator[Link]:
    """Closes `link` at the end."""
    try:
        yield link
    finally:
        link.close()
