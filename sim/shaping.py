"""Potential-based shaping: a dense reward that leaves the optimum where the sparse one puts it.

    r' = r + γ Φ(s') − Φ(s),      Φ := 0 where an episode ends

Ng, Harada, Russell, "Policy invariance under reward transformations", ICML 1999. The sum over an episode telescopes:
with γ = 1 what it adds is −Φ(s_0), whatever the way, so that staying near the goal is worth nothing. A dense reward
that is paid at every step teaches exactly that where success ends the episode.

A time limit is an end, too: success counts within it only, and the critics here have V(o, 0) = 0 there. With Φ kept
at a time-out, the last Φ would be a prize for waiting near the goal.

γ is the learner's, a control step. A learner that discounts by γ_c a chunk of Ta steps needs γ = γ_c^(1/Ta): with
γ = 1 such a learner would gain by approaching early and finishing late.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHAPING_GAMMA = 0.99 ** (1 / 4)  # the trainers' default: 0.99 a chunk of four steps
SCALE = 0.5  # of Φ, with a progress in [0, 1]: half a success, so that the sparse reward stays the larger part

Array = NDArray[np.float64]


def shape(reward: Array, before: Array, after: Array, ended: NDArray[np.bool_], gamma: float) -> Array:
    """(N,) shaped rewards.

    Args:
      reward: (N,) r.
      before: (N,) Φ(s).
      after: (N,) Φ(s') before it is set to 0 where `ended` (N,) is true.
      gamma: γ.
    """
    return reward + gamma * np.where(ended, 0.0, after) - before
