"""From progress to rewards of steps.

    shaped   r_t = [done first at t] + γ Φ_t − Φ_{t−1}      Φ = progress, Φ_{−1} = that of the start, 0 after the end
    delta    r_t = [done first at t] + Φ_t − Φ_{t−1}

Potentials telescope, Σ γ^t r_t = Σ γ^t [done] − Φ_{−1} for an episode that ends, so the best policy stays the best
(Ng, Harada and Russell 1999); raw differences do not where γ < 1.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput

Shaping = Literal["shaped", "delta", "none"]


def shaped_rewards(
    progress: NDArray[np.float32],
    done: NDArray[np.bool_],
    *,
    start: float = 0.0,
    gamma: float = 0.99,
    ended: bool = False,
    weight: float = 1.0,
    kind: Shaping = "shaped",
) -> NDArray[np.float32]:
    """(T,) rewards of the steps that led to `progress` (T,), 1 more where the task was `done` (T,) first.

    Args:
      start: progress before the first step.
      gamma: discount of a step.
      ended: the episode ended with the last step by itself, so that nothing comes after it: its potential is 0.
      weight: of the potential.
    """
    if kind not in get_args(Shaping):
        raise BadInput("shaping", got=kind, available=get_args(Shaping))
    reward = np.zeros(len(progress), np.float32)
    first = np.flatnonzero(done)[:1]
    reward[first] = 1.0
    if kind == "none":
        return reward
    before = np.concatenate([[start], progress[:-1]]).astype(np.float32)
    after = np.array(progress, np.float32)
    if kind == "shaped" and ended and len(after):
        after[-1] = 0.0
    return (reward + weight * ((gamma if kind == "shaped" else 1.0) * after - before)).astype(np.float32)
