"""A second policy that brings things back between two episodes, on a fake clock with the real supervisor."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recording_rig import CONTRACT, HOME, RecordingRig

from hardware.execution import homing
from hardware.recording.episodes import Phase
from hardware.safety.states import SafetyState
from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import EpisodeEvent as E
from hardware.teleop.device import Sample
from hardware.teleop.reset_policy import PolicyReset
from hardware.teleop.supervised import Supervised

HZ = CONTRACT.control_hz
THERE = np.array([0.0, -0.5, 0.0, 0.0, 0.0, 0.0, 1.0], np.float32)  # of the tcp, and the gripper opens
BACK = np.array([0.0, 0.5, 0.0, 0.0, 0.0, 0.0, -1.0], np.float32)
HAND = np.array([0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0], np.float32)


class Player:
    """A policy's actions without a policy."""

    def __init__(self, action: np.ndarray) -> None:
        self.wanted, self.stopped = action, ""
        self.asked_for, self.lives = 0, 0

    def begin(self) -> None:
        self.lives, self.stopped = self.lives + 1, ""

    def action(self, observation: dict) -> np.ndarray | None:
        self.asked_for += 1
        return self.wanted

    def later(self) -> np.ndarray | None:
        return None

    asked = ChunkPlayer.asked

    def close(self) -> None: ...


class Judge:
    """Says that things are back when the tcp has come so far; keeps what it was shown."""

    def __init__(self, after: int) -> None:
        self.after, self.words, self.frames = after, "", []

    @property
    def solved(self) -> bool:
        return len(self.frames) > self.after

    def begin(self, task: str, observation: dict) -> None:
        self.words, self.frames = task, [(None, observation)]

    def add(self, action: np.ndarray, observation: dict) -> None:
        self.frames.append((action, observation))

    def close(self) -> None: ...


class Rig(RecordingRig):
    """Attributes: `policy` is taught, `second` brings things back, `reset` is the part under test."""

    def __init__(self, judge: Judge | None = None, seconds: float = 8.0) -> None:
        self.policy, self.second = Player(THERE), Player(BACK)
        self.reset = PolicyReset(self.second, CONTRACT.interface, seconds, "bring it back", judge)  # type: ignore[arg-type]
        self.last: Sample | None = None

        def wrap(hand: Any) -> Supervised:
            hand.engaged = False  # the dead-man of a person who watches
            return Supervised(hand, self.policy, CONTRACT.interface, clock=lambda: self.now)  # type: ignore[arg-type]

        super().__init__(wrap=wrap, back=self.reset)

    def message(self, words: str, limit_s: float = 20.0) -> None:
        self.until(lambda: words in self.logic.episodes.message, limit_s)

    def taught(self) -> None:
        """An episode of the policy that is taught, to its end by the person's key."""
        self.record()
        self.steps(10)
        self.press(E.SUCCESS)
        self.until(lambda: self.phase is Phase.READY)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(job: Any) -> Future:
        future: Future = Future()
        future.set_result(job())
        return future

    monkeypatch.setattr(homing, "in_thread", work)


def y_of(rig: RecordingRig) -> float:
    return float(CONTRACT.robot.chain.forward(rig.q[None])[0][0, 1])


@pytest.mark.long
def test_the_judge_ends_a_reset_and_the_next_episode_begins_by_itself() -> None:
    judge = Judge(after=30)
    rig = Rig(judge)
    rig.follow()
    rig.message("the arm is home")
    assert not rig.second.asked_for, "nothing is to be brought back before the first episode"
    rig.taught()
    gone = y_of(rig)
    assert gone > 0.02, "the tool's y points the other way"
    rig.message("a policy brings things back")
    rig.press(E.START)
    rig.run(0.3)
    assert rig.phase is Phase.READY and "Press Start to try again" in rig.logic.episodes.message
    rig.until(lambda: rig.second.asked_for >= 25)
    assert y_of(rig) < gone - 0.05, "it moves the arm, the other way"
    asked = rig.policy.asked_for
    rig.message("things are back")
    assert rig.policy.asked_for == asked, "the other one is not asked meanwhile"
    assert judge.words == "bring it back" and len(judge.frames) > 30
    np.testing.assert_array_equal(judge.frames[5][0], BACK)
    lives = rig.policy.lives
    rig.until(lambda: rig.phase is Phase.RECORDING)  # without a key, once the arm is home
    assert rig.policy.lives == lives + 1, "no chunk of before is played"
    assert np.abs(rig.q - HOME).max() < 0.01
    assert len(rig.paper.episodes) == 1 and len(rig.paper.episodes[0][1]) <= 11, "nothing of the reset is stored"
    rig.steps(3)
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    asked = rig.second.asked_for
    rig.until(lambda: rig.second.asked_for > asked + 20)  # the verdict on the reset before ends no other
    assert rig.state is SafetyState.ARMED and rig.monitor.summary()["violations"] == 0


@pytest.mark.long
@pytest.mark.parametrize("key", [E.SUCCESS, E.FAILURE])
def test_a_person_says_whether_things_are_back(key: E) -> None:
    rig = Rig()
    rig.taught()
    rig.until(lambda: rig.second.asked_for >= 5)
    rig.press(key)
    if key is E.SUCCESS:
        rig.until(lambda: rig.phase is Phase.RECORDING)
    else:
        rig.message("things are not back; the arm is home. Put everything in its place, then press Start to record")
        rig.run(2.0)
        assert rig.phase is Phase.READY
    assert np.abs(rig.q - HOME).max() < 0.01
    assert rig.logic.episodes.recorded == 1 and rig.logic.episodes.successes == 1, "the key judged no episode"


@pytest.mark.long
def test_the_clock_leaves_it_to_the_person() -> None:
    rig = Rig(seconds=1.0)
    rig.taught()
    rig.message("things are not back after 1 s; the arm goes home")
    assert rig.second.asked_for == round(HZ)
    rig.message("then press Start to record")
    rig.run(2.0)
    assert rig.phase is Phase.READY


@pytest.mark.long
def test_a_person_takes_over_and_hands_back() -> None:
    rig = Rig(Judge(after=10**6), seconds=3.0)
    rig.taught()
    rig.until(lambda: rig.second.asked_for >= 5)
    asked, lives, begun = rig.second.asked_for, rig.second.lives, rig.q.copy()
    rig.hand.action, rig.hand.engaged = HAND, True
    rig.run(5.0)  # longer than a reset may last: a person takes the time that it takes
    assert rig.second.asked_for <= asked + 1 and np.abs(rig.q - begun).max() > 0.05
    rig.hand.engaged = False
    rig.until(lambda: rig.second.asked_for > asked + 5)
    assert rig.second.lives > lives, "it begins anew where the person left the arm"
    assert rig.reset.going and rig.state is SafetyState.ARMED


@pytest.mark.long
@pytest.mark.parametrize("way", ["late", "stop"])
def test_what_stops_the_arm_ends_the_reset(way: str) -> None:
    rig = Rig()
    rig.taught()
    rig.until(lambda: rig.second.asked_for >= 5)
    if way == "late":
        rig.second.stopped = "a chunk came late"
        rig.message("things are not back: a chunk came late")
        return
    rig.press(E.DISCARD)
    rig.until(lambda: rig.phase is Phase.WAITING)
    asked = rig.second.asked_for
    rig.run(2.0)
    assert rig.second.asked_for == asked and not rig.reset.going
    rig.follow()
    rig.message("things are not back; the arm is home")
    assert rig.second.asked_for == asked


@pytest.mark.long
def test_after_a_stop_on_the_way_home_nothing_begins_by_itself() -> None:
    rig = Rig()
    rig.taught()
    rig.until(lambda: rig.second.asked_for >= 5)
    rig.press(E.SUCCESS)
    rig.message("things are back; the arm goes home")
    rig.run(0.2)
    rig.press(E.DISCARD)
    rig.until(lambda: rig.phase is Phase.WAITING)
    rig.follow()
    rig.message("things are back; the arm is home. Put everything in its place, then press Start to record")
    rig.run(2.0)
    assert rig.phase is Phase.READY
