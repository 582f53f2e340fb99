"""When to intervene, in a sentence: freely at first, then only to correct.

Long interventions that always end in success make the critics believe that whatever the policy did before them was
good. So help is generous only until there is something to learn from, and short afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robolearn.core.errors import BadInput
from robolearn.hil.status import HilStatus, InControl


@dataclass(frozen=True)
class HelpSchedule:
    """How the person is taught to help.

    Attributes:
      free_minutes: of robot time in which every hesitation is worth an intervention [min].
      long_s: an intervention after them that lasts longer is too long [s].
    """

    free_minutes: float = 5.0
    long_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("free_minutes", "long_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise BadInput(f"help schedule: {name}", got=getattr(self, name), expected="0 or more")

    def sentence(self, status: HilStatus) -> str:
        """What the person should do now."""
        if status.stopped:
            return "The arm is stopped. See that all is safe, then release the stop."
        if status.in_control is InControl.NOBODY:
            return "Wait: the arm is put back to its start."
        person = status.in_control is InControl.PERSON
        left = self.free_minutes - status.robot_minutes
        if left > 0:
            if person:
                return "Show it the way: straight to the goal, without haste. Then hand back."
            return (
                "Help freely: take over whenever the arm hesitates or strays, and show it the way "
                f"({math.ceil(left)} more min)."
            )
        if person and status.in_control_s > self.long_s:
            return (
                f"Hand back now: you have moved the arm for {status.in_control_s:.0f} s, and it learns more by trying."
            )
        if person:
            return "Only correct: bring it back on its way, then hand back at once."
        if status.asks_help:
            return "The policy is unsure: watch closely, and take over if it goes wrong."
        return "Let it try. Take over only just before a mistake that it cannot mend by itself."
