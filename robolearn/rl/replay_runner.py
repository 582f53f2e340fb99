"""The replay runner: N worlds feed a replay that an off-policy algorithm learns from, in one process.

    updates ≤ U + ⌊utd · (steps − warmup)⌋     steps: of the episodes that were played;  U: offline, from stored ones

A trainer for `robolearn.runs.run_loop`. The first iterations are those of `robolearn.rl.offline_runner`, if any. An
iteration moves every world by `ITERATION` decisions; episodes go on from one to the next, and are learned from once
they have ended. After every control step of the N worlds the updates are made that are paid for, and what is predicted
next comes from the newest weights. An iteration of `MOST` updates ends early, and the next ones make the rest as those
offline do, before anything acts: Ctrl-C waits for no more. Not so in worlds whose episodes end with a saved state. At
the end of an iteration the rest of each chunk is dropped, so that a saved state holds none: it has weights, optimisers,
generators, the replay, the worlds and the episodes that run in them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Env, Observation, RewardModel, bind_policy
from robolearn.core.machine import torch_threads
from robolearn.data.replay import PlayedEpisode
from robolearn.rl.adversary import AdversaryConfig
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.along import AlongConfig, Starts
from robolearn.rl.audit import counts
from robolearn.rl.off_policy_settings import NEVER, OffPolicyConfig
from robolearn.rl.offline_runner import OfflineRunner
from robolearn.rl.runner import iterations_apart
from robolearn.rollout import Agent, Decision, Decisions, Engine, Turn
from robolearn.rollout.told_worlds import success_of_tasks
from robolearn.runs.checkpoint import prefixed, unprefixed
from robots.chunk_execution import SteppedChunks

ITERATION = 8  # decisions in every world
MOST = 1000  # updates of an iteration
RESTART = 1_000_003  # seeds of worlds that begin anew: this many apart for two seeds of a run


class ReplayRunner(OfflineRunner):
    """Fine-tunes `policy` in `env` from replayed experience.

    Args:
      policy: to begin with; its weights stay as they are.
      env: the worlds, not yet reset.
      config: of the algorithm.
      env_steps: budget of control steps.
      seed: of starts, noise and everything else.
      demonstrations: episodes that are in the replay from the beginning.
      model: whose rewards, success and ends are learned from, in the place of the world's and the demonstrations'.
      name: of the policy, for messages.
      updates: before the first control step, from `demonstrations` alone.
      altered: see `robolearn.rl.runner.Runner`.

    Raises:
      BadInput: a policy that does not fit the world or the algorithm, or a budget too small for one iteration.
    """

    def __init__(
        self,
        policy: ChunkPolicy,
        env: Env,
        config: OffPolicyConfig,
        env_steps: int,
        seed: int,
        demonstrations: Iterable[PlayedEpisode] = (),
        model: RewardModel | None = None,
        name: str = "",
        updates: int = 0,
        altered: AlongConfig | AdversaryConfig | None = None,
    ) -> None:
        bind_policy(policy, env.interface, what=f"{f'policy {name}' if name else 'policy'} in {env.task}")
        if config.acting_delay:
            raise BadInput("--delay-steps", got=config.acting_delay, expected="0 here: hil run learns with a delay")
        self.env, self.budget = env, env_steps
        super().__init__(policy, config, updates, seed, demonstrations, model, env.prompt)
        self.engine = Engine(env)
        self._each = check_budget(env.num_envs, self.algorithm.chunk, env_steps)
        self._agent: Any = Explorer(self.algorithm, env)
        self._episodes = RunningEpisodes(env.num_envs)
        self.starts = Starts() if altered is None else altered.build(env)
        self._steps_before = 0
        self._most = NEVER if env.snapshot() is None else MOST

    @property
    def env_steps(self) -> int:
        """Control steps so far."""
        return self._steps_before + self.engine.env_steps

    @property
    def iterations(self) -> int:
        """Those done, and those that the updates that are due and the rest of the budget pay for."""
        return super().iterations + max(self.budget - self.env_steps, 0) // self._each

    # --- a trainer: see `robolearn.runs.loop.Trainer` ----------------------------------------------------------

    def iterate(self, i: int) -> dict[str, float]:
        """Act and learn; returns the metrics."""
        if self._due:
            return super().iterate(i)
        self.show()
        self.starts.schedule(min(self.env_steps / self.budget, 1.0))
        if self.env_steps == 0:
            self._restart(self.seed)
        before_s = self.engine.simulation_s, self.engine.acting_s
        closed: list[PlayedEpisode] = []
        altered: list[PlayedEpisode] = []  # see `robolearn.rl.along`
        verdicts: list[tuple[bool, bool]] = []  # called done by the model, solved
        sums: dict[str, Tensor] = {}
        updates, update_s = self.algorithm.updates, 0.0
        self._agent.drop()
        with torch_threads(1):
            for turn in self.engine.turns(self._agent, Decisions(ITERATION * self.algorithm.chunk)):
                ended = self._ended(turn)
                scored = [(self.experience.add(episode), episode) for episode in ended]
                verdicts += [(one.success, episode.success) for one, episode in scored if one is not None]
                own, others = self.starts.split(ended, turn)
                closed += own
                altered += others
                began = time.perf_counter()
                self.learn(min(self._allowed, updates + self._most), sums)
                update_s += time.perf_counter() - began
                if self._due:
                    break
        self._done = i + 1
        known = bool(closed) and self.engine.success_reported
        return {
            "env_steps": float(self.env_steps),
            "success": sum(e.success for e in closed) / len(closed) if known else math.nan,
            "episode_return": float(np.mean([e.reward.sum() for e in closed])) if closed else math.nan,
            "episodes": float(len(closed)),
            **success_of_tasks(self.env),
            "rewarded": float(np.count_nonzero([e.reward.sum() for e in (*closed, *altered)])),
            **self.starts.metrics(len(altered)),
            "wall_simulation_s": self.engine.simulation_s - before_s[0],
            "wall_inference_s": self.engine.acting_s - before_s[1],
            "wall_update_s": update_s,
            **({} if self._model is None else {"withheld": float(len(closed) - len(verdicts))}),
            **({} if self._model is None or not verdicts else counts(verdicts)),
            **self.metrics(sums, updates),
        }

    def _ended(self, turn: Turn) -> list[PlayedEpisode]:
        """The episodes that end with `turn`."""
        return self._episodes.add(turn)

    @property
    def _allowed(self) -> int:
        """Updates that the steps so far pay for."""
        return self.offline + (self.config.updates_paid(self.experience.env_steps) if len(self.experience) else 0)

    # --- exact resume ------------------------------------------------------------------------------------------

    def iterations_between_states(self, asked: int) -> int:
        """See `robolearn.rl.runner.iterations_apart`."""
        return iterations_apart(self.env, self._each, asked)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iteration depends on; worlds whose state cannot be read begin anew here."""
        snapshot = self.engine.snapshot() if self.env_steps else None
        if snapshot is None and self.env_steps:
            self._restart(self._restart_seed())
        tensors, meta = super().state()
        tensors |= prefixed("starts", {key: torch.from_numpy(value) for key, value in self.starts.state().items()})
        if snapshot is not None:
            for name, arrays in (("engine", snapshot), ("running", self._episodes.state())):
                tensors |= prefixed(name, {key: torch.from_numpy(value) for key, value in arrays.items()})
        return tensors, meta

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        super().load_state(tensors, meta)
        self._steps_before = int(meta["env_steps"]) - self.engine.env_steps
        if starts := unprefixed("starts", tensors):
            self.starts.load_state({key: value.numpy() for key, value in starts.items()})
        snapshot, running = (
            {key: value.numpy() for key, value in unprefixed(name, tensors).items()} for name in ("engine", "running")
        )
        if snapshot:
            self.engine.restore(snapshot)
            self._episodes.load_state(running)
        elif self.env_steps:
            self._restart(self._restart_seed())

    def _restart(self, seed: int) -> None:
        self.engine.reset(seed)
        self._episodes = RunningEpisodes(self.env.num_envs)

    def _restart_seed(self) -> int:
        return self.seed * RESTART + self.env_steps


def check_budget(num_envs: int, execute: int, env_steps: int) -> int:
    """Control steps of an iteration; raises `BadInput` unless `env_steps` pay for one."""
    each = num_envs * ITERATION * execute
    if env_steps < each:
        steps = f"{num_envs} worlds x {ITERATION * execute} steps"
        raise BadInput("--env-steps", got=env_steps, expected=f"at least {each}, for one iteration ({steps})")
    return each


class Explorer(Agent):
    """An agent of N worlds that executes the algorithm's chunks one step a decision."""

    def __init__(self, algorithm: OffPolicy, env: Env) -> None:
        self._features = tuple(algorithm.base.interface.observation)
        self._everywhere = np.ones(env.num_envs, np.bool_)
        self._chunks = SteppedChunks(
            lambda observation: algorithm.act(observation, explore=True), env.interface, env.num_envs
        )

    def drop(self) -> None:
        """Forget what is left of all chunks."""
        self._chunks.drop(self._everywhere)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self._chunks.drop(worlds)

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """`aux` has the ``observation`` that the action answers, a copy."""
        seen = {key: np.array(observation[key]) for key in self._features}
        action = np.clip(self._chunks.step(observation, worlds), -1.0, 1.0)
        return Decision(action[:, None], {"observation": seen})


class RunningEpisodes:
    """The steps of episodes that have not ended yet, in N worlds."""

    def __init__(self, num_envs: int) -> None:
        self._steps: list[list[tuple[dict[str, NDArray], NDArray, np.float32]]] = [[] for _ in range(num_envs)]

    def add(self, turn: Turn) -> list[PlayedEpisode]:
        """The next step of every world; the episodes that end with it."""
        closed = []
        for w in np.flatnonzero(turn.worlds):
            seen = {key: value[w] for key, value in turn.decision.aux["observation"].items()}
            self._steps[w].append((seen, turn.decision.chunk[w, 0], turn.rewards[w, 0]))
            if turn.ended[w]:
                final = {key: np.array(turn.observation[key][w]) for key in seen}
                closed.append(self._close(int(w), final, bool(turn.terminated[w]), bool(turn.solved[w])))
        return closed

    def _close(self, world: int, final: dict[str, NDArray], terminated: bool, success: bool) -> PlayedEpisode:
        steps, self._steps[world] = self._steps[world], []
        return PlayedEpisode(
            observation={key: np.stack([*(step[0][key] for step in steps), final[key]]) for key in final},
            action=np.stack([step[1] for step in steps]),
            reward=np.array([step[2] for step in steps], np.float32),
            intervention=np.zeros(len(steps), np.bool_),
            terminated=terminated,
            success=success,
        )

    def state(self) -> dict[str, NDArray]:
        """All steps, one world after the other."""
        flat = [step for steps in self._steps for step in steps]
        found = {"lengths": np.array([len(steps) for steps in self._steps])}
        if flat:
            found |= {f"observation/{key}": np.stack([step[0][key] for step in flat]) for key in flat[0][0]}
            found |= {"action": np.stack([step[1] for step in flat]), "reward": np.array([step[2] for step in flat])}
        return found

    def load_state(self, state: dict[str, NDArray]) -> None:
        """The inverse of `state`."""
        first = "observation/"
        seen = {key[len(first) :]: value for key, value in state.items() if key.startswith(first)}
        at = 0
        for world, length in enumerate(state["lengths"]):
            rows = range(at, at + int(length))
            self._steps[world] = [
                ({key: value[i] for key, value in seen.items()}, state["action"][i], state["reward"][i]) for i in rows
            ]
            at += int(length)
