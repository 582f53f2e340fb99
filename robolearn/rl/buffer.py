"""Rollouts of an on-policy algorithm: decisions of N worlds, with everything that an update needs.

Rows lie in the order in which the decisions came to their end; `grid` says which row is decision t of world w, because
worlds that must step together, or that run one episode each, do not make the same number of decisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robolearn.core import Observation
from robolearn.rl.along import Starts
from robolearn.rollout import Agent, Decision, Engine, Turn
from robolearn.rollout.engine import Quota
from robolearn.runs.checkpoint import prefixed, unprefixed


@dataclass(frozen=True)
class RolloutBatch:
    """B decisions (action chunks)."""

    # features (B, …) as the worlds give them: images stay uint8 until a minibatch needs them
    observation: dict[str, Tensor]
    next_observation: dict[str, Tensor]  # features (B, …) after each chunk; the *final* one where an episode ended
    # time_remaining, next_time_remaining: (B,) share of the time limit at either, 0 after an episode that ran its time;
    # 1 where there is no limit
    time_remaining: Tensor
    next_time_remaining: Tensor
    aux: dict[str, Tensor]  # what the actor kept, (B, …) each; ``"chain"`` is (B, M + 1, D)
    reward: Tensor  # (B,) sum over the executed steps, scaled
    # terminated, ended: (B,) bool; ended = terminated or truncated
    terminated: Tensor
    ended: Tensor
    solved: Tensor  # (B,) bool, ended, and the world calls the episode solved
    grid: Tensor  # (T, N) row of decision t of world w, −1 where there is none
    # success, episodes: episodes that ended solved, and that ended, for the learning curve: as the task has them
    success: int
    episodes: int
    returns: NDArray[np.float64]  # (episodes,) undiscounted returns of those, in the world's units
    altered: NDArray[np.float64]  # (A,) undiscounted returns of the episodes that were not: see `robolearn.rl.along`
    env_steps: int  # control steps executed
    # simulation_s, acting_s: seconds spent in the worlds and in deciding
    simulation_s: float
    acting_s: float

    def __len__(self) -> int:
        return len(self.reward)

    def only(self, kept: Tensor) -> RolloutBatch:
        """The decisions where `kept` (B,) is true; what was counted of the rollout stays as it is."""
        place = torch.where(kept, kept.cumsum(0) - 1, -1)
        columns = {
            key: {name: part[kept] for name, part in value.items()} if isinstance(value, dict) else value[kept]
            for key, value in vars(self).items()
            if key != "grid" and isinstance(value, dict | Tensor)
        }
        return replace(self, **columns, grid=torch.cat([place, place.new_full((1,), -1)])[self.grid])

    def on_grid(self, values: Tensor) -> Tensor:
        """(B,) → (T, N), 0 where there is no decision."""
        padded = torch.cat([values, values.new_zeros(1)])
        return padded[self.grid]

    def from_grid(self, values: Tensor) -> Tensor:
        """(T, N) → (B,): the inverse of `on_grid`."""
        out = values.new_empty(len(self))
        present = self.grid >= 0
        out[self.grid[present]] = values[present]
        return out


Act = Callable[[dict[str, Tensor]], Decision]
"""features (N, …) on the device → a decision whose `aux` holds tensors (N, …)."""

Scale = Callable[[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]], NDArray[np.float32]]
"""(reward, ended, worlds whose decision came to its end), each (N,) → scaled rewards (N,)."""


def unscaled(reward: NDArray[np.float32], ended: NDArray[np.bool_], worlds: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Rewards as they are."""
    return reward


class ReturnTracker:
    """(N,) undiscounted return of each running episode."""

    def __init__(self, num_envs: int) -> None:
        self.now = np.zeros(num_envs)

    def add(self, reward: NDArray, ended: NDArray[np.bool_], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Add (N,) rewards; the returns of the episodes that `ended` (N,) where they are `counted` (N,)."""
        self.now += reward
        finished = self.now[ended & counted]
        self.now[ended] = 0.0
        return finished


def collect(
    engine: Engine, act: Act, quota: Quota, features: Callable[[Observation], dict[str, Tensor]], *,
    device: torch.device, scale: Scale = unscaled, returns: ReturnTracker | None = None, starts: Starts | None = None,
) -> RolloutBatch:  # fmt: skip
    """Let `act` decide until `quota` is met.

    Args:
      engine: the worlds; they go on where they are.
      features: copies the features that the policy needs, to its device.
      scale: rewards of one decision → scaled rewards.
      returns: of the running episodes; brought up to date.
      starts: of the episodes; by default all are as the task has them.
    """
    limit, n = engine.env.max_episode_steps, engine.env.num_envs
    returns = ReturnTracker(n) if returns is None else returns
    starts = Starts() if starts is None else starts
    begun, steps = (engine.simulation_s, time.perf_counter()), engine.env_steps
    parts: dict[str, list[Tensor]] = {}
    aux: dict[str, list[Tensor]] = {}
    after: dict[str, list[Tensor]] = {}
    where: list[tuple[NDArray[np.intp], NDArray[np.int64]]] = []
    count = np.zeros(n, np.int64)
    success = episodes = 0
    finished: list[NDArray[np.float64]] = []
    altered: list[NDArray[np.float64]] = []
    actor = _Actor(act, features)
    for turn in engine.turns(actor, quota):
        rows = np.flatnonzero(turn.worlds)
        pick = slice(None) if len(rows) == n else torch.from_numpy(rows).to(device)
        reward = turn.rewards.sum(axis=1)
        # What worlds do beyond their quota belongs to the returns of their episodes.
        moved = turn.worlds | turn.beyond
        ended = turn.worlds & turn.ended
        columns = {
            "reward": torch.from_numpy(scale(reward, moved & turn.ended, moved)),
            "terminated": torch.from_numpy(turn.terminated.copy()),
            "ended": torch.from_numpy(turn.ended),
            "solved": torch.from_numpy(turn.solved & turn.ended),
            "time_remaining": _time_remaining(turn.elapsed, limit),
            "next_time_remaining": _time_remaining(turn.elapsed + turn.steps, limit),
        }
        _append(parts, {key: value.to(device) for key, value in columns.items()}, pick)
        _append(aux, turn.decision.aux, pick)
        _append(after, actor.after(turn, engine.observation), pick)
        where.append((rows, count[rows]))
        count += turn.worlds
        own = starts.own(turn)
        success += int((turn.solved & ended & own).sum())
        episodes += int((ended & own).sum())
        totals = returns.add(np.where(moved, reward, 0.0), moved & turn.ended, turn.worlds)
        finished.append(totals[own[ended]])
        altered.append(totals[~own[ended]])
    simulation_s = engine.simulation_s - begun[0]
    kept = _joined(aux)
    return RolloutBatch(
        observation=unprefixed(_SEEN, kept),
        next_observation=_joined(after),
        **_joined(parts),
        aux={key: value for key, value in kept.items() if not key.startswith(f"{_SEEN}/")},
        grid=_grid(where, int(count.max()), n).to(device),
        success=success,
        episodes=episodes,
        returns=np.concatenate(finished),
        altered=np.concatenate(altered),
        env_steps=engine.env_steps - steps,
        simulation_s=simulation_s,
        acting_s=time.perf_counter() - begun[1] - simulation_s,
    )


_SEEN = "observation"  # prefix of the features in a decision's aux


class _Actor(Agent):
    """The agent that acts for an algorithm, and keeps what it saw."""

    def __init__(self, act: Act, features: Callable[[Observation], dict[str, Tensor]]) -> None:
        self._act, self._features = act, features
        self._present: dict[str, Tensor] | None = None

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        seen, self._present = self._present, None
        if seen is None:
            seen = self._features(observation)
        decision = self._act(seen)
        return Decision(decision.chunk, {**decision.aux, **prefixed(_SEEN, seen)})

    def after(self, turn: Turn, present: Observation) -> dict[str, Tensor]:
        """Features after the decisions of `turn`, with `present` the worlds' observation now.

        Those of `present` are kept for the next decision, which follows at once, so that each is converted once.
        """
        self._present = self._features(present)
        if not (ended := turn.ended).any():
            return self._present
        final = self._features({key: value[ended] for key, value in turn.observation.items()})
        out = {key: value.clone() for key, value in self._present.items()}
        for key, value in out.items():
            value[torch.from_numpy(ended).to(value.device)] = final[key]
        return out


def _append(columns: dict[str, list[Tensor]], values: Mapping[str, Tensor], pick: Tensor | slice) -> None:
    for key, value in values.items():
        columns.setdefault(key, []).append(value[pick])


def _joined(columns: Mapping[str, list[Tensor]]) -> dict[str, Tensor]:
    return {key: torch.cat(values) for key, values in columns.items()}


def _time_remaining(elapsed: NDArray[np.int64], limit: int) -> Tensor:
    """(N,) share of the time limit."""
    share = np.maximum(1.0 - elapsed / limit, 0.0) if limit > 0 else np.ones(len(elapsed))
    return torch.from_numpy(share.astype(np.float32))


def _grid(where: list[tuple[NDArray[np.intp], NDArray[np.int64]]], steps: int, num_envs: int) -> Tensor:
    grid, row = np.full((steps, num_envs), -1, np.int64), 0
    for worlds, t in where:
        grid[t, worlds] = np.arange(row, row + len(worlds))
        row += len(worlds)
    return torch.from_numpy(grid)
