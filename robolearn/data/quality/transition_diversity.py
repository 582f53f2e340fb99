"""Transition diversity: how far does the same action in the same place lead apart?

Belkhale, Cui, Sadigh, "Data Quality in Imitation Learning" (NeurIPS 2023): the noise of the system,
σ_s²(s, a) = E_{s' ~ ρ(·|s,a)} [ (s' − E s')² ]. Some of it is good for imitation, because it shows the way back from
more states; much of it thins the data out. So it is reported and never counted for or against an episode.

With N(i) the k nearest frames of other episodes by (s, a) and Δ_i = s_{i+1} − s_i in scaled components,

    v_i = k/(k+1) · |Δ_i − 1/k Σ_{j∈N(i)} Δ_j|² / mean_i |Δ_i − mean Δ|²  :

0 for a deterministic world, about 1 where the next state does not depend on state and action. The mean of k neighbours
errs, too, which k/(k+1) takes off.
"""

from __future__ import annotations

import numpy as np

from robolearn.data.quality.demonstrations import Array, Demonstrations, scaled
from robolearn.data.quality.neighbours import neighbours


def transition_diversity(demonstrations: Demonstrations) -> Array:
    """(E,) diversity of each episode; NaN where it has no neighbours or a single frame."""
    state = scaled(demonstrations.state)
    last = np.zeros(len(state), bool)
    last[demonstrations.starts + demonstrations.lengths - 1] = True
    out = np.full(len(state), np.nan)
    rows = np.flatnonzero(~last)
    if not len(rows):
        return demonstrations.mean(out)
    step = state[rows + 1] - state[rows]
    spread = ((step - step.mean(axis=0)) ** 2).sum(axis=1).mean()
    if spread <= 1e-12:
        return np.zeros(demonstrations.episodes)
    near = neighbours(np.concatenate([state, scaled(demonstrations.action)], 1)[rows], demonstrations.episode[rows])
    k = (near.index >= 0).sum(axis=1)
    # v_i = k/(k+1) |Δ_i − Δ̄_i|² / spread
    out[rows[near.frame]] = k / (k + 1) * ((step[near.frame] - near.mean(step)) ** 2).sum(axis=1) / spread
    return demonstrations.mean(out)
