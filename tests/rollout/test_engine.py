"""The episode engine: the fast path and step by step alike, worlds that may rest or not, quotas, what agents are shown.

The worlds here keep a ledger of every action that they executed, by (world, episode, step). An action says which
decision of which episode it belongs to, so that one that leaked into another episode would show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from robolearn.core import ArraySpec, Interface, NonFinite, Policy, RobolearnError
from robolearn.eval import evaluate
from robolearn.rollout import Decision, Decisions, Engine, Episodes, PolicyAgent, Turn, spread

INTERFACE = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=10.0)


class Ledger:
    """The observation is (world, episode, step); episode e of world w lasts ``length(w, e)`` steps."""

    interface, task, prompt, max_episode_steps = INTERFACE, "ledger", "", 50

    def __init__(self, num_envs: int, lengths: tuple[int, ...], *, together: bool = False) -> None:
        self.num_envs, self.lengths, self.steps_together = num_envs, lengths, together
        self.executed: dict[tuple[int, int, int], tuple[float, ...]] = {}
        self.options: list[dict | None] = []

    def length(self, world: int, episode: int) -> int:
        return self.lengths[(3 * world + 5 * episode) % len(self.lengths)]

    def terminates(self, world: int, episode: int) -> bool:
        return (world + episode) % 2 == 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        self.options.append(options)
        self.page = np.zeros((self.num_envs, 3), np.float32)
        self.page[:, 0] = np.arange(self.num_envs)
        return {"proprio": self.page}, {}

    def step(self, actions: NDArray, active: NDArray | None = None) -> tuple:
        assert active is None or not self.steps_together
        n = self.num_envs
        rewards, success, terminated, truncated = np.zeros(n, np.float32), *np.zeros((3, n), bool)
        final = np.full((n, 3), -1.0, np.float32)
        for w in np.flatnonzero(np.ones(n, bool) if active is None else active).tolist():
            rewards[w] = self._act(w, actions[w])
            success[w] = self.page[w, 2] == 2
            self._end(w, terminated, truncated, final)
        infos = {"success": success, "final_obs": {"proprio": final}, "_final_obs": terminated | truncated}
        return {"proprio": self.page}, rewards, terminated, truncated, infos

    def _act(self, w: int, action: NDArray) -> float:
        _, episode, step = self.page[w].astype(int)
        assert (w, episode, step) not in self.executed
        self.executed[w, episode, step] = tuple(action.tolist())
        self.page[w, 2] += 1
        return float(np.float32(action[0]) * np.float32(0.5) + np.float32(step))

    def _end(self, w: int, terminated: NDArray, truncated: NDArray, final: NDArray) -> None:
        episode, step = self.page[w, 1:].astype(int)
        if step == self.length(w, episode):
            terminated[w], truncated[w] = self.terminates(w, episode), not self.terminates(w, episode)
            final[w] = self.page[w]
            self.page[w, 1:] = episode + 1, 0

    def snapshot(self) -> dict[str, NDArray]:
        return {"page": self.page.copy()}

    def restore(self, snapshot: dict[str, NDArray]) -> dict:
        self.page[:] = snapshot["page"]
        return {"proprio": self.page}

    def frame(self, world: int = 0) -> None:
        return None

    def close(self, **kwargs: Any) -> None:
        pass


class FastLedger(Ledger):
    """With a fast path of its own: world by world, not step by step."""

    def step_chunk(self, chunks: NDArray, active: NDArray | None = None) -> tuple:
        n = self.num_envs
        rewards, steps = np.zeros(chunks.shape[:2], np.float32), np.zeros(n, np.int64)
        success, terminated, truncated = np.zeros((3, n), bool)
        final = np.full((n, 3), -7.0, np.float32)
        for w in np.flatnonzero(np.ones(n, bool) if active is None else active).tolist():
            for a, action in enumerate(chunks[w]):
                rewards[w, a] = self._act(w, action)
                steps[w] += 1
                success[w] |= self.page[w, 2] == 2
                self._end(w, terminated, truncated, final)
                if terminated[w] or truncated[w]:
                    break
        infos = {"success": success, "steps": steps, "step_rewards": rewards, "final_obs": {"proprio": final}}
        infos["_final_obs"] = terminated | truncated
        return {"proprio": self.page}, rewards.sum(1), terminated, truncated, infos


class Script(Policy):
    """Chunks of 5 whose action i, asked at step t of an episode, is (code of world and episode, t + i)."""

    interface = INTERFACE

    def __init__(self, execute: int, watchful: bool = False) -> None:
        self.execute_steps, self.observes_every_step = execute, watchful
        self.shown: list[tuple[str, NDArray]] = []
        self.begun: list[NDArray] = []

    def begin(self, worlds: NDArray) -> None:
        self.begun.append(worlds.copy())

    def observe(self, observation: Any) -> None:
        self.shown.append(("observe", observation["proprio"].copy()))

    def act(self, observation: Any) -> NDArray[np.float32]:
        self.shown.append(("act", observation["proprio"].copy()))
        world, episode, step = observation["proprio"].T
        out = np.zeros((len(world), 5, 2), np.float32)
        out[..., 0] = code(world, episode)[:, None]
        out[..., 1] = 0.01 * (step[:, None] + np.arange(5))
        return out


def code(world: Any, episode: Any) -> Any:
    return np.float32(0.1) * world + np.float32(0.003) * episode


def expected_ledger(env: Ledger, episodes: dict[int, int]) -> dict[tuple[int, int, int], tuple[float, ...]]:
    """What the worlds must have executed: every action answers its own episode and its own step."""
    return {
        (w, e, t): (float(np.float32(code(np.float32(w), np.float32(e)))), float(np.float32(0.01 * np.float32(t))))
        for w, count in episodes.items()
        for e in range(count)
        for t in range(env.length(w, e))
    }


def play(env: Ledger, policy: Script, quota: Any, **how: Any) -> tuple[list[Turn], Engine]:
    engine = Engine(env)  # type: ignore[arg-type]
    engine.reset(0)
    turns = []
    for turn in engine.turns(PolicyAgent(policy), quota, **how):
        observation = {key: value.copy() for key, value in turn.observation.items()}
        turns.append(Turn(**{**vars(turn), "observation": observation}))
    return turns, engine


worlds = st.integers(1, 4)
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=7).map(tuple)
execute = st.integers(1, 5)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(worlds, lengths, execute, st.integers(1, 12))
def test_step_by_step_is_the_fast_path_bit_for_bit(n: int, lengths: tuple[int, ...], execute: int, episodes: int):
    """Active masks included: with few episodes some worlds rest."""
    slow, fast = Ledger(n, lengths), FastLedger(n, lengths)
    quota = Episodes(spread(episodes, n))
    (a, one), (b, two) = play(slow, Script(execute), quota), play(fast, Script(execute), quota)
    watched, three = play(FastLedger(n, lengths), Script(execute), quota, watch=lambda *_: None)
    assert slow.executed == fast.executed and len(a) == len(b) == len(watched)
    for other in (b, watched):
        for s, f in zip(a, other, strict=True):
            counted = s.worlds
            for name in ("worlds", "steps", "terminated", "truncated", "success", "solved", "episode", "elapsed"):
                np.testing.assert_array_equal(getattr(s, name)[counted], getattr(f, name)[counted], name)
            np.testing.assert_array_equal(s.worlds, f.worlds)
            np.testing.assert_array_equal(s.rewards[counted], f.rewards[counted])
            np.testing.assert_array_equal(s.observation["proprio"][counted], f.observation["proprio"][counted])
    assert one.env_steps == two.env_steps == three.env_steps == len(slow.executed)


@settings(max_examples=60, deadline=None)
@given(worlds, lengths, execute, st.integers(1, 12), st.booleans())
def test_every_action_answers_its_own_episode(
    n: int, lengths: tuple[int, ...], execute: int, episodes: int, together: bool
):
    """An episode that ends in the middle of a chunk leaks nothing of it into the next one."""
    env = Ledger(n, lengths, together=together)
    each = spread(episodes, n)
    turns, _engine = play(env, Script(execute), Episodes(each))
    wanted = expected_ledger(env, dict(enumerate(each.tolist())))
    # Worlds that cannot rest go on beyond their share.
    np.testing.assert_allclose([env.executed[key] for key in wanted], list(wanted.values()), atol=1e-6)
    assert together or len(env.executed) == len(wanted)
    # Exactly the episodes of the quota, each whole.
    ended = np.sum([turn.worlds & turn.ended for turn in turns], axis=0)
    np.testing.assert_array_equal(ended, each)
    rewards, steps = np.zeros((n, episodes + 1)), np.zeros((n, episodes + 1), int)
    for turn in turns:
        for w in np.flatnonzero(turn.worlds):
            assert turn.elapsed[w] == steps[w, turn.episode[w]] and turn.elapsed[w] % execute == 0
            steps[w, turn.episode[w]] += turn.steps[w]
            rewards[w, turn.episode[w]] += turn.rewards[w].sum()
            assert not turn.rewards[w, turn.steps[w] :].any()
            done = steps[w, turn.episode[w]]
            assert turn.observation["proprio"][w].tolist() == [w, turn.episode[w], done], "the final one at an end"
            assert turn.ended[w] == (done == env.length(int(w), turn.episode[w]))
            assert turn.solved[w] == (done >= 2) and turn.success[w] == (turn.elapsed[w] < 2 <= done)
            assert not turn.ended[w] or turn.terminated[w] == env.terminates(int(w), turn.episode[w])
    for w in range(n):
        for e in range(int(each[w])):
            length = env.length(w, e)
            assert steps[w, e] == length
            assert rewards[w, e] == pytest.approx(length * 0.5 * code(w, e) + length * (length - 1) / 2, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(worlds, lengths, execute, st.integers(1, 6), st.booleans())
def test_exactly_so_many_decisions_in_every_world(
    n: int, lengths: tuple[int, ...], execute: int, decisions: int, together: bool
):
    turns, _engine = play(Ledger(n, lengths, together=together), Script(execute), Decisions(decisions))
    assert np.sum([turn.worlds for turn in turns], axis=0).tolist() == [decisions] * n
    assert together or all(turn.worlds.all() for turn in turns)


@settings(max_examples=40, deadline=None)
@given(worlds, lengths, execute, st.integers(1, 6), st.booleans())
def test_what_is_done_beyond_a_quota_is_handed_over_too(
    n: int, lengths: tuple[int, ...], execute: int, decisions: int, together: bool
):
    """Every step that the worlds executed is in one turn, and no other."""
    env = Ledger(n, lengths, together=together)
    turns, engine = play(env, Script(execute), Decisions(decisions))
    handed = []
    for turn in turns:
        assert not (turn.worlds & turn.beyond).any() and (together or not turn.beyond.any())
        for w in np.flatnonzero(turn.worlds | turn.beyond):
            steps = [(int(w), int(turn.episode[w]), int(turn.elapsed[w] + i)) for i in range(turn.steps[w])]
            handed += steps
            rewards = [np.float32(env.executed[step][0]) * np.float32(0.5) + np.float32(step[2]) for step in steps]
            np.testing.assert_allclose(turn.rewards[w, : len(steps)], rewards, rtol=1e-6)
            assert turn.ended[w] == (steps[-1][2] + 1 == env.length(int(w), steps[-1][1]))
    assert sorted(handed) == sorted(env.executed) and engine.env_steps == len(handed)


def test_each_world_that_steps_with_the_others_has_a_cursor_of_its_own():
    """Chunks of 3, episodes of 2 and of 7: world 0 decides at steps 0, 2, 4, …, world 1 at 0, 3, 6, 7, 10, …"""
    env = Ledger(2, (2,), together=True)
    env.length = lambda world, episode: 2 if world == 0 else 7  # type: ignore[method-assign]
    policy = Script(3)
    turns, _ = play(env, policy, Episodes(np.array([7, 2])))
    ends = [[sum(t.steps[w] for t in turns[: i + 1] if t.worlds[w]) for i, t in enumerate(turns) if t.worlds[w]]
            for w in range(2)]  # fmt: skip
    assert ends == [[2, 4, 6, 8, 10, 12, 14], [3, 6, 7, 10, 13, 14]]
    assert len(policy.shown) == len({0, 2, 4, 6, 8, 10, 12} | {0, 3, 6, 7, 10, 13})


@pytest.mark.parametrize("together", [False, True])
def test_a_watchful_policy_is_shown_every_step_once(together: bool):
    """Also where worlds step together and decide at different times: what one is asked, all show."""
    n = 3 if together else 1
    env, policy = Ledger(n, (5, 3, 4), together=together), Script(3, watchful=True)
    play(env, policy, Episodes(np.full(n, 4)))
    for w in range(n):
        seen = [tuple(page[w, 1:].astype(int).tolist()) for _, page in policy.shown]
        steps = [(e, t) for e in range(30) for t in range(env.length(w, e))][: len(seen)]
        assert seen == steps
    if not together:
        asked = [tuple(page[0, 1:].astype(int)) for what, page in policy.shown if what == "act"]
        assert asked == [(e, t) for e in range(4) for t in range(0, env.length(0, e), 3)]
    ends = np.sum(policy.begun, axis=0)
    assert (ends >= 4).all(), "told of every end"


@pytest.mark.parametrize("together", [False, True])
def test_a_watch_sees_every_step_of_what_counts(together: bool):
    seen: set[tuple[int, int, int]] = set()

    def watch(worlds: NDArray, episodes: NDArray, observation: dict) -> None:
        for w, e in zip(worlds.tolist(), episodes[: len(worlds)].tolist(), strict=True):
            assert observation["proprio"][w, 1] == e
            seen.add((w, e, int(observation["proprio"][w, 2])))

    env = Ledger(3, (5, 3, 4), together=together)
    play(env, Script(2), Episodes(np.array([2, 2, 1])), watch=watch)
    assert seen == set(env.executed)


def test_an_env_with_step_alone_is_evaluated_like_one_with_the_fast_path():
    results = [
        evaluate(kind(3, (4, 7, 2), **how), Script(3), 8, seed=0)  # type: ignore[arg-type]
        for kind, how in ((Ledger, {}), (FastLedger, {}), (Ledger, {"together": True}))
    ]
    for name in ("succeeded", "steps", "returns", "terminated", "truncated", "world", "index"):
        for other in results[1:]:
            np.testing.assert_array_equal(getattr(results[0], name), getattr(other, name), name)


@pytest.mark.parametrize("together", [False, True])
def test_an_engine_goes_on_from_its_snapshot(together: bool):
    env = Ledger(2, (7, 4), together=together)
    engine = Engine(env)  # type: ignore[arg-type]
    engine.reset(0)
    list(engine.turns(PolicyAgent(Script(3)), Decisions(1)))
    snapshot = engine.snapshot()
    assert snapshot is not None
    expected = [turn.elapsed.tolist() for turn in engine.turns(PolicyAgent(Script(3)), Decisions(3))]
    solved = engine.solved.copy()
    again = Ledger(2, (7, 4), together=together)
    other = Engine(again)  # type: ignore[arg-type]
    other.reset(5)
    other.restore(snapshot)
    assert [turn.elapsed.tolist() for turn in other.turns(PolicyAgent(Script(3)), Decisions(3))] == expected
    np.testing.assert_array_equal(other.solved, solved)


def test_equal_starts_reach_the_world_and_a_reset_forgets():
    env = Ledger(2, (7,))
    engine = Engine(env)  # type: ignore[arg-type]
    engine.reset(0)
    list(engine.turns(PolicyAgent(Script(3)), Decisions(1)))
    assert engine.elapsed.tolist() == [3, 3] and engine.solved.all()
    ids = np.array([4, 4])
    engine.reset(1, {"start_ids": ids})
    assert env.options == [None, {"start_ids": ids}]
    assert engine.elapsed.tolist() == [0, 0] and not engine.solved.any()


def test_what_cannot_go_on_is_said():
    endless = Ledger(1, (60,))
    with pytest.raises(RobolearnError, match="expected at most 50"):
        play(endless, Script(5), Episodes(np.array([1])))

    class Broken(Script):
        def act(self, observation: Any) -> NDArray[np.float32]:
            out = super().act(observation)
            out[observation["proprio"][:, 1] == 1] = np.nan  # in the second episode
            return out

    play(Ledger(2, (3,)), Broken(3), Episodes(np.array([1, 1])))
    with pytest.raises(NonFinite):
        play(Ledger(2, (3,)), Broken(3), Episodes(np.array([1, 2])))


class PaidForResting(Ledger):
    """Worlds that rest report a reward all the same, as a vectorised world may."""

    def step(self, actions: NDArray, active: NDArray | None = None) -> tuple:
        seen, rewards, *rest = super().step(actions, active)
        if active is not None:
            rewards[~active] = 7.0
        return seen, rewards, *rest


def test_rewards_of_worlds_that_rest_are_nobody_s() -> None:
    env = PaidForResting(3, (2, 5, 3))
    engine = Engine(env)
    engine.reset(0)

    class Still:
        observes_every_step = False

        def begin(self, worlds: NDArray) -> None: ...

        def observe(self, observation: Any) -> None: ...

        def decide(self, observation: Any, worlds: NDArray) -> Decision:
            return Decision(np.zeros((3, 4, 2), np.float32))

    turns = list(engine.turns(Still(), Episodes(np.array([1, 2, 1]))))
    rested = 0
    for turn in turns:
        for w in range(3):
            assert (turn.rewards[w, turn.steps[w] :] == 0).all()
            assert turn.rewards[w].max() < 7.0
            rested += int(turn.steps[w] < 4)
    assert rested > 3
