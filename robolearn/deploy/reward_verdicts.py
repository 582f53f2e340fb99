"""A reward model's verdict on each episode of a deployment, beside that of the task or the person.

The policy node judges what the policy observes, one frame each decision and the last one, and reports: see
`hardware.execution.episode_end`. The model ends no episode, and nobody is told its verdict before they have judged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from robolearn.deploy.session import Arm

log = logging.getLogger(__name__)

WAIT_S = 10.0  # for the verdict on the last frame; a person's answer takes as long
POLL_S = 0.02


class RewardVerdicts:
    """`arm`, of whose episodes a reward model judges each that is judged at all.

    Args:
      client: the safety node's, which hears the policy node, too.
      alive: raises when a node has died.

    Attributes:
      given: one for each judged episode, True where the model called it done; None: it gave no verdict.
    """

    def __init__(self, arm: Arm, client: Any, alive: Callable[[], None]) -> None:
        self._arm, self._client, self._alive = arm, client, alive
        self._episode = ""
        self.given: list[bool | None] = []

    def begin(self) -> None:
        self._arm.begin()
        self._episode = ""

    def over(self) -> bool:
        if report := self._client.report:
            self._episode = report.arming or self._episode
        return self._arm.over()

    def judge(self) -> bool:
        success = self._arm.judge()
        self.given.append(self._verdict())
        return success

    def truncated(self) -> bool:
        return self._arm.truncated()

    def _verdict(self) -> bool | None:
        end, fault = time.monotonic() + WAIT_S, f"none within {WAIT_S:g} s"
        while time.monotonic() < end:
            said = self._client.policy.get("reward") or {}
            if said.get("episode") == self._episode and said["over"] and said["settled"]:
                if said["done"] or not said["fault"]:
                    return bool(said["done"])
                fault = said["fault"]
                break
            self._alive()
            time.sleep(POLL_S)
        log.warning("no verdict of the reward model on this episode: %s", fault)
        return None
