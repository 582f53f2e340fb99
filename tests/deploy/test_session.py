"""Episodes with an arm and an operator that do what they are told, and with some that do not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hardware.observing.timing import SafetySilent
from robolearn.core import RobolearnError
from robolearn.deploy import NodeDied, SafetyStopped, run_session, session


class Fakes:
    """Operator and arm in one, and a diary. `outcomes`: of each episode, None for one that does not end."""

    def __init__(self, *outcomes: bool | None) -> None:
        self.outcomes, self.state, self.reason = outcomes, "disarmed", ""
        self.diary: list[str] = []
        self.episode = -1
        self.looks = 0
        self.during: Callable[[], None] = lambda: None
        self.refuses = ""
        self.dead = ""
        self.silent, self.clock = False, False

    def check_heard(self) -> None:
        if self.silent:
            raise SafetySilent("the safety node is silent")

    def arm(self, timeout_s: float = 1.0) -> None:
        self.diary.append("arm")
        if self.refuses:
            raise RobolearnError(self.refuses)
        self.state = "armed"

    def disarm(self, timeout_s: float = 1.0) -> None:
        assert self.state == "armed"
        self.diary.append("disarm")
        self.state = "disarmed"

    def begin(self) -> None:
        assert self.state == "disarmed", "an arm is put in its place only when nothing moves it"
        self.diary.append("begin")
        self.episode += 1
        self.looks = 0

    def over(self) -> bool:
        assert self.state != "disarmed"
        self.looks += 1
        self.during()
        return self.looks >= 2 and self.outcomes[self.episode] is not None

    def judge(self) -> bool:
        assert self.state == "disarmed", "judged when it is at rest"
        self.diary.append("judge")
        return self.outcomes[self.episode] is not False

    def truncated(self) -> bool:
        return self.clock

    def alive(self) -> None:
        if self.dead:
            raise NodeDied(self.dead, -9, "")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "POLL_S", 0.001)
    monkeypatch.setattr(session, "DYING_S", 0.001)
    monkeypatch.setattr(session, "SILENT_DYING_S", 0.001)


def run(fakes: Fakes, episodes: int, limit_s: float = 5.0) -> list[session.EpisodeResult]:
    return list(run_session(fakes, fakes, episodes, limit_s=limit_s, alive=fakes.alive))


def test_exactly_so_many_episodes_each_armed_and_disarmed() -> None:
    fakes = Fakes(True, False, True)
    results = run(fakes, 3)
    assert [(r.index, r.success) for r in results] == [(0, True), (1, False), (2, True)]
    assert all(0.0 < r.seconds < 5.0 for r in results)
    assert fakes.diary == ["begin", "arm", "disarm", "judge"] * 3


def test_an_episode_without_end_is_judged_at_rest() -> None:
    fakes = Fakes(None)
    (result,) = run(fakes, 1, limit_s=0.05)
    assert (
        result.success
        and result.timed_out
        and result.seconds >= 0.05
        and fakes.diary == ["begin", "arm", "disarm", "judge"]
    )


def test_an_episode_that_the_arms_own_clock_ended_is_known_from_one_that_failed() -> None:
    fakes = Fakes(False)
    assert [one.timed_out for one in run(fakes, 1)] == [False]
    fakes.clock, fakes.episode = True, -1
    assert [one.timed_out for one in run(fakes, 1)] == [True]


@pytest.mark.parametrize("state", ["braking", "latched"])
def test_any_stop_of_the_filter_ends_the_session(state: str) -> None:
    fakes = Fakes(True, None)

    def stop() -> None:
        if fakes.episode == 1:
            fakes.state, fakes.reason = state, "dead-man: released"

    fakes.during = stop
    done: list[session.EpisodeResult] = []
    with pytest.raises(SafetyStopped, match="episode 2: the safety filter stopped the arm: dead-man: released"):
        done.extend(run_session(fakes, fakes, 5, limit_s=5.0, alive=fakes.alive))
    assert [(r.index, r.success) for r in done] == [(0, True), (1, False)], "the one that was stopped is a failure"
    assert fakes.diary.count("begin") == 2 and fakes.diary[-1] == "arm"


def test_a_refusal_to_arm_is_told() -> None:
    fakes = Fakes(True)
    fakes.refuses = "not armed: no controller listens"
    done: list[session.EpisodeResult] = []
    with pytest.raises(SafetyStopped, match="no controller listens"):
        done.extend(run_session(fakes, fakes, 1, limit_s=5.0, alive=fakes.alive))
    assert not done, "an episode that never began is none"


def test_a_death_in_mid_episode_is_told_and_not_its_consequence() -> None:
    fakes = Fakes(None)

    def die() -> None:
        fakes.state, fakes.reason, fakes.dead = "latched", "the chunk ran out", "policy"

    fakes.during = die
    done: list[session.EpisodeResult] = []
    with pytest.raises(NodeDied, match="the policy node was killed by SIGKILL"):
        done.extend(run_session(fakes, fakes, 1, limit_s=5.0, alive=fakes.alive))
    assert not done, "that it failed is not the policy's doing"


def test_a_safety_node_that_hangs_is_reported_before_anything_is_ended(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "DYING_S", 60.0)  # nobody has died
    fakes = Fakes(None)
    fakes.during = lambda: setattr(fakes, "silent", True)
    began = time.monotonic()
    with pytest.raises(SafetySilent):
        run(fakes, 1, 60.0)
    assert "the safety node is silent" in caplog.text and time.monotonic() - began < 30.0


def test_a_safety_node_that_hangs_when_it_is_asked_to_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(True)

    def arm(timeout_s: float = 1.0) -> None:
        raise SafetySilent("the safety node is silent")

    monkeypatch.setattr(fakes, "arm", arm)
    with pytest.raises(SafetySilent):
        run(fakes, 1)


def test_a_safety_node_that_is_silent_because_it_died(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(None)

    def die() -> None:
        fakes.silent, fakes.dead = True, "safety"

    fakes.during = die
    with pytest.raises(NodeDied, match="the safety node was killed by SIGKILL"):
        run(fakes, 1)


@pytest.mark.parametrize("where", ["begin", "arm", "disarm"])
def test_a_death_while_something_is_asked_of_the_node(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(True)

    def fails(*_: float) -> None:
        fakes.dead = "sim_arm"
        raise RobolearnError("waited 5 s for an answer")

    monkeypatch.setattr(fakes, where, fails)
    with pytest.raises(NodeDied, match="sim_arm"):
        run(fakes, 1)


def test_a_death_that_is_seen_late_is_still_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "DYING_S", 5.0)
    fakes = Fakes(True)
    stopped: list[bool] = []

    def stop() -> None:
        fakes.state, fakes.reason = "latched", "joint states: silent for 0.10 s"

    def alive() -> None:
        # Not seen at the first look after the stop, nor at the second.
        stopped.append(fakes.state == "latched")
        if sum(stopped) > 3:
            raise NodeDied("sim_arm", -9, "")

    fakes.during = stop
    with pytest.raises(NodeDied, match="sim_arm"):
        list(run_session(fakes, fakes, 1, limit_s=5.0, alive=alive))


def test_a_trouble_of_the_arm_alone_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(True)

    def fails() -> None:
        raise RobolearnError("not confirmed")

    monkeypatch.setattr(fakes, "begin", fails)
    with pytest.raises(RobolearnError, match="not confirmed"):
        run(fakes, 1)
    assert "arm" not in fakes.diary
