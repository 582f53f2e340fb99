"""Taking over from a policy and handing back, on a fake clock, behind the safety supervisor and a limit monitor."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from recording_rig import CONTRACT, PERIOD, Hand, RecordingRig

from hardware.execution.streamer import Streamer, StreamTarget
from hardware.recording.episodes import Phase
from hardware.safety import SafetyState
from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import EpisodeEvent as E
from hardware.teleop.device import Sample
from hardware.teleop.supervised import ALIVE_S, Supervised, TakeOver
from robolearn.core import ActionChunk, BadInput, Observation, Policy, RobolearnError
from robots.stations import load_pair

NAMES = CONTRACT.interface.action.names
STEP = 1.0 / CONTRACT.control_hz


def move(**parts: float) -> np.ndarray:
    return np.array([parts.get(name, 0.0) for name in NAMES], np.float32)


class Player:
    """A policy's chunks without a policy."""

    def __init__(self) -> None:
        self.wanted: np.ndarray | None = move(dx=-0.3, gripper=-1.0)
        self.lives, self.closed, self.stopped = 0, False, ""
        self.seen: list[dict] = []

    def begin(self) -> None:
        self.lives += 1
        self.stopped = ""

    def action(self, observation: dict) -> np.ndarray | None:
        self.seen.append(observation)
        return self.wanted

    def later(self) -> np.ndarray | None:
        return None

    asked = ChunkPlayer.asked

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
        return Supervised(hand, player, CONTRACT.interface, hand.clock)  # type: ignore[arg-type]

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
    rig.hand.clock = lambda: silent  # its reports end, and soon it is not engaged any more
    rig.run(0.3)
    seen = len(player.seen)
    rig.hand.engaged = False
    rig.until(lambda: rig.state is not SafetyState.ARMED, 1.0)
    assert len(player.seen) == seen, "nothing is handed back to the policy"
    rig.hand.clock = lambda: rig.now
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
    rig.hand.clock = lambda: silent
    rig.run(0.5 * ALIVE_S)
    assert rig.state is SafetyState.ARMED
    rig.run(0.6 * ALIVE_S)
    assert rig.state is not SafetyState.ARMED
    assert rig.monitor.summary()["violations"] == 0


# --- chunks ----------------------------------------------------------------------------------------------------------


class Counting(Policy):
    """Chunks of no motion, whose gripper is a hundredth of the observation behind them, plus a thousandth per step."""

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
        chunk[0, :, -1] = (observation["proprio"][0, 0] + 0.1 * np.arange(self._length)) / 100
        return chunk


class Rising(Counting):
    """The same displacements from every observation: a tenth of a step forward, then two, then three, …"""

    def act(self, observation: Observation) -> ActionChunk:
        self.gate.wait(5.0)
        chunk = np.zeros((1, self._length, len(NAMES)), np.float32)
        chunk[0, :, 0] = 0.1 + 0.1 * np.arange(self._length)
        return chunk


class Played:
    """A player on a clock of control steps; what comes within a step comes in its middle."""

    def __init__(self, policy: Counting) -> None:
        self.now, self.policy = 10.0, policy
        self.player = ChunkPlayer(policy, clock=lambda: self.now)
        self.begin()

    def begin(self) -> None:
        self.player.begin()

    def __call__(self, number: float, component: str = NAMES[-1]) -> float | None:
        seen = {key: np.zeros(spec.shape, spec.dtype) for key, spec in CONTRACT.interface.observation.items()}
        seen["proprio"][0] = number
        self.now += STEP
        action = self.player.action(seen)
        if action is None:
            end = time.monotonic() + (2.0 if self.policy.gate.is_set() else 0.03)
            while self.player.predictor.busy and time.monotonic() < end:  # inference
                time.sleep(0.001)
            self.now += 0.5 * STEP
            action = self.player.later()
            self.now -= 0.5 * STEP
        return None if action is None else round(float(action[NAMES.index(component)]), 3)


def test_a_chunk_begins_in_the_step_of_its_observation_and_is_followed_by_the_next() -> None:
    policy = Counting()
    play = Played(policy)
    assert [play(k) for k in range(9)] == [0.0, 0.001, 0.002, 0.003, 0.04, 0.041, 0.042, 0.043, 0.08]
    play.begin()
    assert [play(k) for k in range(20, 22)] == [0.2, 0.201] and policy.begun == 2
    # What was asked before is of no use afterwards.
    policy.gate.clear()
    play.begin()
    play(40)
    play.begin()
    policy.gate.set()
    time.sleep(0.1)
    assert [play(k) for k in range(20, 24)] == [0.2, 0.201, 0.202, 0.203]
    # Nor is what has come, and was not played yet.
    policy.gate.clear()
    play(30)
    policy.gate.set()
    time.sleep(0.1)
    play.begin()
    assert play.player.later() is None and play(50) == 0.5
    policy.fails = True
    with pytest.raises(RobolearnError, match="broken"):
        for k in range(20):
            play(24 + k)
    play.player.close()


def test_a_chunk_that_is_late_stops_the_arm_as_in_a_deployment() -> None:
    """Held for a control step, then not any more; what comes later changes nothing until it begins anew."""
    policy = Rising()
    play = Played(policy)
    assert [play(k, "dx") for k in range(3)] == [0.1, 0.2, 0.3]
    policy.gate.clear()
    assert [play(k, "dx") for k in range(3, 5)] == [0.4, None] and not play.player.stopped
    assert play(5) is None and "more than 50 ms late" in play.player.stopped
    policy.gate.set()
    time.sleep(0.1)
    assert [play(k, "dx") for k in range(6, 8)] == [None, None] and play.player.stopped
    play.begin()
    assert [play(k, "dx") for k in range(2)] == [0.1, 0.2] and not play.player.stopped
    play.player.close()


def test_a_chunk_that_is_not_finite_stops_the_arm() -> None:
    policy = Counting()
    play = Played(policy)
    policy.act = lambda observation: np.full((1, 6, len(NAMES)), np.nan)  # type: ignore[method-assign]
    assert play(0) is None and "not finite" in play.player.stopped
    play.player.close()


def test_a_player_that_stops_lets_go_of_the_dead_man_until_start(rig: RecordingRig, player: Player) -> None:
    rig.record()
    rig.steps(5)
    player.stopped = "action chunk ran out"
    rig.until(lambda: rig.state is not SafetyState.ARMED, 1.0)
    rig.run(2.0)
    assert rig.state in (SafetyState.DISARMED, SafetyState.LATCHED) and rig.paper.discarded
    rig.follow()  # START begins anew, with the player


class Late:
    """A queue of chunks that come `latency` after they were asked for, by the clock of a rig."""

    def __init__(self, rig: RecordingRig, latency: float) -> None:
        self.rig, self.latency, self.made = rig, latency, deque[tuple[float, Any]]()

    def put(self, item: Any) -> None:
        self.made.append((self.rig.now + self.latency - 1e-6, item))

    def empty(self) -> bool:
        return not self.made or self.made[0][0] > self.rig.now

    def get(self) -> Any:
        return self.made.popleft()[1]


@pytest.mark.long
@pytest.mark.parametrize(("latency", "tail"), [(0.015, 0), (0.04, 0), (0.1, 3), (0.2, 5)])
def test_a_policy_means_the_same_as_in_a_deployment(latency: float, tail: int) -> None:
    """The streamer of a deployment has the same joint states, and each chunk when the recorder has it: the set-points
    of both are the same at every tick, for displacements that are blended and continued too."""

    class Winding(Counting):
        calls = 0

        def act(self, observation: Observation) -> ActionChunk:
            rng = np.random.default_rng(self.calls)
            self.calls += 1
            return rng.uniform(-0.4, 0.4, (1, self._length, len(NAMES))).astype(np.float32)

    player = ChunkPlayer(Winding(4, 8), clock=lambda: rig.now)
    rig = RecordingRig(wrap=lambda hand: Supervised(hand, player, CONTRACT.interface, hand.clock))
    rig.hand.engaged = False
    predictor, asked, targets, streamed = player.predictor, dict[float, float](), list[Any](), list[Any]()
    predictor.tail_steps, player.done = tail, Late(rig, latency)  # type: ignore[assignment]
    streamer = Streamer(CONTRACT, streamed.append, clock=lambda: rig.now, wall=lambda: rig.now)
    streamer.joints = rig.observer.joints
    streamer.safety("armed")
    ask, accept, send = predictor.ask, player.stream.accept, rig.send_target

    def ask_now(stamp: float, *seen: Any) -> None:
        asked[stamp] = rig.now
        ask(stamp, *seen)
        while predictor.busy:
            time.sleep(1e-4)

    def both(stamp: float, wall: float, *chunk: Any) -> None:
        accept(stamp, wall, *chunk)
        streamer.chunk(round(1e9 * asked[stamp]), *chunk)

    def sent(positions: np.ndarray, stamp_ns: int) -> None:
        targets.append(positions.copy())
        send(positions, stamp_ns)

    predictor.ask, player.stream.accept, rig.send_target = ask_now, both, sent  # type: ignore[method-assign]
    rig.until(lambda: rig.phase is Phase.WAITING)
    rig.record()
    made: list[np.ndarray] = []
    for _ in range(round(30 * STEP / PERIOD)):
        streamed.clear()
        rig.tick()
        streamer.heartbeat()
        streamer.tick()
        for what in streamed:
            assert isinstance(what, StreamTarget), what
            assert np.allclose(targets[-1], what.positions, rtol=0, atol=1e-6)  # an action has 24 bits here
            made.append(what.positions)
    assert len(np.unique(np.round(made, 9), axis=0)) > 20 and len(asked) > 4
    assert rig.state is SafetyState.ARMED and not player.stopped, rig.supervisor.filter.reason
    rows = [action for _, action, _, _ in rig.paper.rows]
    assert np.abs(rows).max() > 0.1, "and they are what is stored"
    player.close()


def test_what_is_no_chunk_is_refused() -> None:
    policy = Counting()
    policy.act = lambda observation: np.zeros((1, 4), np.float32)  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="chunk"):
        ChunkPlayer(policy)


def test_each_gripper_of_two_stays_until_its_own_hand_asks_for_something_else() -> None:
    turns = TakeOver(load_pair("panda_pair").interface)
    asked = np.zeros(14, np.float32)

    def executed(left: float, right: float) -> list[float]:
        asked[[6, 13]] = left, right
        sample = turns.hand(Sample(asked, True, (), 0.0))
        assert sample.action is not None
        return sample.action[[6, 13]].tolist()

    turns.begin()
    turns.policy(np.full(14, -0.5, np.float32))
    assert executed(1.0, 1.0) == executed(1.0, 1.0) == [-0.5, -0.5], "as the policy left them"
    assert executed(1.0, 0.0) == [-0.5, 0.0]
    assert executed(1.0, 1.0) == [-0.5, 1.0], "whatever it asked for at first"
    assert executed(-1.0, 1.0) == [-1.0, 1.0]
    asked[:] = 0.3
    turns.policy(None)
    taken = turns.hand(Sample(asked, True, (), 0.0)).action
    assert taken is not None and not taken[[*range(6), *range(7, 13)]].any(), "nothing jumps in either arm"
