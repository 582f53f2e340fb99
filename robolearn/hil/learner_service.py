"""The learner as actors see it: its state, shared between threads, and the methods of its service."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import grpc

from robolearn.core import RobolearnError
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.hil.wire import messages as m
from robolearn.hil.wire.messages import LearnerProgress, Period
from robolearn.io.wire.server import CallRefused, Handler

WAIT_S = 1.0  # longest wait for the learner within a heartbeat


class LearnerState:
    """Weights and progress for the actors, and their heartbeats.

    Attributes:
      finished: the run is over.
      last_heartbeat: actor → time of its last heartbeat, on the monotonic clock [s].
      informed: actors that have received that the run is over.
      periods: actor → newest period of its control steps.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._weights: Any = None
        self._processed: dict[str, int] = {}
        self.progress = LearnerProgress()
        self.finished = False
        self.last_heartbeat: dict[str, float] = {}
        self.informed: set[str] = set()
        self.periods: dict[str, Period] = {}

    @property
    def version(self) -> int:
        """Version of the newest weights; −1: there are none yet."""
        return -1 if self._weights is None else self._weights.version

    def weights(self) -> Any:
        """The newest weights, as a message.

        Raises:
          RobolearnError: there are none yet.
        """
        if self._weights is None:
            raise RobolearnError("no weights yet")
        return self._weights

    def publish(self, weights: Any) -> None:
        """Make new weights, as a message, available."""
        with self._changed:
            self._weights = weights
            self._changed.notify_all()

    def process(self, actor: str, records: int) -> None:
        """Note that `records` of `actor` have been taken, and that the updates they pay for were made."""
        with self._changed:
            self._processed[actor] = records
            self._changed.notify_all()

    def show(self, **progress: float) -> None:
        """Replace some of the numbers of `progress`."""
        self.progress = replace(self.progress, **progress)

    def finish(self, processed: Mapping[str, int]) -> None:
        """End the run; `processed` are the records taken of each actor."""
        with self._changed:
            self._processed.update(processed)
            self.finished = True
            self._changed.notify_all()

    def processed(self, actor: str, wait_for: int, timeout_s: float) -> int:
        """Number of records of `actor` that were taken, once it is `wait_for` or `timeout_s` is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._processed.get(actor, 0) >= wait_for or self.finished, timeout_s)
            return self._processed.get(actor, 0)

    def note_heartbeat(self, actor: str, period: Period | None = None) -> None:
        """Note a heartbeat of `actor`."""
        self.last_heartbeat[actor] = time.monotonic()
        if period is not None and period.count:
            self.periods[actor] = period
        if self.finished:
            self.informed.add(actor)


def learner_methods(
    receiver: TransitionReceiver,
    state: LearnerState,
    *,
    run: str,
    config: str,
    interface: str,
    policy: str,
    record_limit: int,
    needs_words: bool = False,
    words: str = "",
) -> list[Handler]:
    """The methods of a learner.

    Args:
      run: its name, which no other run has.
      config: of the learner, as text.
      interface, policy: hashes; an actor must have the same.
      record_limit: no record is longer [bytes].
      needs_words: an actor must know its task in words.
      words: an actor must have these; none: any.
    """

    def connect(request: Any) -> Any:
        ours = {"protocol": m.PROTOCOL, "interface": interface, "policy": policy}
        names = {"protocol": "version of the wire", "interface": "interface of the world", "policy": "policy folder"}
        for key, mine in ours.items():
            if (got := getattr(request, key)) != mine:
                raise CallRefused(
                    grpc.StatusCode.FAILED_PRECONDITION, f"another {names[key]}: got {got}, expected {mine}"
                )
        if needs_words and not request.task.strip():
            why = "the reward model needs the task in words: missing; expected --words of the actor"
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, why)
        if words and request.task != words:
            why = f"another task in words: got {request.task or 'nothing'}, expected {words}"
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, why)
        log = receiver.connect(request.actor, request.stored)
        return m.CONNECT.reply(session=log.session, run=run, expects=log.count, config=config)

    def append(request: Any) -> Any:
        log = receiver.of_session(request.session)
        return m.APPEND.reply(records=receiver.append(log, request.session, request.first, request.records))

    def heartbeat(request: Any) -> Any:
        actor = receiver.of_session(request.session).actor
        state.note_heartbeat(actor, Period(request.period_p50_ms, request.period_p99_ms, request.periods))
        processed = state.processed(actor, request.wait_for, WAIT_S)
        state.note_heartbeat(actor)
        progress = state.progress.fields()
        return m.HEARTBEAT.reply(version=state.version, processed=processed, finished=state.finished, **progress)

    def weights(request: Any) -> Any:
        receiver.of_session(request.session)
        try:
            return state.weights()
        except RobolearnError as error:
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, str(error), logged=False) from None

    return [
        Handler(m.CONNECT, connect),
        Handler(m.APPEND, append, m.append_limit(record_limit)),
        Handler(m.HEARTBEAT, heartbeat),
        Handler(m.WEIGHTS, weights),
    ]
