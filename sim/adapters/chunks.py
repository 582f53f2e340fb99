"""A chunk of actions as one action, for one env.

A vector env in processes that steps once per action pays one message per action. With the chunk as the action it
pays one message per chunk, and what is left of a chunk when an episode ends is dropped where it cannot reach the
next episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput

SUCCESS_KEYS = ("success", "is_success")


class ChunkWrapper(gymnasium.Wrapper):
    """Executes an action chunk (Ta, Da) action by action and stops where the episode ends.

    Args:
      env: an env with a Box action space of shape (Da,).
      execute_steps: Ta of the announced action space; `step` takes a chunk of any length ≥ 1.

    `step` returns the last observation, the sum of rewards, and an info with ``step_rewards`` (of each executed action)
    and ``success`` beside the entries of the last step. Success is whether any executed step had a true
    ``info["success"]`` or ``info["is_success"]``, and None where no executed step had either key: a reward says
    nothing about it, because a fall, too, may end an episode with a positive reward.
    """

    def __init__(self, env: gymnasium.Env, execute_steps: int = 1) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise BadInput("action space", got=space, expected="a Box of shape (Da,)")
        low, high = (np.broadcast_to(bound, (execute_steps, *space.shape)) for bound in (space.low, space.high))
        self.action_space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As in Gymnasium."""
        return self.env.reset(seed=seed, options=options)

    def step(self, action: NDArray[np.float32]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Execute the chunk `action` (Ta, Da)."""
        if action.ndim != 2 or len(action) == 0:
            raise BadInput("action chunk", got=f"shape {action.shape}", expected="(Ta, Da) with Ta >= 1")
        rewards: list[float] = []
        success: bool | None = None
        observation, terminated, truncated, info = None, False, False, {}
        for one in action:
            observation, reward, terminated, truncated, info = self.env.step(one)
            rewards.append(float(reward))
            reported = reported_success(info)
            success = reported if success is None else success or bool(reported)
            if terminated or truncated:
                break
        info = {**info, "step_rewards": tuple(rewards), "success": success}
        return observation, sum(rewards), bool(terminated), bool(truncated), info


def reported_success(info: Mapping[str, Any]) -> bool | None:
    """Success according to an env's `info`, or None where it holds no such key."""
    values = [info[key] for key in SUCCESS_KEYS if key in info]
    return any(bool(np.any(value)) for value in values) if values else None
