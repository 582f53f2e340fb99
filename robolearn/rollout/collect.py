"""Recording: a teleoperator, a script or a policy acts in N worlds; finished episodes go to the writer.

Commits cost more than the simulation between them, so episodes that end within `COMMIT_S` share one.

`goal_states` are the ends of demonstrations from given starts: a goal for each of those episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Env, Episode, Observation, Teleoperator
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.rollout.agents import Decision, TeleoperatorAgent
from robolearn.rollout.engine import Engine, Episodes, Turn, spread

COMMIT_S = 0.25  # a finished episode waits no longer than this, and the step at hand, to be safe on disk


@dataclass(frozen=True)
class Collected:
    """Counts of what was recorded."""

    episodes: int
    successes: int
    frames: int


def collect(
    env: Env, teleoperator: Teleoperator, writer: EpisodeWriter, episodes: int, seed: int, *,
    progress: Callable[[int, dict[str, float]], None] | None = None, failure: Callable[[int], str] | None = None,
) -> Collected:  # fmt: skip
    """Record exactly `episodes` episodes, successful or not.

    Args:
      env: N worlds; reset with `seed`.
      writer: finished episodes are safe on disk after `COMMIT_S`, and all of them when this function is left,
        by Ctrl-C or an error too.
      seed: of the starts.
      progress: called with the number done and the success rate so far.
      failure: world → the kind of failure that its present episode is made to be; a solved episode has none.
    """
    done = successes = frames = 0
    engine = Engine(env)
    engine.reset(seed)
    teleoperator.reset(np.ones(env.num_envs, dtype=bool))
    agent = RecordingAgent(teleoperator, failure)
    with RolloutRecorder(env, writer) as recorder:
        for turn in engine.turns(agent, Episodes(spread(episodes, env.num_envs))):
            recorder.see(np.flatnonzero(turn.worlds), turn.decision.aux)
            for episode in recorder.add(turn, agent.failures):
                done += 1
                successes += episode.success
                frames += len(episode)
                if progress is not None:
                    progress(done, {"success": successes / done})
    return Collected(done, successes, frames)


class RecordingAgent(TeleoperatorAgent):
    """Keeps the observation that each command answers: the next step may write over its arrays.

    Attributes:
      failures: the kind of failure of each world's episode at the newest decision, before a world that ended in it
        began its next episode.
    """

    def __init__(self, teleoperator: Teleoperator, failure: Callable[[int], str] | None = None) -> None:
        super().__init__(teleoperator)
        self._failure = failure
        self.failures: list[str] = []

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        decision = super().decide(observation, worlds)
        self.failures = ["" if self._failure is None else self._failure(w) for w in range(len(worlds))]
        return replace(decision, aux={key: np.array(value) for key, value in observation.items()})


class RolloutRecorder:
    """The episodes of N worlds, step by step, and to the writer as they end; all of them when it is left."""

    def __init__(self, env: Env, writer: EpisodeWriter) -> None:
        self._prompt, self._finished = env.prompt, _Finished(writer)
        self._running = [_EpisodeRecorder() for _ in range(env.num_envs)]
        self._seen: list[tuple[NDArray[np.intp], Observation]] = []

    def __enter__(self) -> RolloutRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.commit()

    def watch(self, worlds: NDArray[np.intp], episode: NDArray[np.int64], observation: Observation) -> None:
        """See `robolearn.rollout.engine.Watch`."""
        self.see(worlds, {key: np.array(value) for key, value in observation.items()})

    def see(self, worlds: NDArray[np.intp], observation: Observation) -> None:
        """Keep what `worlds` see before the next step of the chunk at hand; its arrays stay as they are."""
        self._seen.append((worlds, observation))

    def add(self, turn: Turn, failures: Sequence[str] = ()) -> Iterator[Episode]:
        """The actions and rewards of a turn whose steps were all seen; yields the episodes that ended in it."""
        for step, (worlds, observation) in enumerate(self._seen):
            for w in worlds:
                self._running[w].add(observation, turn.decision.chunk[:, step], turn.rewards[:, step], int(w))
        self._seen.clear()
        for w in np.flatnonzero(turn.worlds & turn.ended):
            episode = self._running[w].finish(
                bool(turn.solved[w]), bool(turn.terminated[w]), bool(turn.truncated[w]), self._prompt,
                {key: np.array(value[w]) for key, value in turn.observation.items()},
            )  # fmt: skip
            if failures and not episode.success:
                episode = replace(episode, failure=failures[int(w)])
            self._finished.add(episode)
            self._running[w] = _EpisodeRecorder()
            yield episode
        self._finished.commit_if_due()


class _Finished:
    """Episodes on their way to the writer."""

    def __init__(self, writer: EpisodeWriter) -> None:
        self._writer = writer
        self._waiting: list[Episode] = []
        self._last = time.monotonic()

    def add(self, episode: Episode) -> None:
        self._waiting.append(episode)

    def commit_if_due(self) -> None:
        if time.monotonic() - self._last >= COMMIT_S:
            self.commit()

    def commit(self) -> None:
        # What a commit that was interrupted has stored must not be stored again.
        base, waiting = self._writer.episodes, self._waiting
        try:
            self._writer.write_all(waiting)
        except BadInput:
            # All or none: those before the refused one are stored one by one.
            for episode in waiting:
                self._writer.write(episode)
        finally:
            self._waiting = waiting[self._writer.episodes - base :]
            self._last = time.monotonic()


class _EpisodeRecorder:
    """The steps of one world's present episode."""

    def __init__(self) -> None:
        self._observations: list[dict[str, NDArray]] = []
        self._actions: list[NDArray[np.float32]] = []
        self._rewards: list[float] = []

    def add(self, observation: Observation, action: NDArray, reward: NDArray, world: int) -> None:
        self._observations.append({key: value[world] for key, value in observation.items()})
        self._actions.append(action[world])
        self._rewards.append(float(reward[world]))

    def finish(
        self, success: bool, terminated: bool, truncated: bool, task: str, final: Mapping[str, NDArray]
    ) -> Episode:
        keys = self._observations[0]
        return Episode(
            observation={key: np.stack([o[key] for o in self._observations]) for key in keys},
            action=np.stack(self._actions).astype(np.float32),
            reward=np.array(self._rewards, dtype=np.float32),
            success=success,
            terminated=terminated,
            truncated=truncated,
            task=task,
            final=final,
        )


def goal_states(
    env: Env, teleoperator: Teleoperator, each: NDArray[np.int64], seed: int, features: Sequence[str]
) -> tuple[dict[str, NDArray], float]:
    """The last observations before the last actions, as a data set stores them, and the share of successes.

    Args:
      env: N worlds; reset with `seed`, so that their episodes begin as those of whoever meets the same seed.
      each: (N,) episodes of each world.
      features: what of an observation.

    Returns:
      Feature → (N, max each, …); what is beyond a world's number of episodes repeats its last one.
    """
    engine = Engine(env)
    engine.reset(seed)
    teleoperator.reset(np.ones(env.num_envs, dtype=bool))
    most = int(each.max())
    ends = {
        key: np.zeros((env.num_envs, most, *spec.shape), spec.dtype)
        for key, spec in env.interface.observation.items()
        if key in features
    }
    solved = 0
    for turn in engine.turns(RecordingAgent(teleoperator), Episodes(each)):
        for w in np.flatnonzero(turn.worlds & turn.ended):
            solved += int(turn.solved[w])
            for key, array in ends.items():
                array[w, turn.episode[w] :] = turn.decision.aux[key][w]
    return ends, solved / int(each.sum())
