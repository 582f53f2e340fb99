"""A recorded episode as a policy: its actions, step by step, whatever is observed.

    chunk at step t of an episode = a_t … a_{t + Tp − 1};  after a_{T − 1}: no displacement, and what was commanded last

It shows whether units, scales and directions of a data set are those of an arm, through the whole way of a policy:
streamer, safety filter, controller.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from policies.normalize import PROPRIO
from policies.storage.config_file import EPISODE
from robolearn.core import ActionChunk, BadInput, Episode, Interface, Observation, Policy
from robots.chunk_execution import ActionParts

STEPS = 8  # Ta
PREDICTED = 16  # Tp: a decision that comes late is covered
APART = 0.05  # of a component of proprio, in its own unit: further from where the episode begins is said


class EpisodePolicy(Policy):
    """The actions of `episode`, of a data set with `interface`, from the first one in each episode of a world."""

    observes_every_step = True
    execute_steps = STEPS

    def __init__(self, episode: Episode, interface: Interface) -> None:
        kept = {key: spec for key, spec in interface.observation.items() if key == PROPRIO}
        self.interface = replace(interface, observation=kept)
        rest = episode.action[-1:].copy()
        rest[:, ActionParts.of(interface).displaced] = 0.0
        self._actions = np.concatenate((episode.action, np.repeat(rest, PREDICTED, axis=0))).astype(np.float32)
        self._length = len(episode.action)
        self._start = np.asarray(episode.observation[PROPRIO][0], np.float64) if kept else None
        self._step: NDArray[np.int64] | None = None

    def reset(self, seed: int) -> None:
        self._step = None

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        if self._step is None or len(self._step) != len(worlds):
            self._step = np.zeros(len(worlds), np.int64)
        self._step = np.where(worlds, 0, self._step)

    def observe(self, observation: Observation) -> None:
        assert self._step is not None, "begin comes first"
        self._step = self._step + 1

    def act(self, observation: Observation) -> ActionChunk:
        """(N, Tp, Da)."""
        if self._step is None:
            self.begin(np.ones(len(next(iter(observation.values()))), np.bool_))
        assert self._step is not None
        at = np.minimum(self._step, self._length)
        self._step = self._step + 1
        return self._actions[at[:, None] + np.arange(PREDICTED)]

    def unfamiliar(self, observation: Observation) -> tuple[str, str]:
        """(nothing to refuse, what is not where the episode begins) by the proprioception (1, D) of `observation`."""
        if self._start is None:
            return "", ""
        value = np.asarray(observation[PROPRIO], np.float64)[0]
        names = self.interface.observation[PROPRIO].names or tuple(f"component {i}" for i in range(len(value)))
        apart = np.flatnonzero(np.abs(value - self._start) > APART)
        found = "; ".join(f"{names[i]} at {value[i]:.3f}, recorded {self._start[i]:.3f}" for i in apart)
        return "", found and f"the episode begins elsewhere: {found}"


def load_episode_policy(name: str) -> EpisodePolicy:
    """The episode that ``DATA#N`` names, the first one without ``#N``; raises `BadInput` as a data set does."""
    from robolearn.data import Dataset

    path, _, number = name.partition("#")
    if number and not number.isdecimal():
        raise BadInput(
            f"policy {EPISODE}{name}", got=f"#{number}", expected="the number of an episode, as in data/lift#3"
        )
    data = Dataset.open(path, images=False)
    return EpisodePolicy(data.episode(int(number or 0)), data.interface)
