"""Exactly n episodes, the same starts for all, and no favour for short ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.core import BadInput, Env, NonFinite, Policy, RobolearnError
from robolearn.core.protocols import ChunkEnv
from robolearn.eval.evaluation import evaluate
from robolearn.rollout import spread


def test_the_fakes_keep_the_protocols(fake) -> None:
    assert isinstance(fake.Env(1, lambda d, s: 1), Env) and isinstance(fake.Env(1, lambda d, s: 1), ChunkEnv)
    assert isinstance(fake.Policy(0.5), Policy)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 1000), st.integers(1, 100))
def test_shares_are_even_and_add_up(n: int, worlds: int) -> None:
    q = spread(n, worlds)
    assert q.sum() == n and q.max() - q.min() <= 1 and (np.diff(q) <= 0).all()


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    episodes=st.integers(1, 60),
    worlds=st.integers(1, 9),
    execute=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=12),
    seed=st.integers(0, 10_000),
)
def test_exactly_n_episodes_whatever_their_length(
    fake_types, episodes: int, worlds: int, execute: int, lengths: list[int], seed: int
) -> None:
    fake = fake_types

    def length(difficulty: float, solved: bool) -> int:
        return lengths[int(difficulty * len(lengths))]

    result = evaluate(fake.Env(worlds, length), fake.Policy(0.5, execute), episodes, seed)
    assert result.episodes == episodes == result.success.episodes
    assert np.array_equal(np.bincount(result.world, minlength=worlds), spread(episodes, worlds))
    difficulty = [fake.start(seed, w, j) for w, j in zip(result.world, result.index, strict=True)]
    assert result.succeeded.tolist() == [d <= np.float32(0.5) for d in difficulty]
    assert result.steps.tolist() == [length(d, False) for d in difficulty]
    assert result.returns.tolist() == result.succeeded.astype(float).tolist()
    assert result.terminated.all() and not result.truncated.any()
    assert result.cycle_time_s.tolist() == (result.steps / 20.0).tolist()


@pytest.mark.long
def test_short_failures_are_not_favoured(fake) -> None:
    """Failures last 2 steps, successes 40: counting what ends within a rollout is far off, the evaluation is not."""
    worlds, seed = 20, 7
    env, policy = fake.Env(worlds, lambda d, solved: 40 if solved else 2), fake.Policy(0.5, execute_steps=2)

    env.reset(seed=seed)
    policy.reset(seed)
    ended, solved = 0, 0
    for _ in range(30):  # 60 control steps, and whatever ends within them is counted
        _, _, terminated, _, infos = env.step_chunk(policy.act({"objects": np.zeros((worlds, 3))})[:, :2])
        ended, solved = ended + terminated.sum(), solved + infos["success"].sum()
    assert solved / ended < 0.4

    result = evaluate(env, policy, 400, seed)
    truth = np.mean([fake.start(seed, w, j) <= 0.5 for w in range(worlds) for j in range(20)])
    assert result.success.rate == truth
    assert result.success.low < 0.5 < result.success.high


def test_success_is_that_of_any_step_of_the_episode(fake) -> None:
    """Solved in the first chunk, over five chunks later by the clock: a success."""

    class Early(fake.Env):
        """Reports success when it comes, not at the end."""

        def step_chunk(self, chunks, active=None):
            first = self.t == 0
            observation, reward, terminated, truncated, infos = super().step_chunk(chunks, active)
            infos["success"] = first & self.solved
            return observation, reward, terminated, truncated, infos

    result = evaluate(Early(4, lambda d, solved: 10**9, max_episode_steps=24), fake.Policy(0.5, 4), 12, seed=3)
    difficulty = [fake.start(3, w, j) for w, j in zip(result.world, result.index, strict=True)]
    assert result.truncated.all() and (result.steps == 24).all()
    assert result.succeeded.tolist() == [d <= 0.5 for d in difficulty]
    assert 0 < result.succeeded.sum() < 12


def test_another_seed_is_another_noise_of_the_policy_and_other_starts(fake) -> None:
    seeds = []

    class Noting(fake.Policy):
        def reset(self, seed: int) -> None:
            seeds.append(seed)
            super().reset(seed)

    env = fake.Env(2, lambda d, s: 1)
    for seed in (5, 6):
        evaluate(env, Noting(0.5, noise=0.3), 4, seed)
        seeds.append(env.seed)
    assert seeds == [5, 5, 6, 6]


def test_worlds_rest_when_they_have_run_their_share(fake) -> None:
    env = fake.Env(3, lambda d, solved: 4)
    evaluate(env, fake.Policy(0.5), 4, seed=0)
    assert [call.tolist() for call in env.calls] == [[True, True, True], [True, False, False]]


def test_starts_do_not_depend_on_the_policy(fake) -> None:
    env = fake.Env(4, lambda d, solved: 9 if solved else 3)
    a, b = evaluate(env, fake.Policy(0.2), 30, 5), evaluate(env, fake.Policy(0.8), 30, 5)
    difficulty = np.array([fake.start(5, w, j) for w, j in zip(a.world, a.index, strict=True)])
    assert np.array_equal(a.succeeded, difficulty <= 0.2)
    assert np.array_equal(b.succeeded, difficulty <= 0.8)


def test_the_same_seed_gives_the_same_episodes_watched_or_not(fake) -> None:
    env, policy = fake.Env(4, lambda d, solved: 9 if solved else 3), fake.Policy(0.5, noise=0.3)
    plain = evaluate(env, policy, 30, 5)
    seen = np.zeros((4, 8), int)

    def watch(worlds: np.ndarray, index: np.ndarray, observation: dict) -> None:
        seen[worlds, index] += 1
        assert np.array_equal(observation["objects"][worlds, 1], index)

    watched = evaluate(env, policy, 30, 5, watch=watch)
    for name in ("succeeded", "steps", "returns", "terminated", "truncated"):
        assert np.array_equal(getattr(plain, name), getattr(watched, name)), name
    assert np.array_equal(seen[plain.world, plain.index], plain.steps)
    assert seen.sum() == plain.steps.sum()


def test_truncation_progress_and_json(fake) -> None:
    env = fake.Env(3, lambda d, solved: 5 if solved else 99, max_episode_steps=8)
    calls: list[tuple[int, int]] = []
    result = evaluate(env, fake.Policy(0.6), 20, 2, progress=lambda done, total: calls.append((done, total)))
    assert np.array_equal(result.truncated, ~result.succeeded)
    assert np.array_equal(result.terminated, result.succeeded)
    assert set(result.steps) == {5, 8}
    assert calls[0] == (0, 20) and calls[-1] == (20, 20) and calls == sorted(calls)
    assert result.mean_cycle_time_s.mean == 0.25 and len(result.solved_s) == result.succeeded.sum()
    data = json.loads(json.dumps(result.to_json()))
    assert set(data["success"]) == {"rate", "low", "high", "episodes"}
    assert data["cycle_time_s"]["mean"] == 0.25
    assert data["env_steps"] == result.steps.sum()
    assert data["wall_s"]["total"] == pytest.approx(data["wall_s"]["policy"] + data["wall_s"]["simulation"])


def test_what_cannot_be_evaluated_is_refused(fake) -> None:
    env = fake.Env(2, lambda d, solved: 3)
    with pytest.raises(BadInput, match="episodes: got 0, expected at least 1"):
        evaluate(env, fake.Policy(0.5), 0, 0)
    with pytest.raises(NonFinite, match="NaN"):
        evaluate(env, fake.Policy(float("nan")), 1, 0)

    short = fake.Policy(0.5)
    short.act = lambda observation: np.zeros((2, 2, 1))
    with pytest.raises(BadInput, match="action chunk: got"):
        evaluate(env, short, 1, 0)

    endless = fake.Env(2, lambda d, solved: 99, max_episode_steps=10**6)
    endless.max_episode_steps, step = 10, endless.step_chunk

    def forgets_the_clock(chunks: np.ndarray, active: np.ndarray) -> tuple:
        endless.max_episode_steps = 10**6
        result = step(chunks, active)
        endless.max_episode_steps = 10
        return result

    endless.step_chunk = forgets_the_clock
    with pytest.raises(RobolearnError, match="expected at most 10"):
        evaluate(endless, fake.Policy(0.5), 1, 0)


def test_a_world_without_a_notion_of_success_says_so(fake) -> None:
    mute = fake.Env(2, lambda d, solved: 3)
    step = mute.step_chunk

    def without(chunks: np.ndarray, active: np.ndarray) -> tuple:
        *rest, infos = step(chunks, active)
        return (*rest, {key: value for key, value in infos.items() if key != "success"})

    mute.step_chunk = without
    result = evaluate(mute, fake.Policy(0.5), 4, 0)
    assert not result.success_reported and not result.succeeded.any()  # a reward at the end is no success
    assert result.returns.any()
    assert evaluate(fake.Env(2, lambda d, solved: 3), fake.Policy(0.5), 4, 0).success_reported


def test_a_policy_that_sees_every_step_is_shown_each_once_and_told_where_episodes_begin(fake) -> None:
    class Watchful(fake.Policy):
        observes_every_step = True

        def reset(self, seed: int) -> None:
            super().reset(seed)
            self.fresh = np.ones(1, bool)
            self.diary: list[tuple[str, int, int]] = []

        def begin(self, worlds: np.ndarray) -> None:
            self.fresh |= worlds

        def note(self, what: str, observation: dict) -> None:
            _, index, t = observation["objects"][0]
            assert self.fresh[0] == (t == 0)
            self.fresh[:] = False
            self.diary.append((what, int(index), int(t)))

        def observe(self, observation: dict) -> None:
            self.note("observes", observation)

        def act(self, observation: dict) -> np.ndarray:
            self.note("acts", observation)
            return super().act(observation)

    policy = Watchful(0.5, execute_steps=3)
    result = evaluate(fake.Env(1, lambda d, s: 5), policy, 2, seed=1)
    blind = evaluate(fake.Env(1, lambda d, s: 5), fake.Policy(0.5, execute_steps=3), 2, seed=1)
    steps = [("acts", 0), ("observes", 1), ("observes", 2), ("acts", 3), ("observes", 4)]
    assert policy.diary == [(what, e, t) for e in range(2) for what, t in steps]
    assert result.steps.tolist() == blind.steps.tolist() == [5, 5]
    assert result.succeeded.tolist() == blind.succeeded.tolist()


def test_a_policy_that_does_not_know_its_world_takes_what_it_lacks_from_it(fake) -> None:
    class Guest(fake.Policy):
        def bind(self, offered) -> None:
            self.interface = offered

    guest = Guest(0.5)
    guest.interface = None
    assert evaluate(fake.Env(1, lambda d, s: 5), guest, 1, seed=1).episodes == 1 and guest.interface == fake.interface
