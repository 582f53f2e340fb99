"""Rollouts of a policy over a fixed number of episodes.

Exactly n of them, divided over the worlds beforehand (`robolearn.rollout.engine`).

Since the j-th start of world w depends on (seed, w, j) alone, two policies evaluated with one seed meet the same
starts, and the results of both can be compared pair by pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Env, Policy, bind_policy
from robolearn.eval.intervals import Estimate, Success, bootstrap_mean
from robolearn.rollout import Engine, Episodes, PolicyAgent, spread
from robolearn.rollout.engine import Watch

if TYPE_CHECKING:
    from robolearn.rollout.collect import RolloutRecorder

Progress = Callable[[int, int], None]
"""progress(done, total) episodes, called whenever an episode ends."""


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
      success_reported: whether the world has a notion of success; without one the returns count.
      privileged: what the policy saw of the simulator's truth.
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
    privileged: tuple[str, ...] = ()

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
            "success": self.success.to_json() if self.success_reported else None,
            "cycle_time_s": self.mean_cycle_time_s.to_json(),
            "return": self.mean_return.to_json(),
            "env_steps": int(self.steps.sum()),
            "privileged": list(self.privileged),
            "wall_s": dict(self.wall_s),
        }


def same_starts(a: Evaluation, b: Evaluation) -> bool:
    """True where the episodes of `a` and `b` can be compared pair by pair."""
    return (
        (a.task, a.seed, a.num_envs, a.episodes) == (b.task, b.seed, b.num_envs, b.episodes)
        and np.array_equal(a.world, b.world)
        and np.array_equal(a.index, b.index)
    )


def evaluate(
    env: Env,
    policy: Policy,
    episodes: int | NDArray[np.int64],
    seed: int,
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
    record: RolloutRecorder | None = None,
) -> Evaluation:
    """Run exactly `episodes` episodes of `policy` in `env`.

    Args:
      env: N worlds; it is reset with `seed` and left wherever the last episode ends.
      policy: is reset with `seed` and asked once every `execute_steps` control steps.
      episodes: n ≥ 1; or (N,) of each world its first so many: worlds that have run theirs rest.
      seed: of the starts and of the policy.
      progress: told how many episodes are done.
      watch: see `robolearn.rollout.engine.Watch`. With it chunks are executed one action at a time, so that every
        control step is seen; the episodes are the same as without.
      record: takes the episodes, in the place of `watch`.

    Raises:
      BadInput: no episodes, a policy that does not fit the world, or worlds to record that always move together.
      NonFinite: the policy answered with NaN or infinity.
      RobolearnError: an episode that does not end.
    """
    if np.ndim(episodes) == 0 and int(episodes) < 1:
        raise BadInput("episodes", got=episodes, expected="at least 1")
    if record is not None and env.steps_together:
        raise BadInput("recording", got=f"{env.task}, whose worlds move together", expected="another task")
    each = spread(int(episodes), env.num_envs) if np.ndim(episodes) == 0 else np.asarray(episodes)
    bind_policy(policy, env.interface, what="policy and world")
    begun = time.perf_counter()
    total = int(each.sum())
    first_row = np.cumsum(each) - each  # the row of episode 0 of each world
    worlds = np.repeat(np.arange(env.num_envs), each)
    result = {"world": worlds, "index": np.arange(total) - first_row[worlds]}
    result |= {name: np.zeros(total, np.bool_) for name in ("succeeded", "terminated", "truncated")}
    result |= {"steps": np.zeros(total, np.int64), "returns": np.zeros(total, np.float64)}
    engine = Engine(env)
    engine.reset(seed)
    policy.reset(seed)
    done = 0
    if progress is not None:
        progress(0, total)
    for turn in engine.turns(PolicyAgent(policy), Episodes(each), watch=watch if record is None else record.watch):
        if record is not None:
            list(record.add(turn))
        rows = first_row[turn.worlds] + turn.episode[turn.worlds]
        result["steps"][rows] += turn.steps[turn.worlds]
        result["returns"][rows] += turn.rewards[turn.worlds].sum(axis=1, dtype=np.float64)
        result["succeeded"][rows] = turn.solved[turn.worlds]
        result["terminated"][rows] = turn.terminated[turn.worlds]
        result["truncated"][rows] = turn.truncated[turn.worlds]
        if progress is not None and (ended := int((turn.worlds & turn.ended).sum())):
            done += ended
            progress(done, total)

    wall_s = time.perf_counter() - begun
    return Evaluation(
        task=env.task,
        seed=seed,
        num_envs=env.num_envs,
        control_hz=env.interface.control_hz,
        wall_s={"simulation": wall_s - engine.acting_s, "policy": engine.acting_s, "total": wall_s},
        success_reported=engine.success_reported,
        privileged=policy.interface.privileged,
        **result,
    )
