"""Rollouts of a policy over a fixed number of episodes.

The budget of n episodes is divided over the N worlds before anything moves: world w runs its first ⌈n/N⌉ or
⌊n/N⌋ episodes and then rests. Which episodes count therefore never depends on how long they last; counting
whatever happens to end within a number of steps favours short episodes, and failures are often the short ones.

Since the j-th start of world w depends on (seed, w, j) alone, two policies evaluated with one seed meet the same
starts, and the results of both can be compared pair by pair.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import (
    BadInput,
    Env,
    NonFinite,
    Observation,
    Policy,
    RobolearnError,
    begin_episodes,
    fit_policy,
    sees_every_step,
)
from robolearn.eval.intervals import Estimate, Success, bootstrap_mean

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""progress(done, total) episodes, called whenever an episode ends."""

Watch = Callable[[NDArray[np.intp], NDArray[np.intp]], None]
"""watch(worlds (M,), episode index in each of them (M,)), called before each control step of the M moving worlds."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """n episodes of one policy, ordered by world, then by index within the world.

    Attributes:
      task: the name of the task.
      seed: of the starts and of the policy.
      num_envs: number of worlds N.
      control_hz: control steps per second [Hz].
      world: (n,) in which world the episode ran.
      index: (n,) the how-many-th episode of its world it was, from 0.
      succeeded: (n,) whether any of its steps solved the task.
      steps: (n,) length in control steps.
      returns: (n,) undiscounted sum of rewards.
      terminated: (n,) the world ended the episode.
      truncated: (n,) the clock ended the episode.
      wall_s: seconds spent in ``simulation``, in ``policy``, and in ``total``.
      success_reported: the world reports success; where it does not, episodes are judged by their returns.
    """

    task: str
    seed: int
    num_envs: int
    control_hz: float
    world: NDArray[np.int64]
    index: NDArray[np.int64]
    succeeded: NDArray[np.bool_]
    steps: NDArray[np.int64]
    returns: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    wall_s: Mapping[str, float]
    success_reported: bool = True

    @property
    def episodes(self) -> int:
        """Number of episodes n."""
        return len(self.world)

    @property
    def success(self) -> Success:
        """Success rate with its 95% Clopper-Pearson interval."""
        return Success.of(int(self.succeeded.sum()), self.episodes)

    @property
    def cycle_time_s(self) -> NDArray[np.float64]:
        """(n,) simulated duration of every episode [s], failed ones included."""
        return self.steps / self.control_hz

    @property
    def solved_s(self) -> NDArray[np.float64]:
        """Cycle times [s] of the successful episodes only."""
        return self.cycle_time_s[self.succeeded]

    @property
    def mean_cycle_time_s(self) -> Estimate:
        """Mean cycle time of the successful episodes [s] with its 95% interval."""
        return bootstrap_mean(self.solved_s)

    @property
    def mean_return(self) -> Estimate:
        """Mean return with its 95% interval."""
        return bootstrap_mean(self.returns)

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``--json``; ``cycle_time_s`` is over successes only."""
        return {
            "task": self.task,
            "seed": self.seed,
            "success": self.success.to_json(),
            "cycle_time_s": self.mean_cycle_time_s.to_json(),
            "return": self.mean_return.to_json(),
            "env_steps": int(self.steps.sum()),
            "wall_s": dict(self.wall_s),
        }


def evaluate(
    env: Env,
    policy: Policy,
    episodes: int,
    seed: int,
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Evaluation:
    """Run exactly `episodes` episodes of `policy` in `env`.

    Args:
      env: N worlds; it is reset with `seed` and left wherever the last episode ends.
      policy: is reset with `seed` and asked once every `execute_steps` control steps.
      episodes: n ≥ 1.
      seed: of the starts and of the policy.
      progress: told how many episodes are done.
      watch: sees every control step; see `run_episodes`.

    Raises:
      BadInput: no episodes, or a policy that does not fit the world.
      NonFinite: the policy answered with NaN or infinity.
      RobolearnError: an episode that does not end.
    """
    if episodes < 1:
        raise BadInput("episodes", got=episodes, expected="at least 1")
    return run_episodes(env, policy, quotas(episodes, env.num_envs), seed, progress=progress, watch=watch)


def quotas(episodes: int, num_envs: int) -> NDArray[np.int64]:
    """(N,) how many episodes each world runs: ⌈n/N⌉ in the first n mod N worlds, ⌊n/N⌋ in the others."""
    share, rest = divmod(episodes, num_envs)
    return share + (np.arange(num_envs) < rest).astype(np.int64)


def same_starts(a: Evaluation, b: Evaluation) -> bool:
    """Whether the episodes of `a` and `b` can be compared pair by pair."""
    return (
        (a.task, a.seed, a.num_envs, a.episodes) == (b.task, b.seed, b.num_envs, b.episodes)
        and np.array_equal(a.world, b.world)
        and np.array_equal(a.index, b.index)
    )


def run_episodes(
    env: Env,
    policy: Policy,
    quota: NDArray[np.int64],
    seed: int,
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Evaluation:
    """Run the first ``quota[w]`` episodes of every world w; worlds that have run theirs rest.

    With `watch`, chunks are executed one action at a time, so that every control step is seen; the episodes are
    the same as without, because a world that ends within a chunk rests until the chunk is over either way.
    Errors as in `evaluate`.
    """
    fit_policy(policy, env.interface, what="policy and world")
    begun = time.perf_counter()
    total = int(quota.sum())
    first_row = np.cumsum(quota) - quota  # the row of episode 0 of each world
    worlds = np.repeat(np.arange(env.num_envs), quota)
    result = {
        "world": worlds,
        "index": np.arange(total) - first_row[worlds],
        "succeeded": np.zeros(total, np.bool_),
        "steps": np.zeros(total, np.int64),
        "returns": np.zeros(total, np.float64),
        "terminated": np.zeros(total, np.bool_),
        "truncated": np.zeros(total, np.bool_),
    }
    index = np.zeros(env.num_envs, np.int64)
    running = _Tally.zeros(env.num_envs)
    done, acting_s, success_reported = 0, 0.0, False

    observation, _ = env.reset(seed=seed)
    policy.reset(seed)
    see = policy.see if sees_every_step(policy) else None  # type: ignore[attr-defined]
    if progress is not None:
        progress(0, total)
    while (active := index < quota).any():
        asked = time.perf_counter()
        chunks = _act(policy, observation, active)
        acting_s += time.perf_counter() - asked

        observation, tally = _execute(env, chunks, active, index, watch, see)
        running.add(tally, active)
        success_reported |= tally.success_reported

        ended = active & (tally.terminated | tally.truncated)
        if ended.any():
            rows = first_row[ended] + index[ended]
            result["succeeded"][rows] = running.solved[ended]
            result["steps"][rows] = running.steps[ended]
            result["returns"][rows] = running.reward[ended]
            result["terminated"][rows] = tally.terminated[ended]
            result["truncated"][rows] = tally.truncated[ended]
            index[ended] += 1
            running.clear(ended)
            begin_episodes(policy, ended)
            done += int(ended.sum())
            if progress is not None:
                progress(done, total)
        elif env.max_episode_steps > 0 and running.steps.max() > env.max_episode_steps:
            raise RobolearnError(
                f"task {env.task!r}: an episode has run {running.steps.max()} steps, expected at most "
                f"{env.max_episode_steps}: the world neither terminates nor truncates it"
            )

    if not success_reported:
        log.warning("task %r never reported infos['success']: every episode counts as failed", env.task)
    wall_s = time.perf_counter() - begun
    return Evaluation(
        task=env.task,
        seed=seed,
        num_envs=env.num_envs,
        control_hz=env.interface.control_hz,
        wall_s={"simulation": wall_s - acting_s, "policy": acting_s, "total": wall_s},
        success_reported=success_reported,
        **result,
    )


@dataclass
class _Tally:
    """What was counted in each of N worlds, over a chunk or over an episode so far."""

    steps: NDArray[np.int64]
    reward: NDArray[np.float64]
    solved: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    success_reported: bool = False

    @staticmethod
    def zeros(n: int) -> _Tally:
        solved, terminated, truncated = np.zeros((3, n), np.bool_)
        return _Tally(np.zeros(n, np.int64), np.zeros(n, np.float64), solved, terminated, truncated)

    def add(self, other: _Tally, worlds: NDArray[np.bool_]) -> None:
        self.steps[worlds] += other.steps[worlds]
        self.reward[worlds] += other.reward[worlds]
        self.solved[worlds] |= other.solved[worlds]
        self.terminated[worlds] |= other.terminated[worlds]
        self.truncated[worlds] |= other.truncated[worlds]
        self.success_reported |= other.success_reported

    def clear(self, worlds: NDArray[np.bool_]) -> None:
        for values in (self.steps, self.reward, self.solved, self.terminated, self.truncated):
            values[worlds] = 0


def _act(policy: Policy, observation: Observation, active: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(N, Ta, Da) actions to execute, checked."""
    chunks = np.asarray(policy.act(observation), dtype=np.float32)
    n, ta, da = len(active), policy.execute_steps, policy.interface.action.size
    if chunks.ndim != 3 or chunks.shape[0] != n or chunks.shape[1] < ta or chunks.shape[2] != da:
        raise BadInput("policy: action chunk", got=chunks.shape, expected=f"({n}, Tp ≥ {ta}, {da})")
    chunks = np.ascontiguousarray(chunks[:, :ta])
    if not np.isfinite(chunks[active]).all():
        raise NonFinite("policy: its actions are NaN or infinite; is the checkpoint damaged?")
    return chunks


def _execute(
    env: Env,
    chunks: NDArray[np.float32],
    active: NDArray[np.bool_],
    index: NDArray[np.int64],
    watch: Watch | None,
    see: Callable[[Observation], None] | None,
) -> tuple[Observation, _Tally]:
    """Execute `chunks` in the active worlds, in one piece or, watched or seen by the policy, action by action."""
    tally = _Tally.zeros(len(active))
    if watch is None and see is None:
        observation = _step(env, chunks, active, tally)
        return observation, tally
    observation: Observation = {}
    for a in range(chunks.shape[1]):
        moving = active & ~(tally.terminated | tally.truncated)
        if not moving.any():
            break
        if see is not None and a > 0:
            see(observation)
        if watch is not None:
            watch(np.flatnonzero(moving), index[moving])
        observation = _step(env, chunks[:, a : a + 1], moving, tally)
    return observation, tally


def _step(env: Env, chunks: NDArray[np.float32], moving: NDArray[np.bool_], tally: _Tally) -> Observation:
    observation, reward, terminated, truncated, infos = env.step_chunk(chunks, moving)
    solved = infos.get("success")
    step = _Tally(
        steps=np.asarray(infos["steps"], np.int64),
        reward=np.asarray(reward, np.float64),
        solved=np.zeros(len(moving), np.bool_) if solved is None else np.asarray(solved, np.bool_),
        terminated=np.asarray(terminated, np.bool_),
        truncated=np.asarray(truncated, np.bool_),
        success_reported=solved is not None,
    )
    tally.add(step, moving)
    return observation
