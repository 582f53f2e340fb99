"""Verdicts on a running episode: k in a row of one episode, at a rate, never waited for on a real clock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import numpy as np
import pytest

from robolearn.core import Score, Window
from robolearn.data.replay import PlayedEpisode
from robolearn.rewards.done import DoneRule
from robolearn.rewards.online import OnlineDone
from robolearn.rewards.scoring import Agreed, with_score

A = np.zeros(1, np.float32)


def frame(x: float) -> dict[str, np.ndarray]:
    return {"x": np.array([x], np.float32)}


class Positive:
    """Done where x > 0, with the confidence `sure`. Keeps the frames that it was shown; `gate` is waited for."""

    frame_by_frame = False

    def __init__(self, sure: float = 1.0) -> None:
        self.sure, self.shown, self.prompts = sure, [], []
        self.gate = threading.Event()
        self.gate.set()

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        (window,) = windows
        self.shown.append(window.observation["x"][:, 0].tolist())
        self.prompts += prompts
        assert len(window.observation["x"]) == len(window) + 1
        assert self.gate.wait(5)
        x = window.observation["x"][1:, 0]
        sure = np.full(len(x), self.sure, np.float32)
        return [Score(np.clip(x, 0, 1), x, x > 0, sure)]


def play(done: OnlineDone, xs: Sequence[float]) -> list[bool]:
    done.begin("lift", frame(-9))
    out = []
    for x in xs:
        done.add(A, frame(x))
        out.append(done.solved)
    return out


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_it_takes_k_verdicts_in_a_row(k: int) -> None:
    done = OnlineDone([Positive()], 20, 20, frames=k, waits=True)
    assert play(done, [-1] + [1] * (k - 1) + [-1] + [1] * (k - 1) + [-1]) == [False] * (2 * k + 1)
    assert play(done, [-1] + [1] * (k + 1)) == [False] * k + [True, True]
    assert play(done, [1] * (k - 1)) == [False] * (k - 1), "those of the episode before do not count"


def test_verdicts_come_at_their_rate_and_see_the_episode_so_far() -> None:
    model = Positive()
    done = OnlineDone([model], 20, 5, frames=2, waits=True)
    found = play(done, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert found == [False] * 7 + [True, True], "of the fourth frame and of the eighth"
    assert model.shown == [[-9, 1, 2, 3, 4], [-9, 1, 2, 3, 4, 5, 6, 7, 8]] and model.prompts == ["lift"] * 2


def test_a_model_of_single_frames_gets_the_first_and_the_newest() -> None:
    model = Positive()
    model.frame_by_frame = True
    assert play(OnlineDone([model], 20, 10, frames=2, waits=True), [1, 2, 3, 4]) == [False, False, False, True]
    assert model.shown == [[-9, 2], [-9, 4]]


@pytest.mark.parametrize(("sure", "solved"), [(0.79, False), (0.8, True)])
def test_it_has_to_be_sure_enough(sure: float, solved: bool) -> None:
    done = OnlineDone(
        [Positive(float(np.float32(sure)))], 20, 20, frames=1, threshold=float(np.float32(0.8)), waits=True
    )
    assert play(done, [1, 1])[-1] is solved


def test_all_models_have_to_agree() -> None:
    class Beyond(Positive):
        def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
            (score,) = super().score(windows, prompts)
            return [Score(score.progress, score.reward, score.reward > 2, score.confidence)]

    found = play(OnlineDone([Positive(), Beyond()], 20, 20, frames=2, waits=True), [1, 2, 3, -1, 3, 3])
    assert found == [False] * 5 + [True]


class Smaller(Positive):
    """Done where x < 3, with a confidence of 0.6."""

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        (score,) = super().score(windows, prompts)
        return [Score(-score.progress, -score.reward, score.reward < 3, np.full(len(windows[0]), 0.6, np.float32))]


def played(xs: Sequence[float], success: bool = False) -> PlayedEpisode:
    x, n = np.array([-9, *xs], np.float32)[:, None], len(xs)
    return PlayedEpisode(
        {"x": x}, np.zeros((n, 1), np.float32), np.zeros(n, np.float32), np.zeros(n, bool), success, success
    )


@pytest.mark.parametrize(("hz", "frames"), [(20, 1), (20, 3), (10, 2), (5, 2)])
@pytest.mark.parametrize("threshold", [0.5, 0.7])
@pytest.mark.parametrize("models", [[Positive()], [Positive(), Smaller()]])
def test_a_learner_calls_solved_what_ended_online_after_the_same_steps(
    hz: int, frames: int, threshold: float, models: list[Positive]
) -> None:
    """By the same frames, with the same verdicts in a row and the same check."""
    rng, rule = np.random.default_rng(0), DoneRule.at(20, hz, frames, threshold)
    ends = []
    for _ in range(40):
        xs = rng.choice([-1.0, 1.0, 2.0, 4.0], size=int(rng.integers(1, 30)), p=[0.2, 0.4, 0.3, 0.1]).tolist()
        online = play(OnlineDone(models, 20, hz, frames=frames, threshold=threshold, waits=True), xs)
        (score,) = Agreed(models).score([Window({"x": played(xs).observation["x"]}, np.zeros((len(xs), 1)))], ["lift"])
        found = with_score(played(xs), score, rule, gamma=0.9)
        ends.append(online.index(True) + 1 if True in online else None)
        assert found.success is (ends[-1] is not None) and len(found) == (ends[-1] or len(xs))
        np.testing.assert_array_equal(score.progress, np.clip(xs, 0, 1), "the first model's")
    assert None in ends or frames == 1
    assert any(ends) is (threshold == 0.5 or len(models) == 1), "0.6 of confidence is not enough"


@pytest.mark.parametrize(("xs", "solved"), [((-1, -1, -1, 1), True), ((1, -1, 1, -1), False)])
def test_one_verdict_is_enough_on_the_last_frame_of_what_a_world_or_a_person_called_solved(
    xs: tuple[float, ...], solved: bool
) -> None:
    (score,) = Positive().score([Window({"x": played(xs).observation["x"]}, np.zeros((4, 1)))], [""])
    rule = DoneRule(frames=3)
    assert not with_score(played(xs), score, rule, gamma=1.0).success
    found = with_score(played(xs, success=True), score, rule, gamma=1.0)
    assert found.success is solved and len(found) == 4 and found.reward.sum() == pytest.approx(float(solved))


def test_a_model_that_fails_ends_nothing_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Positive):
        def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
            (score,) = super().score(windows, prompts)
            if int(windows[0].observation["x"][-1, 0]) in (2, 5):
                raise OSError("no camera\nat all")
            return [score]

    with caplog.at_level(logging.WARNING, "robolearn"):
        found = play(OnlineDone([Fails()], 20, 20, frames=2, waits=True), [1, 2, 3, 5, 6, 7])
    assert found == [False] * 5 + [True], "a failure between two verdicts is none of them"
    assert [m for m in caplog.messages if "no verdict" in m and "no camera" in m and "\n" not in m] == caplog.messages
    assert len(caplog.messages) == 1


@pytest.fixture
def slow() -> Iterator[tuple[Positive, OnlineDone]]:
    model = Positive()
    with closing(OnlineDone([model], 20, 200, frames=2)) as done:
        yield model, done
        model.gate.set()


def test_a_slow_model_is_never_waited_for_and_skips_frames(slow: tuple[Positive, OnlineDone]) -> None:
    model, done = slow
    model.gate.clear()
    done.begin("lift", frame(-9))
    done.add(A, frame(1))
    until(lambda: len(model.shown) == 1)
    began = time.monotonic()
    for x in range(2, 500):
        done.add(A, frame(x))
        assert time.monotonic() - began < 30.0 and not done.solved
    model.gate.set()
    until(lambda: len(model.shown) == 2)
    assert model.shown[0] == [-9, 1] and model.shown[1][-1] == 499, "the newest frame alone is looked at"
    until(lambda: done.solved)
    assert done.verdicts == 2


def test_it_is_known_whether_the_newest_frame_was_judged_and_why_one_was_not(
    slow: tuple[Positive, OnlineDone], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, done = slow
    model.gate.clear()
    done.begin("lift", frame(-9))
    done.add(A, frame(1))
    assert not done.settled
    until(lambda: len(model.shown) == 1)
    assert not done.settled, "the model looks"
    model.gate.set()
    until(lambda: done.settled)
    assert done.verdicts == 1 and done.fault == ""

    def fails(windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        raise OSError("no GPU")

    monkeypatch.setattr(model, "score", fails)
    done.add(A, frame(1))
    until(lambda: done.settled)
    monkeypatch.undo()
    done.add(A, frame(1))
    until(lambda: done.settled)
    assert done.verdicts == 3 and done.fault == "no GPU", "a later one does not hide it"
    done.begin("lift", frame(-9))
    assert done.settled and done.fault == ""


def test_a_late_verdict_is_not_for_the_next_episode(slow: tuple[Positive, OnlineDone]) -> None:
    model, done = slow
    for _ in range(3):  # each time the next episode begins while the model looks
        model.gate.clear()
        seen = len(model.shown)
        done.begin("lift", frame(-9))
        done.add(A, frame(1))
        until(lambda seen=seen: len(model.shown) == seen + 1)
        done.begin("lift", frame(-9))
        model.gate.set()
        until(lambda seen=seen: done.verdicts == seen + 1)
    assert not done.solved
    done.add(A, frame(1))
    until(lambda: done.verdicts == 4)
    assert not done.solved, "one verdict of this episode"
    done.add(A, frame(1))
    until(lambda: done.verdicts == 5)
    assert done.solved


def test_a_still_frame_is_judged_once(slow: tuple[Positive, OnlineDone]) -> None:
    model, done = slow
    done.begin("lift", frame(-9))
    done.add(A, frame(1))
    until(lambda: done.verdicts == 1)
    time.sleep(0.05)
    assert done.verdicts == 1 and not done.solved and len(model.shown) == 1
