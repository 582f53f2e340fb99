"""What to do now by a prediction that took its time: its path, continued from where the arm is by now.

While a prediction from o_{t−d} was computed, other steps were executed. Where actions are displacements it is a path,
and what was executed is a place beside it:

    P_k = a_0 + … + a_{k−1},  k = 0 … Tp                the path of a prediction; 0 is where the arm was at t − d
    E   = what was executed from t − d to t             where the arm is by now
    k*  = argmin_k |P_k − E|,  k ≤ Tp − H               how far along the path it is
    a_j = clip(P_{k* + j + 1} − X_j),  X_0 = E,  X_{j+1} = X_j + a_j                             j = 0 … H − 1

So the arm comes back to the path instead of running beside it, and what was executed quicker or slower than predicted
is not done twice or left out. Of several predictions those come first whose path passes nearest to E: what the arm has
begun is gone on with. As UMI (Chi et al. 2024) drops what is past by then and executes places instead of
displacements, and Bidirectional Decoding (Liu et al. 2024) chooses samples that agree with what was begun.

Distances are of translation; rotations are small here and added like it. A gripper's opening is no displacement: it is
that of step k* + j. Other actions (joint positions) say where to be, and are executed from step min(d, Tp − H) on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robolearn.core import ActionChunk, Interface, Observation
from robots.control import GRIPPER, TRANSLATION


@dataclass(frozen=True, eq=False)
class Late:
    """What a prediction knows that is begun `age` control steps before it is executed, for N worlds.

    Attributes:
      before: the observation of then, (N, …) each.
      age: (N,) control steps.
      executed: (N, Da) the sum of the actions since then.
    """

    before: Observation
    age: NDArray[np.int64]
    executed: NDArray[np.float32]


def displacements(interface: Interface) -> Tensor:
    """(Da,) true where a component of an action is a displacement."""
    names = interface.action.names or ("",) * interface.action.size
    return torch.tensor([interface.action_kind == "tcp_delta" and name != GRIPPER for name in names])


def translations(interface: Interface) -> Tensor:
    """(Da,) true where a component of an action is a displacement along an axis."""
    names = interface.action.names or ("",) * interface.action.size
    return torch.tensor([name in TRANSLATION for name in names]) & displacements(interface)


def catch_up(paths: Tensor, late: Late, interface: Interface, *, steps: int, keep: int) -> Tensor:
    """What to execute now of each of the M predictions (N, M, Tp, Da) that were begun then: (N, keep, `steps`, Da), in
    [-1, 1]; of predictions that are paths the `keep` nearest ones, the nearest first, of others the first ones."""
    worlds, count, horizon, components = paths.shape
    age = torch.from_numpy(late.age).to(paths.device)
    along = translations(interface).to(paths.device)
    if not along.any():
        # k = min(d, Tp − H)
        return _steps(paths[:, :keep], age.clamp(max=horizon - steps)[:, None].expand(-1, keep), steps)
    moves = displacements(interface).to(paths.device)
    executed = torch.from_numpy(late.executed).to(paths.device)
    # P_k = a_0 + … + a_{k−1}
    places = torch.cat((paths.new_zeros(worlds, count, 1, components), paths.cumsum(2)), 2)
    # k* = argmin_k |P_k − E|
    beside = (places[:, :, : horizon - steps + 1] - executed[:, None, None])[..., along].norm(dim=-1)
    distance, begin = beside.min(2)
    nearest = distance.argsort(dim=1, stable=True)[:, :keep]
    rows = torch.arange(worlds, device=paths.device)[:, None]
    places, begin = places[rows, nearest], begin[rows, nearest]
    chunk, goal = _steps(paths[rows, nearest], begin, steps), _steps(places, begin + 1, steps)
    place = executed[:, None].expand(-1, keep, -1)
    for j in range(steps):
        # a_j = clip(P_{k* + j + 1} − X_j),  X_{j+1} = X_j + a_j
        action = torch.where(moves, (goal[:, :, j] - place).clamp(-1.0, 1.0), chunk[:, :, j])
        chunk[:, :, j], place = action, place + action
    return chunk


def _steps(rows: Tensor, begin: Tensor, steps: int) -> Tensor:
    """(N, M, T, Da), (N, M) → (N, M, steps, Da): from `begin` on."""
    index = begin[..., None] + torch.arange(steps, device=rows.device)
    return rows.gather(2, index[..., None].expand(-1, -1, -1, rows.shape[3]))


class Recent:
    """The last d observations and actions of N worlds that get their chunks together, for `Late`.

    Args:
      steps: d [control steps].
      interface: what is kept of observations, and the size of actions.
    """

    def __init__(self, steps: int, interface: Interface) -> None:
        self.steps, self._features, self._size = steps, tuple(interface.observation), interface.action.size
        self.forget()

    def forget(self) -> None:
        """All of it."""
        self._seen: deque[dict[str, NDArray]] = deque(maxlen=self.steps + 1)
        self._done: deque[NDArray[np.float32]] = deque(maxlen=self.steps)
        self._age = np.zeros(0, np.int64)  # (N,) observations of the running episode before the newest one, up to d
        self._fresh = np.zeros(0, np.bool_)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """What was seen before in those worlds (N,) belongs to another episode."""
        self._fresh = worlds.copy() if len(self._fresh) != len(worlds) else self._fresh | worlds

    def see(self, observation: Observation) -> None:
        """The observation of the next control step."""
        seen = {key: np.array(observation[key]) for key in self._features}  # a world may write over its own
        count = len(next(iter(seen.values())))
        self._seen.append(seen)
        if len(self._age) != count:
            self._age, self._fresh = np.zeros(count, np.int64), np.zeros(count, np.bool_)
            return
        fresh = self._fresh if len(self._fresh) == count else np.zeros(count, np.bool_)
        self._age = np.where(fresh, 0, np.minimum(self._age + 1, self.steps))
        self._fresh = np.zeros(count, np.bool_)

    def do(self, chunk: ActionChunk) -> None:
        """The actions (N, k, Da) of the next k control steps."""
        self._done.extend(np.moveaxis(np.clip(chunk, -1.0, 1.0), 1, 0))

    def late(self) -> Late:
        """What a prediction for now knows."""
        worlds = range(len(self._age))
        before = {key: np.stack([self._seen[-1 - self._age[w]][key][w] for w in worlds]) for key in self._features}
        executed = np.zeros((len(self._age), self._size), np.float32)
        for back in range(1, 1 + len(self._done)):
            executed += np.where((self._age >= back)[:, None], self._done[-back], 0.0)
        return Late(before, self._age, executed)
