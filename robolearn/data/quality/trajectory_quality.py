"""Trajectory quality (TQ): how good are the returns?

Schweighofer et al., "A Dataset Perspective on Offline Reinforcement Learning" (CoLLAs 2022):

    TQ(D) = (ḡ(D) − ḡ(D_min)) / (ḡ(D_expert) − ḡ(D_min)),        ḡ the mean undiscounted return.

Without data sets to compare with, g_min is the lower of 0 and the least return of the set and g_expert its highest, so
that an episode has TQ_e = (g_e − g_min) / (g_expert − g_min) in [0, 1] and the set has their mean.
"""

from __future__ import annotations

import numpy as np

from robolearn.data.quality.demonstrations import Array, Demonstrations


def trajectory_quality(demonstrations: Demonstrations) -> Array:
    """(E,) TQ of each episode; NaN without rewards, or where none is better than another or than nothing."""
    reward = demonstrations.reward
    nothing = np.full(demonstrations.episodes, np.nan)
    if reward is None:
        return nothing
    returns = np.add.reduceat(reward, demonstrations.starts)
    least, best = min(0.0, float(returns.min())), float(returns.max())
    if best - least <= 1e-9:
        return nothing
    # TQ_e = (g_e − g_min) / (g_expert − g_min)
    return (returns - least) / (best - least)


def seconds(demonstrations: Demonstrations) -> Array:
    """(E,) how long each episode lasts [s]."""
    return demonstrations.lengths / demonstrations.control_hz
