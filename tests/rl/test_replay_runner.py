"""The replay runner: what it stores against the world's own arithmetic, updates that are paid for, exact resumption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from robolearn.core import BadInput, RewardWithheld, RobolearnError, Score, Window
from robolearn.data.replay import PlayedEpisode
from robolearn.rewards.asking import LoggedScores
from robolearn.rl.algorithms import OffPolicyConfig, algorithms
from robolearn.rl.offline_runner import OfflineRunner
from robolearn.rl.replay_runner import ReplayRunner

Make = Callable[..., Any]
SMALL: dict[str, Any] = {"critics": 3, "subset": 2, "width": 16, "depth": 1, "batch": 16, "warmup": 20}
REACH, TOLERANCE = 0.3, 0.15  # of the world in conftest.py


def begin(
    make_policy: Make, point: Make, algo: str = "rlpd", worlds: int = 4, env_steps: int = 2000, **settings: Any
) -> ReplayRunner:
    world = point(worlds, **settings.pop("world", {}))
    policy = make_policy(world.interface, horizon=2, execute=2, gain=20.0)
    config = algorithms(OffPolicyConfig)[algo](**(SMALL | settings))  # type: ignore[arg-type]
    return ReplayRunner(policy, world, config, env_steps, 0)


def run(runner: ReplayRunner, first: int, last: int) -> list[dict[str, float]]:
    rows = [runner.iterate(i) for i in range(first, last)]
    return [{key: value for key, value in row.items() if not key.startswith("wall")} for row in rows]


@pytest.mark.long
@pytest.mark.parametrize("together", [False, True], ids=["may-rest", "together"])
def test_episodes_are_what_the_world_did(make_policy: Make, point: Make, together: bool) -> None:
    runner = begin(make_policy, point, world={"together": together, "limit": 5})
    kept: list[PlayedEpisode] = []
    add = runner.experience.add
    runner.experience.add = lambda episode: kept.append(episode) or add(episode)  # type: ignore[method-assign]
    run(runner, 0, 6)
    assert len(kept) > 20 and 0 < sum(e.success for e in kept) < len(kept)
    for episode in kept:
        place, a = episode.observation["proprio"][:, 0], episode.action[:, 0]
        assert len(place) == len(a) + 1 and 0.4 <= abs(place[0]) <= 0.8
        np.testing.assert_allclose(place[1:], place[:-1] + REACH * a, atol=1e-6)  # the final one, too
        there = np.abs(place[1:]) < TOLERANCE
        assert not there[:-1].any() and episode.success == episode.terminated == there[-1]
        assert episode.terminated or len(episode) == 5
        np.testing.assert_array_equal(episode.reward, there.astype(np.float32))
    assert runner.experience.env_steps == sum(map(len, kept))


@pytest.mark.long
@pytest.mark.parametrize("utd", [0.25, 2.0])
def test_updates_are_those_that_closed_episodes_pay_for(make_policy: Make, point: Make, utd: float) -> None:
    runner = begin(make_policy, point, utd=utd)
    for i in range(3):
        row = runner.iterate(i)
        assert row["rewarded"] == pytest.approx(row["success"] * row["episodes"])
        steps = runner.experience.env_steps
        assert row["updates"] == runner.algorithm.updates == int(utd * max(steps - SMALL["warmup"], 0))
    assert runner.env_steps == runner.env.executed == 3 * 4 * 16


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Updates of an iteration, fewer than an episode pays for."""
    for name in ("replay_runner.MOST", "offline_runner.BLOCK"):
        monkeypatch.setattr(f"robolearn.rl.{name}", 7)
    return 7


@pytest.mark.long
def test_an_iteration_makes_no_more_than_so_many_updates_and_nothing_acts_while_some_are_due(
    make_policy: Make, point: Make, few: int
) -> None:
    runner = begin(make_policy, point, env_steps=200, utd=2.0)
    act, made, i = runner.algorithm.act, [0], 0

    def paid() -> int:
        return int(2.0 * max(runner.experience.env_steps - SMALL["warmup"], 0))

    def acted(*args: Any, **named: Any) -> np.ndarray:
        assert runner.algorithm.updates == paid()
        return act(*args, **named)

    runner.algorithm.act = acted  # type: ignore[method-assign]
    while i < runner.iterations:
        made.append(int(runner.iterate(i)["updates"]))
        i += 1
        assert i < 100, "it ends"
    assert np.diff(made).max() == few and np.diff(made).min() >= 0
    assert made[-1] == paid() > 100 and 200 - 4 * 16 < runner.env_steps <= 200


@pytest.mark.long
def test_worlds_whose_episodes_end_with_a_saved_state_are_not_left_for_updates(
    make_policy: Make, point: Make, few: int
) -> None:
    runner = begin(make_policy, point, utd=2.0, world={"forgetful": True})
    rows = [runner.iterate(i) for i in range(3)]
    assert max(np.diff([row["updates"] for row in rows])) > 2 * few and rows[-1]["env_steps"] == 3 * 4 * 16


@pytest.mark.long
@pytest.mark.parametrize("at", [3, 4, 5, 6])
def test_a_run_resumed_while_updates_are_due_goes_on_bit_for_bit(
    make_policy: Make, point: Make, kit: Any, few: int, at: int
) -> None:
    whole, again = (begin(make_policy, point, utd=2.0) for _ in range(2))
    kit.assert_goes_on(whole, again, at, at + 6)
    assert again.env_steps == whole.env_steps and again.iterations == whole.iterations


@pytest.mark.long
def test_the_budget_is_kept(make_policy: Make, point: Make) -> None:
    runner = begin(make_policy, point, env_steps=200)
    i = 0
    while i < runner.iterations:
        i += bool(runner.iterate(i))
    assert i == 3 and runner.env_steps == 192


@pytest.mark.long
@pytest.mark.parametrize("forgetful", [False, True], ids=["snapshot", "no-snapshot"])
@pytest.mark.parametrize("algo", sorted(algorithms(OffPolicyConfig)))
def test_a_resumed_run_goes_on_bit_for_bit(make_policy: Make, point: Make, kit: Any, algo: str, forgetful: bool):
    settings: dict[str, Any] = {"world": {"forgetful": forgetful, "limit": 7}, "capacity": 150}
    settings |= {"imitate_own": True, "trust_after": 5} if algo == "proposals" else {}
    whole, again = (begin(make_policy, point, algo, **settings) for _ in range(2))
    kit.assert_goes_on(whole, again, 3, 6)
    assert again.env_steps == whole.env_steps and again.iterations == whole.iterations


def test_demonstrations_are_drawn_from_the_beginning(make_policy: Make, point: Make) -> None:
    world = point(2)
    policy = make_policy(world.interface, horizon=2, execute=2)
    shown = PlayedEpisode(
        {"proprio": np.full((4, 2), 9.0, np.float32)}, np.zeros((4, 1), np.float32), np.zeros(4, np.float32),
        np.ones(4, bool), True, True,
    )  # fmt: skip
    config = algorithms(OffPolicyConfig)["rlpd"](**SMALL, demo_share=0.5)  # type: ignore[arg-type]
    runner = ReplayRunner(policy, world, config, 1000, 0, [shown])
    runner.iterate(0)
    drawn = runner.experience.sample(torch.Generator().manual_seed(0))
    assert (drawn.observation["proprio"] == 9.0).all(1).sum() == SMALL["batch"] // 2


def test_what_cannot_begin_is_refused(make_policy: Make, point: Make) -> None:
    with pytest.raises(BadInput, match="--env-steps"):
        begin(make_policy, point, env_steps=63)
    with pytest.raises(BadInput, match="--delay-steps"):
        begin(make_policy, point, "proposals", delay_steps=2)


class Verdict:
    """Calls done where |x| has come below `near`."""

    reads = ()

    def __init__(self, near: float) -> None:
        self.near = near

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        assert set(prompts) == {"come to 0"}
        found = []
        for window in windows:
            x = np.abs(window.observation["proprio"][1:, 0])
            ones = np.ones(len(x), np.float32)
            found.append(Score(ones, -x, x < self.near, ones))
        return found


@pytest.mark.long
@pytest.mark.parametrize("near", [0.0, 0.3])
def test_a_model_s_rewards_and_ends_are_learned_from_and_the_world_s_are_not(
    make_policy: Make, point: Make, near: float
) -> None:
    world = point(4, limit=6)
    policy = make_policy(world.interface, horizon=2, execute=2, gain=20.0)
    runner = ReplayRunner(policy, world, algorithms(OffPolicyConfig)["rlpd"](**SMALL), 2000, 0, model=Verdict(near))
    kept: list[PlayedEpisode] = []
    add = runner.experience.add
    runner.experience.add = lambda episode: kept.append(scored := add(episode)) or scored  # type: ignore[method-assign]
    rows = run(runner, 0, 6)
    for episode in kept:
        x = np.abs(episode.observation["proprio"][1:, 0])
        after = np.arange(1, len(episode) + 1) < (len(episode) if episode.terminated else 7)  # its progress is 1
        wanted = 0.99 * after - (np.arange(len(episode)) > 0)
        wanted[-1] += episode.success
        np.testing.assert_allclose(episode.reward, wanted, atol=1e-6)
        assert episode.success == episode.terminated == bool((x < near).any())
        assert not episode.success or len(episode) == int(np.argmax(x < near)) + 1
    assert any(row["success"] > 0 for row in rows)  # the world's own is shown
    called = [row["called_done"] for row in rows if "called_done" in row]
    assert max(called) == 0.0 if near == 0.0 else max(called) > 0.0


@pytest.mark.long
def test_a_model_that_sees_is_shown_the_frames_of_decisions(make_policy: Make, point: Make) -> None:
    class Sees(Verdict):
        reads = ("proprio",)  # its pictures are vectors here
        shown: ClassVar[list[int]] = []

        def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
            self.shown += [len(window) for window in windows]
            return super().score(windows, prompts)

    world = point(4, limit=7)
    policy = make_policy(world.interface, horizon=3, execute=3, gain=20.0)
    model = Sees(0.0)
    runner = ReplayRunner(policy, world, algorithms(OffPolicyConfig)["rlpd"](**SMALL, gamma=0.5), 2000, 0, model=model)
    kept: list[PlayedEpisode] = []
    add = runner.experience.add
    runner.experience.add = lambda episode: kept.append(scored := add(episode)) or scored  # type: ignore[method-assign]
    run(runner, 0, 3)
    assert len(kept) > 5 and model.shown == [-(-len(episode) // 3) for episode in kept]
    for episode in kept:
        assert episode.reward[0] == 0.0 and len(episode) <= 7
        assert len(episode) < 4 or episode.reward[2:4] == pytest.approx([0.5, -0.5])  # its progress is 1 throughout


class Selective(Verdict):
    """Withholds the score of what begins to the right, demonstrations among it; keeps the starts of all others."""

    def __init__(self) -> None:
        super().__init__(0.3)
        self.starts: list[float] = []

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        starts = [float(window.observation["proprio"][0, 0]) for window in windows]
        if max(starts) > 0:
            raise RewardWithheld("too far to the right")
        self.starts += starts
        return super().score(windows, prompts)


def selected(make_policy: Make, point: Make, model: Any, updates: int = 0) -> ReplayRunner:
    world = point(4, limit=6)
    policy = make_policy(world.interface, horizon=2, execute=2, gain=20.0)
    config = algorithms(OffPolicyConfig)["rlpd"](**SMALL)  # type: ignore[arg-type]
    shown = played_well_and_badly()
    return ReplayRunner(policy, world, config, 2000, 0, shown, model=model, updates=updates)


@pytest.mark.long
def test_an_episode_without_a_score_is_counted_and_not_learned_from(
    make_policy: Make, point: Make, caplog: pytest.LogCaptureFixture
) -> None:
    runner = selected(make_policy, point, Selective())
    rows = run(runner, 0, 4)
    assert "6 demonstrations are left out" in caplog.text
    starts = [buffer.gather(torch.arange(len(buffer)), 1.0, torch.Generator()).observation["proprio"][:, 0]
              for buffer in (runner.experience.online, runner.experience.demonstrations)]  # fmt: skip
    assert min(map(len, starts)) > 5 and runner.algorithm.updates > 0
    withheld, episodes = sum(row["withheld"] for row in rows), sum(row["episodes"] for row in rows)
    assert 0 < withheld < episodes and runner.experience.env_steps < runner.env_steps
    for row in rows:
        judged = sum(row.get(name, 0.0) for name in ("called_solved", "called_failed", "uncalled_solved"))
        assert judged <= row["episodes"] - row["withheld"]


def test_a_run_whose_rewards_are_all_withheld_ends(make_policy: Make, point: Make) -> None:
    class Away(Selective):
        def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
            raise RewardWithheld("no server")

    with pytest.raises(RobolearnError, match="in a row are withheld: no server"):
        run(selected(make_policy, point, Away()), 0, 20)


@pytest.mark.long
@pytest.mark.parametrize("updates", [0, 20])
def test_a_resumed_run_asks_for_nothing_that_was_scored(
    make_policy: Make, point: Make, kit: Any, tmp_path: Path, updates: int
) -> None:
    """Neither for what was shown nor for what was played after the saved state."""
    first, second = Selective(), Selective()
    kept = LoggedScores(first, "m", tmp_path)
    whole = selected(make_policy, point, kept, updates)
    assert not first.starts, "a resumed run has the demonstrations in its state"
    run(whole, 0, 3)
    tensors, meta = whole.state()
    tensors = {key: value.clone() for key, value in tensors.items()}
    shown = len(first.starts)
    rows = run(whole, 3, 5)
    assert shown >= 6 and len(first.starts) > shown
    kept.close()
    for folder, asked in ((tmp_path / "none", first.starts[shown:]), (tmp_path, [])):
        again = selected(make_policy, point, LoggedScores(second, "m", folder), updates)
        again.load_state({key: value.clone() for key, value in tensors.items()}, meta)
        np.testing.assert_equal(run(again, 3, 5), rows)
        kit.assert_same(again.state()[0], whole.state()[0])
        assert second.starts == asked
        second.starts.clear()


def played_well_and_badly(episodes: int = 12) -> list[PlayedEpisode]:
    """The point goes to 0 in every other episode; elsewhere it goes away until the clock ends it."""
    found = []
    for e in range(episodes):
        x, good = [np.linspace(0.5, 0.8, episodes)[e] * (-1) ** (e // 2)], e % 2 == 0
        while len(x) < 5 and abs(x[-1]) >= TOLERANCE:
            x.append(x[-1] - np.sign(x[-1]) * REACH * (1.0 if good else -1.0))
        a = (np.diff(x) / REACH).astype(np.float32)[:, None]
        reward = np.zeros(len(a), np.float32)
        reward[-1] = good
        seen = {"proprio": np.stack([x, np.zeros(len(x))], 1).astype(np.float32)}
        found.append(PlayedEpisode(seen, a, reward, np.zeros(len(a), bool), good, good))
    return found


def offline_begin(make_policy: Make, point: Make, algo: str, updates: int, env_steps: int, forgetful: bool = False):
    world = point(4, forgetful=forgetful, limit=7)
    policy = make_policy(world.interface, horizon=1, execute=1, gain=20.0)
    config = algorithms(OffPolicyConfig)[algo](**SMALL)  # type: ignore[arg-type]
    if not env_steps:
        return OfflineRunner(policy, config, updates, 0, played_well_and_badly())
    return ReplayRunner(policy, world, config, env_steps, 0, played_well_and_badly(), updates=updates)


@pytest.mark.long
@pytest.mark.parametrize(
    ("algo", "forgetful"), [(algo, False) for algo in sorted(algorithms(OffPolicyConfig))] + [("rlpd", True)]
)
def test_what_began_offline_goes_on_in_worlds_bit_for_bit(
    make_policy: Make, point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, algo: str, forgetful: bool
) -> None:
    """Offline and then in worlds at one go; stopped in the middle of it, stopped at its end by a run that had no
    worlds, and stopped afterwards."""
    monkeypatch.setattr("robolearn.rl.offline_runner.BLOCK", 20)
    updates = 25
    whole = offline_begin(make_policy, point, algo, updates, 500, forgetful)
    assert whole.iterations == 2 + 500 // 32
    rows = run(whole, 0, 2)
    assert [row["updates"] for row in rows] == [20, updates] and rows[-1]["env_steps"] == whole.env.executed == 0
    whole.state()
    assert whole.env.seeds == []  # not even begun
    later = run(whole, 2, 6)
    assert later[0]["env_steps"] == 32 and later[-1]["updates"] > updates
    if forgetful:
        return  # such worlds begin anew where they are saved
    alone = offline_begin(make_policy, point, algo, updates, 0)
    np.testing.assert_equal(run(alone, 0, 1), rows[:1])
    for env_steps, first in ((0, 1), (500, 2), (500, 4)):
        tensors, meta = alone.state()
        tensors = {key: value.clone() for key, value in tensors.items()}
        alone = offline_begin(make_policy, point, algo, updates, env_steps)
        alone.load_state(tensors, meta)
        last = {1: 2, 2: 4, 4: 6}[first]
        np.testing.assert_equal(run(alone, first, last), [*rows, *later][first:last])
    kit.assert_same(whole.state()[0], alone.state()[0])


def test_offline_learning_needs_a_window(make_policy: Make, point: Make) -> None:
    policy = make_policy(point(1).interface, horizon=2, execute=2)
    config = algorithms(OffPolicyConfig)["rlpd"](**SMALL)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"--updates.*no window.*more than 2 steps"):
        OfflineRunner(policy, config, 5, 0, [])


def test_stored_episodes_beyond_the_capacity_are_refused(make_policy: Make, point: Make) -> None:
    """And not the oldest of them forgotten; the number that is asked for is enough."""
    policy, stored = make_policy(point(1).interface, horizon=1, execute=1), played_well_and_badly()
    frames = sum(len(episode.observation["proprio"]) for episode in stored)
    config = algorithms(OffPolicyConfig)["rlpd"]
    with pytest.raises(BadInput, match=rf"--capacity: got {frames - 1}, expected at least {frames}, the stored"):
        OfflineRunner(policy, config(**SMALL, capacity=frames - 1), 5, 0, stored)  # type: ignore[arg-type]
    runner = OfflineRunner(policy, config(**SMALL, capacity=frames), 5, 0, stored)  # type: ignore[arg-type]
    assert runner.experience.demonstrations.steps == sum(map(len, stored))
