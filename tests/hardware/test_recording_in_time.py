"""The recording on a fake clock, with the safety supervisor behind it: rows, stops, latches, disks that fail."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recording_rig import CONTRACT, HOME, WALL, Answer, RecordingRig

from hardware.execution.setpoints import SetPoints
from hardware.recording import Recording, stamp_names
from hardware.recording import recording as module
from hardware.recording.episodes import Phase
from hardware.safety import SafetyState
from hardware.teleop.device import EpisodeEvent as E
from robolearn.core import RobolearnError


@pytest.fixture
def rig() -> RecordingRig:
    made = RecordingRig()
    made.until(lambda: made.phase is Phase.WAITING)
    return made


def move(**parts: float) -> np.ndarray:
    return np.array([parts.get(name, 0.0) for name in CONTRACT.interface.action.names], np.float32)


def within_limits(rig: RecordingRig) -> None:
    assert rig.monitor.summary()["violations"] == 0, rig.monitor.summary()


@pytest.mark.long
def test_an_episode_whose_steps_come_too_slowly_is_dropped(rig: RecordingRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 1.5 periods: 13 of 20 a second, which would be played as fast as if they were all there."""
    rig.follow()
    rig.record()
    rig.steps(60)
    assert rig.phase is Phase.RECORDING
    period, tick = 1 / CONTRACT.control_hz, rig.tick
    busy = iter(range(10**6))

    def slowly() -> None:
        """A third of the time, control steps are not due yet."""
        if next(busy) % 15 == 0:
            rig.logic._due += 0.5 * period
        tick()

    monkeypatch.setattr(rig, "tick", slowly)
    rig.until(lambda: rig.phase is not Phase.RECORDING)
    assert "control steps a second are stored as 20" in rig.logic.episodes.message, rig.logic.episodes.message
    rig.settled()
    assert not rig.paper.episodes and rig.paper.discarded == 1
    within_limits(rig)


def test_what_is_stored_is_what_was_asked_for_and_done(rig: RecordingRig) -> None:
    hand, paper = rig.hand, rig.paper
    rig.follow()
    hand.action = move(dx=-0.4, gripper=1.0)
    begun = len(rig.commands)
    rig.until(lambda: rig.moved(begun) > 0.01)
    rig.run(0.1)  # until it is shown
    assert not paper.rows and hand.shown[-1].state == "waiting"
    rig.record()
    rig.steps(10)
    hand.action, hand.note = None, "move the stick"  # hold still
    rig.steps(5)
    assert (hand.shown[-1].state, hand.shown[-1].message) == ("recording", "move the stick")
    assert hand.shown[-1].images["front"].shape == (16, 16, 3)
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    assert len(hand.preparations) == 1, "when the arm was armed"
    ((facts, rows),) = paper.episodes
    assert facts == {"success": True, "terminated": True, "truncated": False, "task": "wave"}
    assert len(rows) == 16, "the first in the control step of START"
    (final,) = paper.finals
    assert final is not None and final.keys() == rows[0][0].keys(), "what the last executed action led to"
    assert (final["images.front"] > rows[-1][0]["images.front"]).all(), "a later picture"
    actions = np.array([row[1] for row in rows])
    assert (actions[:11] == move(dx=-0.4, gripper=1.0)).all(), "to the bit where the filter changed nothing"
    assert np.abs(actions[-3:, :6]).max() < 0.2 and np.isfinite(actions).all(), "what holding still took"
    assert [row[2] for row in rows] == [0.0] * 15 + [1.0]
    for observation, _, _, stamps in rows:
        assert observation.keys() == CONTRACT.interface.observation.keys()
        assert observation["proprio"].shape == (17,) and observation["images.front"].shape == (16, 16, 3)
        assert tuple(sorted(stamps)) == tuple(sorted(stamp_names(CONTRACT.interface)))
        assert 0 <= stamps["action"] - stamps["proprio"] < 0.1 and 0 <= stamps["action"] - stamps["images.front"] < 0.3
    np.testing.assert_allclose(np.diff([row[3]["action"] for row in rows]), 0.05, atol=0.0051)
    # On a real arm it stays armed, and START records the next one at once.
    rig.record()
    rig.steps(2)
    rig.press(E.QUIT)
    rig.until(lambda: rig.logic.done)
    rig.settled()
    assert rig.phase is Phase.ENDED and len(paper.episodes) == 1 and paper.discarded == 1 and rig.logic.error is None
    rig.until(rig.logic.at_rest)
    assert rig.state is SafetyState.DISARMED
    within_limits(rig)


def test_one_report_of_a_device_has_one_stamp_though_two_clocks_are_read(rig: RecordingRig) -> None:
    """A keyboard of which no key is touched; the wall clock is read microseconds before the steady one, or after."""
    assert isinstance(rig.logic, Recording)
    jitter = np.random.default_rng(0)
    rig.logic.wall = lambda: WALL + rig.now + jitter.uniform(-5e-6, 5e-6)
    pressed, sample = rig.now, rig.hand.sample
    rig.hand.sample = lambda observation: replace(sample(observation), stamp=pressed)  # type: ignore[method-assign]
    rig.follow()
    rig.record()
    rig.steps(8)
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    stamps = np.array([row[3]["device"] for row in rig.paper.episodes[0][1]])
    assert len(stamps) > 6 and (np.diff(stamps) == 0).all() and abs(stamps[0] - WALL - pressed) < 1e-4


def test_where_the_filter_changes_a_target_the_executed_action_is_stored(rig: RecordingRig) -> None:
    hand, points = rig.hand, SetPoints(CONTRACT)
    rig.record()
    hand.action = move(dx=1.0, gripper=1.0)  # into the border of the workspace: dx points forward at home
    assert CONTRACT.robot.chain.forward(HOME[None])[1][0][0, 0] > 0.9
    rig.steps(30)
    hand.action = move(rz=-1.0, gripper=1.0)
    rig.steps(2)
    rig.press(E.FAILURE)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    ((facts, rows),) = rig.paper.episodes
    assert facts["success"] is False and facts["terminated"] is True
    actions = np.array([row[1] for row in rows])
    asked = (actions == move(dx=1.0, gripper=1.0)).all(1)
    assert asked[:5].sum() >= 3 and not asked[20:28].any()
    assert np.abs(actions[20:28, :6]).max() < 0.2, "it waited at the border, and that is what is stored"
    q = np.array([row[0]["proprio"][:7] for row in rows], np.float64)
    assert np.abs(points.target(q[25], actions[25])[:7] - q[25]).max() < 5e-3
    within_limits(rig)


def test_a_target_clamped_to_the_joint_box(rig: RecordingRig) -> None:
    points = SetPoints(CONTRACT)
    # Turning this way moves the last joint up, to its tightened limit.
    turn = 1.0 if points.target(HOME, move(rz=1.0))[6] > HOME[6] else -1.0
    rig.record()
    rig.hand.action = move(rz=turn, gripper=1.0)
    rig.steps(20)
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    ((_, rows),) = rig.paper.episodes
    q = np.array([row[0]["proprio"][:7] for row in rows], np.float64)
    limit = CONTRACT.limits.upper[6]
    assert q[-1][6] == pytest.approx(limit - 1e-3, abs=2e-3)
    assert points.target(q[-2], move(rz=turn, gripper=1.0))[6] > limit + 0.01, "asked for"
    assert points.target(q[-2], rows[-2][1])[6] < limit + 0.01 and abs(rows[-2][1][5]) < 0.5, "done"
    within_limits(rig)


def test_a_hand_at_rest_holds_the_arm_though_its_controller_gives_way(rig: RecordingRig) -> None:
    rig.sag = 0.003
    rig.record()
    rig.hand.action = move(gripper=1.0)
    rig.steps(3)
    begun = len(rig.commands)
    rig.steps(20)
    assert rig.moved(begun) < 0.005, "not 0.003 rad more with every step"
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.paper.episodes)
    ((_, rows),) = rig.paper.episodes
    held = np.array([row[1] for row in rows])[5:-2]
    assert 0 < np.abs(held[:, :6]).max() < 0.6 and np.ptp(held, axis=0).max() < 0.05, "what holding took"


def test_letting_go_of_the_dead_man_drops_the_episode_and_start_goes_on(rig: RecordingRig) -> None:
    hand, paper = rig.hand, rig.paper
    hand.engaged = False
    rig.press(E.START)
    rig.until(lambda: "dead-man" in rig.logic.episodes.message)
    assert rig.phase is Phase.PREPARING
    hand.engaged = True
    rig.until(lambda: rig.phase is Phase.READY)
    rig.record()
    hand.action = move(dx=-0.5, gripper=1.0)
    rig.steps(5)
    hand.engaged, let_go = False, rig.now
    rig.until(lambda: rig.phase is Phase.WAITING)
    rig.until(lambda: rig.state is SafetyState.LATCHED)
    assert rig.commands[-1][0] - let_go < 0.4, "a control step, and the braking"
    assert "dead-man" in rig.logic.episodes.message and "episode 1 dropped" in rig.logic.episodes.message
    commands = len(rig.commands)
    hand.engaged = True
    rig.run(2.0)
    assert len(rig.commands) == commands, "nothing moves by itself again"
    rig.settled()
    assert paper.discarded == 1 and not paper.episodes and not paper.rows
    rig.record()
    rig.steps(3)
    rig.press(E.SUCCESS)
    rig.until(lambda: len(paper.episodes) == 1)
    within_limits(rig)


def test_the_operator_who_never_holds_on_is_told_so(rig: RecordingRig) -> None:
    rig.hand.engaged, rig.hand.note = False, "hold LB to move"
    rig.press(E.START)
    rig.until(lambda: "Press Start to try again" in rig.logic.episodes.message)
    assert "hold LB to move" in rig.logic.episodes.message and rig.state is SafetyState.DISARMED


def test_a_start_before_a_stop_does_not_arm_after_it(rig: RecordingRig) -> None:
    rig.record()
    rig.steps(3)
    rig.shelf.held = True
    rig.press(E.SUCCESS, E.START)
    rig.until(lambda: not rig.hand.events)
    rig.supervisor.filter.estop()
    rig.until(lambda: rig.phase is Phase.WAITING)
    rig.shelf.held = False
    rig.settled()
    rig.run(3.0)
    assert rig.phase is Phase.WAITING and rig.state is SafetyState.LATCHED, "nothing resets itself"
    assert "e-stop pressed" in rig.logic.status.message
    rig.record()


def test_a_latch_is_shown_and_only_a_start_that_saw_it_resets_it(rig: RecordingRig) -> None:
    hand = rig.hand
    rig.supervisor.filter.estop()
    rig.until(lambda: "e-stop pressed" in hand.shown[-1].message)
    rig.record()
    rig.press(E.DISCARD)
    rig.until(lambda: "Press Start to begin anew" in hand.shown[-1].message)
    rig.until(lambda: rig.state is SafetyState.DISARMED)

    rig.sees = False
    rig.supervisor.filter.estop()
    rig.run(0.2)
    assert rig.state is SafetyState.LATCHED
    rig.press(E.START)  # of somebody who still reads that START begins anew
    rig.until(lambda: "Press Start to try again" in rig.logic.episodes.message)
    assert "e-stop pressed" in rig.logic.episodes.message and rig.state is SafetyState.LATCHED
    rig.sees = True
    rig.until(lambda: "Press Start to try again" in hand.shown[-1].message)
    rig.record()


@pytest.mark.parametrize("fault", ["silent", "frozen"])
def test_a_camera_that_cannot_be_believed_drops_the_episode(rig: RecordingRig, fault: str) -> None:
    rig.record()
    rig.hand.action = move(dy=-0.5, gripper=1.0)
    rig.steps(3)
    if fault == "silent":
        rig.films = False
    else:
        rig.changes = False
    rig.until(lambda: rig.phase is Phase.WAITING)
    message = rig.logic.episodes.message
    assert "camera front on /camera/front/image_raw" in message and fault in message
    rig.until(lambda: rig.state is SafetyState.DISARMED)  # a planned stop
    rig.settled()
    assert rig.paper.discarded == 1 and not rig.paper.episodes
    if fault == "silent":  # START is refused while it lasts, and says why
        rig.press(E.START)
        rig.until(lambda: "Press Start to try again" in rig.logic.episodes.message)
        assert "silent" in rig.logic.episodes.message
    rig.films = rig.changes = True
    rig.hand.action = None
    rig.record()
    rig.steps(2)


def test_a_full_disk_ends_the_session_with_one_line(rig: RecordingRig) -> None:
    paper, logic = rig.paper, rig.logic
    rig.record()
    rig.steps(3)
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/file-000.parquet")

    paper.on_end = full
    rig.record()
    rig.steps(3)
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.ENDED)
    assert isinstance(logic.error, RobolearnError)
    assert str(logic.error) == "episode 2 could not be stored: No space left on device: data/file-000.parquet"
    assert logic.done and len(paper.episodes) == 1 and logic.episodes.recorded == 1
    assert paper.discarded == 0
    rig.until(logic.at_rest)
    assert rig.state is SafetyState.DISARMED


def test_steps_that_the_disk_refuses_are_left_to_the_writer(rig: RecordingRig) -> None:
    paper = rig.paper

    def full() -> None:
        if len(paper.rows) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), ".running/rows.journal")

    paper.on_add = full
    rig.record()
    rig.until(lambda: rig.phase is Phase.ENDED)
    assert str(rig.logic.error) == "episode 1 could not be stored: No space left on device: .running/rows.journal"
    rig.until(lambda: not rig.shelf.pending())
    assert paper.discarded == 0 and len(paper.rows) == 3 and not paper.episodes


@pytest.mark.long
def test_a_writer_that_falls_behind_drops_the_episode(rig: RecordingRig) -> None:
    rig.record()
    rig.shelf.held = True
    begun = rig.now
    rig.until(lambda: rig.phase is Phase.WAITING)
    assert "behind" in rig.logic.episodes.message
    assert rig.now - begun == pytest.approx(module.BEHIND_S, abs=0.3)
    rig.shelf.held = False
    rig.settled()
    assert rig.paper.discarded == 1 and not rig.paper.episodes


def test_targets_of_which_nothing_is_said_drop_the_episode(rig: RecordingRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.record()
    rig.steps(3)
    monkeypatch.setattr(rig.supervisor, "newly_accepted", lambda: None)
    begun = rig.now
    rig.until(lambda: rig.phase is Phase.WAITING)
    assert "no answer of the safety node to a target" in rig.logic.episodes.message
    assert rig.now - begun < module.UNANSWERED_S + 0.2
    rig.until(lambda: rig.state is SafetyState.DISARMED)


def test_a_safety_node_that_is_silent_drops_the_episode(rig: RecordingRig) -> None:
    rig.record()
    rig.steps(3)
    rig.speaks, begun = False, rig.now
    rig.until(lambda: rig.phase is Phase.WAITING)
    assert "the safety node is silent" in rig.logic.episodes.message and rig.now - begun < 1.0


def test_a_safety_node_that_is_silent_while_nothing_is_recorded(rig: RecordingRig, caplog) -> None:
    """It hangs between two episodes: said at once, and START is refused at once."""
    rig.run(0.5)
    assert rig.phase is Phase.WAITING
    rig.speaks, begun = False, rig.now
    rig.until(lambda: "the safety node is silent" in rig.logic.status.message)
    assert rig.now - begun < 1.0 and "the safety node is silent" in caplog.text
    rig.press(E.START)
    pressed = rig.now
    rig.until(lambda: "Press Start to try again" in rig.logic.episodes.message)
    assert "the safety node is silent" in rig.logic.episodes.message and rig.now - pressed < 0.2
    rig.speaks = True
    rig.record()


class Gone(Answer):
    """A service of a node that has ended: nobody answers, and after a while it is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda: (True, ""))
        self.cancelled = False

    def answer(self) -> None:
        return None

    def cancel(self) -> None:
        self.cancelled = True


def test_a_session_at_rest_that_ends_together_with_its_safety_node_waits_for_nobody(
    rig: RecordingRig, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C on a launch file reaches both at once, and a disarmed safety node has nothing to wait for."""
    rig.run(0.5)
    rig.speaks, rig.disarm = False, lambda: Gone("disarm")  # type: ignore[method-assign]
    begun = rig.now
    rig.logic.do(rig.logic.episodes.end("signal to end"))
    rig.until(rig.logic.at_rest, 0.05)
    rig.run(2.0)
    assert rig.logic.done and "emergency stop" not in caplog.text and rig.now - begun < 2.1


def test_a_session_in_motion_waits_for_the_arm_and_not_for_an_answer(
    rig: RecordingRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.follow(Phase.RECORDING)
    rig.run(0.3)
    gone = Gone("disarm")
    rig.disarm = lambda: gone  # type: ignore[method-assign]
    rig.logic.do(rig.logic.episodes.end("signal to end"))
    rig.tick()
    assert rig.state is SafetyState.ARMED and not rig.logic.at_rest(), "the arm moves"
    rig.supervisor.filter.disarm()  # by its own signal
    rig.until(rig.logic.at_rest, 1.0)
    assert rig.state is SafetyState.DISARMED and gone.cancelled and "emergency stop" not in caplog.text


def test_a_session_whose_safety_node_is_gone_in_mid_motion_says_so(
    rig: RecordingRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.follow(Phase.RECORDING)
    rig.speaks, rig.disarm = False, lambda: Gone("disarm")  # type: ignore[method-assign]
    rig.logic.do(rig.logic.episodes.end("signal to end"))
    rig.until(rig.logic.at_rest, 1.0)
    assert "use the hardware emergency stop" in caplog.text


def test_a_device_that_fails_stops_the_arm_and_ends_the_session(rig: RecordingRig) -> None:
    rig.record()
    rig.hand.fault = RobolearnError("hand: unplugged")
    rig.until(lambda: rig.phase is Phase.ENDED)
    assert str(rig.logic.error) == "hand: unplugged"
    rig.run(1.0)
    assert rig.state in (SafetyState.DISARMED, SafetyState.LATCHED)
    rig.settled()
    assert rig.paper.discarded == 1
    within_limits(rig)


def test_an_episode_that_lasts_too_long_is_a_failure_by_the_clock() -> None:
    rig = RecordingRig(limit_s=1.0, episodes=1)
    rig.until(lambda: rig.phase is Phase.WAITING)
    rig.record()
    rig.until(lambda: rig.paper.episodes)
    ((facts, rows),) = rig.paper.episodes
    assert facts == {"success": False, "terminated": False, "truncated": True, "task": "wave"}
    assert len(rows) in (19, 20)


def test_what_never_gets_ready_ends_the_session_with_its_reason() -> None:
    rig = RecordingRig(start_s=3.0)
    rig.films = False
    rig.until(lambda: rig.logic.done, 5.0)
    assert "not ready after 3 s" in str(rig.logic.error) and "camera front" in str(rig.logic.error)


def test_teleoperation_without_a_recording() -> None:
    rig = RecordingRig(recording=False)
    rig.until(lambda: rig.phase is Phase.WAITING)
    rig.follow()
    begun = len(rig.commands)
    rig.hand.action = move(dx=-0.5, gripper=1.0)
    rig.until(lambda: rig.moved(begun) > 0.01)
    rig.press(E.DISCARD)
    rig.until(lambda: rig.state is SafetyState.DISARMED)
    rig.press(E.QUIT)
    rig.until(lambda: rig.logic.done)
    assert rig.logic.error is None
    within_limits(rig)
