"""The whole loop in one process, over real gRPC: what is recorded, what is learned, and that it is always the same."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.storage.checkpoint import load_policy
from robolearn.core import BadInput, Score, Window
from robolearn.data.replay import End, PlayedEpisode, ReplayStep
from robolearn.rl.experience import Experience
from robolearn.runs import read_metrics

sys.path.insert(0, str(Path(__file__).parent))
from classroom import FIRST, Classroom, Helper, LineWorld, make_base, make_lesson, play


def whole_run(folder: Path, **config: object) -> tuple[Classroom, object]:
    room = Classroom(folder, make_lesson(**config))  # type: ignore[arg-type]
    played = play(folder / "outbox", room.port)
    room.close()
    return room, played


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Classroom, object]:
    torch.set_num_threads(1)
    return whole_run(tmp_path_factory.mktemp("loop"))


@pytest.mark.long
def test_records_are_what_was_executed_and_seen(run) -> None:
    _, played = run
    steps = [record for record in played.records if isinstance(record, ReplayStep)]
    ends = [record for record in played.records if isinstance(record, End)]
    executed = [action for episode in played.env.executed for action in episode]
    np.testing.assert_allclose([float(step.action[0]) for step in steps], executed)
    # The final observation, never the first of the next episode.
    np.testing.assert_array_equal([end.observation["proprio"] for end in ends], played.env.final)
    for end, seen in zip(ends, played.env.final, strict=True):
        assert end.terminated == end.success == (seen[0] >= 1.0) and end.truncated == (not end.terminated)
    assert {end.success for end in ends} == {True, False}


def test_an_operator_s_steps_are_marked_and_theirs_alone(run) -> None:
    _, played = run
    steps = [record for record in played.records if isinstance(record, ReplayStep)]
    helped = {step.episode for step in steps if step.intervention}
    assert helped and helped != {step.episode for step in steps}
    for step in steps:
        assert step.intervention == (step.episode in helped and 4 <= step.index < 7)
        assert not step.intervention or step.action[0] == 1.0


def test_each_episode_has_a_start_of_its_own(run) -> None:
    _, played = run
    starts = [record.observation["proprio"][0] for record in played.records if getattr(record, "index", -1) == 0]
    assert len(set(map(float, starts))) == len(starts) > 5


def test_the_learner_has_every_record_and_keeps_the_ratio(run) -> None:
    room, played = run
    learner = room.learner
    assert list(room.receiver.actors["actor"].log.read())[-1].observation.keys() == {"proprio"}
    assert room.receiver.actors["actor"].log.path.read_bytes() == played.outbox.log.path.read_bytes()
    steps = sum(isinstance(record, ReplayStep) for record in played.records)
    assert learner.experience.env_steps == steps >= 150
    assert learner.updates == int(0.5 * (steps - 10)) == learner.allowed
    rows = list(read_metrics(room.run.path))
    assert len(rows) == sum(isinstance(record, End) for record in played.records)
    assert all(row["updates"] <= 0.5 * max(row["env_steps"] - 10, 0) for row in rows)
    helped = {r.episode for r in played.records if isinstance(r, ReplayStep) and r.intervention}
    assert sum(row["takeovers"] for row in rows) == len(helped)


def test_interventions_are_in_both_buffers(run) -> None:
    room, _ = run
    experience = room.learner.experience
    windows = experience.demonstrations.gather(
        torch.arange(len(experience.demonstrations)), 0.9, torch.Generator().manual_seed(0)
    )
    assert len(windows) and bool(windows.intervention.all()) and bool((windows.action == 1.0).all())
    online = experience.online.gather(torch.arange(len(experience.online)), 0.9, torch.Generator().manual_seed(0))
    assert int(online.intervention.sum()) == len(windows)


def test_the_actor_acts_by_the_learner_s_last_weights(run) -> None:
    room, played = run
    rows = list(read_metrics(room.run.path))
    assert (
        played.buffered.version == rows[-1]["updates"] > rows[-2]["updates"]
    )  # all that was learned before the episode
    assert played.buffered.newest == room.learner.updates
    played.buffered.swap()
    for key, value in room.learner.algorithm.acting().items():
        np.testing.assert_array_equal(value.numpy(), played.buffered.like[key])


def test_what_was_learned_is_one_policy_folder(run) -> None:
    room, _ = run
    policy = load_policy(room.run.policy_dir)
    learned = room.learner.algorithm.policy.state_dict()
    assert policy.state_dict().keys() == learned.keys()
    for key, value in learned.items():
        assert torch.equal(policy.state_dict()[key], value), key


@pytest.mark.long
@pytest.mark.parametrize("algo", ["proposals", "rlpd"])
def test_in_lockstep_one_seed_gives_one_run(tmp_path: Path, algo: str) -> None:
    first, one = whole_run(tmp_path / "one", algo=algo)
    second, other = whole_run(tmp_path / "other", algo=algo)
    assert one.outbox.log.path.read_bytes() == other.outbox.log.path.read_bytes()
    assert first.learner.updates > 40
    for key, value in first.state().items():
        assert torch.equal(value, second.state()[key]), key


@pytest.mark.long
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path, run) -> None:
    """The learner is stopped thrice, the actor twice in the middle of an episode, both at moments of their own."""
    unbroken, whole = run
    room = Classroom(tmp_path, make_lesson())
    port, parts = room.port, []
    for steps in (25, 40, 10**6):
        env = LineWorld()
        thread = threading.Thread(
            target=lambda env=env, steps=steps: parts.append(
                play(tmp_path / "outbox", port, env=env, stop=lambda: sum(map(len, env.executed)) >= steps)
            )
        )
        thread.start()
        if steps < 10**6:
            thread.join(30)
        room.stop()
        room = Classroom(tmp_path, make_lesson(), port=port)
        thread.join(30)
        assert not thread.is_alive()
    room.close()
    assert parts[-1].outbox.log.path.read_bytes() == whole.outbox.log.path.read_bytes()
    for key, value in unbroken.state().items():
        assert torch.equal(value, room.state()[key]), key
    ours, theirs = (
        [{key: value for key, value in row.items() if key != "wall_s"} for row in read_metrics(r.run.path)]
        for r in (room, unbroken)
    )
    assert ours == theirs


@pytest.mark.long
def test_an_episode_that_comes_out_otherwise_stays_cut(tmp_path: Path) -> None:
    """In lockstep the second part of an episode is played in a world that has changed meanwhile."""
    room, env = Classroom(tmp_path, make_lesson(), env_steps=60), LineWorld()
    play(tmp_path / "outbox", room.port, env=env, helper=None, stop=lambda: sum(map(len, env.executed)) >= 17)
    number, first = len(env.executed) - 1, sum(map(len, env.executed[:-1])) + len(env.executed) - 1
    before = len(env.executed[-1])
    assert before >= 2

    class Moved(LineWorld):
        def reset(self, **given: object) -> tuple[dict, dict]:
            _, infos = super().reset(**given)  # type: ignore[arg-type]
            self.x += 0.125
            return self._seen(), infos

    played = play(tmp_path / "outbox", room.port, env=Moved(), helper=None)
    room.close()
    cut = [r for r in played.records if r.episode == number]
    assert len(cut) == before and all(isinstance(r, ReplayStep) for r in cut)
    assert played.records[first] is not None and played.records[first + before].episode == number + 1
    assert [outcome.cut for outcome in room.learner.experience.outcomes[: number + 2]] == [False] * number + [
        True,
        False,
    ]


@pytest.mark.long
def test_a_finished_run_goes_on_with_a_larger_budget(tmp_path: Path, run) -> None:
    _, whole = run
    for env_steps in (60, 150):
        room = Classroom(tmp_path, make_lesson(), env_steps=env_steps)
        played = play(tmp_path / "outbox", room.port)
        room.close()
    assert played.outbox.log.path.read_bytes() == whole.outbox.log.path.read_bytes()


@pytest.mark.long
def test_two_actors_in_real_time(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=120)
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(play(tmp_path / n, room.port, name=n, helper=None)))
        for n in ("left", "right")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    room.close()
    assert sorted(room.learner.experience.taken) == ["left", "right"]
    rows = list(read_metrics(room.run.path))
    assert {row["actor"] for row in rows} == {"left", "right"}
    # Other names, other starts.
    starts = {tuple(r.records[0].observation["proprio"]) for r in found}
    assert len(starts) == 2
    assert all(r.link.period.count > 20 for r in found)


def test_lockstep_takes_one_actor_alone(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson(), env_steps=30)
    play(tmp_path / "outbox", room.port)
    with pytest.raises(BadInput, match="alone, in lockstep"):
        room.receiver.connect("another", 0)
    room.close()


def test_help_that_depends_on_the_seed_is_the_same_again() -> None:
    assert {Helper(seed).helps for seed in range(4)} == {True, False}


@pytest.mark.long
def test_a_model_s_score_is_what_is_learned_from(tmp_path: Path) -> None:
    """Rewards by proprioception, filled in at the learner: the buffer has them, and a resumed one has the same."""

    class Halfway:
        """Progress is x, and solved beyond 0.3; the reward that it gives itself is −1 a step."""

        def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
            return [self.score_one(window) for window in windows]

        def score_one(self, steps: Window) -> Score:
            x = steps.observation["proprio"][1:, 0]
            cost, sure = np.full(len(steps), -1.0, np.float32), np.ones(len(steps), np.float32)
            return Score(np.clip(x, 0.0, 1.0), cost, x >= 0.3, sure)

    lesson = replace(make_lesson(), **FIRST)
    room = Classroom(tmp_path, lesson, env_steps=150, model=Halfway())
    played = play(tmp_path / "outbox", room.port)
    room.close()
    episodes: dict[int, list[float]] = {}  # episode → x after each step, from the records
    for record in played.records:
        if record.index if isinstance(record, ReplayStep) else True:
            episodes.setdefault(record.episode, []).append(float(record.observation["proprio"][0]))
    wanted = [next((i + 1 for i, x in enumerate(xs) if x >= 0.3), len(xs)) for xs in episodes.values()]
    outcomes = room.learner.experience.outcomes
    assert [o.steps for o in outcomes] == wanted
    for outcome, xs in zip(outcomes, episodes.values(), strict=True):
        progress = np.clip(xs[: outcome.steps], 0.0, 1.0)
        after, before = np.append(progress[:-1], 0.0 if outcome.success else progress[-1]), progress[:-1]
        assert outcome.reward == pytest.approx(outcome.success + 0.99 * after.sum() - before.sum(), abs=1e-5)
    assert [o.success for o in outcomes] == [max(xs) >= 0.3 for xs in episodes.values()]
    assert any(o.success for o in outcomes) and any(
        len(xs) > n for xs, n in zip(episodes.values(), wanted, strict=True)
    )
    batch = room.learner.experience.sample(torch.Generator().manual_seed(0))
    assert not set(batch.reward.tolist()) <= {0.0, 1.0}, "as the world's own rewards are"
    again = Classroom(tmp_path, lesson, env_steps=150, model=Halfway())
    again.close()
    assert [(o.steps, o.reward) for o in again.learner.experience.outcomes] == [(o.steps, o.reward) for o in outcomes]


def test_what_was_shown_is_scored_too() -> None:
    seen = {"proprio": np.zeros((8, 2), np.float32)}
    shown = PlayedEpisode(seen, np.zeros((8, 1), np.float32), np.zeros(8, np.float32), np.ones(8, bool), False, True)
    algorithm = make_lesson().settings.build(make_base(), seed=3)
    experience = Experience(algorithm, [shown], lambda episode: replace(episode, reward=episode.reward - 1.0))
    windows = experience.demonstrations
    batch = windows.gather(torch.arange(len(windows)), 1.0, torch.Generator().manual_seed(0))
    assert len(batch) and (batch.reward == -3.0).all(), "three steps a window"
