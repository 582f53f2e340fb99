"""Stalls of the process between commands: what the arm, which stands at the last command, is then asked to do.

Judged by hand: an arm at rest that is accelerated by a_max at most has gone ½ a_max t² after t.
"""

from __future__ import annotations

import numpy as np
import pytest

from hardware.observing.monitor import LimitMonitor
from hardware.safety import SafetyFilter, SafetyState
from robots import PANDA


def asks_for_no_step(rig, sent: list[np.ndarray]) -> None:
    """`sent` starts from rest at its first command, one period apart."""
    times = rig.period * np.arange(len(sent))[:, None]
    most = 0.5 * np.array(PANDA.acceleration) * times**2
    assert np.all(np.abs(np.array(sent) - sent[0]) <= most + 1e-9)


@pytest.mark.parametrize("stall_s", [0.02, 0.03, 0.06, 0.15, 0.2, 0.24])
def test_after_three_missed_periods_the_set_point_starts_from_rest(rig, stall_s: float) -> None:
    rig.moving()
    speed = abs(rig.sent[-1][0] - rig.sent[-2][0]) / rig.period
    assert speed > 1.5, "or there is nothing to see"
    monitor = LimitMonitor.of(PANDA, rig.period)
    for k, q in enumerate(rig.sent):
        monitor.command(q, rig.now + (k - len(rig.sent)) * rig.period)
    begun = len(rig.sent) - 1
    rig.now += stall_s
    for _ in range(60):
        rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
        monitor.command(rig.sent[-1], rig.now)
    assert rig.filter.state is SafetyState.ARMED and rig.filter.status()["stalls"] == 1
    asks_for_no_step(rig, rig.sent[begun:])
    assert rig.sent[-1][0] - rig.sent[begun][0] > 0.05, "and it goes on"
    assert monitor.summary()["violations"] == 0, monitor.summary()


def test_two_late_ticks_stretch_time(rig) -> None:
    rig.moving()
    before = rig.sent[-1][0] - rig.sent[-2][0]
    rig.now += 2.4 * rig.period
    rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
    assert rig.sent[-1][0] - rig.sent[-2][0] >= before
    assert rig.filter.status()["stalls"] == 0


@pytest.mark.parametrize("stall_s", [0.05, 0.2])
def test_a_stall_in_the_midst_of_a_step(rig, stall_s: float) -> None:
    """The plan is made, and then the process does not run: it is not sent."""
    rig.moving()
    begun, motion = len(rig.sent) - 1, rig.filter.motion
    toward = motion.toward

    def held_up(goal: list[float]):
        motion.toward = toward
        rig.now += stall_s
        return toward(goal)

    motion.toward = held_up
    for _ in range(40):
        rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
    assert rig.filter.state is SafetyState.ARMED
    asks_for_no_step(rig, rig.sent[begun:])
    motion.toward = lambda goal: (setattr(rig, "now", rig.now + 1.0), toward(goal))[1]
    assert rig.tick(rig.goal(rig.measured)) is None
    assert rig.filter.state is SafetyState.LATCHED and rig.filter.reason.startswith(
        "gap: the safety filter did not run"
    )


def test_a_stall_between_a_step_and_its_publishing(rig) -> None:
    rig.moving()
    stands = rig.sent[-1]
    command = rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
    assert rig.filter.checked(command) is command
    rig.now += 0.05
    held = rig.filter.checked(command)
    assert np.array_equal(held.positions, stands) and not held.velocities.any()
    rig.filter.sent()
    rig.sent[-1] = rig.measured = stands
    begun = len(rig.sent) - 1
    rig.run(rig.goal(stands + 0.3 * np.eye(7)[0]), 40)
    assert rig.filter.state is SafetyState.ARMED
    asks_for_no_step(rig, rig.sent[begun:])
    command = rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
    rig.now += 0.5
    assert rig.filter.checked(command) is None and rig.filter.state is SafetyState.LATCHED


def held_up_in_publishing(rig, seconds: float) -> None:
    """The last command is handed to the middleware, which sends it; then the process does not run for a while."""
    command = rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
    assert rig.filter.checked(command) is command
    rig.now += seconds
    rig.filter.sent()


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.2])
def test_a_stall_in_publishing_is_a_stall(rig, seconds: float) -> None:
    """The arm may have got the command at once, and stand there."""
    rig.moving()
    monitor = LimitMonitor.of(PANDA, rig.period)
    for k, q in enumerate(rig.sent):
        monitor.command(q, rig.now + (k + 1 - len(rig.sent)) * rig.period)
    at, begun = rig.now + rig.period, len(rig.sent)
    held_up_in_publishing(rig, seconds)
    monitor.command(rig.sent[-1], at)
    for _ in range(40):
        rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
        monitor.command(rig.sent[-1], rig.now)
    assert rig.filter.state is SafetyState.ARMED and rig.filter.status()["stalls"] == 1
    asks_for_no_step(rig, rig.sent[begun:])
    assert monitor.summary()["violations"] == 0, monitor.summary()


def test_a_gap_in_publishing_is_a_gap(rig) -> None:
    rig.moving()
    held_up_in_publishing(rig, 0.6)
    assert rig.tick(rig.goal(rig.measured)) is None
    assert rig.filter.state is SafetyState.LATCHED and "did not run for 0.6" in rig.filter.reason


def test_publishing_may_take_two_periods(rig) -> None:
    """One that left late is followed by one in time."""
    rig.moving()
    before = rig.sent[-1][0] - rig.sent[-2][0]
    held_up_in_publishing(rig, 2.0 * rig.period)
    rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
    assert rig.sent[-1][0] - rig.sent[-2][0] >= before and rig.filter.status()["stalls"] == 0


def test_a_stall_while_braking_is_the_end_of_braking(rig) -> None:
    rig.moving().filter.estop()
    rig.tick()
    last = rig.sent[-1]
    rig.now += 0.1
    rig.run(None, 3)
    assert rig.filter.state is SafetyState.LATCHED and np.array_equal(rig.sent[-1], last)


def ahead(rig) -> SafetyFilter:
    """The filter of a station whose set-points are sent ahead of the arm."""
    rig.filter = SafetyFilter(PANDA, PANDA.joints, rig.limits, rig.period, lambda: rig.now, ahead=True)
    rig.moving()
    return rig.filter


def test_set_points_that_are_sent_ahead_know_no_stall(rig) -> None:
    """The arm goes on with those that it has."""
    guard = ahead(rig)
    before = rig.sent[-1][0] - rig.sent[-2][0]
    rig.now += 0.03
    rig.tick(rig.goal(rig.measured + 0.3 * np.eye(7)[0]))
    assert rig.sent[-1][0] - rig.sent[-2][0] >= before and guard.status()["stalls"] == 0


def test_an_arm_that_comes_to_rest_by_itself_is_waited_for_there(rig) -> None:
    guard = ahead(rig)
    rest, begun = rig.sent[-1] + 0.05 * np.eye(7)[0], rig.now
    guard.left_to_rest(rest, 0.1)
    while rig.now < begun + 0.1:
        rig.tick(rig.goal(rest + 0.3 * np.eye(7)[0]))
        assert np.array_equal(rig.sent[-1], rest)
    rig.run(rig.goal(rest + 0.3 * np.eye(7)[0]), 60)
    assert guard.state is SafetyState.ARMED and guard.status()["stalls"] == 1
    asks_for_no_step(rig, rig.sent[max(k for k, q in enumerate(rig.sent) if np.array_equal(q, rest)) :])
    assert rig.sent[-1][0] > rest[0] + 0.05, "and it goes on"


def test_an_arm_that_met_something_while_it_came_to_rest_goes_back_from_there(rig) -> None:
    guard = ahead(rig)
    rest, begun = rig.sent[-1] + 0.05 * np.eye(7)[0], rig.now
    guard.left_to_rest(rest, 0.1)
    rig.follows, rig.measured = False, rig.sent[-1] + 0.02 * np.eye(7)[0]
    rig.tick()
    guard.contact("it pushes")
    while rig.now < begun + 0.1:
        rig.tick()
        assert np.array_equal(rig.sent[-1], rest)
    rig.settle()
    assert guard.state is SafetyState.LATCHED
    assert np.allclose(rig.sent[-1], rig.measured, atol=1e-6)


def test_a_stop_after_a_stall_does_not_set_the_arm_moving(rig) -> None:
    """News that waited are read before the next step."""
    rig.moving()
    last = rig.sent[-1]
    rig.now += 0.1
    rig.filter.deadman(True)
    rig.filter.stop("the chunk ran out")
    rig.run(None, 3)
    assert rig.filter.state is SafetyState.LATCHED and np.array_equal(rig.sent[-1], last)


@pytest.mark.long
def test_ten_thousand_steps_of_all_faults_with_stalls_by_the_clock(make_rig) -> None:
    """Uneven ticks of up to nine periods: no command asks a standing arm for a step."""
    rng = np.random.default_rng(3)
    rig = make_rig()
    monitor = LimitMonitor.of(PANDA, rig.period)
    goal = rig.measured.copy()
    for k in range(10_000):
        if rig.filter.state is SafetyState.LATCHED:
            rig.filter.reset()
        if rig.filter.state is SafetyState.DISARMED:
            rig.arm()
        if k % 60 == 0:
            goal = np.array(PANDA.home) + rng.uniform(-0.3, 0.3, 7)
        rig.now += rig.period * (rng.uniform(0.0, 8.0) if rng.random() < 0.1 else 0.0)
        monitor.state(rig.measured, rig.now)
        command = rig.tick(rig.goal(rig.measured + np.clip(goal - rig.measured, -0.3, 0.3)))
        if command is not None:
            assert monitor.command(command.positions, rig.now) == (), (k, monitor.summary())
    assert rig.filter.status()["stalls"] > 200
