"""Two arms recorded on a fake clock with the real supervisor: a device each, one dead-man's switch, one row."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recording_rig import Hand, RecordingRig

from hardware.recording.episodes import Phase
from hardware.safety.states import SafetyState
from hardware.teleop.device import EpisodeEvent
from hardware.teleop.joined import JoinedDevices
from robots.stations import PairContract, load_pair

SHIPPED = load_pair("panda_pair")
HOME = np.array(SHIPPED.robot.home)
OPEN, CLOSED = 1.0, -1.0


def walled() -> PairContract:
    """0.1 rad of room for the last joint of the right arm, and no camera."""
    right = SHIPPED.arms["right"]
    upper = [*right.limits.upper[:-1].tolist(), float(HOME[-1] + 0.1)]
    arms = {**SHIPPED.arms, "right": replace(right, limits=right.limits.tightened(upper=upper))}
    limits = SHIPPED.limits.joined(SHIPPED.robot, [arm.limits for arm in arms.values()])
    return replace(SHIPPED, arms=arms, limits=limits, cameras={}, object_names=())


PAIR = walled()


def move(opening: float, **parts: float) -> np.ndarray:
    """Of one arm."""
    names = ("dx", "dy", "dz", "rx", "ry", "rz")
    return np.array([*(parts.get(name, 0.0) for name in names), opening], np.float32)


class Rig(RecordingRig):
    """`hand` leads the left arm, `other` the right one."""

    def __init__(self, **options: object) -> None:
        self.other = Hand(lambda: self.now)
        super().__init__(
            contract=PAIR, wrap=lambda hand: JoinedDevices({"left": hand, "right": self.other}, PAIR.robot), **options
        )
        self.hand.action, self.other.action = move(OPEN), move(OPEN)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """(T, 34) proprio and (T, 14) actions of the one episode."""
        ((_, rows),) = self.paper.episodes
        return np.array([row[0]["proprio"] for row in rows]), np.array([row[1] for row in rows])

    def finish(self) -> None:
        self.press(EpisodeEvent.SUCCESS)
        self.until(lambda: self.paper.episodes)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.long
def test_a_row_is_what_both_did(rig: Rig) -> None:
    rig.record()
    rig.hand.action, rig.other.action = move(OPEN, dx=0.5), move(CLOSED, dx=-0.4)
    rig.steps(12)
    rig.finish()
    proprio, actions = rig.rows()
    asked = np.concatenate([move(OPEN, dx=0.5), move(CLOSED, dx=-0.4)])
    np.testing.assert_array_equal(actions[1:], np.tile(asked, (len(actions) - 1, 1)))
    left, right = np.split(proprio, 2, axis=1)
    # x of the tcps, which look down, is that of the bases: the arms go apart.
    assert left[-1, 8] - left[0, 8] > 0.06 and right[-1, 8] - right[0, 8] < -0.05
    np.testing.assert_allclose(left[0, :7], HOME[:7], atol=1e-3)
    assert rig.monitor.summary()["violations"] == 0


@pytest.mark.long
def test_what_the_filter_made_of_one_arm_is_stored_and_of_the_other_what_was_asked(rig: Rig) -> None:
    rig.record()
    rig.hand.action, rig.other.action = move(OPEN, dx=0.2), move(OPEN, rz=1.0)  # the last joint of the right arm
    rig.steps(12)
    rig.finish()
    _, actions = rig.rows()
    last = actions[-3:]
    assert np.abs(last[:, 7:13]).max() < 0.3, "at its limit there is no way on"
    np.testing.assert_allclose(last[:, 0], 0.2, atol=0.02)
    np.testing.assert_allclose(actions[:, [6, 13]], OPEN)


@pytest.mark.long
@pytest.mark.parametrize("side", ["hand", "other"])
def test_one_hand_that_lets_go_stops_both_and_drops_the_episode(rig: Rig, side: str) -> None:
    rig.record()
    rig.hand.action, rig.other.action = move(OPEN, dx=0.5), move(OPEN, dx=0.5)
    rig.steps(6)
    getattr(rig, side).engaged = False
    rig.until(lambda: rig.state is SafetyState.LATCHED, 1.0)
    rest = rig.q.copy()
    rig.run(1.0)
    np.testing.assert_array_equal(rig.q, rest)
    assert rig.phase is Phase.WAITING and "episode 1 dropped" in rig.logic.status.message
    assert rig.paper.episodes == [] and rig.paper.discarded == 1
    assert "dead-man" in rig.supervisor.filter.reason


@pytest.mark.long
def test_while_one_asks_for_nothing_neither_moves(rig: Rig) -> None:
    rig.other.action, rig.other.note = None, "bring the leader's elbow to 10° (now 60°)"
    rig.record()
    rig.hand.action = move(CLOSED, dx=0.5)
    rig.run(1.0)
    np.testing.assert_allclose(rig.q, HOME, atol=1e-6)
    assert rig.logic.status.message == "right: bring the leader's elbow to 10° (now 60°)"
    rig.other.action, rig.other.note = move(OPEN), ""
    rig.run(1.0)
    assert np.abs(rig.q[:7] - HOME[:7]).max() > 0.05


@pytest.mark.long
def test_hands_at_rest_hold_both_arms_where_they_came_to_rest(rig: Rig) -> None:
    """Asked anew from where they are measured, arms that sag would sink with every step; openings go on."""
    rig.follow()
    rig.sag = 0.01
    rig.steps(0)
    rig.run(0.2)
    before = rig.q.copy()
    rig.hand.action = move(CLOSED)
    sent: list[np.ndarray] = []
    send = rig.send_target
    rig.send_target = lambda positions, ns: (sent.append(positions), send(positions, ns))  # type: ignore[method-assign,assignment]
    rig.run(2.0)
    np.testing.assert_allclose(rig.q, before, atol=1e-3)
    most = PAIR.arms["left"].limits.gripper_max
    assert sent[-1].shape == (16,)
    np.testing.assert_allclose(sent[-1][14:], [0.0, most], atol=1e-9)
