"""A world of your own, as an example: a point that must go round a disc to a goal.

Nothing here knows of robolearn except `demonstrate`, which returns its `Episode`. Importing this file registers
``Reach2D-v0``, so ``--task gym:reach2d:Reach2D-v0`` finds it from the folder that holds the file.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robolearn.core import Episode

DT = 0.05  # [s]
MAX_SPEED = 1.0  # [m/s]
LAG = 0.5  # share of a commanded change of velocity that takes effect within a step
DISC_RADIUS = 0.3  # [m]
GOAL_RADIUS = 0.06  # [m]


class Reach2D(gymnasium.Env):
    """Action: velocity (2,) in units of `MAX_SPEED`. Observation (8,): position, velocity, goal, disc.

    The start lies below the disc, the goal above. Reaching the goal terminates with reward 1, touching the disc or
    leaving the square [-1, 1]² terminates with reward 0; the clock truncates after 60 steps.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 20}
    prompt = "go round the disc to the goal"

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (8,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray, dict]:
        """Start below, goal above, the disc between them."""
        super().reset(seed=seed)
        self.position = self.np_random.uniform([-0.3, -0.9], [0.3, -0.7])
        self.velocity = np.zeros(2)
        self.goal = self.np_random.uniform([-0.3, 0.6], [0.3, 0.8])
        self.disc = self.np_random.uniform([-0.1, -0.1], [0.1, 0.1])
        return self._observe(), {"success": False}

    def step(self, action: NDArray) -> tuple[NDArray, float, bool, bool, dict]:
        """v ← v + LAG (MAX_SPEED a − v),  p ← p + DT v."""
        command = MAX_SPEED * np.clip(np.asarray(action, float), -1.0, 1.0)
        self.velocity = self.velocity + LAG * (command - self.velocity)
        self.position = self.position + DT * self.velocity
        success = bool(np.linalg.norm(self.position - self.goal) < GOAL_RADIUS)
        crashed = bool(np.linalg.norm(self.position - self.disc) < DISC_RADIUS or np.abs(self.position).max() > 1.0)
        return self._observe(), float(success), success or crashed, False, {"success": success}

    def _observe(self) -> NDArray[np.float32]:
        return np.concatenate([self.position, self.velocity, self.goal, self.disc]).astype(np.float32)

    def render(self, size: int = 128) -> NDArray[np.uint8]:
        """An HWC picture: disc grey, goal green, point blue."""
        picture = np.full((size, size, 3), 245, np.uint8)
        axis = np.linspace(-1.0, 1.0, size)
        pixels = np.stack(np.meshgrid(axis, -axis), axis=-1)
        for centre, radius, colour in (
            (self.disc, DISC_RADIUS, (120, 120, 120)),
            (self.goal, GOAL_RADIUS, (40, 160, 60)),
            (self.position, 0.03, (30, 80, 200)),
        ):
            picture[np.linalg.norm(pixels - centre, axis=-1) < radius] = colour
        return picture


def demonstrate(env: gymnasium.Env, rng: np.random.Generator) -> Episode:
    """One episode by a hurried demonstrator: left or right at random, sometimes too close, sometimes too slow.

    Args:
      env: a single ``Reach2D-v0`` env.
      rng: decides the start and the demonstrator's whims.

    Returns:
      The episode; about half of them succeed.
    """
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    side = rng.choice([-1.0, 1.0])
    clearance = max(rng.normal(0.11, 0.06), 0.02)  # [m]
    pace = rng.uniform(0.75, 1.0)
    misjudged = rng.normal(0.0, 0.045, 2)  # [m], the goal as the demonstrator sees it
    jitter = np.zeros(2)
    passed = False
    observations, actions, rewards = [], [], []
    terminated = truncated = success = False
    while not (terminated or truncated):
        position, goal, disc = observation[0:2], observation[4:6] + misjudged, observation[6:8]
        beside = disc + np.array([side * (DISC_RADIUS + clearance), 0.0])
        passed = passed or bool(position[1] > beside[1] - 0.02)
        way = (goal if passed else beside) - position
        distance = float(np.linalg.norm(way))
        jitter = 0.8 * jitter + 0.15 * rng.standard_normal(2)
        speed = pace * min(1.0, distance / 0.1) if passed else pace
        action = np.clip(speed * way / max(distance, 1e-6) + jitter, -1.0, 1.0).astype(np.float32)
        observations.append(observation)
        actions.append(action)
        observation, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        success = success or bool(info["success"])
    return Episode(
        observation={"proprio": np.stack(observations)},
        action=np.stack(actions),
        reward=np.asarray(rewards, np.float32),
        success=success,
        terminated=bool(terminated),
        truncated=bool(truncated),
        task=Reach2D.prompt,
    )


gymnasium.register("Reach2D-v0", entry_point="reach2d:Reach2D", max_episode_steps=60)
