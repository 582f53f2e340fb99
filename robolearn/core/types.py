"""The shared words: `Observation`, `ActionChunk`, `Episode`, and the judge of an episode's rate.

A frame's timestamp, frame_index / fps, says when it was due. Steps that came more slowly than they are played show
everything faster than it was: a recording, and `dataset validate`, refuse alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Observation = Mapping[str, NDArray]
"""Feature name → array. ``proprio`` and ``objects``: (N, D) float32; ``images.<camera>``: (N, H, W, 3) uint8.
N is the number of worlds; a single world has N = 1."""

ActionChunk = NDArray[np.float32]
"""(N, Tp, Da): Tp predicted actions of Da components in [-1, 1] for each of N worlds."""


@dataclass(frozen=True)
class Episode:
    """One episode, reset to end, of T steps."""

    observation: Observation  # feature name → (T, …), the observation before each action
    action: NDArray[np.float32]  # (T, Da) executed actions in [-1, 1]
    reward: NDArray[np.float32]  # (T,)
    success: bool  # whether the task was solved
    terminated: bool  # the world ended the episode (success or failure), as opposed to the clock
    truncated: bool  # the clock ended the episode
    task: str  # the task in words
    # (T,) true where a teleoperator overrode the policy; None where none was attached
    intervention: NDArray[np.bool_] | None = None
    # name → (T,) when the source measured or sent it [s, on the source's clock], e.g. ``"proprio"``,
    # ``"images.front"``, ``"action"``
    stamps: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    # (T,) the task of each step in words, where it changes on the way; `task` is the first then. Empty where `task` is
    # that of all steps
    frame_tasks: tuple[str, ...] = ()
    # the kind of failure (`robolearn.data.lerobot.features.FAILURES`); empty where it is not known, or none
    failure: str = ""
    # feature → (…), without an axis of steps: the observation after the last action; empty where it is not known
    final: Observation = field(default_factory=dict)
    # LeRobot's name of a feature of text → (T,) strings, None where one is null; no observation, no policy sees it
    texts: Mapping[str, NDArray[np.object_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.action)

    @property
    def seen(self) -> dict[str, NDArray]:
        """Feature → (T + 1, …), the final observation last; (T, …) where that is not known."""
        return {
            key: np.concatenate([value, self.final[key][None]]) if self.final else np.asarray(value)
            for key, value in self.observation.items()
        }


@dataclass(frozen=True, eq=False)
class Window:
    """T steps of an episode, for whoever scores them."""

    # feature → (T + 1, …), the observation before each action and the one after the last; (T, …) where that one is not
    # known
    observation: Observation
    action: NDArray[np.float32]  # (T, Da) executed, in [-1, 1]

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True, eq=False)
class Score:
    """Scores of T steps by a reward model."""

    progress: NDArray[np.float32]  # (T,) in [0, 1], how much of the task is done after the step
    reward: NDArray[np.float32]  # (T,) of each step, to be stored; a learner makes its own of the progress
    done: NDArray[np.bool_]  # (T,) the task is solved after the step
    confidence: NDArray[np.float32]  # (T,) in [0, 1], how sure that is


RATE_NOTED, RATE_REFUSED = 0.05, 0.2  # of the time that an episode is played in: by how much its own may differ
RATED_S = 2.0  # shorter episodes say little of a rate


def rate_fault(steps: int, seconds: float, fps: float, tolerance: float) -> str:
    """The fault of an episode whose `steps` from frame to frame took `seconds` [s]; empty within `tolerance`, and where
    that is too short to tell."""
    if steps / fps < RATED_S > seconds or abs(seconds * fps / max(steps, 1) - 1.0) <= tolerance:
        return ""
    return f"{steps / max(seconds, 1e-9):.3g} control steps a second are stored as {fps:g}"
