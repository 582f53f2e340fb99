"""Action divergence: do demonstrators do the same in the same place?

Belkhale, Cui, Sadigh, "Data Quality in Imitation Learning" (NeurIPS 2023), bound the distribution shift of a cloned
policy by the mismatch of actions at a state. They estimate it by the variance of actions in clusters of similar states,

    σ_a²(s) = E_{a ~ π_E(·|s)} [ (a − E a)² ].

Here it is estimated from pairs of a frame i and its neighbours j ∈ N(i) in other episodes (`neighbours`), as
geostatistics does (Matheron's variogram): half the squared difference of two draws has the variance as its mean, for
any number of neighbours. σ_c² is the variance of component c over the set:

    e_ij = mean_c (a_ic − a_jc)² / 2 σ_c²

Frames that are near each other are not in one place, and actions that depend on the place differ for that reason alone.
So e grows with the distance h, to 1 for two frames drawn at random (h = 1), and what it grows by is taken off, with
0 ≤ c ≤ 1 by least squares over all pairs:

    e_ij ≈ n + c h_ij²,        d_i = mean_j (e_ij − c h_ij²)

0 where all do the same, about 1 where the action does not depend on the place. An episode's divergence is the mean
over its frames, at least 0. It rises with noise, with a strategy of one's own, and with whatever the demonstrator saw
and the observed vectors do not hold: in a set whose objects are seen only by cameras compare episodes, not sets.

Where nobody else was there is nothing to compare: an episode of which less than `SHARED` has neighbours covers a part
of the task of its own, and has no divergence.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from robolearn.data.quality.demonstrations import Array, Demonstrations
from robolearn.data.quality.neighbours import Neighbours

STILL = 1e-3  # of the largest standard deviation: a component of the action that varies less is not commanded at all
SHARED = 0.2  # of an episode's frames


def frame_divergence(demonstrations: Demonstrations, near: Neighbours) -> Array:
    """(Q,) d_i of the frames of `near`; NaN without neighbours."""
    action = demonstrations.action
    there = near.index >= 0
    out = np.where(there.any(axis=1), 0.0, np.nan)
    spread = action.std(axis=0)
    moved = spread > STILL * spread.max(initial=0.0)
    if not moved.any() or not there.any():
        return out
    scaled = action[:, moved] / spread[moved]
    row, column = np.nonzero(there)
    # e_ij = mean_c (a_ic − a_jc)² / 2 σ_c²
    differs = 0.5 * ((scaled[near.frame[row]] - scaled[near.index[row, column]]) ** 2).mean(axis=1)
    squared = near.distance[row, column] ** 2
    # e_ij ≈ n + c h_ij²
    slope = min(1.0, float(nnls(np.stack([np.ones_like(squared), squared], 1), differs)[0][1]))
    # d_i = mean_j (e_ij − c h_ij²)
    total = np.bincount(row, differs - slope * squared, minlength=len(out))
    count = np.bincount(row, minlength=len(out))
    return np.divide(total, count, out=out, where=count > 0)


def action_divergence(demonstrations: Demonstrations, near: Neighbours) -> Array:
    """(E,) divergence of each episode; NaN where it has too few neighbours, as the only episode of a set.

    Args:
      near: neighbours by state.
    """
    frames = np.full(len(demonstrations.action), np.nan)
    frames[near.frame] = frame_divergence(demonstrations, near)
    return np.where(alone(demonstrations, near) > 1 - SHARED, np.nan, np.maximum(demonstrations.mean(frames), 0.0))


def alone(demonstrations: Demonstrations, near: Neighbours) -> Array:
    """(E,) share of each episode's frames that have no neighbours."""
    frames = np.full(len(demonstrations.action), np.nan)
    frames[near.frame] = (near.index < 0).all(axis=1)
    return demonstrations.mean(frames)
