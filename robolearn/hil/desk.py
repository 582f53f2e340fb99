"""What the learner answers: its intake and its board, as methods of the wire."""

from __future__ import annotations

import math

import grpc

from robolearn.core import RobolearnError
from robolearn.hil.board import Board, Period
from robolearn.hil.intake import Intake
from robolearn.hil.wire import messages as m
from robolearn.hil.wire.server import Handler, Refused

WAIT_S = 1.0  # a beat that waits for the learner is answered after so long


def handlers(
    intake: Intake, board: Board, *, run: str, task: str, interface: str, policy: str, limit: int
) -> dict[str, Handler]:
    """The methods of a learner.

    Args:
      run: its name, which no other run has.
      task: what actors have to know, as text.
      interface, policy: hashes; an actor must have the same.
      limit: no record is longer [bytes].
    """
    appends = m.append_schema(limit)

    def connect(content: bytes) -> bytes:
        asked = m.HELLO.unpack(content)
        ours = {"protocol": m.PROTOCOL, "interface": interface, "policy": policy}
        names = {"protocol": "version of the wire", "interface": "interface of the world", "policy": "policy folder"}
        for key, mine in ours.items():
            if asked[key] != mine:
                why = f"another {names[key]}: got {asked[key]}, expected {mine}"
                raise Refused(grpc.StatusCode.FAILED_PRECONDITION, why)
        log = intake.connect(asked["actor"])
        if asked["spooled"] < log.count:
            why = (
                f"{log.count} records of actor {log.actor!r} are here, its spool has {asked['spooled']}: another name?"
            )
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, why)
        return m.WELCOME.pack(session=log.session, run=run, expects=log.count, task=task)

    def append(content: bytes) -> bytes:
        asked = appends.unpack(content)
        log = intake.of_session(asked["session"])
        count = intake.append(log, asked["session"], asked["first"], m.unpack_records(asked))
        return m.ACKNOWLEDGED.pack(records=count)

    def beat(content: bytes) -> bytes:
        asked = m.BEAT_ASKED.unpack(content)
        log = intake.of_session(asked["session"])
        board.hear(log.actor, Period(asked["period_p50_ms"], asked["period_p99_ms"], asked["periods"]))
        processed = board.processed(log.actor, asked["wait_for"], WAIT_S)
        board.hear(log.actor, Period(0.0, 0.0, 0))
        progress = {key: _said(value) for key, value in vars(board.progress).items()}
        return m.BEAT_ANSWERED.pack(version=board.version, processed=processed, finished=board.finished, **progress)

    def weights(content: bytes) -> bytes:
        intake.of_session(m.WEIGHTS_ASKED.unpack(content)["session"])
        try:
            return board.weights()
        except RobolearnError as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, str(error), said=False) from None

    return {
        m.CONNECT: Handler(connect, m.HELLO.limit),
        m.APPEND: Handler(append, appends.limit),
        m.BEAT: Handler(beat, m.BEAT_ASKED.limit),
        m.WEIGHTS: Handler(weights, m.WEIGHTS_ASKED.limit),
    }


def _said(value: float) -> float:
    return value if math.isfinite(value) else m.UNKNOWN
