"""What a person at a console sees of an actor, and can ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Observation
from robolearn.hil.board import Period, Progress

Ask = Literal["take over", "hand back", "success", "failure", "return", "stop", "halt", "release"]
"""take over: the operator's device commands from the next step on; hand back: the policy does. success, failure: the
episode ends with that label. return: it ends without one. stop: the episode ends, and the actor. halt, on an arm: it
stands until release, whatever else is asked."""


@dataclass(frozen=True)
class ActorStatus:
    """One control step, as a person sees it.

    Attributes:
      episode, step: numbers, from 0.
      observation: feature → (1, …), before the step; all that the world shows.
      operator: the operator commands, not the policy; None: nobody does.
      version: of the weights in use.
      period: of the control steps so far.
      linked: the learner answers.
      unsent: records that the learner has not acknowledged.
      progress: of the learner.
      executed: (Da,) the action of the step before; None at an episode's first.

      asks_help: the policy is unsure of its running chunk.
    """

    episode: int
    step: int
    observation: Observation
    operator: bool | None
    version: int
    period: Period
    linked: bool
    unsent: int
    progress: Progress
    executed: NDArray[np.float32] | None = None

    asks_help: bool = False


class Person(Protocol):
    """Where a person's wishes come from. Both methods are called once before each control step, `show` first, and
    return at once, unless the person holds a simulated world."""

    def poll(self) -> Sequence[Ask]:
        """What was asked for since the last call, oldest first."""
        ...

    def show(self, status: ActorStatus) -> None:
        """Keep the newest status for whoever looks."""
        ...
