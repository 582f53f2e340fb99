"""A recording whose arm goes home by itself between episodes, on a fake clock with the real supervisor."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recording_rig import CONTRACT, HOME, RecordingRig

from hardware.execution import homing
from hardware.recording.episodes import Phase
from hardware.safety.states import SafetyState
from hardware.teleop.device import EpisodeEvent

DOWN = np.array([0.0, 0.0, -0.6, 0.0, 0.0, 0.3, -1.0])  # of the tcp, and the gripper closes
STILL = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> RecordingRig:
    def at_once(work):
        future: Future = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    monkeypatch.setattr(homing, "in_thread", at_once)
    return RecordingRig(homes=True)


def away(rig: RecordingRig) -> float:
    return float(np.abs(rig.q - HOME).max())


@pytest.mark.long
def test_after_an_episode_the_arm_goes_home_and_only_then_the_next_is_recorded(rig: RecordingRig) -> None:
    rig.follow()
    rig.until(lambda: "the arm is home" in rig.logic.episodes.message)
    rig.record()
    rig.hand.action = DOWN
    rig.steps(30)
    rig.hand.action = STILL
    rig.steps(5)
    assert away(rig) > 0.1
    rig.press(EpisodeEvent.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    steps = rig.logic.step_count
    rig.settled()
    begun = len(rig.commands)
    rig.press(EpisodeEvent.START)
    rig.run(0.5)
    assert rig.phase is Phase.READY and "on its way home. Press Start to try again" in rig.logic.episodes.message
    openings, send = [], rig.send_target
    rig.send_target = lambda positions, ns: (openings.append(positions[-1]), send(positions, ns))  # type: ignore[method-assign,assignment]
    rig.until(lambda: away(rig) < 0.005)
    rig.until(lambda: "the arm is home" in rig.logic.episodes.message)
    assert set(openings) == {CONTRACT.limits.gripper_max}, "whatever the device's own gripper says"
    assert rig.state is SafetyState.ARMED and rig.phase is Phase.READY
    path = np.array([q for _, q in rig.commands[begun:]])
    assert np.abs(np.diff(path, axis=0)).max() * CONTRACT.stream_hz < 0.21 * max(CONTRACT.robot.velocity), "slowly"
    rows = len(rig.paper.episodes[0][1])
    assert steps - 2 <= rows <= steps and not rig.paper.rows, "nothing of the way is stored"
    rig.record()
    rig.steps(3)
    assert away(rig) < 0.01
    assert rig.monitor.summary()["violations"] == 0


@pytest.mark.long
def test_a_hand_that_moves_takes_over_at_once_and_the_way_is_not_gone_on_with(rig: RecordingRig) -> None:
    rig.q = HOME + np.array([0.3, 0.1, 0.0, -0.1, 0.0, 0.2, 0.0])
    rig.follow()
    rig.run(1.5)
    there = rig.q.copy()
    assert "the arm goes home" in rig.logic.episodes.message
    rig.hand.action = np.array([0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0])
    rig.run(0.5)
    assert "you move the arm" in rig.logic.episodes.message
    rig.hand.action = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    rig.run(1.0)
    rested = rig.q.copy()
    rig.run(2.0)
    np.testing.assert_allclose(rig.q, rested, atol=1e-3)
    assert away(rig) > 0.05 and np.abs(rested - there).max() > 0.01


def test_without_the_dead_man_it_stops_and_does_not_go_on_by_itself(rig: RecordingRig) -> None:
    rig.q = HOME + np.array([0.3, 0.1, 0.0, -0.1, 0.0, 0.2, 0.0])
    rig.follow()
    rig.run(2.0)
    rig.hand.engaged = False
    rig.until(lambda: rig.state is SafetyState.LATCHED)
    rig.hand.engaged = True
    stopped = rig.q.copy()
    rig.run(3.0)
    np.testing.assert_array_equal(rig.q, stopped)
    assert rig.phase is Phase.WAITING


def test_a_way_that_the_filter_does_not_let_pass_is_left_to_the_operator(rig: RecordingRig) -> None:
    """The last joint may turn by 0.1 rad from home, and starts beyond: so the filter refuses to begin there."""
    rig.follow()
    rig.until(lambda: "the arm is home" in rig.logic.episodes.message)
    rig.logic.homecoming.begin(HOME + np.array([0, 0, 0, 0, 0, 0, 0.3]))  # type: ignore[union-attr]
    rig.run(0.2)
    assert "the arm does not go home" in rig.logic.episodes.message
    assert rig.state is SafetyState.ARMED and rig.phase is Phase.READY


def test_where_it_is_not_asked_for_the_arm_stays() -> None:
    rig = RecordingRig()
    rig.q = HOME + np.array([0.3, 0.1, 0.0, -0.1, 0.0, 0.2, 0.0])
    rig.follow()
    begun = len(rig.commands)
    rig.run(3.0)
    assert rig.moved(begun) < 1e-6
