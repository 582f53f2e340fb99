"""Which episode a world meets: option ``start_ids`` of `reset`. Equal ids give equal starts in any world.

The j-th episode of a world depends on (seed, start id, j) alone. By default the id of world w is w. A group of worlds
with one id meets the same sequence of episodes, so that returns within the group differ by the actions alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput


def episode_rng(seed: int, start_id: int, episode: int) -> np.random.Generator:
    """The generator of all that is drawn for the `episode`-th episode of a start id, counted from 0."""
    return np.random.default_rng([seed, start_id, episode])


def start_ids(options: Mapping[str, Any] | None, num_envs: int) -> NDArray[np.int64] | None:
    """The ids in `options`, (N,) and not negative, or None where there are none.

    Raises:
      BadInput: another option, or ids that are not `num_envs` integers from 0 on.
    """
    if not options:
        return None
    for name in options:
        if name != "start_ids":
            raise BadInput("option of reset", got=name, available=("start_ids",))
    ids = np.asarray(options["start_ids"])
    if ids.shape != (num_envs,) or not np.issubdtype(ids.dtype, np.integer) or (ids < 0).any():
        raise BadInput("start_ids", got=ids.tolist(), expected=f"{num_envs} integers from 0 on")
    return ids.astype(np.int64)
