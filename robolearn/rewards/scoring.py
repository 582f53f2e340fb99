"""A model's score in the place of an episode's rewards: late, but before anybody learns from it.

    T     the step with which it is solved (`robolearn.rewards.done`), if any; what came after that is left out
    r_t   = [t = T] + γ Φ_t − Φ_{t−1}       Φ: progress; 0 before the first step and after an end, solved or failed

γ is the learner's, so that the discounted return of an episode telescopes: γ^{T−1} of one that is solved, 0 of one that
failed, γ^T Φ_T where it was only cut. The reward that a model gives with its score has another discount, and does not
know how the episode ends: it is not learned from.

Where the model has not seen the task solved the episode was cut by whatever ended it, unless a person or the world
called it a failure. A model that looks at pictures need not see every frame. With one in `every`, the last among them,
progress and verdict hold until the next one, which makes a potential of them all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, RewardModel, Score, Window
from robolearn.data.replay import PlayedEpisode
from robolearn.rewards.done import FIRST_SURE, DoneRule
from robolearn.rewards.shaping import shaped_rewards

SCORE_TYPES = {"progress": np.float32, "reward": np.float32, "done": np.bool_, "confidence": np.float32}


def scores_of(model: RewardModel, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
    """The scores that `model` gives the windows, checked. Raises `BadInput`: scores of another number than the windows,
    of another shape than their steps, or that are not finite."""
    return checked(model.score(windows, prompts), windows)


def checked(scores: Sequence[Score], windows: Sequence[Window]) -> list[Score]:
    """The `scores` of the windows in their types. Raises `BadInput` as `scores_of` does."""
    if len(scores) != len(windows):
        raise BadInput("reward model: scores", got=len(scores), expected=f"one for each of {len(windows)} windows")
    return [_checked(score, len(window)) for score, window in zip(scores, windows, strict=True)]


def _checked(score: Score, steps: int) -> Score:
    values = {name: np.asarray(getattr(score, name), kind) for name, kind in SCORE_TYPES.items()}
    for name, value in values.items():
        if value.shape != (steps,):
            raise BadInput(f"reward model: {name}", got=value.shape, expected=(steps,))
        if not np.isfinite(value).all():
            raise BadInput(f"reward model: {name}", got="NaN or infinity", expected="finite numbers")
    return Score(**values)


class Agreed:
    """A reward model whose *done* takes several: progress and reward are those of the first, and it is as sure as the
    least sure of all."""

    def __init__(self, models: Sequence[RewardModel]) -> None:
        self._models = tuple(models)
        self.frame_by_frame = all(getattr(model, "frame_by_frame", False) for model in models)

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        """See `robolearn.core.RewardModel`; raises as the models do, and `BadInput` as `scores_of` does."""
        each = [scores_of(model, windows, prompts) for model in self._models]
        return [
            replace(
                of_all[0],
                done=np.logical_and.reduce([score.done for score in of_all]),
                confidence=np.minimum.reduce([score.confidence for score in of_all]),
            )
            for of_all in zip(*each, strict=True)
        ]


def window_of(episode: PlayedEpisode, every: int = 1) -> Window:
    """All of an episode, for a model to score; one frame in `every`, and the last."""
    if every == 1:
        return Window(episode.observation, episode.action)
    looked, after = _looked(episode, every)
    seen = {key: value[looked] for key, value in episode.observation.items()}
    return Window(seen, episode.action[: len(looked) - after])


def held(episode: PlayedEpisode, score: Score, every: int) -> Score:
    """The score of each step of `episode`, of which a model has seen one frame in `every`: `window_of`."""
    if every == 1:
        return score
    looked, after = _looked(episode, every)
    # The newest frame that was looked at, for each step; before the first of them there was no progress.
    newest = np.searchsorted(looked[after:], np.arange(len(episode)) + after, side="right")
    return Score(
        **{name: np.append(0, getattr(score, name))[newest].astype(kind) for name, kind in SCORE_TYPES.items()}
    )


def _looked(episode: PlayedEpisode, every: int) -> tuple[NDArray[np.int64], int]:
    """The frames that a model sees, and 1 where step t leads to frame t + 1, 0 where that is not stored, and frame t
    stands for it."""
    frames = len(next(iter(episode.observation.values())))
    return np.unique(np.append(np.arange(0, frames, every), frames - 1)), frames - len(episode)


def with_score(episode: PlayedEpisode, score: Score, rule: DoneRule = FIRST_SURE, *, gamma: float) -> PlayedEpisode:
    """`episode` with the rewards, end and success of its `score`.

    Args:
      rule: of the *done* that ends it as solved.
      gamma: discount of a step.
    """
    end = rule.steps(score, called=episode.success)
    solved, steps = end is not None, len(episode) if end is None else end
    terminated = solved or (episode.terminated and not episode.success)
    done = np.arange(1, steps + 1) == end
    return replace(
        episode,
        observation={key: value[: steps + 1] for key, value in episode.observation.items()},
        action=episode.action[:steps],
        reward=shaped_rewards(score.progress[:steps], done, gamma=gamma, ended=terminated),
        intervention=episode.intervention[:steps],
        terminated=terminated,
        success=solved,
    )
