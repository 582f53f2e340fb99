"""A model's score in the place of an episode's rewards: late, but before anybody learns from it.

    r_t ← score_t          done_t and confidence_t ≥ ½: the task is solved after step t, and nothing comes after it

What the episode went on with after that is no part of the task, and is left out. Where the model has not seen the task
solved the episode was cut by whatever ended it, unless a person or the world called it a failure.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robolearn.core import BadInput, RewardModel, Window
from robolearn.data.replay import PlayedEpisode

CONFIDENT = 0.5


def scored(episode: PlayedEpisode, model: RewardModel, task: str) -> PlayedEpisode:
    """`episode` with the rewards, end and success that `model` gives.

    Args:
      task: in words; may be empty.

    Raises:
      BadInput: scores of another shape than the steps, or that are not finite.
    """
    score = model.score(Window(episode.observation, episode.action), task)
    reward, confidence = np.asarray(score.reward, np.float32), np.asarray(score.confidence, np.float32)
    done = np.asarray(score.done, np.bool_)
    for name, value in (("reward", reward), ("done", done), ("confidence", confidence)):
        if value.shape != (len(episode),):
            raise BadInput(f"reward model: {name}", got=value.shape, expected=(len(episode),))
        if not np.isfinite(value).all():
            raise BadInput(f"reward model: {name}", got="NaN or infinity", expected="finite numbers")
    ends = np.flatnonzero(done & (confidence >= CONFIDENT))
    if not len(ends):
        failed = episode.terminated and not episode.success
        return replace(episode, reward=reward, terminated=failed, success=False)
    steps = int(ends[0]) + 1
    return PlayedEpisode(
        observation={key: value[: steps + 1] for key, value in episode.observation.items()},
        action=episode.action[:steps],
        reward=reward[:steps],
        intervention=episode.intervention[:steps],
        terminated=True,
        success=True,
    )
