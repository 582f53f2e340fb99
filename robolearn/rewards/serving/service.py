"""The service of a reward server: one model, one call at a time in the order of arrival, a bounded number that waits.

A call that has waited for longer than its caller does is not computed. Calls are never put together: a score does not
depend on who else is served.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any

import grpc

from robolearn.core import BadInput, Interface, RewardModel, RewardWithheld
from robolearn.core.errors import first_line
from robolearn.io.wire.server import CallRefused, Handler
from robolearn.rewards.metrics import score_or_withhold
from robolearn.rewards.serving.messages import (
    DESCRIBE,
    DESCRIPTION_LIMIT,
    PROTOCOL,
    SCORE,
    SCORE_LIMIT,
    pack_scores,
    unpack_windows,
)

ABLE = ("sees_images", "needs_prompt", "is_privileged", "frame_by_frame")  # capabilities of the model
log = logging.getLogger(__name__)
MOST_QUEUED = 12  # calls; the server has a few threads more


class RewardService:
    """See the module.

    Args:
      model: of the reward, made for `interface`.
      name: its text, for people; `identity` changes with what it answers.
      queued: calls that wait or are served, at most.

    Attributes:
      served, withheld: number of windows.
    """

    def __init__(self, model: RewardModel, interface: Interface, name: str, identity: str, queued: int) -> None:
        if not 1 <= queued <= MOST_QUEUED:
            raise BadInput("--queued", got=queued, expected=f"1 to {MOST_QUEUED}")
        self._model, self._interface, self._name, self._identity = model, interface, name, identity
        self._turn, self._places, self._queued = threading.Lock(), threading.BoundedSemaphore(queued), queued
        self.served = self.withheld = 0

    def handlers(self) -> list[Handler]:
        """The methods, for `robolearn.io.wire.server.GrpcServer`."""
        return [
            Handler(DESCRIBE, self._describe, DESCRIPTION_LIMIT),
            Handler(SCORE, self._score, SCORE_LIMIT),
        ]

    def _describe(self, request: Any) -> Any:
        if request.protocol != PROTOCOL:
            raise BadInput("protocol", got=request.protocol, expected=PROTOCOL, hint="Update one of the two sides")
        try:
            interface = Interface.from_json(json.loads(request.interface))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(
                "interface", got=f"{type(error).__name__}: {first_line(error)[:100]}", expected="one"
            ) from None
        check: Any = getattr(self._model, "check", None)
        if check is not None:
            check(interface)
        elif interface.to_json() != self._interface.to_json():
            raise BadInput(
                "interface", got="another one", expected="that of the episodes that the server was started for"
            )
        able = {name: bool(getattr(self._model, name, False)) for name in ABLE}
        features = [str(key) for key in getattr(self._model, "reads", ())]
        return DESCRIBE.reply(identity=self._identity, model=self._name, features=features, **able)

    def _score(self, request: Any) -> Any:
        arrived = time.monotonic()
        if request.identity != self._identity:
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "another model is served now")
        if not self._places.acquire(blocking=False):
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, f"{self._queued} calls wait already")
        try:
            windows, prompts = unpack_windows(request.windows, len(request.prompts)), list(request.prompts)
            with self._turn:
                if time.monotonic() - arrived > request.wait_s:
                    raise CallRefused(grpc.StatusCode.DEADLINE_EXCEEDED, f"no turn within {request.wait_s:g} s")
                return self._reply(windows, prompts)
        finally:
            self._places.release()

    def _reply(self, windows: list[Any], prompts: list[str]) -> Any:
        scores, withheld, refused = b"", "", ""
        try:
            scores = pack_scores(score_or_withhold(self._model, windows, prompts))
        except BadInput as bad:
            refused = str(bad)
        except RewardWithheld as why:
            withheld = str(why) or "no reason given"
        if scores:
            self.served += len(windows)
        else:
            self.withheld += len(windows)
            log.warning("withheld: %s", withheld or refused)
        return SCORE.reply(scores=scores, withheld=withheld, refused=refused)
