"""The actor's side of the link: sends the outbox, fetches weights, and reconnects whenever the line is cut.

Two threads: one sends records as they come, one sends heartbeats and fetches weights. The control loop never waits for
them; between two episodes it waits in `synchronize` and `hold`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from policies.storage.loading import base_sha256
from robolearn.core import BadInput, RobolearnError
from robolearn.data.replay import RecordSchema
from robolearn.hil.agent import DoubleBufferedPolicy
from robolearn.hil.outbox import Outbox
from robolearn.hil.settings import LearnerConfig
from robolearn.hil.wire import messages as m
from robolearn.hil.wire.messages import LearnerProgress, Period
from robolearn.io.wire.client import Client, LinkDown, SessionLost
from robolearn.io.wire.security import Address, Certificates, check_encryption, find_token

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
DEAD_S = 2.0  # without a reply to a heartbeat the learner counts as dead
CALL_S = 5.0  # a reply takes no longer, or the call is made again
RETRY_S = 0.2

Connector = Callable[[int], Client]
"""largest reply [bytes] → a client"""


class Link:
    """Connects the actor called `actor`.

    Args:
      connector: makes the client.
      outbox: of the records to send.
      interface, policy: hashes; the learner must have the same.

    Attributes:
      task: of the actor in words; set before `open`.
      measure: returns the period of the control steps; called by a thread of the link.
      period: as it was sent last.
      progress: of the learner, as it was received last.
      finished: the learner's run is over.
      connections: number of sessions that were begun.
    """

    def __init__(self, connector: Connector, outbox: Outbox, actor: str, interface: str, policy: str) -> None:
        self._connector, self._outbox, self._actor = connector, outbox, actor
        self._interface, self._policy = interface, policy
        self._client = connector(m.CONNECT_REPLY_LIMIT)
        self._buffered: DoubleBufferedPolicy | None = None
        self._session, self._next = 0, 0
        self._config = ""
        self._answered = -float("inf")
        self._changed = threading.Condition()
        self._wake_sender, self._wake_heartbeat = threading.Event(), threading.Event()
        self._wait_for = self._processed = -1
        self._closed = False
        self._failure: BadInput | None = None
        self._threads: list[threading.Thread] = []
        self.task = ""
        self.measure: Callable[[], Period] = Period
        self.period = Period()
        self.progress = LearnerProgress()
        self.finished = False
        self.connections = 0

    @property
    def alive(self) -> bool:
        """True where the learner has replied lately."""
        return time.monotonic() - self._answered < DEAD_S

    @property
    def acknowledged(self) -> int:
        """Number of records on the learner's disk."""
        return self._next

    def open(self, stop: Callable[[], bool]) -> LearnerConfig | None:
        """Connect for the first time, however long that takes; None once `stop` is true.

        Raises:
          BadInput: the learner refuses.
        """
        logged = False
        while not stop():
            try:
                self._connect()
                return LearnerConfig.from_text(self._config)
            except LinkDown as down:
                if not logged:
                    log.warning("waiting for the learner: %s", down)
                    logged = True
                time.sleep(RETRY_S)
        return None

    def start(self, buffered: DoubleBufferedPolicy) -> None:
        """Begin to send, and to fetch weights into `buffered`."""
        first, self._client = self._client, self._connector(max(m.weights_limit(buffered.like), m.CONNECT_REPLY_LIMIT))
        first.close()
        self._buffered = buffered
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=f"hil-{work.__name__}", daemon=True)
            for work in (self._send, self._heartbeat)
        ]
        for thread in self._threads:
            thread.start()

    def notify(self) -> None:
        """Wake the sender: the outbox has a new record."""
        self._wake_sender.set()

    def synchronize(self, stop: Callable[[], bool]) -> bool:
        """Wait until the learner has made all updates that the outbox pays for, and its weights are loaded.

        False where the run is over, or `stop` is true.

        Raises:
          BadInput: the learner refuses a record.
        """
        wanted = len(self._outbox)
        with self._changed:
            self._processed, self._wait_for = -1, wanted
        self._wake_heartbeat.set()
        done = self._until(lambda: self._processed >= wanted, stop)
        self._wait_for = -1
        return done

    def hold(self, stop: Callable[[], bool]) -> bool:
        """Wait while the learner is dead, or has published no weights yet; False as in `synchronize`."""
        return self._until(lambda: self.alive and self._buffered is not None and self._buffered.loaded, stop)

    def drain(self, timeout_s: float) -> None:
        """Wait until all records are acknowledged, but no longer than that."""
        until = time.monotonic() + timeout_s
        while self._next < len(self._outbox) and time.monotonic() < until and self._failure is None:
            self._wake_sender.set()
            time.sleep(0.02)

    def close(self) -> None:
        """May be called twice."""
        self._closed = True
        self._wake_sender.set()
        self._wake_heartbeat.set()
        self._client.close()
        for thread in self._threads:
            thread.join(CALL_S)

    def _until(self, ready: Callable[[], bool], stop: Callable[[], bool]) -> bool:
        logged = False
        while not ready():
            if self._failure is not None:
                raise self._failure
            if self.finished or stop():
                return False
            if not logged and not self.alive and self._answered > 0:
                log.warning("the learner does not answer: holding")
                logged = True
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
        request = m.CONNECT.request(
            protocol=m.PROTOCOL, actor=self._actor, interface=self._interface, policy=self._policy,
            stored=len(self._outbox), task=self.task,
        )  # fmt: skip
        reply = self._client.call(m.CONNECT, request, CALL_S)
        if self._config and reply.config != self._config:
            raise BadInput("learner", got="other settings than before", hint="Start the actor anew")
        self._outbox.belongs_to(reply.run)
        self._config, self._next, self._session = reply.config, reply.expects, reply.session
        self.connections += 1

    def _send(self) -> None:
        if not self._session:
            self._connect()
        session, first = self._session, self._next
        records = self._outbox.batch(first, m.MOST_RECORDS, m.MOST_BYTES)
        if not records:
            self._wake_sender.wait(HEARTBEAT_S)
            self._wake_sender.clear()
            return
        request = m.APPEND.request(session=session, first=first, records=records)
        count = self._client.call(m.APPEND, request, CALL_S).records
        if not first <= count <= len(self._outbox):
            raise BadInput("learner", got=f"{count} records acknowledged", expected=f"{first} to {len(self._outbox)}")
        self._next = count

    def _heartbeat(self) -> None:
        session = self._session
        if not session:
            time.sleep(RETRY_S)
            return
        period = self.period = self.measure()
        request = m.HEARTBEAT.request(
            session=session, wait_for=self._wait_for, period_p50_ms=period.p50, period_p99_ms=period.p99,
            periods=period.count,
        )  # fmt: skip
        reply = self._client.call(m.HEARTBEAT, request, CALL_S)
        self._answered = time.monotonic()
        self.progress = LearnerProgress.of(reply)
        assert self._buffered is not None
        if reply.version >= 0 and reply.version != self._buffered.newest:
            weights = self._client.call(m.WEIGHTS, m.WEIGHTS.request(session=session), CALL_S)
            self._buffered.load(*m.unpack_weights(weights, self._buffered.like))
        with self._changed:
            if reply.finished:
                self.finished = True
            self._processed = reply.processed
            self._changed.notify_all()
        if self._wait_for < 0 or self._processed >= self._wait_for:
            self._wake_heartbeat.wait(HEARTBEAT_S)
            self._wake_heartbeat.clear()


def make_link(
    policy: Any, out: Path, name: str, learner: str, token: str = "", certs: Path | None = None
) -> tuple[Outbox, Link]:
    """The outbox in the folder `out`, to be closed by the caller, and the link, not yet open, of an actor.

    Args:
      policy: a `ChunkPolicy`, that of the learner.
      name: of the actor.
      learner: HOST:PORT.
      token: the learner's; by default that of `certs` or of the environment.
      certs: a folder of certificates; required beyond loopback.

    Raises:
      BadInput: an address that is none, no token, or no certificates.
    """
    certificates = Certificates(certs) if certs else None
    address, found = Address.parse(learner, "--learner"), find_token(token, certificates)
    if found is None:
        raise BadInput("--token", got="nothing", expected="the learner's", hint="It lies in <out>/token of its run")
    check_encryption(address, certificates)
    outbox = Outbox(out, name, RecordSchema(policy.interface))
    hashes = m.interface_hash(policy.interface), base_sha256(policy)
    return outbox, Link(lambda limit: Client(address, found, certificates, limit), outbox, name, *hashes)
