"""When a model's *done* ends an episode as solved: for a running one (`online`) and for one that is scored (`scoring`).

    sure_t   done_t and confidence_t ≥ the threshold
    solved   the first of the verdicts, one every few steps, with which `frames` of them in a row are sure

Loads no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Score

CONFIDENT = 0.5


@dataclass(frozen=True)
class DoneRule:
    """See the module.

    Attributes:
      threshold: least confidence of a *done*.
      frames: verdicts in a row.
      every: steps from one verdict to the next.
    """

    threshold: float = CONFIDENT
    frames: int = 1
    every: int = 1

    @classmethod
    def at(cls, control_hz: float, verdict_hz: float, frames: int, threshold: float) -> DoneRule:
        """The rule for steps and verdicts at these rates; without a rate of verdicts each step is judged."""
        every = max(1, round(control_hz / verdict_hz)) if verdict_hz > 0 else 1
        return cls(threshold, frames, every)

    def sure(self, score: Score) -> NDArray[np.bool_]:
        """(T,) *done* counts after the step."""
        return score.done & (score.confidence >= self.threshold)

    def first(self, verdicts: Iterable[bool]) -> int | None:
        """Place of the verdict with which `frames` in a row are sure, or None."""
        in_a_row = 0
        for place, sure in enumerate(verdicts):
            in_a_row = in_a_row + 1 if sure else 0
            if in_a_row >= self.frames:
                return place
        return None

    def steps(self, score: Score, *, called: bool = False) -> int | None:
        """Steps after which an episode is solved by its `score`, or None. `called`: something else, a world or a
        person, ended it as solved. Then its last frame may be the only one that shows that, and one verdict on it is
        enough."""
        sure = self.sure(score)
        if (place := self.first(sure[self.every - 1 :: self.every])) is not None:
            return (place + 1) * self.every
        return len(sure) if called and sure[-1] else None


FIRST_SURE = DoneRule()


def patience(help_after_s: float, control_hz: float) -> int:
    """Control steps without a gain of progress after which help is asked for; 0 where `help_after_s` is 0.

    Raises:
      BadInput: a time that rounds to no step.
    """
    steps = round(help_after_s * control_hz)
    if help_after_s and not steps:
        expected = f"0, or more than half a control step, {0.5 / control_hz:g} s"
        raise BadInput("--help-after-s", got=help_after_s, expected=expected)
    return steps
