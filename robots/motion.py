"""Motion of set-points to their goal, within the arm's limits of speed and acceleration.

On the arm the safety filter moves set-points with jerk-limited motion. A simulator whose set-points jump teaches
policies a quicker arm than there is: one that lifts 97 of 100 cubes there lifts 75 behind the filter. This is the
same motion for N arms at once, without the jerk phases (a few milliseconds, below a step of the physics):

    v* = sign(e) · min(v_max,  a (√(Δt²/4 + 2|e|/a) − Δt/2),  |e|/Δt),   e = goal − q
    v ← v + clip(v* − v, ±a Δt),   q ← q + v Δt

v* is the highest speed from which steps of a Δt come to rest at the goal, Δt (v + (v − aΔt) + …) = e, or past it by
less than a Δt².
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robots.chain import Array
from robots.compiled import compiled


@compiled()
def advance(q: Array, v: Array, goal: Array, v_max: Array, a_max: Array, dt: float, rows: NDArray[np.int64]) -> None:
    """Move set-points by one step of time, in place.

    Args:
      q: (N, n) set-points [rad].
      v: (N, n) their velocities [rad/s].
      goal: (N, n) where they shall come to rest [rad].
      v_max, a_max: (n,) limits [rad/s], [rad/s²].
      dt: Δt [s].
      rows: (M,) int64, which arms.
    """
    for w in rows:
        for i in range(q.shape[1]):
            e = goal[w, i] - q[w, i]
            d, a = abs(e), a_max[i]
            wanted = min(v_max[i], a * (np.sqrt(0.25 * dt * dt + 2.0 * d / a) - 0.5 * dt), d / dt)
            change = (wanted if e > 0 else -wanted) - v[w, i]
            v[w, i] += min(max(change, -a * dt), a * dt)
            q[w, i] += v[w, i] * dt


@compiled()
def travel(
    q: Array, v: Array, goal: Array, latest: Array, delay: NDArray[np.int64], v_max: Array, a_max: Array, dt: float,
    rows: NDArray[np.int64], out: Array,
) -> None:  # fmt: skip
    """`advance` step by step, with goals that take effect late; everything but `latest` is changed in place.

    Args:
      q, v, goal, v_max, a_max, dt, rows: see `advance`; S steps are taken.
      latest: (M, n) what the goals of `rows` become [rad],
      delay: (M,) before this step, from 0.
      out: (M, S, n) set-points after each step [rad].
    """
    for i in range(out.shape[1]):
        for k in range(len(rows)):
            if delay[k] == i:
                goal[rows[k]] = latest[k]
        advance(q, v, goal, v_max, a_max, dt, rows)
        for k in range(len(rows)):
            out[k, i] = q[rows[k]]
