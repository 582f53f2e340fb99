"""A chunk of displacements that arrives late, continued from where the arm is by now.

While a_0 … a_{T−1} were computed from the observation of time s, other actions were executed. The chunk is a path, and
what was executed since s is a place beside it:

    P(u) = Σ_{i<⌊u⌋} a_i + (u − ⌊u⌋) a_⌊u⌋,  0 ≤ u ≤ T         where the chunk leads, u steps after s
    E    = 1/Δt ∫_s^now a(t) dt                                 where the arm is by now
    u*   = argmin_u |P(u) − E| + ε |u − (now − s)/Δt|           how far along the path it is; ε tells between places
                                                                at which the path stands still
    a'_j = clip(P(u* + j + 1) − X_j),  X_0 = E,  X_{j+1} = X_j + what is executed of a'_j

By time alone an arm that was quicker or slower than predicted would do a part of its way twice, or leave one out, and
run beside the path from then on. `policies.wrappers.delay_compensation` has the same for N worlds whose control steps
are all alike.

Distances are of translation; rotations are small here and added like it. A gripper's opening is no displacement: it is
that of step u* + j.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from robots.control import GRIPPER, TRANSLATION

Array = NDArray[np.float64]

_PER_STEP = 20  # places at which a step of the path is looked at
_EPSILON = 0.01  # in units of actions, per step


class Executed:
    """What was executed lately, as actions and when each began.

    Args:
      period_s: Δt, what an action takes [s].
      size: how many are kept.
    """

    def __init__(self, period_s: float, size: int) -> None:
        self._period = period_s
        self._begun: deque[tuple[float, Array]] = deque(maxlen=size)

    def add(self, at: float, action: Array) -> None:
        """`action` (Da,) begins at `at` [s], and ends what is executed until then."""
        self._begun.append((at, action))

    def since(self, start: float, now: float, size: int) -> Array:
        """(Da,) E, in actions: one that was executed by half counts half."""
        place, end = np.zeros(size), now
        for at, action in reversed(self._begun):
            # E = 1/Δt ∫ a(t) dt; an action that none follows is over after Δt
            share = min(end, at + self._period) - max(at, start)
            place += max(share, 0.0) / self._period * action
            end = at
            if at <= start:
                break
        return place


def continued(
    chunk: Array, executed: Array, elapsed: float, names: Sequence[str], mixed: Callable[[int, Array], Array]
) -> Array:
    """What to do instead of `chunk` from step ⌊elapsed⌋ on, which begins now.

    Args:
      chunk: (T, Da) in [-1, 1], displacements but for what `names` calls otherwise.
      executed: (Da,) E.
      elapsed: steps since its observation, less than T.
      names: (Da,) of the components; the gripper's is no displacement.
      mixed: step k and its action → what is executed of it, where it is blended with the chunk before.

    Returns:
      (T, Da) in [-1, 1]; the rows that have elapsed are those of `chunk`.
    """
    length, first = len(chunk), int(elapsed)
    moves = np.array([name != GRIPPER for name in names])
    along = np.array([name in TRANSLATION for name in names])
    steps = np.linspace(0.0, length, _PER_STEP * length + 1)
    path = _path(chunk, steps)
    # u* = argmin_u |P(u) − E| + ε |u − elapsed|
    beside = np.linalg.norm((path - executed)[:, along], axis=1) + _EPSILON * np.abs(steps - elapsed)
    begin = steps[beside.argmin()]
    out, place = chunk.copy(), executed.copy()
    goals = _path(chunk, np.minimum(begin + 1.0 + np.arange(length - first), length))
    for j, k in enumerate(range(first, length)):
        opening = chunk[min(round(float(begin)) + j, length - 1)]
        # a'_j = clip(P(u* + j + 1) − X_j)
        out[k] = mixed(k, np.where(moves, np.clip(goals[j] - place, -1.0, 1.0), opening))
        place += out[k]
    return out


def _path(chunk: Array, steps: Array) -> Array:
    """P at `steps` (M,): (M, Da)."""
    places = np.vstack([np.zeros(chunk.shape[1]), np.cumsum(chunk, 0)])
    grid = np.arange(len(places))
    return np.stack([np.interp(steps, grid, places[:, d]) for d in range(chunk.shape[1])], axis=1)
