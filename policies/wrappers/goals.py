"""Sources of a policy's goals, and the goal of each episode: a new one whenever an episode begins.

nearest    g = end of demonstration argmin_i Σ_f mean_d ((o_0 − s_i) / std(s))²     s_i: its first observation
drawn      i ~ U{1 … G}, by (seed, world, episode)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface, Observation, check_choice
from robolearn.core.specs import GOAL, is_goal, is_image, of_goal
from robolearn.io.atomic import write_bytes

if TYPE_CHECKING:
    from robolearn.data.reading.reader import Dataset

GoalChoice = Literal["nearest", "drawn"]
SUFFIX = ".safetensors"  # of a file of `save_goals`
FLOOR = 1e-3  # of the deviation of a start's component, which may be constant


class Goals(Protocol):
    """A source of goals."""

    def pick(
        self, seed: int, worlds: NDArray[np.int64], episodes: NDArray[np.int64], observation: Observation
    ) -> dict[str, NDArray]:
        """``goal.…`` → (M, …) for the `episodes` (M,), from 0, of the `worlds` (M,). `seed`: of the policy's noise.
        `observation`: the first of those episodes, of M worlds."""
        ...


@dataclass(frozen=True, eq=False)
class StoredGoals:
    """Of G demonstrations."""

    starts: Mapping[str, NDArray]  # feature → (G, D), vectors of the first observations
    ends: Mapping[str, NDArray]  # goal → (G, …), of the last ones
    choice: GoalChoice = "nearest"

    def pick(
        self, seed: int, worlds: NDArray[np.int64], episodes: NDArray[np.int64], observation: Observation
    ) -> dict[str, NDArray]:
        if self.choice == "nearest":
            chosen = self._distances(observation).argmin(1)
        else:
            count = len(next(iter(self.ends.values())))
            chosen = np.array(
                [
                    np.random.default_rng([seed, int(world), int(episode), 0x60A1]).integers(count)
                    for world, episode in zip(worlds, episodes, strict=True)
                ],
                np.int64,
            )
        return {key: value[chosen] for key, value in self.ends.items()}

    def _distances(self, observation: Observation) -> NDArray[np.float64]:
        """(M, G)."""
        shared = [key for key in sorted(self.starts) if key in observation]
        if not shared:
            raise BadInput(
                "--goals: nearest start", got="no common feature", expected="a feature", available=self.starts
            )
        total = np.zeros((len(observation[shared[0]]), len(self.starts[shared[0]])))
        for key in shared:
            starts, seen = self.starts[key].astype(np.float64), np.asarray(observation[key], np.float64)
            if seen.shape[1:] != starts.shape[1:]:
                raise BadInput(f"--goals: {key}", got=starts.shape[1:], expected=seen.shape[1:])
            scale = np.maximum(starts.std(0), FLOOR)
            total += np.square((seen[:, None] - starts) / scale).mean(2)
        return total


@dataclass(frozen=True, eq=False)
class EpisodeGoals:
    """A goal for each episode by itself, e.g. the end of a demonstration from the same start."""

    ends: Mapping[str, NDArray]  # goal → (N, J, …), of the first J episodes of N worlds; later ones have the last

    def pick(
        self, seed: int, worlds: NDArray[np.int64], episodes: NDArray[np.int64], observation: Observation
    ) -> dict[str, NDArray]:
        return {key: value[worlds, np.minimum(episodes, value.shape[1] - 1)] for key, value in self.ends.items()}


def save_goals(goals: EpisodeGoals, file: Path) -> None:
    """Write `goals` for a process that acts elsewhere."""
    from safetensors.numpy import save

    write_bytes(file, save({key: np.ascontiguousarray(value) for key, value in goals.ends.items()}))


def load_goals(file: Path, interface: Interface) -> EpisodeGoals:
    """The goals that `save_goals` wrote for a policy with this `interface`; raises `BadInput` for anything else."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        ends = load(file.read_bytes())
    except (OSError, SafetensorError) as error:
        raise BadInput(f"--goals {file}", got=f"unreadable ({error})", expected="goals of episodes") from error
    found = {key: (value.shape[2:], str(value.dtype)) for key, value in ends.items() if value.ndim >= 2 and value.size}
    wanted = {key: (tuple(s.shape), s.dtype) for key in goals_of(interface) for s in (interface.observation[key],)}
    if found != wanted:
        raise BadInput(f"--goals {file}", got=found, expected=wanted)
    return EpisodeGoals(ends)


class RunningGoals:
    """The goals of the running episodes of N worlds."""

    def __init__(self, goals: Goals) -> None:
        self._goals = goals
        self.reset(0)

    def reset(self, seed: int) -> None:
        """All worlds begin their first episodes."""
        self._seed = abs(int(seed))
        self._current: dict[str, NDArray] = {}
        self._episode, self._fresh = np.zeros(0, np.int64), np.zeros(0, np.bool_)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """New episodes begin in the worlds (N,) that are true."""
        if len(self._fresh) == len(worlds):
            self._fresh |= worlds

    def current(self, observation: Observation) -> dict[str, NDArray]:
        """``goal.…`` → (N, …), for the N worlds of `observation`."""
        count = len(next(iter(observation.values())))
        if len(self._fresh) != count:
            self._episode, self._fresh = np.zeros(count, np.int64), np.ones(count, np.bool_)
            self._current = {}
        rows = np.flatnonzero(self._fresh)
        if len(rows):
            first = {key: np.asarray(value)[rows] for key, value in observation.items()}
            for key, value in self._goals.pick(self._seed, rows, self._episode[rows], first).items():
                if key not in self._current:
                    self._current[key] = np.zeros((count, *value.shape[1:]), value.dtype)
                self._current[key][rows] = value
            self._episode[rows] += 1
            self._fresh[rows] = False
        return self._current


def goals_of(interface: Interface) -> tuple[str, ...]:
    """The goals that a policy with this interface takes."""
    return tuple(key for key in interface.observation if is_goal(key))


def stored_goals(
    path: str | os.PathLike[str], interface: Interface, choice: str = "nearest", *, what: str = "--goals"
) -> StoredGoals | EpisodeGoals:
    """The ends of the successful demonstrations in the data set at `path`, as `interface`, a policy's, takes goals; in
    the place of a data set, a file of `save_goals`. Raises `BadInput`: no such choice or set, one without successes, or
    without a feature that is to be a goal."""
    check_choice("--goal-choice", choice, GoalChoice)
    if os.fspath(path).endswith(SUFFIX):
        return load_goals(Path(path), interface)
    from robolearn.data.reading.reader import Dataset

    wanted = goals_of(interface)
    dataset = Dataset.open(os.fspath(path), images=any(is_image(interface.observation[key]) for key in wanted),
                           cache=False)  # fmt: skip
    good = np.flatnonzero(dataset.success)
    if not len(good):
        raise BadInput(f"{what} {path}", got="no successful demonstration", expected="at least one")
    first, last = dataset.starts[good], (dataset.starts + dataset.lengths - 1)[good]
    ends = {key: _frames(dataset, key, last, interface, f"{what} {path}") for key in wanted}
    starts = {key: array[first] for key, array in dataset.observation.items()}
    return StoredGoals(starts, ends, choice)  # type: ignore[arg-type]


def check_goals(interface: Interface, offered: Interface, *, what: str) -> None:
    """Raise `BadInput` unless what `offered` shows can be a goal of a policy with this `interface`."""
    for key in goals_of(interface):
        source, spec = of_goal(key), interface.observation[key]
        if source not in offered.observation:
            raise BadInput(f"{what}: goal", got=f"no {source!r}", expected=source, available=offered.observation)
        found = offered.observation[source]
        if found.shape != spec.shape or (found.names and spec.names and found.names != spec.names):
            got, expected = (", ".join(s.names) or str(s.shape) for s in (found, spec))
            raise BadInput(f"{what}: goal {source!r}", got=got, expected=expected)


def _frames(dataset: Dataset, key: str, rows: NDArray[np.int64], interface: Interface, what: str) -> NDArray:
    check_goals(interface, dataset.interface, what=what)
    source = key.removeprefix(GOAL)
    if is_image(interface.observation[key]):
        return np.asarray(dataset.images(source)[rows])
    return dataset.observation[source][rows].astype(np.float32)
