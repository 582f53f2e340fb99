"""Common to all vector envs: Gymnasium's spaces, and options ``start_ids`` and ``episodes`` of `reset`.

The j-th episode of a world depends on (seed, start id, j) alone: equal ids give equal starts in any world. By default
the id of world w is w. A group of worlds with one id meets the same sequence of episodes, so that returns within the
group differ by the actions alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface, NonFinite, check_choice


def episode_rng(seed: int, start_id: int, episode: int) -> np.random.Generator:
    """The generator of all that is drawn for the `episode`-th episode of a start id, counted from 0."""
    return np.random.default_rng([seed, start_id, episode])


RESET_OPTIONS = ("start_ids", "episodes")
SNAPSHOT_AXES: Mapping[str, int | None] = {"seed": None, "motion": 1}
"""Axis of the worlds in what a snapshot holds, where it is not the first; None: there is none."""


def first_starts(
    options: Mapping[str, Any] | None, num_envs: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Start ids (N,) in `options`, or None where there are none, and the number (N,) of the episode that each world
    begins with, by default 0. Raises `BadInput`: another option, episodes without ids, or what is not `num_envs`
    integers from 0 on."""
    options = options or {}
    found: dict[str, NDArray[np.int64]] = {}
    for name in options:
        check_choice("option of reset", name, RESET_OPTIONS)
        numbers = np.asarray(options[name])
        if numbers.shape != (num_envs,) or not np.issubdtype(numbers.dtype, np.integer) or (numbers < 0).any():
            raise BadInput(name, got=numbers.tolist(), expected=f"{num_envs} integers from 0 on")
        found[name] = numbers.astype(np.int64)
    if "episodes" in found and "start_ids" not in found:
        raise BadInput("option of reset", got="episodes alone", expected="start_ids with them")
    return found.get("start_ids"), found.get("episodes", np.zeros(num_envs, np.int64))


def checked_chunks(
    chunks: NDArray[np.float32], num_envs: int, size: int, active: NDArray[np.bool_] | None
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """`chunks` (N, Ta, Da) as float32, and the worlds (N,) that they are for. Raises `BadInput`: another shape, or
    `NonFinite`: an action of one of these worlds."""
    chunks = np.ascontiguousarray(chunks, np.float32)
    if chunks.ndim != 3 or chunks.shape[0] != num_envs or chunks.shape[1] == 0 or chunks.shape[2] != size:
        raise BadInput("action chunks", got=f"shape {chunks.shape}", expected=f"({num_envs}, Ta, {size})")
    live = np.ones(num_envs, np.bool_) if active is None else np.asarray(active, np.bool_)
    if not np.isfinite(chunks).all() and (bad := live & ~np.isfinite(chunks).all((1, 2))).any():
        raise NonFinite(f"action of world {int(bad.argmax())} is not finite")
    return chunks, live


def feature_space(spec: ArraySpec) -> gymnasium.spaces.Box:
    """The Gymnasium space of one feature."""
    if spec.dtype == "uint8":
        return gymnasium.spaces.Box(0, 255, spec.shape, np.uint8)
    return gymnasium.spaces.Box(-np.inf, np.inf, spec.shape, np.float32)


def declare(env: VectorEnv, interface: Interface) -> None:
    """Set Gymnasium's metadata and spaces of `env`: SAME_STEP autoreset, the features, actions in [-1, 1]."""
    env.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_fps": interface.control_hz}
    spaces: dict[str, gymnasium.Space] = {key: feature_space(spec) for key, spec in interface.observation.items()}
    env.single_observation_space = gymnasium.spaces.Dict(spaces)
    env.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, interface.action.shape, np.float32)
    env.observation_space = batch_space(env.single_observation_space, env.num_envs)
    env.action_space = batch_space(env.single_action_space, env.num_envs)
