"""Action divergence: do demonstrators do the same in the same place?

Belkhale, Cui, Sadigh, "Data Quality in Imitation Learning" (NeurIPS 2023), bound the distribution shift of a cloned
policy by the mismatch of actions at a state. They estimate it by the variance of actions in clusters of similar states,

    σ_a²(s) = E_{a ~ π_E(·|s)} [ (a − E a)² ].

Here the cluster is the k nearest frames j ∈ N(i) of other episodes, and a frame's share of the variance is

    d_i = mean_c (a_ic − 1/k Σ_{j∈N(i)} a_jc)² / σ_c²,         σ_c² the variance of component c over the set:

0 where all do the same, about 1 where the action does not depend on the place. An episode's divergence is the mean
over its frames. It rises with noise, with a strategy of one's own, and with whatever the demonstrator saw and the
observed vectors do not hold: in a set whose objects are seen only by cameras compare episodes, not sets.
"""

from __future__ import annotations

import numpy as np

from robolearn.data.quality.demonstrations import Array, Demonstrations
from robolearn.data.quality.neighbours import Neighbours

STILL = 1e-3  # a component of the action that varies less than this is not commanded at all


def frame_divergence(demonstrations: Demonstrations, near: Neighbours) -> Array:
    """(Q,) d_i of the frames of `near`; NaN without neighbours."""
    action = demonstrations.action
    variance = action.var(axis=0)
    moved = variance > STILL**2
    if not moved.any():
        return np.zeros(len(near.frame))
    # d_i = mean_c (a_ic − ā_ic)² / σ_c²
    difference = action[near.frame] - near.mean(action)
    return (difference[:, moved] ** 2 / variance[moved]).mean(axis=1)


def action_divergence(demonstrations: Demonstrations, near: Neighbours) -> Array:
    """(E,) divergence of each episode; NaN where it has no neighbours, as the only episode of a set.

    Args:
      near: neighbours by state.
    """
    frames = np.full(len(demonstrations.action), np.nan)
    frames[near.frame] = frame_divergence(demonstrations, near)
    return demonstrations.mean(frames)
