"""Recording: exactly so many episodes, fairly divided, what was executed, and nothing lost when stopped."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import robolearn.rollout.collect as module
from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data.reading.reader import Dataset
from robolearn.data.writing.writer import EpisodeWriter

INTERFACE = Interface(
    {"proprio": ArraySpec((3,), names=("world", "episode", "step"))}, ArraySpec((2,)), control_hz=20.0
)


class Counter:
    """Worlds that count: world w's episodes last 2 + w steps; every second one of a world is a success."""

    interface, task, prompt, max_episode_steps, steps_together = INTERFACE, "count", "count up", 50, False
    reports_success, continuing = True, False

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.seeds: list[int | None] = []
        self.executed: list[tuple[NDArray, NDArray]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        self.seeds.append(seed)
        self._episode, self._step = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        self._buffer = np.zeros((self.num_envs, 3), np.float32)
        return self._observe(), {}

    def step(self, actions: NDArray, active: NDArray | None = None) -> tuple:
        assert active is not None
        self.executed.append((actions.copy(), active.copy()))
        self._step += active
        ended = active & (self._step == 2 + np.arange(self.num_envs))
        success = ended & (self._episode % 2 == 0)
        reward = np.where(active, 0.5 * self._step, 0.0).astype(np.float32)
        final = {key: value.copy() for key, value in self._observe().items()}
        self._episode += ended
        self._step[ended] = 0
        infos = {"success": success, "final_obs": final, "_final_obs": ended}
        return self._observe(), reward, success, ended & ~success, infos

    def _observe(self) -> dict[str, NDArray]:
        """One buffer that is written over: whoever wants to keep it has to copy it."""
        self._buffer[:] = np.stack([np.arange(self.num_envs), self._episode, self._step], -1)
        return {"proprio": self._buffer}


class Script:
    """Commands that tell where they belong, in one buffer that is written over."""

    def __init__(self, num_envs: int) -> None:
        self.resets: list[NDArray] = []
        self._buffer = np.zeros((num_envs, 2), np.float32)

    def reset(self, worlds: NDArray) -> None:
        self.resets.append(worlds.copy())

    def command(self, observation: dict[str, NDArray]) -> NDArray:
        self._buffer[:] = action_of(observation["proprio"])
        return self._buffer


def action_of(proprio: NDArray) -> NDArray:
    return np.stack([0.1 * proprio[:, 0] - 0.5, 0.01 * proprio[:, 1] + 0.1 * proprio[:, 2]], -1).astype(np.float32)


def stored(path: Path) -> list[Episode]:
    data = Dataset.open(path)
    return [data.episode(i) for i in range(data.episodes)]


@pytest.mark.parametrize(("worlds", "episodes"), [(3, 8), (4, 4), (5, 2), (1, 3)])
def test_exactly_so_many_episodes_fairly_divided(tmp_path: Path, worlds: int, episodes: int) -> None:
    env = Counter(worlds)
    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer:
        got = module.collect(env, Script(worlds), writer, episodes, 7)  # type: ignore[arg-type]
    kept = stored(tmp_path / "d")
    assert env.seeds == [7] and len(kept) == got.episodes == episodes
    by_world = np.bincount([int(e.observation["proprio"][0, 0]) for e in kept], minlength=worlds)
    assert np.ptp(by_world) <= 1  # quick worlds are not favoured
    assert got.successes == sum(e.success for e in kept)
    assert got.frames == sum(len(e) for e in kept)


def test_none_at_all(tmp_path: Path) -> None:
    env = Counter(2)
    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer:
        assert module.collect(env, Script(2), writer, 0, 0) == module.Collected(0, 0, 0)  # type: ignore[arg-type]
        assert writer.episodes == 0 and not env.executed


def test_a_world_that_is_done_is_not_stepped(tmp_path: Path) -> None:
    env = Counter(3)
    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer:
        got = module.collect(env, Script(3), writer, 4, 0)  # type: ignore[arg-type]
    steps = np.sum([active for _, active in env.executed], axis=0)
    np.testing.assert_array_equal(steps, [2 * 2, 3, 4])
    assert got.frames == steps.sum()


def test_whole_episodes_of_what_was_seen_done_and_earned(tmp_path: Path) -> None:
    env, script = Counter(3), Script(3)
    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer:
        module.collect(env, script, writer, 7, 0)  # type: ignore[arg-type]
    for episode in stored(tmp_path / "d"):
        world, number = episode.observation["proprio"][0, :2].astype(int)
        length = 2 + world
        assert len(episode) == length
        expected = np.stack([np.full(length, world), np.full(length, number), np.arange(length)], -1)
        np.testing.assert_array_equal(episode.observation["proprio"], expected)  # before each action
        np.testing.assert_allclose(episode.action, action_of(expected))  # not the last, again and again
        np.testing.assert_allclose(episode.reward, 0.5 * np.arange(1, length + 1))
        success = number % 2 == 0
        assert (episode.success, episode.terminated, episode.truncated) == (success, success, not success)
        assert episode.task == "count up"


def test_the_executed_actions_are_the_stored_ones(tmp_path: Path) -> None:
    env = Counter(2)
    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer:
        module.collect(env, Script(2), writer, 6, 0)  # type: ignore[arg-type]
    for w in range(2):
        mine = [e.action for e in stored(tmp_path / "d") if e.observation["proprio"][0, 0] == w]
        executed = [action[w] for action, active in env.executed if active[w]]
        np.testing.assert_array_equal(np.concatenate(mine), executed)


def test_the_teleoperator_begins_anew_with_every_episode(tmp_path: Path) -> None:
    env, script = Counter(2), Script(2)
    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer:
        module.collect(env, script, writer, 4, 0)  # type: ignore[arg-type]
    assert script.resets[0].all()
    np.testing.assert_array_equal(np.sum(script.resets[1:], axis=0), [2, 2])


def test_progress_counts_up(tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []
    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer:
        got = module.collect(
            Counter(3), Script(3), writer, 6, 0,  # type: ignore[arg-type]
            progress=lambda done, values: told.append((done, values["success"])),
        )  # fmt: skip
    assert [done for done, _ in told] == [1, 2, 3, 4, 5, 6]
    assert told[0][1] == 1.0 and told[-1][1] == got.successes / 6


@pytest.mark.long
@pytest.mark.parametrize("stop", [1, 4, 5])
def test_ctrl_c_keeps_every_finished_episode(tmp_path: Path, stop: int) -> None:
    def progress(done: int, values: dict[str, float]) -> None:
        if done == stop:
            raise KeyboardInterrupt

    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer, pytest.raises(KeyboardInterrupt):
        module.collect(Counter(3), Script(3), writer, 12, 0, progress=progress)  # type: ignore[arg-type]
    kept = stored(tmp_path / "d")
    assert len(kept) == stop
    for episode in kept:
        assert len(episode) == 2 + episode.observation["proprio"][0, 0]
    with EpisodeWriter(tmp_path / "d", INTERFACE, resume=True) as writer:
        module.collect(Counter(3), Script(3), writer, 2, 1)  # type: ignore[arg-type]
    assert len(stored(tmp_path / "d")) == stop + 2


def test_an_episode_that_is_refused_does_not_take_the_others_along(tmp_path: Path) -> None:
    class Broken(Counter):
        def _observe(self) -> dict[str, NDArray]:
            observation = super()._observe()
            second = (self._episode == 1) & (np.arange(3) == 2)
            observation["proprio"][second & (self._step == 3), 2] = np.nan  # world 2's second episode
            return observation

    with EpisodeWriter(tmp_path / "d", INTERFACE) as writer, pytest.raises(BadInput, match="step 3"):
        module.collect(Broken(3), Script(3), writer, 30, 0)  # type: ignore[arg-type]
    firsts = [tuple(e.observation["proprio"][0, :2].astype(int)) for e in stored(tmp_path / "d")]
    assert {(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)} <= set(firsts) and len(firsts) == len(set(firsts))
    assert (2, 1) not in firsts


class Slow(EpisodeWriter):
    """Counts commits, and can be stopped by Ctrl-C inside one, before or after its commit point."""

    commits = 0
    interrupt: tuple[int, bool] | None = None

    def write_all(self, episodes: Iterable[Episode]) -> None:
        episodes = list(episodes)
        if not episodes:
            return
        self.commits += 1
        number, after = self.interrupt or (0, False)
        if self.commits == number and not after:
            raise KeyboardInterrupt
        super().write_all(episodes)
        if self.commits == number and after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_inside_a_commit_neither_loses_nor_doubles(
    tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMIT_S", 0.0)
    with Slow(tmp_path / "d", INTERFACE) as writer, pytest.raises(KeyboardInterrupt):
        writer.interrupt = (2, after)
        module.collect(Counter(3), Script(3), writer, 12, 0)  # type: ignore[arg-type]
    firsts = [tuple(e.observation["proprio"][0, :2].astype(int)) for e in stored(tmp_path / "d")]
    assert len(firsts) == len(set(firsts)) >= 2


@pytest.mark.long
def test_commits_are_grouped_by_time_and_none_waits_for_long(tmp_path: Path) -> None:
    with Slow(tmp_path / "a", INTERFACE) as writer:
        module.collect(Counter(5), Script(5), writer, 200, 0)  # type: ignore[arg-type]
    assert writer.episodes == 200 and writer.commits <= 12
    waits: list[int] = []

    class Patient(Script):
        def command(self, observation: dict[str, NDArray]) -> NDArray:
            time.sleep(0.03)
            waits.append(writer.episodes)
            return super().command(observation)

    with Slow(tmp_path / "b", INTERFACE) as writer:
        module.collect(Counter(1), Patient(1), writer, 15, 0)  # type: ignore[arg-type]
    # An episode of 0.06 s each; five to eight of them share a commit.
    finished = np.arange(len(waits)) // 2
    assert np.max(finished - waits) <= 8 and 2 <= writer.commits <= 6
