"""Steps as they come, from one actor → finished episodes. A gap, a repetition or a mixture is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Episode
from robolearn.data.replay.records import End, Record, ReplayStep


@dataclass(frozen=True, eq=False)
class PlayedEpisode:
    """T steps and what was seen after them.

    Attributes:
      observation: feature → (T + 1, …) with the final observation, or (T, …) where that is not known.
      action: (T, Da) executed, in [-1, 1].
      reward: (T,).
      intervention: (T,) an operator commanded the step.
      terminated: nothing comes after the last step; the value of what follows is 0. Otherwise more would have come.
      success: whether the task was solved.
    """

    observation: dict[str, NDArray]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    intervention: NDArray[np.bool_]
    terminated: bool
    success: bool

    def __len__(self) -> int:
        return len(self.action)

    @property
    def merits(self) -> NDArray[np.bool_]:
        """(T,) steps that are worth imitating: an operator's, and a policy's own that led to success unaided.

        What a policy did before an operator took over is no merit of its own, however the episode ended: the label of
        success does not cross the boundary of an intervention.
        """
        helped = np.flatnonzero(self.intervention)
        unaided = np.arange(len(self)) > (helped[-1] if len(helped) else -1)
        return self.intervention | (unaided & self.success)

    @staticmethod
    def of_demonstration(episode: Episode) -> PlayedEpisode:
        """An episode of a data set, all of whose steps a demonstrator commanded. The final observation is not stored
        there: of one that did not terminate, the last step leads nowhere."""
        return PlayedEpisode(
            {key: np.asarray(value) for key, value in episode.observation.items()},
            episode.action,
            episode.reward,
            np.ones(len(episode), np.bool_),
            episode.terminated,
            episode.success,
        )


class Assembler:
    """Collects the records of one actor."""

    def __init__(self) -> None:
        self._steps: list[ReplayStep] = []
        self._last = -1  # the newest episode that has ended

    @property
    def expects(self) -> tuple[int, int]:
        """(episode, index): the oldest step that is not known yet."""
        return (self._steps[0].episode, len(self._steps)) if self._steps else (self._last + 1, 0)

    def add(self, record: Record) -> PlayedEpisode | None:
        """Take the next record; the episode that it ends, or None.

        Raises:
          BadInput: it is not the next one.
        """
        if isinstance(record, ReplayStep):
            if record.index == 0 and record.episode > self._last and not self._steps:
                self._steps = [record]
                return None
            if not self._steps or record.episode != self._steps[0].episode or record.index != len(self._steps):
                raise BadInput(
                    "transition", got=f"step {record.index} of episode {record.episode}", expected=self._next()
                )
            self._steps.append(record)
            return None
        if not self._steps or record.episode != self._steps[0].episode or record.length != len(self._steps):
            got = f"the end of episode {record.episode} after {record.length} steps"
            raise BadInput("transition", got=got, expected=self._next())
        return self._finish(record)

    def cut(self) -> PlayedEpisode | None:
        """The episode that its actor will never end, without its last step, whose outcome is not known."""
        steps = self._steps
        if len(steps) < 2:
            self._last = steps[0].episode if steps else self._last
            self._steps = []
            return None
        last = steps.pop()
        return self._finish(End(last.episode, last.index, last.observation, False, True, False))

    def _finish(self, end: End) -> PlayedEpisode:
        steps, self._steps, self._last = self._steps, [], end.episode
        seen = [step.observation for step in steps] + [end.observation]
        return PlayedEpisode(
            {key: np.stack([observation[key] for observation in seen]) for key in end.observation},
            np.stack([step.action for step in steps]),
            np.array([step.reward for step in steps], np.float32),
            np.array([step.intervention for step in steps], np.bool_),
            end.terminated,
            end.success,
        )

    def _next(self) -> str:
        episode, index = self.expects
        return f"step {index} of episode {episode}{' or its end' if index else ''}"
