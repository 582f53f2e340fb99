"""From commanded set-points to those that reach the motors: late by a delay, and short of a backlash.

    u_k = (1 − f) x_{k−d} + f x_{k−d−1},   delay = (d + f) Δt
    y_k = min(max(y_{k−1}, u_k − b/2), u_k + b/2)

The second line is the play operator: a joint follows its servo once the play b between them is crossed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robots.chain import Array
from robots.compiled import compiled


@compiled()
def transmit(x: Array, line: Array, delay: Array, play: Array, last: Array, rows: NDArray[np.int64]) -> None:
    """Turn commanded set-points into those that reach the motors; `x`, `line` and `last` are changed in place.

    Args:
      x: (M, S, k) set-points of S steps of time, of the arms `rows`.
      line: (N, D, k) the D set-points before, oldest first.
      delay: (M,) in steps, whole or not, from 0 to D − 1.
      play: (N, k) width of the backlash, in the units of the set-points.
      last: (N, k) output of the step before.
      rows: (M,) int64, which arms.
    """
    steps, width = x.shape[1], x.shape[2]
    depth = line.shape[1]
    late = np.empty(depth + steps)
    for m in range(len(rows)):
        w = rows[m]
        whole = int(np.floor(delay[m]))
        part = delay[m] - whole
        for i in range(width):
            late[:depth] = line[w, :, i]
            late[depth:] = x[m, :, i]
            half = 0.5 * play[w, i]
            y = last[w, i]
            for s in range(steps):
                at = depth + s - whole
                u = late[at]
                if part > 0.0:
                    u = (1.0 - part) * u + part * late[at - 1]
                y = min(max(y, u - half), u + half)
                x[m, s, i] = y
            last[w, i] = y
            line[w, :, i] = late[steps:]
