"""Measures by comparison with other episodes: action divergence, transition diversity, coverage, duplicates.

**Neighbours** of a frame are the nearest frames of *other* episodes, one from each: frames of one episode are almost
copies of each other and no evidence that two demonstrations agree. They are searched in the leading principal
components of the scaled values z. Distances are Euclidean over all of z, relative to two frames drawn at random:

    h_ij = |z_i − z_j| / √(2 Σ_c var z_c)

A frame that is further than `NEAR` from all others has no neighbours.

**Action divergence.** Belkhale, Cui, Sadigh, "Data Quality in Imitation Learning" (NeurIPS 2023), bound the
distribution shift of a cloned policy by the mismatch of actions at a state, σ_a²(s) = E_{a ~ π_E(·|s)} [ (a − E a)² ].
Here it is estimated from pairs of a frame i and its neighbours j ∈ N(i) (Matheron's variogram: half the squared
difference of two draws has the variance as its mean, for any number of neighbours). σ_c² is the variance of component
c over the set:

    e_ij = mean_c (a_ic − a_jc)² / 2 σ_c²

Actions also differ because neighbours are not in exactly one place. So e grows with the distance h, to 1 for two frames
drawn at random (h = 1), and that growth is subtracted, with 0 ≤ c ≤ 1 by least squares over all pairs:

    e_ij ≈ n + c h_ij²,        d_i = mean_j (e_ij − c h_ij²)

0 where all do the same, about 1 where the action does not depend on the place. An episode's divergence is the mean over
its frames, at least 0. It rises with noise, with another strategy, and with whatever the demonstrator saw and the
observed vectors do not hold: in a set whose objects are seen only by cameras compare episodes, not sets. An episode of
which less than `SHARED` has neighbours has no divergence.

**Transition diversity** (the same paper) is the noise of the system, σ_s²(s, a) = E_{s' ~ ρ(·|s,a)} [ (s' − E s')² ].
Some of it shows the way back from more states, much of it thins the data out, so it is reported and not scored. With
N(i) the k nearest frames by (s, a) and Δ_i = s_{i+1} − s_i in scaled components,

    v_i = k/(k+1) · |Δ_i − 1/k Σ_{j∈N(i)} Δ_j|² / mean_i |Δ_i − mean Δ|²  :

0 for a deterministic world, about 1 where the next state does not depend on state and action. k/(k+1) takes off the
error of the mean of k neighbours.

**State-action coverage.** Schweighofer et al., "A Dataset Perspective on Offline Reinforcement Learning" (CoLLAs 2022):

    SACo(D) = u_{s,a}(D) / u_{s,a}(D_ref),       u_{s,a} the number of unique state-action pairs.

Pairs are counted in cells: the leading principal components of scaled (s, a), `CELL` standard deviations wide. D_ref is
a set of as many frames that never repeats itself, so SACo lies in (0, 1]. An episode's `novelty` is the share of its
cells that no other episode visits.

**Duplicates.** Two episodes are copies when, frame by frame, their states and actions differ nowhere by more than
`TOLERANCE` standard deviations, with up to `SHIFT` frames at either end in only one of them: a recording stored twice,
trimmed or converted, but no two demonstrations. Only pairs whose means and spreads are alike are compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.spatial import KDTree

from robolearn.data.quality.demonstrations import Array, Demonstrations, scaled

NEIGHBOURS = 8
NEAR = 0.4  # h up to which two frames may be compared
VARIANCE = 0.95  # of the scaled components, that the principal ones keep
COMPONENTS = 10  # at most: trees do not help in more
MAX_FRAMES = 20_000  # more are thinned out evenly: the answer changes little, the time a lot
_CANDIDATES = 96
_BLOCK = 2_000


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For Q frames, up to K frames of other episodes.

    Attributes:
      frame: (Q,) the frames whose neighbours these are.
      index: (Q, K) their neighbours, about nearest first; −1 where there are fewer, or one is too far.
      distance: (Q, K) h; infinite where there is none.
    """

    frame: NDArray[np.int64]
    index: NDArray[np.int64]
    distance: Array

    def mean(self, values: Array) -> Array:
        """(Q, D) mean of (N, D) `values` over the neighbours; NaN for a frame without any."""
        there = (self.index >= 0)[:, :, None]
        total = np.where(there, values[np.maximum(self.index, 0)], 0.0).sum(axis=1)
        count = there.sum(axis=1)
        return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def principal(z: Array) -> Array:
    """(N, D) → (N, d): the leading principal components of scaled values."""
    variance, axes = np.linalg.eigh(z.T @ z / max(len(z), 1))
    order = np.argsort(variance)[::-1]
    share = np.cumsum(variance[order]) / max(float(variance.sum()), 1e-12)
    count = min(int(np.searchsorted(share, VARIANCE)) + 1, COMPONENTS, len(order))
    return z @ axes[:, order[:count]]


def neighbours(values: Array, episode: NDArray[np.int64], k: int = NEIGHBOURS, limit: float = math.inf) -> Neighbours:
    """The `k` nearest frames of other episodes, at most one of each.

    Args:
      values: (N, D) what near means.
      episode: (N,) the episode of each frame; copies have the number of their original.
      k: how many.
      limit: h beyond which nothing is near.
    """
    total = len(values)
    chosen = np.unique(np.linspace(0, total - 1, min(total, MAX_FRAMES)).round().astype(np.int64))
    z = scaled(values)
    points, owner = principal(z)[chosen], episode[chosen]
    index = np.full((len(chosen), k), -1, np.int64)
    distance = np.full((len(chosen), k), np.inf)
    tree = KDTree(points)
    for begin in range(0, len(chosen), _BLOCK):
        rows = np.arange(begin, min(begin + _BLOCK, len(chosen)))
        wanted = min(_CANDIDATES, len(chosen))
        while len(rows):
            far, near = _nearest(tree, points[rows], wanted)
            good = _one_each(owner[near], owner[rows])
            found = good.sum(axis=1)
            others = np.unique(owner).size - 1
            # Long rests fill the candidates with frames of one episode: such frames need more.
            done = (found >= min(k, others)) | (wanted >= len(chosen))
            kept = np.argsort(~good[done], axis=1, kind="stable")[:, :k]
            there, width = np.take_along_axis(good[done], kept, axis=1), kept.shape[1]
            index[rows[done], :width] = np.where(there, np.take_along_axis(chosen[near[done]], kept, axis=1), -1)
            distance[rows[done], :width] = np.where(there, np.take_along_axis(far[done], kept, axis=1), np.inf)
            rows, wanted = rows[~done], min(wanted * 4, len(chosen))
    unit = math.sqrt(2 * float(z.var(axis=0).sum())) or 1.0
    for k_th in range(k):  # the components that the search left out count, too
        there = index[:, k_th] >= 0
        distance[there, k_th] = np.linalg.norm(z[chosen[there]] - z[index[there, k_th]], axis=1) / unit
    far = distance > limit
    index[far], distance[far] = -1, np.inf
    return Neighbours(chosen, index, distance)


def _nearest(tree: KDTree, points: Array, count: int) -> tuple[Array, NDArray[np.int64]]:
    """(B, count) distances and indices; the tree drops the last axis for a single one."""
    far, near = tree.query(points, k=count)
    return np.reshape(far, (len(points), count)), np.reshape(near, (len(points), count))


def _one_each(owner: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(B, C) the first candidate of every episode but the frame's own."""
    order = np.argsort(owner, axis=1, kind="stable")
    ordered = np.take_along_axis(owner, order, axis=1)
    first = np.ones_like(ordered, bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    out = np.empty_like(first)
    np.put_along_axis(out, order, first, axis=1)
    return out & (owner != own[:, None])


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
    """(E,) divergence of each episode; NaN where it has too few neighbours, as the only episode of a set. `near`:
    neighbours by state."""
    frames = np.full(len(demonstrations.action), np.nan)
    frames[near.frame] = frame_divergence(demonstrations, near)
    return np.where(alone(demonstrations, near) > 1 - SHARED, np.nan, np.maximum(demonstrations.mean(frames), 0.0))


def alone(demonstrations: Demonstrations, near: Neighbours) -> Array:
    """(E,) share of each episode's frames that have no neighbours."""
    frames = np.full(len(demonstrations.action), np.nan)
    frames[near.frame] = (near.index < 0).all(axis=1)
    return demonstrations.mean(frames)


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


CELL = 0.5
CELL_COMPONENTS = 6


def coverage(demonstrations: Demonstrations) -> tuple[float, Array]:
    """SACo of the set, and (E,) the novelty of each episode."""
    pairs = np.concatenate([scaled(demonstrations.state), scaled(demonstrations.action)], 1)
    cells = np.floor(principal(pairs)[:, :CELL_COMPONENTS] / CELL).astype(np.int64)
    _, cell = np.unique(cells, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    visits = np.unique(np.stack([demonstrations.episode, cell], 1), axis=0)  # (episode, cell), each once
    visitors = np.bincount(visits[:, 1])
    own = np.bincount(visits[:, 0], weights=visitors[visits[:, 1]] == 1, minlength=demonstrations.episodes)
    novelty = own / np.bincount(visits[:, 0], minlength=demonstrations.episodes)
    # SACo = u_{s,a}(D) / |D|
    return len(visitors) / len(cell), novelty


TOLERANCE = 0.02
SHIFT = 3
_ALIKE = 0.25  # means and spreads of copies, trimmed ones too [standard deviations]


def duplicates(demonstrations: Demonstrations) -> NDArray[np.int64]:
    """(E,) the first episode that each one is a copy of, −1 for originals."""
    d = demonstrations
    frames = np.concatenate([scaled(d.state), scaled(d.action)], 1)
    parts = [frames[d.frames(e)] for e in range(d.episodes)]
    described = np.stack([np.concatenate([part.mean(axis=0), part.std(axis=0)]) for part in parts])
    out = np.full(d.episodes, -1, np.int64)
    for first, second in sorted(KDTree(described).query_pairs(_ALIKE, p=np.inf)):
        if out[second] < 0 and out[first] < 0 and _copies(parts[first], parts[second]):
            out[second] = first
    return out


def _copies(a: Array, b: Array) -> bool:
    """True where (T, D) `a` and (T', D) `b` are one episode."""
    for shift in sorted(range(-SHIFT, SHIFT + 1), key=abs):
        left, right = a[max(shift, 0) :], b[max(-shift, 0) :]
        n = min(len(left), len(right))
        if n and max(len(left), len(right)) - n <= SHIFT and np.abs(left[:n] - right[:n]).max() <= TOLERANCE:
            return True
    return False
