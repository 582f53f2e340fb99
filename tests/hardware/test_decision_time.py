"""The time from an observation to its command: fresh observations, warm caches that leave no trace, and beats that are
sooner where a message is about to come."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.execution.prediction import WARMED_S, Predictor
from hardware.execution.streamer import BEFORE_S, BEHIND_S, Streamer
from hardware.ros2 import process
from hardware.ros2.callback_groups import SeldomGroup
from robolearn.core import ActionChunk, Observation, Policy
from robots import chunk_execution
from robots.stations import load_contract

CONTRACT = load_contract("sim")
NAMES = CONTRACT.interface.action.names
STEPS, STEP = 4, 1.0 / CONTRACT.control_hz


class Counting(Policy):
    """Stands still, and counts."""

    execute_steps = STEPS

    def __init__(self, takes_s: float = 0.0) -> None:
        self.interface = CONTRACT.interface
        self.acted = self.warmed = self.observed = 0
        self.takes_s = takes_s

    def act(self, observation: Observation) -> ActionChunk:
        self.acted += 1
        time.sleep(self.takes_s)
        return np.zeros((1, STEPS, len(NAMES)), np.float32)

    def observe(self, observation: Observation) -> None:
        self.observed += 1

    def warm(self) -> None:
        self.warmed += 1


def until(condition: Any) -> None:
    end = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_the_first_observation_is_of_after_the_arming() -> None:
    made: list[float] = []
    predictor = Predictor(Counting(), STEP, lambda request, actions: made.append(request.stamp))
    predictor.begin("1", after=7.0)
    assert predictor.overdue(7.0) < -0.0005 < predictor.overdue(7.005), "the newest one is old"
    predictor.ask(7.005, {})
    until(lambda: made)
    assert made == [7.005] and predictor.overdue(7.01) == pytest.approx(-STEPS * STEP + 0.005)
    predictor.begin("2")
    assert predictor.overdue(0.0) == math.inf
    predictor.close()


def test_a_policy_that_is_quick_is_warmed_and_asked_all_the_same() -> None:
    policy, made = Counting(), list[object]()
    predictor = Predictor(policy, STEP, lambda request, actions: made.append(actions))
    before = policy.acted
    predictor.begin("1")
    predictor.warm()
    predictor.ask(1.0, {})
    until(lambda: made)
    assert (policy.warmed, policy.acted, policy.observed) == (1, before + 1, 0)
    until(lambda: not predictor.busy)
    predictor.close()


def test_a_slow_policy_is_left_alone_and_one_without_knows_no_warming() -> None:
    slow, plain = Counting(2 * WARMED_S), Counting()
    plain.warm = None  # type: ignore[assignment]
    for policy in (slow, plain):
        predictor = Predictor(policy, STEP, lambda request, actions: None)
        predictor.warm()
        predictor.close()
        assert not predictor.fault
    assert slow.warmed == 0


class Bench:
    """A streamer that leads the arm, on a fake clock."""

    def __init__(self) -> None:
        self.now, self.sent = 100.0, list[Any]()
        self.streamer = Streamer(CONTRACT, self.sent.append, clock=lambda: self.now, wall=lambda: 1e9 + self.now)
        self.streamer.heartbeat()
        self.joints()
        self.streamer.safety("1")
        self.streamer.heartbeat()

    def joints(self) -> None:
        q = [*CONTRACT.robot.home, *[0.04] * len(CONTRACT.gripper_joints)]
        names = (*CONTRACT.joints, *CONTRACT.gripper_joints)
        self.streamer.joint_state(names, np.array(q), 1e9 + self.now)

    def chunk(self, stamp: float, action: float = 0.0) -> bool:
        self.joints()
        self.streamer.heartbeat()
        actions = np.full((STEPS, len(NAMES)), action, np.float32)
        times = np.arange(STEPS, dtype=np.float64) * STEP
        return self.streamer.chunk(round(1e9 * (1e9 + stamp)), NAMES, actions, times)


def test_the_next_chunk_is_expected_as_long_after_the_last_as_that_after_the_one_before() -> None:
    bench = Bench()
    apart, took = STEPS * STEP, 0.003
    for k in range(2):
        bench.now = 101.0 + k * apart + took
        bench.streamer.heartbeat()
        bench.joints()
        assert bench.chunk(101.0 + k * apart), "its first target is sent"
    last = bench.now
    for after, expected in ((0.0, False), (apart - 2 * BEFORE_S, False), (apart - BEFORE_S / 2, True),
                            (apart + BEHIND_S / 2, True), (apart + 2 * BEHIND_S, False)):  # fmt: skip
        bench.now = last + after
        assert bench.streamer.expects_chunk is expected, after


def test_warming_sends_nothing_and_changes_nothing() -> None:
    bench = Bench()
    bench.now = 101.003
    assert bench.chunk(101.0)
    sent, status = len(bench.sent), bench.streamer.status()
    bench.streamer.warm()
    assert len(bench.sent) == sent and bench.streamer.status() == status
    bench.streamer.tick()
    assert np.array_equal(bench.sent[-1].positions, bench.sent[-2].positions)


def test_warming_computes_what_the_next_chunk_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    compute = chunk_execution.continued
    monkeypatch.setattr(
        chunk_execution, "continued", lambda *given, **more: computed.append(1) or compute(*given, **more)
    )
    sent: list[list[Any]] = []
    for warmed in (False, True):
        bench = Bench()
        bench.now = 101.003
        bench.streamer.warm()
        assert not computed, "there is no chunk yet"
        assert bench.chunk(101.0, 0.5)
        bench.now = 101.153
        computed.clear()
        if warmed:
            bench.streamer.warm()
        assert len(computed) == warmed
        assert bench.chunk(101.15, -0.3)
        computed.clear()
        sent.append(bench.sent)
    for plain, warm in zip(*sent, strict=True):
        np.testing.assert_array_equal(plain.positions, warm.positions)


def test_a_chunk_that_is_not_followed_postpones_no_target() -> None:
    bench = Bench()
    bench.now = 101.003
    assert bench.chunk(101.0)
    assert not bench.chunk(100.9), "out of order: a stop"
    bench.streamer.safety("")
    assert not bench.chunk(101.2), "not armed"


class Beating:
    """A node that has only a heart, whose next beat is `later` [s], and that ends after `beats`."""

    error, stop_limit_s, done = None, 0.0, False

    def __init__(self, period: float, later: float | None, beats: int) -> None:
        self.times: list[float] = []
        self.heart = (period, self._beat)
        self.seldom = SeldomGroup()
        self._later, self._beats = later, beats

    def _beat(self) -> float | None:
        self.times.append(time.monotonic())
        self.done = len(self.times) >= self._beats
        return self._later

    def begin_stop(self, reason: str) -> None: ...

    def stopped(self) -> bool:
        return True


def turns(node: Beating) -> int:
    """How often the executor had its turn."""
    count = 0

    def spin_once(timeout_sec: float) -> None:
        nonlocal count
        count += 1

    executor: Any = SimpleNamespace(spin_once=spin_once)
    assert process.serve(node, executor, process.Stop()) == 0  # type: ignore[arg-type]
    return count


@pytest.mark.parametrize("later, expected", [(None, 0.004), (0.0, 0.004), (0.004, 0.008), (-0.0024, 0.0016)])
def test_a_beat_is_later_by_what_it_returns(later: float | None, expected: float) -> None:
    node = Beating(0.004, later, 40)
    turns(node)
    assert np.median(np.diff(node.times)) == pytest.approx(expected, abs=0.0006)


def test_the_executor_waits_once_where_a_message_is_about_to_come_or_another_thread_works() -> None:
    """By the time that the beats took: a busy machine is late."""
    found = []
    for later, beats in ((0.0, 200), (-0.0006, 500), (0.001, 100)):  # 0.2 s each
        node = Beating(0.001, later, beats)
        found.append(turns(node) * process.EXECUTOR_S / (node.times[-1] - node.times[0]))
    often, seldom, busy = found
    assert 0.6 < often < 1.15, "every turn"
    assert 0.3 < seldom < 0.65 and 0.3 < busy < 0.65, "every other one"
