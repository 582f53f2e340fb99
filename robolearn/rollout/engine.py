"""N worlds that go on from turn to turn: decide, execute, account for the episodes.

Worlds that may rest move in lockstep: all get a chunk at once, and one whose episode ends inside its chunk rests until
the others have finished theirs. Worlds that must all step together (a batch on a GPU) have a chunk cursor each: one
that has executed its chunk, or begun an episode, gets the next at once, while the others go on with theirs. What is
left of a chunk is never applied to the next episode either way.

A quota is a number of episodes in every world, or of decisions. A budget of n episodes is divided over the N worlds
before anything moves: world w runs its first ⌈n/N⌉ or ⌊n/N⌋ episodes and then rests. Which episodes count therefore
never depends on how long they last; counting whatever happens to end within a number of steps favours short episodes,
and failures are often the short ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ChunkEnv, Env, Observation, RobolearnError, StepResult
from robolearn.rollout.agents import Agent, Decision

Step = Callable[[int, Observation, NDArray[np.bool_]], None]
"""called before step a of the chunk with (a, observation, the worlds (N,) that will move)"""


@dataclass(frozen=True)
class ChunkOutcome:
    """Result of a chunk in N worlds; rows of worlds that took no part are zero."""

    observation: Observation  # the present one; of a world whose episode ended, the first of its next
    rewards: NDArray[np.float32]  # (N, Ta) of each executed step
    steps: NDArray[np.int64]  # (N,) how many were executed
    # terminated, truncated: (N,) whether the episode ended in it, and how
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    success: NDArray[np.bool_] | None  # (N,) whether a step solved the task; None where the world does not report it
    final: Observation  # feature → (N, …), valid where the episode ended; empty where none did

    def as_result(self) -> StepResult:
        """The same as `ChunkEnv.step_chunk` returns it."""
        ended = self.terminated | self.truncated
        infos: dict[str, Any] = {"steps": self.steps, "step_rewards": self.rewards, "_final_obs": ended}
        if self.success is not None:
            infos["success"] = self.success
        if ended.any():
            infos["final_obs"] = self.final
        return self.observation, self.rewards.sum(axis=1), self.terminated, self.truncated, infos


def execute(
    env: Env, chunks: NDArray[np.float32], active: NDArray[np.bool_], observation: Observation, before: Step | None
) -> ChunkOutcome:
    """Execute `chunks` (N, Ta, Da) in the worlds `active` (N,); one that ends rests until the others have finished.
    `before`: to be called before each step, which then are taken one by one."""
    if before is None and isinstance(env, ChunkEnv):
        now, _, terminated, truncated, infos = env.step_chunk(chunks, active)
        success = infos.get("success")
        return ChunkOutcome(
            observation=now,
            rewards=np.asarray(infos["step_rewards"], np.float32),
            steps=np.asarray(infos["steps"], np.int64) * active,
            terminated=active & terminated,
            truncated=active & truncated,
            success=None if success is None else active & success,
            final=infos["final_obs"] if (active & (terminated | truncated)).any() else {},
        )
    return _step_by_step(env, chunks, active, observation, before)


def step_once(env: Env, actions: NDArray[np.float32], observation: Observation) -> ChunkOutcome:
    """One control step (N, Da) in all worlds."""
    return _step_by_step(env, actions[:, None], None, observation, None)


def _step_by_step(
    env: Env,
    chunks: NDArray[np.float32],
    active: NDArray[np.bool_] | None,
    observation: Observation,
    before: Step | None,
) -> ChunkOutcome:
    n, ta = chunks.shape[:2]
    going = np.ones(n, np.bool_) if active is None else active.copy()
    rewards, steps = np.zeros((n, ta), np.float32), np.zeros(n, np.int64)
    terminated, truncated, solved = np.zeros((3, n), np.bool_)
    reported, final = False, {}
    for a in range(ta):
        if before is not None:
            before(a, observation, going)
        steps += going
        # Worlds that must step together cannot rest.
        observation, reward, term, trunc, infos = (
            env.step(chunks[:, a]) if active is None else env.step(chunks[:, a], going)
        )
        rewards[going, a] = reward[going]
        terminated |= going & term
        truncated |= going & trunc
        if "success" in infos:
            reported = True
            solved |= going & infos["success"]
        ended = going & (term | trunc)
        if ended.any():
            for key, value in infos["final_obs"].items():
                final.setdefault(key, np.zeros_like(value))[ended] = value[ended]
            going = going & ~ended
            if not going.any():
                break
    return ChunkOutcome(observation, rewards, steps, terminated, truncated, solved if reported else None, final)


Watch = Callable[[NDArray[np.intp], NDArray[np.int64], Observation], None]
"""watch(worlds (M,), episode of each (M,), observation of all N) before each control step of the M worlds that move."""


@dataclass(frozen=True, eq=False)
class Turn:
    """Decisions that were executed to their end.

    Rows of worlds outside `worlds` and `beyond` are without meaning. Arrays of observations may be written over by the
    next turn.
    """

    worlds: NDArray[np.bool_]  # (N,) where a decision came to its end in this turn, and counts
    # (N,) where one did that does not count: worlds that cannot rest act on beyond their quota. The decisions that the
    # quota of the last world cuts short come in a turn of their own, with no `worlds`
    beyond: NDArray[np.bool_]
    decision: Decision  # with what its agent kept
    rewards: NDArray[np.float32]  # (N, Ta) of each executed step, then 0
    steps: NDArray[np.int64]  # (N,) how many were executed
    # after the decision; of an episode that ended here its *final* one, never the next one's first
    observation: Observation
    # terminated, truncated: (N,) how the episode ended, if it did
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    # (N,) whether a step of the decision solved the task; all false where the world does not report it
    success: NDArray[np.bool_]
    solved: NDArray[np.bool_]  # (N,) whether any step of the episode so far did
    episode: NDArray[np.int64]  # (N,) the how-many-th of its world the episode is, from 0
    elapsed: NDArray[np.int64]  # (N,) control steps of the episode before the decision

    @property
    def ended(self) -> NDArray[np.bool_]:
        """(N,) the decision was the last of its episode."""
        return self.terminated | self.truncated


class Engine:
    """Runs agents in `env`, which must be used through here alone.

    Attributes:
      elapsed: (N,) control steps of the running episodes.
      solved: (N,) whether they have been solved; a world may report that long before the end.
      env_steps: control steps executed since the engine was made.
      simulation_s, acting_s: seconds spent in the worlds and in deciding.
      success_reported: whether the worlds have reported success at all.
    """

    def __init__(self, env: Env) -> None:
        n = env.num_envs
        self.env = env
        self.observation: Observation = {}
        self.elapsed, self._episode = np.zeros((2, n), np.int64)
        self.solved = np.zeros(n, np.bool_)
        self.env_steps, self.simulation_s, self.acting_s = 0, 0.0, 0.0
        self.success_reported = False

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin new episodes in all worlds; see `robolearn.core.Env.reset`."""
        begun = time.perf_counter()
        self.observation, infos = self.env.reset(seed=seed, options=options)
        self.simulation_s += time.perf_counter() - begun
        self.success_reported |= "success" in infos
        self._forget(slice(None))

    def snapshot(self) -> dict[str, NDArray] | None:
        """Everything that `restore` needs, or None where the worlds' state cannot be read."""
        world = self.env.snapshot()
        if world is None:
            return None
        return {
            "elapsed": self.elapsed.copy(),
            "solved": self.solved.copy(),
            **{f"env/{key}": v for key, v in world.items()},
        }

    def restore(self, snapshot: Mapping[str, NDArray]) -> None:
        """Continue from `snapshot`."""
        world = {key.removeprefix("env/"): v for key, v in snapshot.items() if key.startswith("env/")}
        self.observation = self.env.restore(world)
        self.elapsed[:], self.solved[:] = snapshot["elapsed"], snapshot["solved"]

    def turns(self, agent: Agent, quota: Quota, *, watch: Watch | None = None) -> Iterator[Turn]:
        """Let `agent` act until `quota` is met, counted from here; worlds that have met theirs rest if they can. Raises
        `RobolearnError`: an episode goes on beyond the world's time limit; `BadInput, NonFinite`: from the agent."""
        self._episode[:] = 0
        return (self._together if self.env.steps_together else self._lockstep)(agent, quota, watch)

    def _lockstep(self, agent: Agent, quota: Quota, watch: Watch | None) -> Iterator[Turn]:
        decisions = np.zeros(self.env.num_envs, np.int64)
        nowhere = np.zeros(self.env.num_envs, np.bool_)

        def before(a: int, observation: Observation, going: NDArray[np.bool_]) -> None:
            if a > 0 and agent.observes_every_step:
                agent.observe(observation)
            if watch is not None:
                watch(np.flatnonzero(going), self._episode[going], observation)

        every_step = before if watch is not None or agent.observes_every_step else None
        while (active := quota.open(self._episode, decisions)).any():
            decision = self._decide(agent, active)
            begun = time.perf_counter()
            out = execute(self.env, decision.chunk, active, self.observation, every_step)
            self.simulation_s += time.perf_counter() - begun
            decisions += active
            self._account(out, out.steps)
            turn = self._turn(active, nowhere, decision, out)
            self.observation = out.observation
            self._end_episodes(agent, turn.ended)
            yield turn

    def _together(self, agent: Agent, quota: Quota, watch: Watch | None) -> Iterator[Turn]:
        n = self.env.num_envs
        rows, everywhere = np.arange(n), np.ones(n, np.bool_)
        decisions, cursor = np.zeros((2, n), np.int64)
        need, held = everywhere, Decision(np.zeros((n, 1, 1), np.float32))
        rewards, success = np.zeros((n, 1), np.float32), np.zeros(n, np.bool_)
        while (owing := quota.open(self._episode, decisions)).any():
            if need.any():
                fresh = self._decide(agent, need)
                held = fresh if need.all() else _replace_rows(held, fresh, need)
                rewards = np.where(need[:, None], np.float32(0.0), rewards) + np.zeros_like(held.chunk[..., 0])
                success[need], cursor[need] = False, 0
            elif agent.observes_every_step:
                agent.observe(self.observation)
            if watch is not None:
                watch(rows, self._episode, self.observation)
            begun = time.perf_counter()
            out = step_once(self.env, held.chunk[rows, cursor], self.observation)
            self.simulation_s += time.perf_counter() - begun
            rewards[rows, cursor] = out.rewards[:, 0]
            cursor += 1
            success |= False if out.success is None else out.success
            ended = out.terminated | out.truncated
            need = ended | (cursor == held.chunk.shape[1])
            so_far = replace(out, rewards=rewards.copy(), steps=cursor.copy())
            if out.success is not None:
                so_far = replace(so_far, success=success.copy())
            self._account(so_far, out.steps)
            turn = self._turn(need & owing, need & ~owing, held, so_far)
            decisions += turn.worlds
            self.observation = out.observation
            self._end_episodes(agent, ended)
            if need.any():
                yield turn
        if (cut := (cursor > 0) & ~need).any():
            none = np.zeros(n, np.bool_)
            so_far = ChunkOutcome(self.observation, rewards, cursor, none, none, success, final={})
            yield self._turn(none, cut, held, so_far)

    def _decide(self, agent: Agent, worlds: NDArray[np.bool_]) -> Decision:
        begun = time.perf_counter()
        decision = agent.decide(self.observation, worlds)
        self.acting_s += time.perf_counter() - begun
        return decision

    def _account(self, out: ChunkOutcome, executed: NDArray[np.int64]) -> None:
        """Count `executed` (N,) control steps, the last of the decisions that `out` is the outcome of."""
        self.env_steps += int(executed.sum())
        self.elapsed += executed
        limit = self.env.max_episode_steps
        over = self.elapsed[~(out.terminated | out.truncated)] if limit > 0 else np.empty(0)
        if over.size and over.max() > limit:
            raise RobolearnError(
                f"task {self.env.task!r}: an episode has run {over.max()} steps, expected at most "
                f"{limit}: the world neither terminates nor truncates it"
            )
        self.success_reported |= out.success is not None
        if out.success is not None:
            self.solved |= out.success

    def _turn(
        self, worlds: NDArray[np.bool_], beyond: NDArray[np.bool_], decision: Decision, out: ChunkOutcome
    ) -> Turn:
        return Turn(
            worlds=worlds,
            beyond=beyond,
            decision=decision,
            rewards=out.rewards,
            steps=out.steps,
            observation=_after(out),
            terminated=out.terminated,
            truncated=out.truncated,
            success=np.zeros_like(self.solved) if out.success is None else out.success,
            solved=self.solved.copy(),
            episode=self._episode.copy(),
            elapsed=self.elapsed - out.steps,
        )

    def _end_episodes(self, agent: Agent, ended: NDArray[np.bool_]) -> None:
        if ended.any():
            self._episode[ended] += 1
            self._forget(ended)
            agent.begin(ended)

    def _forget(self, worlds: NDArray[np.bool_] | slice) -> None:
        self.elapsed[worlds] = 0
        self.solved[worlds] = False


def _after(out: ChunkOutcome) -> Observation:
    """The observation that followed: the final one where an episode ended."""
    if not out.final:
        return out.observation
    ended = out.terminated | out.truncated
    return {
        key: np.where(ended.reshape(-1, *[1] * (value.ndim - 1)), out.final[key], value)
        for key, value in out.observation.items()
    }


def _replace_rows(held: Decision, fresh: Decision, worlds: NDArray[np.bool_]) -> Decision:
    """`held` with the rows of `fresh` in the worlds (N,) that are true; neither is changed."""
    chunk = held.chunk.copy()
    chunk[worlds] = fresh.chunk[worlds]
    aux = {}
    for key, value in held.aux.items():
        aux[key] = value.copy() if isinstance(value, np.ndarray) else value.clone()
        aux[key][worlds] = fresh.aux[key][worlds]
    return Decision(chunk, aux)


class Quota(Protocol):
    """The end of `Engine.turns`."""

    def open(self, episodes: NDArray[np.int64], decisions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,) worlds in which something is left to do, after so many episodes and decisions in each."""
        ...


@dataclass(frozen=True)
class Episodes:
    """The first ``each[w]`` episodes of every world w; `each` is (N,)."""

    each: NDArray[np.int64]

    def open(self, episodes: NDArray[np.int64], decisions: NDArray[np.int64]) -> NDArray[np.bool_]:
        return episodes < self.each


@dataclass(frozen=True)
class Decisions:
    """T decisions in every world, over as many episodes as that takes."""

    each: int

    def open(self, episodes: NDArray[np.int64], decisions: NDArray[np.int64]) -> NDArray[np.bool_]:
        return decisions < self.each


def spread(episodes: int, num_envs: int) -> NDArray[np.int64]:
    """(N,) how many of n episodes each world runs: ⌈n/N⌉ in the first n mod N worlds, ⌊n/N⌋ in the others."""
    share, rest = divmod(episodes, num_envs)
    return share + (np.arange(num_envs) < rest).astype(np.int64)
