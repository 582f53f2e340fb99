"""How demonstrations from given starts end: a goal for each of those episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Env, Teleoperator
from robolearn.rollout.collect import RecordingAgent
from robolearn.rollout.engine import Engine
from robolearn.rollout.quotas import Episodes


def ends_of(
    env: Env, teleoperator: Teleoperator, each: NDArray[np.int64], seed: int, features: Sequence[str]
) -> tuple[dict[str, NDArray], float]:
    """The last observations before the last actions, as a data set stores them, and the share of successes.

    Args:
      env: N worlds; reset with `seed`, so that their episodes begin as those of whoever meets the same seed.
      teleoperator: commands all of them.
      each: (N,) episodes of each world.
      features: what of an observation.

    Returns:
      Feature → (N, max each, …); what is beyond a world's number of episodes repeats its last one.
    """
    engine = Engine(env)
    engine.reset(seed)
    teleoperator.reset(np.ones(env.num_envs, dtype=bool))
    most = int(each.max())
    ends = {
        key: np.zeros((env.num_envs, most, *spec.shape), spec.dtype)
        for key, spec in env.interface.observation.items()
        if key in features
    }
    solved = 0
    for turn in engine.turns(RecordingAgent(teleoperator), Episodes(each)):
        for w in np.flatnonzero(turn.worlds & turn.ended):
            solved += int(turn.solved[w])
            for key, array in ends.items():
                array[w, turn.episode[w] :] = turn.decision.aux[key][w]
    return ends, solved / int(each.sum())
