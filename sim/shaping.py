"""Potential-based shaping: a dense reward that leaves the optimum where the sparse one puts it.

    r' = r + γ Φ(s') − Φ(s),      Φ := 0 in terminal states

Ng, Harada, Russell, "Policy invariance under reward transformations", ICML 1999. The sum over an episode telescopes:
with γ = 1 what it adds is Φ(s_T) − Φ(s_0), whatever the way, so that staying near the goal is worth nothing. A dense
reward that is paid at every step teaches exactly that where success ends the episode.

At a time-out Φ(s_T) stays, because the return goes on beyond it: V'(s_T) = V(s_T) − Φ(s_T) is what a critic of the
shaped reward learns, and the sum of the two telescopes again. A learner that sets V(s_T) = 0 because time is over
must set V'(s_T) = −Φ(s_T), which ``infos["potential"]`` holds; otherwise the last Φ is a prize for waiting.

γ is the learner's, a control step. A learner that discounts by γ_c a chunk of Ta steps needs γ = γ_c^(1/Ta): with
γ = 1 such a learner would gain by approaching early and finishing late.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHAPING_GAMMA = 0.99 ** (1 / 4)  # the trainers' default: 0.99 a chunk of four steps
SCALE = 0.5  # of Φ, with a progress in [0, 1]: half a success, so that the sparse reward stays the larger part

Array = NDArray[np.float64]


def shape(reward: Array, before: Array, after: Array, terminated: NDArray[np.bool_], gamma: float) -> Array:
    """(N,) shaped rewards.

    Args:
      reward: (N,) r.
      before: (N,) Φ(s).
      after: (N,) Φ(s') before it is set to 0 where `terminated` (N,) is true.
      gamma: γ.
    """
    return reward + gamma * np.where(terminated, 0.0, after) - before
