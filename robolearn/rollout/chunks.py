"""One chunk in every world that takes part: by the world's fast path, or step by step with the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ChunkEnv, Env, Observation

Step = Callable[[int, Observation, NDArray[np.bool_]], None]
"""called before step a of the chunk with (a, observation, the worlds (N,) that will move)"""


@dataclass(frozen=True)
class ChunkOutcome:
    """Result of a chunk in N worlds; rows of worlds that took no part are zero.

    Attributes:
      observation: the present one; of a world whose episode ended, the first of its next.
      rewards: (N, Ta) of each executed step.
      steps: (N,) how many were executed.
      terminated, truncated: (N,) whether the episode ended in it, and how.
      success: (N,) whether a step solved the task; None where the world does not report it.
      final: feature → (N, …), valid where the episode ended; empty where none did.
    """

    observation: Observation
    rewards: NDArray[np.float32]
    steps: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    success: NDArray[np.bool_] | None
    final: Observation


def execute(
    env: Env, chunks: NDArray[np.float32], active: NDArray[np.bool_], observation: Observation, before: Step | None
) -> ChunkOutcome:
    """Execute `chunks` (N, Ta, Da) in the worlds `active` (N,); one that ends rests until the others have finished.
    `before`: to be called before each step, which then are taken one by one."""
    if before is None and isinstance(env, ChunkEnv):
        now, _, terminated, truncated, infos = env.step_chunk(chunks, active)
        success = infos.get("success")
        return ChunkOutcome(
            observation=now,
            rewards=np.asarray(infos["step_rewards"], np.float32),
            steps=np.asarray(infos["steps"], np.int64) * active,
            terminated=active & terminated,
            truncated=active & truncated,
            success=None if success is None else active & success,
            final=infos["final_obs"] if (active & (terminated | truncated)).any() else {},
        )
    return _step_by_step(env, chunks, active, observation, before)


def step_once(env: Env, actions: NDArray[np.float32], observation: Observation) -> ChunkOutcome:
    """One control step (N, Da) in all worlds."""
    return _step_by_step(env, actions[:, None], None, observation, None)


def _step_by_step(
    env: Env,
    chunks: NDArray[np.float32],
    active: NDArray[np.bool_] | None,
    observation: Observation,
    before: Step | None,
) -> ChunkOutcome:
    n, ta = chunks.shape[:2]
    going = np.ones(n, np.bool_) if active is None else active.copy()
    rewards, steps = np.zeros((n, ta), np.float32), np.zeros(n, np.int64)
    terminated, truncated, solved = np.zeros((3, n), np.bool_)
    reported, final = False, {}
    for a in range(ta):
        if before is not None:
            before(a, observation, going)
        steps += going
        # Worlds that must step together cannot rest.
        observation, reward, term, trunc, infos = (
            env.step(chunks[:, a]) if active is None else env.step(chunks[:, a], going)
        )
        rewards[going, a] = reward[going]
        terminated |= going & term
        truncated |= going & trunc
        if "success" in infos:
            reported = True
            solved |= going & infos["success"]
        ended = going & (term | trunc)
        if ended.any():
            for key, value in infos["final_obs"].items():
                final.setdefault(key, np.zeros_like(value))[ended] = value[ended]
            going = going & ~ended
            if not going.any():
                break
    return ChunkOutcome(observation, rewards, steps, terminated, truncated, solved if reported else None, final)
