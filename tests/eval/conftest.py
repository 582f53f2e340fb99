"""A small vector env whose episodes are known beforehand, and a policy for it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robolearn.core import ArraySpec, Interface, Policy

INTERFACE = Interface(
    observation={"objects": ArraySpec((3,), names=("difficulty", "length", "t"))},
    action=ArraySpec((1,)),
    control_hz=20.0,
    action_kind="fake",
)


def start(seed: int, world: int, index: int) -> float:
    """The difficulty in [0, 1) of episode (world, index)."""
    return float(np.random.default_rng([seed, world, index]).random())


class FakeEnv:
    """N worlds. An episode is solved where the first action is at least its difficulty.

    ``length(difficulty, solved)`` says how many steps it lasts; the reward is 1 at the end if solved.
    """

    interface = INTERFACE
    task = "fake"
    prompt = "push harder than it is difficult"
    steps_together, reports_success, continuing = False, True, False

    def __init__(self, num_envs: int, length: Callable[[float, bool], int], max_episode_steps: int = 50) -> None:
        self.num_envs, self.length, self.max_episode_steps = num_envs, length, max_episode_steps
        self.draws = True
        self.calls: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.seed = seed or 0
        self.index = np.zeros(self.num_envs, int)
        self.t = np.zeros(self.num_envs, int)
        self.solved = np.zeros(self.num_envs, bool)
        return self._observe(), {}

    def _observe(self) -> dict:
        difficulty = [start(self.seed, w, int(self.index[w])) for w in range(self.num_envs)]
        return {"objects": np.stack([difficulty, self.index, self.t], axis=1).astype(np.float32)}

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> tuple:
        return self.step_chunk(actions[:, None], active)

    def step_chunk(self, chunks: np.ndarray, active: np.ndarray | None = None) -> tuple:
        n = self.num_envs
        moving = np.ones(n, bool) if active is None else active.copy()
        self.calls.append(moving.copy())
        rewards, steps = np.zeros((n, chunks.shape[1]), np.float32), np.zeros(n, int)
        terminated, truncated, success = np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        final = self._observe()
        for a in range(chunks.shape[1]):
            for w in np.flatnonzero(moving).tolist():
                difficulty = start(self.seed, w, self.index[w])
                if self.t[w] == 0:
                    self.solved[w] = chunks[w, a, 0] >= difficulty
                self.t[w] += 1
                steps[w] += 1
                if self.t[w] >= self.length(difficulty, bool(self.solved[w])):
                    terminated[w], success[w], rewards[w, a] = True, self.solved[w], float(self.solved[w])
                elif self.t[w] >= self.max_episode_steps:
                    truncated[w] = True
                if terminated[w] or truncated[w]:
                    moving[w] = False
                    final["objects"][w] = difficulty, self.index[w], self.t[w]
                    self.t[w] = 0
                    self.index[w] += 1
        infos = {"success": success, "steps": steps, "step_rewards": rewards}
        infos |= {"final_obs": final, "_final_obs": terminated | truncated}
        return self._observe(), rewards.sum(1), terminated, truncated, infos

    def snapshot(self) -> None:
        return None

    def restore(self, snapshot: dict) -> dict:
        raise NotImplementedError

    def frame(self, world: int = 0) -> np.ndarray | None:
        """A grey picture whose left half shows 10 × the index and whose right half 5 × the step."""
        if not self.draws:
            return None
        picture = np.zeros((33, 47, 3), np.uint8)
        picture[:, :24] = 10 * self.index[world]
        picture[:, 24:] = 5 * self.t[world]
        return picture

    def close(self, **kwargs: Any) -> None:
        pass


class FakePolicy(Policy):
    """Pushes with `strength` plus, if asked, noise of its own drawn per call for all the worlds."""

    interface = INTERFACE

    def __init__(self, strength: float, execute_steps: int = 4, noise: float = 0.0) -> None:
        self.strength, self.execute_steps, self.noise = strength, execute_steps, noise

    def reset(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def act(self, observation: dict) -> np.ndarray:
        n = len(observation["objects"])
        noise = self.noise * self.rng.standard_normal((n, self.execute_steps + 2, 1))
        return (self.strength + noise).astype(np.float32)


_NAMES = SimpleNamespace(Env=FakeEnv, Policy=FakePolicy, start=start, interface=INTERFACE)


@pytest.fixture
def fake() -> SimpleNamespace:
    """The names above, for test files, which cannot import each other."""
    return _NAMES


@pytest.fixture(scope="session")
def fake_types() -> SimpleNamespace:
    """The same for hypothesis, which refuses function-scoped fixtures."""
    return _NAMES
