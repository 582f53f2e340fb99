"""Taking over from a policy and handing back, on a fake clock, behind the safety supervisor and a limit monitor."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from recording_rig import CONTRACT, Hand, RecordingRig

from hardware.recording.episodes import Phase
from hardware.safety import SafetyState
from hardware.teleop.chunk_player import GRACE, ChunkPlayer
from hardware.teleop.device import EpisodeEvent as E
from hardware.teleop.supervised import ALIVE_S, Supervised
from robolearn.core import ActionChunk, BadInput, Observation, Policy, RobolearnError

NAMES = CONTRACT.interface.action.names


def move(**parts: float) -> np.ndarray:
    return np.array([parts.get(name, 0.0) for name in NAMES], np.float32)


class Player:
    """A policy's chunks without a policy."""

    def __init__(self) -> None:
        self.wanted: np.ndarray | None = move(dx=-0.3, gripper=-1.0)
        self.lives, self.closed = 0, False
        self.seen: list[dict] = []

    def begin(self) -> None:
        self.lives += 1

    def action(self, observation: dict) -> np.ndarray | None:
        self.seen.append(observation)
        return self.wanted

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def player() -> Player:
    return Player()


@pytest.fixture
def rig(player: Player) -> RecordingRig:
    made: RecordingRig

    def wrap(hand: Hand) -> Supervised:
        hand.engaged = False
        return Supervised(hand, player, CONTRACT.interface, hand._clock)  # type: ignore[arg-type]

    made = RecordingRig(wrap=wrap)
    made.until(lambda: made.phase is Phase.WAITING)
    return made


def test_rows_say_who_moved_the_arm_and_have_what_was_executed(rig: RecordingRig, player: Player) -> None:
    rig.record()  # the dead-man is off: the policy moves
    lives = player.lives
    rig.steps(10)
    rig.hand.action, rig.hand.engaged = move(dx=0.2, gripper=1.0), True
    rig.steps(10)
    rig.hand.engaged = False
    rig.steps(10)
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    ((_, rows),) = rig.paper.episodes
    flags = np.array(rig.paper.interventions)
    edges = np.flatnonzero(np.diff(flags.astype(int)))
    assert len(edges) == 2 and abs(int(flags.sum()) - 10) <= 1, "one intervention, of ten steps"
    actions = np.array([action for _, action, _, _ in rows])
    assert np.allclose(actions[~flags][:, NAMES.index("dx")][2:], -0.3, atol=0.02)
    taken = actions[flags][:, NAMES.index("dx")]
    assert abs(taken[0]) < 0.02, "the first action of the hand is no motion"
    assert np.allclose(taken[1:], 0.2, atol=0.02)
    assert player.lives == lives + 1, "handed back, it begins anew"
    assert rig.monitor.summary()["violations"] == 0, rig.monitor.summary()
    assert rig.state is SafetyState.ARMED


def test_the_gripper_stays_as_it_is_until_the_person_asks_for_something_else(rig: RecordingRig, player: Player) -> None:
    grip = NAMES.index("gripper")
    rig.record()
    rig.steps(5)
    rig.hand.action, rig.hand.engaged = move(gripper=1.0), True  # the device has never closed it
    for asked, wanted in ((1.0, -1.0), (1.0, -1.0), (-1.0, -1.0), (1.0, 1.0), (-1.0, -1.0)):
        rig.hand.action = move(gripper=asked)
        rig.steps(2)
        assert rig.logic.sample.action is not None and rig.logic.sample.action[grip] == wanted


def test_a_device_that_goes_silent_in_the_persons_hand_stops_the_arm(rig: RecordingRig, player: Player) -> None:
    rig.record()
    rig.hand.action, rig.hand.engaged = move(dx=0.1, gripper=1.0), True
    rig.steps(5)
    silent = rig.now
    rig.hand._clock = lambda: silent  # its reports end, and soon it is not engaged any more
    rig.run(0.3)
    seen = len(player.seen)
    rig.hand.engaged = False
    rig.until(lambda: rig.state is not SafetyState.ARMED, 1.0)
    assert len(player.seen) == seen, "nothing is handed back to the policy"
    rig.hand._clock = lambda: rig.now
    rig.run(2.0)
    assert rig.state in (SafetyState.DISARMED, SafetyState.LATCHED), "and nothing moves by itself afterwards"
    rig.follow()  # START does
    assert rig.monitor.summary()["violations"] == 0


@pytest.mark.parametrize("released", [True, False])
def test_a_device_that_can_tell_is_believed(rig: RecordingRig, player: Player, released: bool) -> None:
    rig.record()
    rig.hand.action, rig.hand.engaged = move(dx=0.1, gripper=1.0), True
    rig.steps(5)
    sample = rig.hand.sample
    # A beat that comes after a silence: the device is heard of now, and the press was lost.
    rig.hand.sample = lambda seen: replace(sample(seen), engaged=False, released=released)  # type: ignore[method-assign]
    rig.run(0.3)
    assert (rig.state is SafetyState.ARMED) == released


def test_nobody_watches(rig: RecordingRig) -> None:
    rig.record()
    rig.steps(5)
    silent = rig.now
    rig.hand._clock = lambda: silent
    rig.run(0.5 * ALIVE_S)
    assert rig.state is SafetyState.ARMED
    rig.run(0.6 * ALIVE_S)
    assert rig.state is not SafetyState.ARMED
    assert rig.monitor.summary()["violations"] == 0


# --- chunks ----------------------------------------------------------------------------------------------------------


class Counting(Policy):
    """Chunks of no motion, whose gripper is the number of the observation behind them, plus a hundredth per step."""

    def __init__(self, steps: int = 4, tail: int = 2) -> None:
        self.interface = CONTRACT.interface
        self.execute_steps, self._length = steps, steps + tail
        self.begun = 0
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False

    def begin(self, worlds: np.ndarray) -> None:
        self.begun += 1

    def act(self, observation: Observation) -> ActionChunk:
        self.gate.wait(5.0)
        if self.fails:
            raise RuntimeError("broken")
        chunk = np.zeros((1, self._length, len(NAMES)), np.float32)
        chunk[0, :, -1] = observation["proprio"][0, 0] + 0.01 * np.arange(self._length)
        return chunk


class Rising(Counting):
    """The same displacements from every observation: a tenth of a step forward, then two, then three, …"""

    def act(self, observation: Observation) -> ActionChunk:
        self.gate.wait(5.0)
        chunk = np.zeros((1, self._length, len(NAMES)), np.float32)
        chunk[0, :, 0] = 0.1 + 0.1 * np.arange(self._length)
        return chunk


def seen(number: float) -> dict[str, np.ndarray]:
    found = {key: np.zeros(spec.shape, spec.dtype) for key, spec in CONTRACT.interface.observation.items()}
    found["proprio"][0] = number
    return found


def play(player: ChunkPlayer, number: float, component: str = NAMES[-1]) -> float | None:
    action = player.action(seen(number))
    time.sleep(0.03)  # inference
    return None if action is None else round(float(action[NAMES.index(component)]), 2)


def test_a_chunk_goes_on_where_time_is_and_is_renewed_before_it_ends() -> None:
    policy = Counting()
    player = ChunkPlayer(policy)
    played = [play(player, k) for k in range(8)]
    # Seen at 0, played from its second action at 1; the next was seen at 3, the next at 6.
    assert played == [None, 0.01, 0.02, 0.03, 3.01, 3.02, 3.03, 6.01]
    player.begin()
    assert [play(player, k) for k in range(20, 22)] == [None, 20.01] and policy.begun == 2
    # What was asked before is of no use afterwards.
    policy.gate.clear()
    player.begin()
    play(player, 40)
    player.begin()
    policy.gate.set()
    time.sleep(0.1)
    assert [play(player, k) for k in range(20, 22)] == [None, 20.01]
    # One that is late: the tail, then its last action for a moment, then stillness.
    policy.gate.clear()
    late = [play(player, 22 + k) for k in range(8)]
    assert late == [20.02, 20.03, 20.04, 20.05, *(20.05,) * GRACE, None, None]
    policy.gate.set()
    time.sleep(0.1)
    assert play(player, 30) is not None
    policy.fails = True
    with pytest.raises(RobolearnError, match="broken"):
        for k in range(20):
            play(player, 31 + k)
    player.close()


def test_displacements_go_on_where_the_arm_is() -> None:
    player = ChunkPlayer(Rising())
    # Nothing was executed while the first was computed. The next was seen before .3, which is .1 + .2 of its own way:
    # its third step, blended by half with .4 of the first; what is lacking then is .35.
    assert [play(player, k, "dx") for k in range(7)] == [None, 0.1, 0.2, 0.3, 0.35, 0.35, 0.5]
    # Somebody else moved the arm: what was executed before does not count.
    player.begin()
    assert [play(player, k, "dx") for k in range(20, 24)] == [None, 0.1, 0.2, 0.3]
    player.close()


def test_an_arm_whose_next_chunk_is_late_stays_where_it_is() -> None:
    """As the streamer holds its set-point: no displacement beyond the end of the prediction."""
    policy = Rising()
    player = ChunkPlayer(policy)
    play(player, 0, "dx")
    policy.gate.clear()
    assert [play(player, k, "dx") for k in range(1, 9)] == [0.1, 0.2, 0.3, 0.4, 0.5, *(0.0,) * GRACE, None]
    policy.gate.set()
    player.close()


def test_what_is_no_chunk_is_refused() -> None:
    policy = Counting()
    policy.act = lambda observation: np.zeros((1, 4), np.float32)  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="chunk"):
        ChunkPlayer(policy)
