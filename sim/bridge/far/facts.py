"""Facts of one adapted env, and the arrays in which N of them say what they do.

Facts cross the process boundary as JSON, so that nothing is pickled; the arrays are memory that both sides see.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

Features = dict[str, NDArray]
"""Feature name → array of one world, without the world axis."""


class Spec(NamedTuple):
    """Shape, dtype and component names of one feature: what `robolearn.core.ArraySpec` is made of."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Properties of the env that a vector env repeats N times."""

    observation: dict[str, Spec]  # feature → spec
    action: int  # components of an action
    control_hz: float
    task: str  # the name for ``--task``
    prompt: str  # the task in words
    max_episode_steps: int  # after so many steps an episode is truncated; 0 where that is unknown
    embodiment: str = "none"
    reports_success: bool = False  # every step's info holds ``"success"``
    continuing: bool = False  # episodes end by the time limit alone, never by `terminated`
    demonstrates: bool = False  # it has an expert of its own: `AdapterEnv.demonstrate`
    notes: tuple[str, ...] = ()  # what the env does not say and was assumed, or what is changed
    says: tuple[str, ...] = ()  # units, frames, success: what a maker's own page would say

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Facts:
        """The inverse of `to_json`."""
        data = json.loads(text)
        specs = {key: Spec(tuple(s[0]), s[1], tuple(s[2])) for key, s in data["observation"].items()}
        return Facts(**{**data, "observation": specs, "notes": tuple(data["notes"]), "says": tuple(data["says"])})


class AdapterEnv(gymnasium.Env):
    """A single env whose observations are features and whose actions lie in [-1, 1].

    Adapters to a foreign library derive from this. `step` reports ``info["success"]`` where the task defines a
    success; `render` returns an HWC uint8 picture or None; `reset` with a seed determines the start completely.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (facts.action,), np.float32)

    def demonstrate(self) -> NDArray[np.float32]:
        """The action (Da,) of the world's own expert, where `facts.demonstrates`."""
        raise NotImplementedError


@dataclass
class WorldArrays:
    """Requests to N worlds and their answers, arrays over worlds. `final` is valid where a chunk has `ended`."""

    starts: NDArray[np.uint64]  # (N, 3) seed, start id, number of the first episode
    active: NDArray[np.bool_]  # (N,)
    actions: NDArray[np.float32]  # (N, Ta, Da); an expert's action comes back in [:, 0]
    rewards: NDArray[np.float64]  # (N, Ta), of each executed step
    steps: NDArray[np.int64]  # (N,) executed steps
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    success: NDArray[np.int8]  # -1: not reported
    busy: NDArray[np.bool_]  # the world that is at work
    progress: NDArray[np.int64]  # (N,) counts what was asked of a world and done
    observation: dict[str, NDArray] = field(default_factory=dict)  # feature → (N, …)
    final: dict[str, NDArray] = field(default_factory=dict)

    @staticmethod
    def make(facts: Facts, num_envs: int, steps: int, memory: Any = None) -> WorldArrays:
        """For `num_envs` worlds and chunks of at most `steps` actions, in `memory` or in memory of its own."""
        if memory is None:
            memory = bytearray(WorldArrays.bytes_of(facts, num_envs, steps))
        arrays: dict[str, NDArray] = {}
        offset = 0
        for name, (shape, dtype) in _arrays(facts, num_envs, steps).items():
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(memory, dtype, count, offset).reshape(shape)
            offset += _aligned(arrays[name].nbytes)
        found: dict[str, Any] = {f.name: arrays[f.name] for f in fields(WorldArrays) if f.name in arrays}
        for kind in ("observation", "final"):
            found[kind] = {key: arrays[f"{kind} {key}"] for key in facts.observation}
        return WorldArrays(**found)

    @staticmethod
    def bytes_of(facts: Facts, num_envs: int, steps: int) -> int:
        """Size of the memory that `make` needs."""
        arrays = _arrays(facts, num_envs, steps).values()
        return sum(_aligned(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize) for shape, dtype in arrays)

    def part(self, first: int, count: int) -> WorldArrays:
        """The rows of `count` worlds from `first` on, of the same memory."""
        rows = slice(first, first + count)
        cut: dict[str, Any] = {}
        for f in fields(WorldArrays):
            value = getattr(self, f.name)
            cut[f.name] = {k: v[rows] for k, v in value.items()} if isinstance(value, dict) else value[rows]
        return replace(self, **cut)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """(N,) where an episode ended in the chunk."""
        return self.terminated | self.truncated


def _arrays(facts: Facts, n: int, steps: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name → (shape, dtype) of each array, in the order of the memory."""
    flags = dict.fromkeys(("active", "terminated", "truncated", "busy"), ((n,), "bool"))
    found = {
        "starts": ((n, 3), "uint64"),
        "actions": ((n, steps, facts.action), "float32"),
        "rewards": ((n, steps), "float64"),
        "steps": ((n,), "int64"),
        "progress": ((n,), "int64"),
        "success": ((n,), "int8"),
        **flags,
    }
    for kind in ("observation", "final"):
        found.update({f"{kind} {key}": ((n, *spec.shape), spec.dtype) for key, spec in facts.observation.items()})
    return found


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64
