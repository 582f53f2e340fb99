"""A data set of several scripted demonstrators' episodes, in random order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robolearn.core import Episode
from robolearn.data import Dataset, EpisodeWriter
from robolearn.rollout.collect import collect
from sim.experts import make_expert
from sim.registry import make_env

DEMONSTRATORS = ("expert", "fair", "poor")


def mix(path: Path, task: str, each: int, seed: int) -> list[str]:
    """Record `each` episodes of every demonstrator of `task` beside `path` and mix them there; who made which."""
    episodes: list[tuple[str, Episode]] = []
    env = make_env(task, 20)
    try:
        for i, quality in enumerate(DEMONSTRATORS):
            own = path.with_name(quality)
            with EpisodeWriter(own, env.interface) as writer:
                expert = make_expert(task, env.interface, env.num_envs, quality, seed)
                collect(env, expert, writer, each, 10 * seed + i)
            recorded = Dataset.open(own)
            episodes += [(quality, recorded.episode(e)) for e in range(recorded.episodes)]
        order = np.random.default_rng(seed).permutation(len(episodes))
        with EpisodeWriter(path, env.interface) as writer:
            writer.write_all(episodes[i][1] for i in order)
    finally:
        env.close()
    return [episodes[i][0] for i in order]
