"""State-action coverage (SACo): how much of what the set holds is not a repetition?

Schweighofer et al., "A Dataset Perspective on Offline Reinforcement Learning" (CoLLAs 2022):

    SACo(D) = u_{s,a}(D) / u_{s,a}(D_ref),       u_{s,a} the number of unique state-action pairs.

Pairs of real numbers are unique all of them, so they are counted in cells: the leading principal components of scaled
(s, a), `CELL` standard deviations wide. Without a data set to compare with, D_ref is one of as many frames that never
repeats itself, so that SACo lies in (0, 1]. An episode's `novelty` is the share of its cells that no other episode
visits: coverage that would be lost with it.
"""

from __future__ import annotations

import numpy as np

from robolearn.data.quality.demonstrations import Array, Demonstrations, scaled
from robolearn.data.quality.neighbours import principal

CELL = 0.5
COMPONENTS = 6


def coverage(demonstrations: Demonstrations) -> tuple[float, Array]:
    """SACo of the set, and (E,) the novelty of each episode."""
    pairs = np.concatenate([scaled(demonstrations.state), scaled(demonstrations.action)], 1)
    cells = np.floor(principal(pairs)[:, :COMPONENTS] / CELL).astype(np.int64)
    _, cell = np.unique(cells, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    visits = np.unique(np.stack([demonstrations.episode, cell], 1), axis=0)  # (episode, cell), each once
    visitors = np.bincount(visits[:, 1])
    own = np.bincount(visits[:, 0], weights=visitors[visits[:, 1]] == 1, minlength=demonstrations.episodes)
    novelty = own / np.bincount(visits[:, 0], minlength=demonstrations.episodes)
    # SACo = u_{s,a}(D) / |D|
    return len(visitors) / len(cell), novelty
