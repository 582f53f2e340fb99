"""MetaWorld's 50 tasks by EnvPool, many worlds a call: ``envpool:<task>``, such as ``envpool:peg-insert-side-v3``.

Weng et al., "EnvPool", arXiv 2206.10558; package envpool 1.2.7, with a MuJoCo of its own. Observation, action, success
and limit are those of ``metaworld:<task>``, whose scripts demonstrate here, too; the goal is seen, which EnvPool hides
by default. Starts are drawn by EnvPool's generators: those of a seed are not those of ``metaworld:``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from envpool.registration import make_gymnasium
from metaworld.policies import ENV_POLICY_MAP
from numpy.typing import NDArray

from .errors import BadInput
from .facts import Facts, WorldArrays
from .metaworld import facts, features, names
from .world import start_seed

HZ, LIMIT = 80.0, 500  # control steps a second, and of an episode: MetaWorld's


def build(task: str, cameras: Sequence[str] = (), image_size: int = 84) -> EnvpoolTask:
    """The worlds of ``envpool:<task>``."""
    name = task.partition(":")[2]
    if name not in ENV_POLICY_MAP:
        raise BadInput("envpool task", got=name, available=names())
    if cameras:
        raise BadInput(f"cameras of {task}", got=", ".join(cameras), expected=f"none: metaworld:{name} has pictures")
    return EnvpoolTask(name, task)


class EnvpoolTask:
    """A task of which all worlds of a process are made together."""

    def __init__(self, name: str, task: str) -> None:
        self.facts: Facts = facts(name, task, HZ, LIMIT, {})
        self._name = name

    def together(self, count: int, first: int) -> EnvpoolWorlds:
        """`count` worlds, the first of which has the number `first` among all."""
        return EnvpoolWorlds(self._name, count, first)


class EnvpoolWorlds:
    """See `worlds.Worlds`. A success ends an episode, as everywhere here; EnvPool would go on."""

    def __init__(self, name: str, count: int, first: int) -> None:
        words, version = name.rsplit("-", 1)
        self._id = f"MetaWorld/{''.join(word.capitalize() for word in words.split('-'))}-{version}"
        self._first, self._pool = first, None
        self._raw = np.zeros((count, 39))
        self._experts = [ENV_POLICY_MAP[name]() for _ in range(count)]
        self.notes: list[tuple[int, str]] = []

    def reset(self, block: WorldArrays, *, begin: bool) -> None:
        """Next episodes of the active worlds; of all, from the starts in `block`, where `begin`."""
        rows = np.flatnonzero(block.active)
        if begin:
            seeds = [start_seed(int(seed), int(start), 0) for seed, start, _ in block.starts]
            self.close()
            self._pool = self._make(seeds)
            for number in range(int(block.starts[:, 2].max())):  # a start is what is drawn after those before it
                self._restart(np.flatnonzero(block.starts[:, 2] > number))
        self._restart(rows)
        self._show(block, rows)
        block.progress[rows] += 1

    def chunk(self, block: WorldArrays, steps: int) -> None:
        """Execute `steps` actions in the active worlds."""
        rows = alive = np.flatnonzero(block.active)
        block.busy[rows] = True
        for outcome in (block.steps, block.terminated, block.truncated, block.success):
            outcome[rows] = 0
        for t in range(steps):
            if not alive.size:
                break
            raw, _, _, late, info = self._step(block.actions[alive, t], alive)
            sound = np.isfinite(raw).all(axis=1)
            solved = np.asarray(info["success"]).astype(bool) & sound
            self._raw[alive[sound]] = raw[sound]
            block.rewards[alive, t] = solved
            block.steps[alive] += 1
            block.success[alive] |= solved
            block.terminated[alive] = solved
            block.truncated[alive] = (late & ~solved) | ~sound
            for world in alive[~sound].tolist():
                self.notes.append((self._first + world, "non-finite observation: episode truncated, world reset"))
            alive = alive[~block.ended[alive]]
        over = rows[block.ended[rows]]
        for key, value in features(self._raw[over]).items():
            block.final[key][over] = value
        if over.size:
            self._restart(over)
        self._show(block, rows)
        block.busy[rows] = False
        block.progress[rows] += 1

    def demonstrate(self, block: WorldArrays) -> None:
        """The scripts' actions of the active worlds, into ``block.actions[:, 0]``."""
        for i in np.flatnonzero(block.active).tolist():
            action = np.asarray(self._experts[i].get_action(self._raw[i]), np.float32)
            block.actions[i, 0] = np.clip(action, -1.0, 1.0)
            block.progress[i] += 1

    def frame(self, world: int) -> NDArray[np.uint8] | None:
        """No picture: EnvPool draws none."""
        return None

    def close(self) -> None:
        """End the threads."""
        self._pool = None

    def _make(self, seeds: list[int]) -> Any:
        return make_gymnasium(
            self._id,
            num_envs=len(seeds),
            env_seed=seeds,
            num_threads=1,  # the bridge has a process for each core
            max_episode_steps=LIMIT,
            partially_observable=False,
        )

    def _step(self, actions: NDArray[np.float32], rows: NDArray[np.intp]) -> tuple[Any, ...]:
        assert self._pool is not None
        outcome = self._pool.step(np.ascontiguousarray(actions), rows.astype(np.int32))
        assert (outcome[4]["env_id"] == rows).all()
        return outcome

    def _restart(self, rows: NDArray[np.intp]) -> None:
        assert self._pool is not None
        self._raw[rows] = self._pool.reset(rows.astype(np.int32))[0]

    def _show(self, block: WorldArrays, rows: NDArray[np.intp]) -> None:
        for key, value in features(self._raw[rows]).items():
            block.observation[key][rows] = value
