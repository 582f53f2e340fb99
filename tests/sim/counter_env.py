"""A tiny env whose every number can be told in advance, for the tests of the adapters."""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar

import gymnasium
import numpy as np


class Counter(gymnasium.Env):
    """The observation is (start, steps, last action); it terminates after 5 steps.

    Args:
      tells: the info key under which it reports success, empty for none, "late" for "success" at the end only,
        "contrary" for two keys that contradict each other when it is solved.
      nan_at: its observation after so many steps is NaN; -1 for never.
      reward_at_end: reward of the fifth step; the others give 0.1.
      fail_at: raises after so many steps, -1 for never.
      exit_at: exits after so many steps, 0 in `reset`, -1 for never.
      die_at: ends its process after so many steps, -1 for never.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, tells="", nan_at=-1, reward_at_end=1.0, fail_at=-1, exit_at=-1, die_at=-1, render_mode=None):
        self.tells, self.nan_at, self.reward_at_end = tells, nan_at, reward_at_end
        self.fail_at, self.exit_at, self.die_at, self.render_mode = fail_at, exit_at, die_at, render_mode
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = gymnasium.spaces.Box(np.array([-2.0]), np.array([6.0]), dtype=np.float64)
        self.executed = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start, self.count, self.last = self.np_random.random(), 0, 0.0
        print("an env that prints")
        self._leave()
        return self._observe(), {}

    def step(self, action):
        self.np_random.random()  # steps draw from the generator of the starts
        self.count, self.last = self.count + 1, float(action[0])
        self.executed.append(self.last)
        print("an env that prints")
        if self.count == self.fail_at:
            raise ValueError("the motor burnt")
        self._leave()
        if self.count == self.die_at:
            os._exit(7)
        terminated = self.count == 5
        solved = terminated and self.reward_at_end > 0.5
        if self.tells == "late":
            info = {"success": solved} if terminated else {}
        elif self.tells == "contrary":
            info = {"success": solved, "is_success": False}
        else:
            info = {self.tells: solved} if self.tells else {}
        return self._observe(), self.reward_at_end if terminated else 0.1, terminated, False, info

    def _leave(self):
        if self.count == self.exit_at:
            sys.exit(0)

    def render(self):
        return np.full((2, 3, 3), self.count, np.uint8)

    def _observe(self):
        return np.array([self.start, self.count, np.nan if self.count == self.nan_at else self.last])


gymnasium.register("Counter-v0", entry_point=Counter, max_episode_steps=20)
for number in (0, 1, 2):
    gymnasium.register(f"Exits{number}-v0", entry_point=Counter, max_episode_steps=20, kwargs={"exit_at": number})
