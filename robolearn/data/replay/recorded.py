"""Episodes of a data set as they were recorded: with their own rewards, ends and successes, for learning offline.

    reward        next.reward; of a set without rewards 1 at the end of each success
    terminated    next.terminated; of a set without it, or without rewards, the end of each success
    intervention  is_intervention: nobody is taken for a demonstrator whom the set does not call one

A time limit is bootstrapped from the final observation where the set stores it. Where it does not, the last step of an
episode that did not terminate leads nowhere, and no window reaches over it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from robolearn.core import BadInput
from robolearn.data.reading.reader import Dataset
from robolearn.data.replay.records import PlayedEpisode

log = logging.getLogger(__name__)


def recorded(sets: Sequence[Dataset], *, scored: bool = False) -> Iterator[PlayedEpisode]:
    """All episodes of `sets`. `scored`: a reward model will give them their rewards and successes.

    Raises:
      BadInput: at once, for a set that has neither rewards nor successes.
    """
    for found in sets:
        if not (scored or found.reward.any() or found.outcomes):
            what, got = f"--data {found.path}", "neither rewards (next.reward) nor successes (next.success)"
            hint = "`robolearn reward train` makes a model of rewards for --reward-model"
            raise BadInput(what, got=got, expected="one of them: failures are learned from, too", hint=hint)
    solved, episodes = sum(int(found.success.sum()) for found in sets), sum(found.episodes for found in sets)
    cut = sum(not over and not found.has_final(i) for found in sets for i, over in enumerate(ends_of(found)))
    if not (scored or solved or any(found.reward.any() for found in sets)):
        raise BadInput("--data", got=f"{episodes} episodes without reward or success", expected="at least one with it")
    log.info("%d episodes as they were recorded, %d of them successes", episodes, solved)
    if cut and not scored:
        log.info("the last step of %d episodes is left out: no end of the task, and what it led to is not stored", cut)
    return (_played(found, i) for found in sets for i in range(found.episodes))


def ends_of(dataset: Dataset) -> np.ndarray:
    """(E,) the task ended the episode: nothing comes after it."""
    stated = "next.terminated" in dataset.features and dataset.reward.any()
    return dataset.terminated if stated or not dataset.outcomes else dataset.terminated | dataset.success


def _played(dataset: Dataset, index: int) -> PlayedEpisode:
    episode = dataset.episode(index)
    reward = episode.reward
    if not dataset.reward.any():
        reward = np.zeros(len(episode), np.float32)
        reward[-1] = episode.success
    helped = np.zeros(len(episode), np.bool_) if episode.intervention is None else episode.intervention
    ends = bool(ends_of(dataset)[index]), episode.success, episode.task
    return PlayedEpisode(episode.seen, episode.action, reward, helped, *ends)
