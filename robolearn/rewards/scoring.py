"""A model's score in the place of an episode's rewards: late, but before anybody learns from it.

    r_t ← score_t          done_t and confidence_t ≥ ½: the task is solved after step t, and nothing comes after it

A model that looks at pictures need not see every frame. With one in `every`, the last among them, progress and verdict
hold until the next one, and the rewards are shaped by what is held, Φ, which makes of them a potential all the same:

    r_t = [done first at t] + γ Φ_t − Φ_{t−1}              Φ_{−1} = 0; 0 after *done*

What the episode went on with after that is no part of the task, and is left out. Where the model has not seen the task
solved the episode was cut by whatever ended it, unless a person or the world called it a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robolearn.core import BadInput, RewardModel, Score, Window
from robolearn.data.replay import PlayedEpisode
from robolearn.rewards.shaping import shaped_rewards

CONFIDENT = 0.5
SCORE_TYPES = {"progress": np.float32, "reward": np.float32, "done": np.bool_, "confidence": np.float32}


def scores_of(model: RewardModel, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
    """The scores that `model` gives the windows, checked.

    Raises:
      BadInput: scores of another number than the windows, of another shape than their steps, or that are not finite.
    """
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


def scored(
    episode: PlayedEpisode, model: RewardModel, task: str, *, every: int = 1, gamma: float = 0.99
) -> PlayedEpisode:
    """`episode` with the rewards, end and success that `model` gives.

    Args:
      task: in words; may be empty.
      every: steps between two frames that the model sees; from 2 on the rewards are shaped anew.
      gamma: discount of a step, for those.

    Raises:
      BadInput: see `scores_of`.
    """
    if every == 1:
        (score,) = scores_of(model, [window_of(episode)], [task])
        return with_score(episode, score)
    steps, frames = len(episode), len(next(iter(episode.observation.values())))
    after = frames - steps  # 1: step t leads to frame t + 1; 0: that is not stored, and frame t stands for it
    looked = np.unique(np.append(np.arange(0, frames, every), frames - 1))
    seen = {key: value[looked] for key, value in episode.observation.items()}
    (score,) = scores_of(model, [Window(seen, episode.action[: len(looked) - after])], [task])
    # The newest frame that was looked at, for each step; before the first of them there was no progress.
    newest = np.searchsorted(looked[after:], np.arange(steps) + after, side="right")
    held = {name: np.append(0, getattr(score, name))[newest] for name in ("progress", "done", "confidence")}
    done = held["done"].astype(np.bool_) & (held["confidence"] >= CONFIDENT)
    progress = held["progress"].astype(np.float32)
    end = int(np.argmax(done)) + 1 if done.any() else steps
    reward = np.zeros(steps, np.float32)
    reward[:end] = shaped_rewards(progress[:end], done[:end], gamma=gamma, ended=bool(done.any()))
    return with_score(episode, Score(progress, reward, done, held["confidence"].astype(np.float32)))


def window_of(episode: PlayedEpisode) -> Window:
    """All of an episode, for a model to score."""
    return Window(episode.observation, episode.action)


def with_score(episode: PlayedEpisode, score: Score, threshold: float = CONFIDENT) -> PlayedEpisode:
    """`episode` with the rewards, end and success of its `score`.

    Args:
      threshold: least confidence of a *done*.
    """
    reward = score.reward
    ends = np.flatnonzero(score.done & (score.confidence >= threshold))
    if not len(ends):
        failed = episode.terminated and not episode.success
        return replace(episode, reward=reward, terminated=failed, success=False)
    steps = int(ends[0]) + 1
    return replace(
        episode,
        observation={key: value[: steps + 1] for key, value in episode.observation.items()},
        action=episode.action[:steps],
        reward=reward[:steps],
        intervention=episode.intervention[:steps],
        terminated=True,
        success=True,
    )
