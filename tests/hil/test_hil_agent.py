"""Who commands which step: chunks, take-over between any two of their steps, hand-back, a person's labels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.core import ArraySpec, Interface, NonFinite
from robolearn.data.replay import End, ReplayStep
from robolearn.hil.agent import SteeredAgent
from robolearn.hil.learner import summary
from robots.chunk_execution import Delayed, ExecutionHistory

sys.path.insert(0, str(Path(__file__).parent))
from classroom import Classroom, Helper, LineWorld, make_lesson, play

ALL = np.ones(1, np.bool_)
LINE = Interface({"x": ArraySpec((1,))}, ArraySpec((1,)), 20.0)


class Steering:
    """Steers at the steps that are named, with 0.5; otherwise its action is NaN, which nobody may execute."""

    def __init__(self, *steps: int) -> None:
        self.steps, self.count = steps, -1

    def begin(self, worlds: np.ndarray) -> None:
        self.count = -1

    def steer(self) -> None: ...

    def command(self, observation: Any) -> tuple[np.ndarray, np.ndarray]:
        self.count += 1
        steers = self.count in self.steps
        return np.array([steers]), np.array([[0.5 if steers else np.nan]], np.float32)


class Policy:
    """The c-th chunk is c/10 + 0.01, 0.02, 0.03, of the step that it was asked at."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, observation: Any, late: Any) -> np.ndarray:
        self.asked.append(int(observation["x"][0, 0]))
        return (np.array([[0.01], [0.02], [0.03]]) + len(self.asked) / 10).astype(np.float32)


def run(
    steps: int, operator: Any = None, asks: dict[int, list[Any]] | None = None
) -> tuple[list, Policy, SteeredAgent]:
    """(action, intervention) of so many steps."""
    policy, t, seen = Policy(), 0, []

    def before(observation: Any, steering: bool) -> list[Any]:
        seen.append(steering)
        return (asks or {}).get(t, [])

    agent = SteeredAgent(LINE, policy, lambda: None, before)
    agent.start(operator)
    out = []
    buffer = np.zeros((1, 1), np.float32)
    for t in range(steps):
        buffer[:] = t
        decision = agent.decide({"x": buffer}, ALL)
        buffer[:] = -1  # a world may write over what it has shown
        assert decision.aux["observation"]["x"][0, 0] == t
        out.append((round(float(decision.chunk[0, 0, 0]), 2), decision.aux["intervention"]))
    assert seen == [False, *(helped for _, helped in out[:-1])]
    return out, policy, agent


def test_chunks_are_executed_to_their_end() -> None:
    out, policy, _ = run(7)
    assert [a for a, _ in out] == [0.11, 0.12, 0.13, 0.21, 0.22, 0.23, 0.31] and policy.asked == [0, 3, 6]
    assert not any(helped for _, helped in out)


def test_a_late_policy_knows_what_was_seen_then_and_done_since() -> None:
    """d = 2: at step t it was asked at t − 2 and the last two actions count, the operator's too; a new episode none."""
    known = []

    def act(observation: Any, late: Delayed | None) -> np.ndarray:
        assert late is not None
        known.append((int(late.before["x"][0, 0]), int(late.age[0]), round(float(late.executed[0, 0]), 2)))
        return np.array([[0.1], [0.2], [0.3]], np.float32)

    agent = SteeredAgent(LINE, act, lambda: None, lambda *_: (), ExecutionHistory(2, LINE))
    for operator in (Steering(4), None):  # whose actions are 0.5
        agent.start(operator)
        for t in range(7):
            agent.decide({"x": np.full((1, 1), t, np.float32)}, ALL)
    # chunks begin at 0, 3 (after .1 .2 .3), 5 (after .1 and the operator's .5); then at 0, 3 and 6
    assert known == [(0, 0, 0.0), (1, 2, 0.5), (3, 2, 0.6), (0, 0, 0.0), (1, 2, 0.5), (4, 2, 0.5)]


def test_a_take_over_voids_the_rest_of_the_chunk() -> None:
    out, policy, _ = run(8, Steering(1, 2, 5))
    assert [a for a, _ in out] == [0.11, 0.5, 0.5, 0.21, 0.22, 0.5, 0.31, 0.32]
    assert [t for t, (_, helped) in enumerate(out) if helped] == [1, 2, 5]
    assert policy.asked == [0, 3, 6]


def test_a_person_takes_over_and_hands_back() -> None:
    class Device(Steering):
        def command(self, observation: Any) -> tuple[np.ndarray, np.ndarray]:
            return np.array([False]), np.array([[-2.0]], np.float32)

    out, policy, _ = run(6, Device(), {2: ["take_over"], 4: ["hand_back"]})
    assert [a for a, _ in out] == [0.11, 0.12, -1.0, -1.0, 0.21, 0.22]  # never beyond ±1
    assert policy.asked == [0, 4]


def test_without_a_device_there_is_nothing_to_take_over_with() -> None:
    out, _, _ = run(3, None, {1: ["take_over"]})
    assert not any(helped for _, helped in out)


def test_an_action_that_is_none_is_never_executed() -> None:
    agent = SteeredAgent(LINE, lambda *_: np.full((2, 1), np.nan, np.float32), lambda: None, lambda *_: ())
    agent.start(None)
    with pytest.raises(NonFinite, match="policy"):
        agent.decide({"x": np.zeros((1, 1))}, ALL)


class Labels:
    """Asks for something at certain (episode, step)s, and keeps what it was shown."""

    def __init__(self, asks: dict[tuple[int, int], str]) -> None:
        self.asks, self.shown = asks, []

    def show(self, status: Any) -> None:
        self.shown.append(status)

    def poll(self) -> list[Any]:
        last = self.shown[-1]
        return [self.asks[key]] if (key := (last.episode, last.step)) in self.asks else []


@pytest.mark.long
def test_a_person_s_labels_end_episodes(tmp_path: Path) -> None:
    person = Labels({(0, 2): "success", (1, 3): "failure", (3, 4): "quit"})
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)
    env = LineWorld(limit=8)
    played = play(tmp_path / "outbox", room.port, env=env, helper=None, console=person)
    room.stop()
    ends = {r.episode: r for r in played.records if isinstance(r, End)}
    steps = [r for r in played.records if isinstance(r, ReplayStep)]
    assert sorted(ends) == [0, 1, 2], "who quits drops the running episode: it has no outcome, and counts nowhere"
    assert [(ends[e].length, ends[e].terminated, ends[e].truncated, ends[e].success) for e in (0, 1)] == [
        (3, True, False, True), (4, True, False, False)]  # fmt: skip
    assert played.played.episodes == 3 and len(room.learner.experience.outcomes) == 3
    rewards = [[r.reward for r in steps if r.episode == e] for e in range(4)]
    assert rewards[0] == [0, 0, 1] and rewards[1] == [0] * 4 and rewards[3] == [0] * 5
    assert played.link.acknowledged == len(played.records)
    last = person.shown[-1]
    assert last.episode == 3 and last.version >= 0 and last.linked and last.period.p50 > 49
    # The final observation of an episode that a person ended is that after its last step.
    assert ends[0].observation["proprio"][1] == 3


@pytest.mark.long
def test_a_take_that_a_person_discards_is_no_failure_and_in_no_set(tmp_path: Path) -> None:
    person = Labels({(0, 3): "return", (1, 2): "success", (2, 4): "quit"})
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)
    played = play(tmp_path / "outbox", room.port, env=LineWorld(limit=8), helper=None, console=person)
    room.stop()
    ends = {r.episode: r for r in played.records if isinstance(r, End)}
    assert sorted(ends) == [1] and ends[1].success and played.played.episodes == 1
    steps = [r for r in played.records if isinstance(r, ReplayStep)]
    assert [r.index for r in steps if r.episode == 1] == [0, 1, 2], "the next one begins at once, from its start"
    dropped, kept = room.learner.experience.outcomes
    assert dropped.cut and not dropped.success and dropped.steps == 3 and kept.success and not kept.cut
    free, _ = summary(room.learner.experience.outcomes, 10)
    assert [one.success for one in free] == [True], "of the dropped one nobody says that it failed"


@pytest.mark.long
def test_a_crash_of_the_actor_leaves_its_episode_cut_in_real_time(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)
    env = LineWorld()
    play(tmp_path / "outbox", room.port, env=env, helper=None, stop=lambda: sum(map(len, env.executed)) >= 5)
    env = LineWorld()
    played = play(tmp_path / "outbox", room.port, env=env, helper=None, stop=lambda: len(env.final) >= 1)
    room.stop()
    first = [r for r in played.records if r.episode == 0]
    assert all(isinstance(r, ReplayStep) for r in first) and 1 < len(first) < 12
    outcome = room.learner.experience.outcomes[0]
    # The last step's outcome is not known, so it leads nowhere; the rest is learned from.
    assert outcome.cut and outcome.steps == len(first) - 1 and not room.learner.experience.outcomes[1].cut
    windows = room.learner.experience.online
    rows = {int(w) for w in windows.windows["start"]}
    assert max(rows) > 12 and not windows.windows["ends"][: len(first)].any()


@pytest.mark.long
def test_with_a_key_alone_the_world_s_word_is_no_end(tmp_path: Path) -> None:
    """`--reward key`: the world ends an episode as solved, but nobody pressed the key: it was cut there."""
    person = Labels({(1, 2): "success", (2, 3): "quit"})
    room = Classroom(tmp_path, make_lesson("realtime", reward="key"), env_steps=10**6)
    env = LineWorld(limit=30)

    class Right(Helper):
        def command(self, observation: Any) -> tuple[np.ndarray, np.ndarray]:
            return np.array([True]), np.ones((1, 1), np.float32)

    played = play(tmp_path / "outbox", room.port, env=env, helper=lambda seed: Right(seed), console=person)
    room.stop()
    ends = {r.episode: r for r in played.records if isinstance(r, End)}
    assert (ends[0].terminated, ends[0].truncated, ends[0].success) == (False, True, False)
    assert float(ends[0].observation["proprio"][0]) >= 1.0, "though the world called it solved"
    assert (ends[1].terminated, ends[1].success) == (True, True)
    rewards = [[r.reward for r in played.records if isinstance(r, ReplayStep) and r.episode == e] for e in (0, 1)]
    assert not any(rewards[0]) and rewards[1] == [0, 0, 1]
