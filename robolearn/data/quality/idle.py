"""Idle time: frames in which neither the arm nor the gripper moves, so that the policy learns to stand still.

With b the joints and the gripper, and r_c the 95th percentile of |ḃ_c| over the set, the arm moves in frame t when

    max_c |b_{t+1,c} − b_{t,c}| · hz / r_c > 0.03,

and rests of at least 0.25 s are idle. Shorter ones belong to the motion.
"""

from __future__ import annotations

import numpy as np

from robolearn.data.quality.demonstrations import Array, Demonstrations, runs

MOVING = 0.03
SHORTEST_S = 0.25


def idle(demonstrations: Demonstrations) -> Array:
    """(E,) share of the frames of each episode that are idle."""
    d = demonstrations
    step = np.zeros_like(d.body)
    step[:-1] = np.abs(np.diff(d.body, axis=0))
    ends = d.starts + d.lengths - 1
    # The last frame of an episode has no next one: it goes on as the one before.
    step[ends] = np.where((d.lengths > 1)[:, None], step[np.maximum(ends - 1, 0)], 0.0)
    usual = np.quantile(step, 0.95, axis=0)
    moves = usual > 1e-9
    still = (step[:, moves] / usual[moves]).max(axis=1, initial=0.0) <= MOVING
    least = max(1, round(SHORTEST_S * d.control_hz))
    return np.array([runs(still[d.frames(e)], least).mean() for e in range(d.episodes)])
