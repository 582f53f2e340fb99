"""One world of a foreign library: seeded starts, finite observations, chunks, and the reset within the step.

A vector env in processes that steps once per action pays one message per action. With the chunk as the action it
pays one message per chunk, and what is left of a chunk when an episode ends is dropped where it cannot reach the
next episode.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from .errors import BadInput, NonFinite, RobolearnError, describe
from .facts import AdapterEnv, Facts, Features


class StepOutcome(NamedTuple):
    """Effect of a chunk on one world."""

    observation: Features  # the current one: of the next episode's start, if this one ended
    final: Features | None  # the last observation of the episode that ended here, else None
    rewards: tuple[float, ...]  # of each executed step
    terminated: bool
    truncated: bool
    success: bool | None  # whether an executed step solved the task, None where the env did not report it
    warning: str = ""  # something the user should know, or empty


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
    """Success according to an env's `info`, or None where it holds no such key.

    Raises `RobolearnError`: it is NaN or no number, or the keys contradict each other.
    """
    found = {key: _truth(key, info[key]) for key in SUCCESS_KEYS if key in info}
    if len(found) > 1 and len(set(found.values())) > 1:
        raise RobolearnError("its info says " + " and ".join(f"{key} {value}" for key, value in found.items()))
    return next(iter(found.values()), None)


def _truth(key: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise RobolearnError(f"its info's {key} is {value!r}, neither true nor false")
    return bool(array.any())


class FiniteGuard(gymnasium.Wrapper):
    """Ends an episode whose observation or reward is NaN or infinite, as truncated, at its last finite observation.

    Such a state is a fault of the simulation, not an outcome of the task: it is worth no reward and must not reach
    a network. A start that is not finite raises `NonFinite`: there is nothing to fall back on.
    """

    def __init__(self, env: AdapterEnv) -> None:
        super().__init__(env)
        self._last: Features = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As in Gymnasium; raises NonFinite."""
        observation, info = self.env.reset(seed=seed, options=options)
        if (bad := _not_finite(observation)) is not None:
            raise NonFinite(f"the env's first observation has a non-finite {bad!r}")
        self._last = observation
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        bad = _not_finite(observation)
        if bad is None and not isfinite(reward):
            bad = "reward"
        if bad is not None:
            return self._last, 0.0, False, True, {"non_finite": bad}
        self._last = observation
        return observation, float(reward), terminated, truncated, info


def _not_finite(observation: Features) -> str | None:
    for key, value in observation.items():
        # A sum of squares that is finite is one of finite numbers, and takes a fifth of the time of looking at each.
        if value.dtype.kind == "f" and not isfinite(np.vdot(value, value)) and not np.isfinite(value).all():
            return key
    return None


def start_seed(seed: int, start_id: int, episode: int) -> int:
    """The env's seed for one start: a function of (seed, start_id, episode) alone.

    Every start is seeded, not only the first: an env whose steps draw from the same generator as its reset would
    otherwise start differently after episodes of different lengths.
    """
    return int(np.random.SeedSequence([seed, start_id, episode]).generate_state(1)[0] & 0x7FFFFFFF)


class World:
    """World number `index` of a vector env. `env`: the adapter; it is closed by `close`. `index`: number of this world
    among all of the vector env."""

    def __init__(self, env: AdapterEnv, index: int) -> None:
        self.facts: Facts = env.facts
        self.index = index
        self._adapter = env
        self._env = ChunkWrapper(FiniteGuard(env))
        self._seed, self._start_id = 0, index
        self._episode = 0

    def reset(self, seed: int, start_id: int, episode: int = 0) -> Features:
        """Start over with this episode: the starts that follow depend on (seed, start_id, episode) alone."""
        self._seed, self._start_id, self._episode = seed, start_id, episode
        return self.next_episode()

    def next_episode(self) -> Features:
        """Leave the current episode and go on in the sequence of starts."""
        observation, _ = self._env.reset(seed=start_seed(self._seed, self._start_id, self._episode))
        self._episode += 1
        return observation

    def chunk(self, actions: NDArray[np.float32]) -> StepOutcome:
        """Execute `actions` (Ta, Da); an episode that ends is followed by the next start."""
        observation, _, terminated, truncated, info = self._env.step(actions)
        warning = ""
        if "non_finite" in info:
            warning = f"non-finite {info['non_finite']}: episode {self._episode - 1} truncated, world reset"
        ended = terminated or truncated
        return StepOutcome(
            observation=self.next_episode() if ended else observation,
            final=observation if ended else None,
            rewards=info["step_rewards"],
            terminated=terminated,
            truncated=truncated,
            success=info["success"],
            warning=warning,
        )

    def demonstrate(self) -> NDArray[np.float32]:
        """The action (Da,) of the world's own expert."""
        return np.clip(np.asarray(self._adapter.demonstrate(), np.float32), -1.0, 1.0)

    def frame(self) -> tuple[NDArray[np.uint8] | None, str]:
        """An HWC picture, or None where the env cannot be drawn, and why in words where that is a fault."""
        try:
            picture = self._env.render()
        except (Exception, SystemExit) as error:  # no GL, no pygame: a missing video must not end a run
            return None, f"cannot be drawn: {describe(error)}"
        if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
            return None, ""
        return np.ascontiguousarray(picture, dtype=np.uint8), ""

    def close(self) -> None:
        """Close the env."""
        self._env.close()


def probe(env: AdapterEnv, steps: int) -> tuple[bool, float]:
    """True where a step reports success, and the median duration of a step [s]."""
    env.reset(seed=0)
    action = np.zeros(env.facts.action, np.float32)
    reports, times = False, []
    for _ in range(steps):
        start = time.perf_counter()
        _, _, terminated, truncated, info = env.step(action)
        times.append(time.perf_counter() - start)
        reports |= reported_success(info) is not None
        if terminated or truncated:
            env.reset(seed=0)
    return reports, float(np.median(times))
