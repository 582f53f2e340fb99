"""The option ``start_ids`` of `reset`: equal ids give equal starts, whatever the worlds' numbers.

The j-th episode of a world depends on (seed, start id, j) alone. By default the id of world w is w. A group of worlds
with one id meets the same sequence of episodes, so that returns within the group differ by the actions alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput


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
