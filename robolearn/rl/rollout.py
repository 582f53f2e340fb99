"""Collection: T decisions in N worlds, with everything that PPO needs and nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robolearn.core import Env, Observation


@dataclass(frozen=True)
class Rollout:
    """T decisions (action chunks) in N worlds; T and N are flattened into B = T·N where noted.

    Attributes:
      observation: features (T·N, …) as the worlds give them: images stay uint8 until a minibatch needs them.
      next_observation: features (T·N, …) after each chunk; the *final* one where an episode ended.
      left, next_left: (T·N,) share of the time limit that is left at either; 0 after an episode that ran its time.
      chain: (T·N, K + 1, D).
      reward: (T, N) scaled.
      terminated, ended: (T, N) bool; ended = terminated or truncated.
      success: successes and episodes that ended during the rollout, for the learning curve.
      env_steps: control steps executed.
      simulation_s: seconds spent in the worlds.
    """

    observation: dict[str, Tensor]
    next_observation: dict[str, Tensor]
    left: Tensor
    next_left: Tensor
    chain: Tensor
    reward: Tensor
    terminated: Tensor
    ended: Tensor
    success: int
    episodes: int
    env_steps: int
    simulation_s: float


class Running:
    """The running episodes of N worlds: what lies behind each of them.

    Attributes:
      elapsed: (N,) int64 control steps.
      solved: (N,) bool; a world may say so long before the episode ends.
    """

    def __init__(self, num_envs: int) -> None:
        self.elapsed = np.zeros(num_envs, dtype=np.int64)
        self.solved = np.zeros(num_envs, dtype=bool)

    def begin(self, which: NDArray[np.bool_] | slice = slice(None)) -> None:
        """New episodes in the worlds `which`."""
        self.elapsed[which] = 0
        self.solved[which] = False


Sampler = Callable[[dict[str, Tensor]], Tensor]
"""Observation (N, …) → (N, K + 1, D) chains."""


def collect(
    env: Env,
    observation: Observation,
    running: Running,
    *,
    decisions: int,
    execute: int,
    chunk_shape: tuple[int, int],
    sampler: Sampler,
    to_tensors: Callable[[Observation], dict[str, Tensor]],
    to_action: Callable[[Tensor], NDArray[np.float32]],
    scale: Callable[[NDArray[np.float32], NDArray[np.bool_]], NDArray[np.float32]],
) -> tuple[Rollout, Observation]:
    """Run the sampler for `decisions` chunks of `execute` steps in every world.

    Args:
      env: the worlds; they go on where they are.
      observation: the present observation.
      running: what lies behind the present episodes; brought up to date in place.
      decisions: T.
      execute: Ta.
      chunk_shape: (Tp, Da).
      sampler: draws chains.
      to_tensors: copies the features that the policy needs.
      to_action: (N, Tp, Da) normalised chunk → actions in [-1, 1].
      scale: rewards → scaled rewards.

    Returns:
      The rollout and the observation after it.
    """
    features, next_features, chains, rewards, terminations, ends = [], [], [], [], [], []
    left, next_left = [], []
    success = episodes = env_steps = 0
    simulation_s = 0.0
    feature = to_tensors(observation)
    for _ in range(decisions):
        chain = sampler(feature)
        chunk = to_action(chain[:, -1].reshape(env.num_envs, *chunk_shape).clamp(-1, 1))
        asked = time.perf_counter()
        observation, reward, terminated, truncated, infos = env.step_chunk(chunk[:, :execute])
        simulation_s += time.perf_counter() - asked
        ended = terminated | truncated
        left.append(_left(running.elapsed, env.max_episode_steps))
        running.elapsed += infos["steps"]
        running.solved |= infos["success"]
        next_left.append(_left(running.elapsed, env.max_episode_steps))
        success += int((running.solved & ended).sum())
        running.begin(ended)
        features.append(feature)
        feature = to_tensors(observation)
        after = feature
        if ended.any():
            final = to_tensors(infos["final_obs"])
            mask = torch.from_numpy(ended)
            after = {
                key: torch.where(mask.reshape(-1, *[1] * (value.dim() - 1)), final[key], value)
                for key, value in feature.items()
            }
        next_features.append(after)
        chains.append(chain)
        rewards.append(torch.from_numpy(scale(reward, ended)))
        terminations.append(torch.from_numpy(terminated.copy()))
        ends.append(torch.from_numpy(ended))
        episodes += int(ended.sum())
        env_steps += int(infos["steps"].sum())
    rollout = Rollout(
        observation={key: torch.cat([f[key] for f in features]) for key in feature},
        next_observation={key: torch.cat([f[key] for f in next_features]) for key in feature},
        left=torch.cat(left),
        next_left=torch.cat(next_left),
        chain=torch.cat(chains),
        reward=torch.stack(rewards),
        terminated=torch.stack(terminations),
        ended=torch.stack(ends),
        success=success,
        episodes=episodes,
        env_steps=env_steps,
        simulation_s=simulation_s,
    )
    return rollout, observation


def _left(elapsed: NDArray[np.int64], limit: int) -> Tensor:
    """(N,) share of the time limit that is left."""
    return torch.from_numpy(np.maximum(1.0 - elapsed / limit, 0.0).astype(np.float32))
