"""Worlds of which a share of the episodes begins in states taken along demonstrations.

    k = ⌊u T⌋,  u uniform in [low, high)        frame k of the T of a demonstration, drawn by the episode's own seed

After SnapshotRL (Zhao et al., "Snapshot Reinforcement Learning", 2024) and the backward curriculum of Salimans & Chen,
"Learning Montezuma's Revenge from a Single Demonstration" (2018). A state is MuJoCo's, with the set-points and what is
on its way to the motors; friction, mass, delay and all other dynamics are those of the demonstration, looks are the
episode's own. Such an episode has the whole time limit.

No data set stores states. They are made again: a world begins the demonstration by its seed, executes its actions, and
what it shows must be what was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Episode as Recorded
from sim.embedded.dynamics import Episode
from sim.embedded.task import Array, Task
from sim.embedded.world import MujocoWorlds

AGREE = 1e-3  # the most that a component shown again may differ from the recorded one [m, rad]
OWN = (-1, -1, -1)  # in the place of a key: the episode begins at a start of the task's own


@dataclass(frozen=True)
class Snapshots:
    """States of one demonstration before each of its T actions."""

    key: Episode  # that its dynamics are drawn by
    state: Array  # (T, S) MuJoCo's
    motion: Array  # (T, 3, n) set-points of the arm
    arms: Mapping[str, Array]  # name → (T, …) of `ArmDynamics`; empty where they are as modelled

    def __len__(self) -> int:
        return len(self.state)


class SnapshotWorlds(MujocoWorlds):
    """See the module; arguments are those of `MujocoWorlds`. Until `begin_along` no episode begins along a
    demonstration.

    Attributes:
      demonstrations: to begin along.
      ended_along: (N,) the episode that ended last in each world had begun along a demonstration.
    """

    def __init__(self, task: Task, num_envs: int, **options: Any) -> None:
        super().__init__(task, num_envs, **options)
        self.demonstrations: list[Snapshots] = []
        self._share, self._window = 0.0, (0.0, 1.0)
        self._along = np.tile(np.array(OWN), (num_envs, 1))  # keys of the demonstrations that episodes began along
        self.ended_along = np.zeros(num_envs, np.bool_)

    def begin_along(self, share: float, low: float, high: float) -> None:
        """Of the episodes that begin from now on, let a `share` begin between the shares `low` and `high` of a
        demonstration's length."""
        self._share, self._window = share, (low, high)

    def begin_at(self, keys: Sequence[Episode]) -> dict[str, NDArray]:
        """Begin the episodes `keys` (M, M ≤ N) in the first M worlds; returns the observation of all N."""
        self._along[:] = keys[0]
        self._along[: len(keys)] = keys
        super()._begin(self._worlds)
        self._observation = self._look(self._numbers(self._state(), self._seen), self._worlds)
        return self._observation

    def states(self) -> dict[str, Array]:
        """Fields of `Snapshots` → (N, …) as they are now, copied; those of its `arms` by their own names."""
        arms = {} if self.physics.arms is None else {k: v.copy() for k, v in self.physics.arms.state().items()}
        motion = np.stack([self._goal, self._set_q, self._set_v], axis=1)
        return {"state": self.batch.state.copy(), "motion": motion, **arms}

    def _begin(self, ids: NDArray[np.int64]) -> None:
        self.ended_along[ids] = self._along[ids, 0] >= 0
        places = [self._place(int(w)) for w in ids]
        self._along[ids] = [OWN if place is None else place[0].key for place in places]
        super()._begin(ids)
        for w, place in zip(ids, places, strict=True):
            if place is not None:
                self._put(int(w), *place)

    def _place(self, world: int) -> tuple[Snapshots, int] | None:
        """The demonstration and its frame that the next episode of a world begins in; None for a start of its own."""
        rng = np.random.default_rng([self._seed, int(self._ids[world]), int(self._episode[world]) + 1, 2])
        if not rng.random() < self._share:
            return None
        found = self.demonstrations[rng.integers(len(self.demonstrations))]
        return found, int(rng.uniform(*self._window) * len(found))

    def _put(self, world: int, found: Snapshots, frame: int) -> None:
        self.batch.state[world] = found.state[frame]
        self._goal[world], self._set_q[world], self._set_v[world] = found.motion[frame]
        if self.physics.arms is not None:
            for name, value in self.physics.arms.state().items():
                value[world] = found.arms[name][frame]

    def _keys(self, worlds: NDArray[np.int64]) -> list[Episode]:
        along = self._along[worlds]
        keys = np.where(along[:, :1] >= 0, along, np.array(super()._keys(worlds)))
        return [(int(seed), int(start_id), int(number)) for seed, start_id, number in keys]

    def snapshot(self) -> dict[str, NDArray]:
        """See `MujocoWorlds.snapshot`."""
        return super().snapshot() | {"along": self._along.copy()}

    def restore(self, snapshot: dict[str, NDArray]) -> dict[str, NDArray]:
        """See `MujocoWorlds.restore`."""
        self._along[:] = snapshot["along"]
        return super().restore(snapshot)


def retrace(
    env: SnapshotWorlds, keys: Sequence[Episode], episodes: Sequence[Recorded]
) -> tuple[list[Snapshots], list[str]]:
    """States along `episodes`, executed again in `env`.

    Args:
      env: N worlds like those that the episodes were recorded in.
      keys: the episodes that may be among them.
      episodes: found among `keys` by their first observations.

    Returns:
      Those that came out as they were recorded, solved; and for each other one the difference, in words.
    """
    seen = [key for key, spec in env.interface.observation.items() if spec.dtype == "float32"]
    firsts = _first_observations(env, keys, seen)
    states, differences = [], []
    matched: list[tuple[Episode, Recorded]] = []
    for i, episode in enumerate(episodes):
        own = np.concatenate([np.ravel(episode.observation[key][0]) for key in seen])
        distance = np.abs(firsts - own).max(1)
        nearest = int(distance.argmin())
        if distance[nearest] > AGREE:
            differences.append(f"demonstration {i} begins at no start of its seed")
        else:
            matched.append((keys[nearest], episode))
    for at in range(0, len(matched), env.num_envs):
        found, apart = _executed(env, matched[at : at + env.num_envs], seen)
        states += found
        differences += apart
    return states, differences


def _first_observations(env: SnapshotWorlds, keys: Sequence[Episode], seen: Sequence[str]) -> NDArray:
    """(len(keys), D) vectors side by side."""
    rows = []
    for at in range(0, len(keys), env.num_envs):
        part = keys[at : at + env.num_envs]
        observation = env.begin_at(part)
        rows.append(np.concatenate([observation[key][: len(part)].reshape(len(part), -1) for key in seen], axis=1))
    return np.concatenate(rows)


def _executed(
    env: SnapshotWorlds, matched: Sequence[tuple[Episode, Recorded]], seen: Sequence[str]
) -> tuple[list[Snapshots], list[str]]:
    """As `retrace`, of at most N episodes with their keys."""
    lengths = np.zeros(env.num_envs, np.int64)
    lengths[: len(matched)] = [len(episode) for _, episode in matched]
    observation, solved = env.begin_at([key for key, _ in matched]), np.zeros(env.num_envs, np.bool_)
    before: list[dict[str, Array]] = []
    apart: dict[int, str] = {}
    for t in range(int(lengths.max())):
        going = t < lengths
        actions = np.zeros((env.num_envs, env.interface.action.size), np.float32)
        for w, (_, recorded) in enumerate(matched):
            if not going[w]:
                continue
            actions[w] = recorded.action[t]
            for key in seen:
                difference = float(np.abs(observation[key][w] - recorded.observation[key][t]).max())
                if difference > AGREE:
                    apart.setdefault(w, f"{key} is {difference:.3g} away at frame {t}")
        before.append(env.states())
        observation, _, _, _, infos = env.step(actions, going)
        solved |= going & (t + 1 == lengths) & infos["success"]
    states = []
    for w, (key, _) in enumerate(matched):
        if not solved[w]:
            apart.setdefault(w, "it is not solved again")
        if w not in apart:
            rows = {name: np.stack([one[name][w] for one in before[: lengths[w]]]) for name in before[0]}
            states.append(Snapshots(key, rows.pop("state"), rows.pop("motion"), rows))
    return states, list(apart.values())
