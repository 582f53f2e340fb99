"""The double of joint_trajectory_controller: by hand, and with the messages of the safety node's schedule."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.execution.horizon import Horizon, Knots
from hardware.observing.monitor import LimitMonitor
from robolearn.bench.emulators.ros2_control import came_at
from robolearn.bench.emulators.trajectory_controller import PERIOD_S, TrajectoryController, TrajectoryPoint
from robots import ROBOTS

JOINTS = ("a", "b")
ZERO = np.zeros(2)


def point(after: float, q: float, v: float | None = None) -> TrajectoryPoint:
    return TrajectoryPoint(after, np.array([q, 2 * q]), None if v is None else np.array([v, 2 * v]))


def made(*points: TrajectoryPoint, begin: float = 0.0, **how: bool) -> TrajectoryController:
    controller = TrajectoryController(JOINTS, ZERO, **how)
    assert controller.accept(JOINTS, list(points), begin, 10.0) == ""
    return controller


def commanded(controller: TrajectoryController, at: float, measured: float) -> float:
    """Of the first joint, for the time `at` [s]: what is commanded a period before."""
    return float(controller.sample(at - PERIOD_S, np.array([measured, measured]), ZERO)[0])


def test_it_goes_in_a_straight_line_from_where_the_arm_is_and_stands_at_the_end() -> None:
    controller = made(point(0.1, 1.0))
    found = [commanded(controller, 10.0 + t, 0.5) for t in (0.0, 0.049, 0.099, 5.0)]  # it begins a period before 10 s
    assert found == pytest.approx([0.505, 0.75, 1.0, 1.0])


def test_it_goes_from_what_it_commanded_last_where_that_is_asked_for() -> None:
    assert commanded(made(point(0.1, 1.0), from_desired=True), 10.0, 0.5) == pytest.approx(0.01)


def test_points_that_are_due_are_left_out_and_cubics_pass_through_the_others() -> None:
    controller = made(point(0.0, 0.0, 0.0), point(0.1, 0.1, 1.5), point(0.2, 0.2, 0.0), begin=10.0)
    q = [commanded(controller, 10.1 + t, 9.0) for t in (0.0, 0.001, 0.05, 0.1, 1.0)]
    assert q[0] == pytest.approx(0.1) and q[3:] == pytest.approx([0.2, 0.2])
    assert (q[1] - q[0]) / 0.001 == pytest.approx(1.5, rel=0.03), "at the velocity of the point"
    assert q[2] == pytest.approx(0.1 + 0.05 + 0.1 * 1.5 / 8), "Hermite: half way, and an eighth of the velocity's way"


# --- its habits, by hand: an arm that follows 0.006 rad behind, at 1 rad/s -----------------------------------------


def led(seconds: float, **how: float) -> tuple[TrajectoryController, float]:
    """After so long on a straight way of 1 rad in 1 s; and the command."""
    controller, q = TrajectoryController(JOINTS, ZERO, **how), 0.0
    assert controller.accept(JOINTS, [point(0.0, 0.0), point(1.0, 1.0)], 10.0, 10.0) == ""
    for k in range(round(1000 * seconds)):
        q = commanded(controller, 10.001 + 0.001 * k, max(q - 0.006, 0.0))
    return controller, q


def test_a_cancelled_goal_steps_back_by_the_following_error() -> None:
    controller, q = led(0.5)
    controller.hold(np.array([q - 0.006, 2 * q - 0.006]))
    after = commanded(controller, 10.501, q - 0.006)
    assert after - q == pytest.approx(-0.006), "in a period of 1 ms, from 1 rad/s: -7,000 rad/s2"
    assert commanded(controller, 12.0, 0.3) == after, "and stays there"


def test_an_aborted_goal_leaves_the_last_velocity_until_the_next_message() -> None:
    controller, q = led(0.5)
    controller.abort()
    found = [commanded(controller, 10.501 + t, q) for t in (0.0, 0.1, 2.0)]
    assert found == pytest.approx([q + 0.001, q + 0.101, q + 2.001]), "at 1 rad/s, beyond the goal of 1 rad"
    assert controller.accept(JOINTS, [point(0.0, 1.0)], 12.6, 12.6) == ""
    assert [commanded(controller, 12.602 + t, 1.0) for t in (0.0, 1.0)] == [1.0, 1.0]


def test_an_error_beyond_the_tolerance_is_held_where_the_arm_is() -> None:
    controller, q = led(0.5, tolerance=0.6)
    stays = q - 0.7
    found = [float(controller.sample(10.5 + 0.001 * k, np.array([stays, stays]), ZERO)[0]) for k in range(3)]
    assert found == [q, stays, stays]
    assert led(0.5, tolerance=1.1)[1] == q  # the second joint is .506 rad behind


def test_a_silence_behind_the_last_point_is_held_where_the_arm_is() -> None:
    controller, q = led(1.0, timeout_s=0.05)
    found = [commanded(controller, 11.0 + t, 0.9) for t in (0.04, 0.06, 0.07)]
    assert q == pytest.approx(1.0) and found == pytest.approx([1.0, 1.0, 0.9])


def test_at_half_speed_its_clock_runs_slower_until_the_next_message() -> None:
    controller, q = led(0.4)
    controller.speed = 0.5
    found = [commanded(controller, 10.4 + t, q) for t in (0.1, 0.2)]
    # The command is that of a period later by its clock, which is half as long.
    assert found == pytest.approx([0.45, 0.5], abs=6e-4)
    assert controller.accept(JOINTS, [point(0.0, 0.0), point(1.0, 1.0)], 10.0, 10.6) == ""
    assert commanded(controller, 10.601, 0.5) == pytest.approx(0.601), "real time: a step of a tenth of a radian"


@pytest.mark.parametrize(
    ("points", "begin", "why"),
    [
        ([], 0.0, "no points"),
        ([point(0.1, 1.0, 0.1)], 0.0, "the last point has a velocity"),
        ([point(0.1, 1.0)], 9.0, "it ends 900 ms in the past"),
        ([point(0.1, 1.0), point(0.1, 1.0)], 0.0, "its times do not rise"),
        ([TrajectoryPoint(0.1, np.zeros(3), None)], 0.0, "a point of another length"),
    ],
)
def test_what_it_refuses(points: list[TrajectoryPoint], begin: float, why: str) -> None:
    assert TrajectoryController(JOINTS, ZERO).accept(JOINTS, points, begin, 10.0) == why
    assert "not the controller's" in TrajectoryController(JOINTS, ZERO).accept(("a", "c"), [point(0.1, 1.0)], 0.0, 10.0)


def test_joints_are_sorted_by_name() -> None:
    controller = TrajectoryController(JOINTS, ZERO)
    assert controller.accept(("b", "a"), [point(0.0, 1.0)], 10.0, 10.0) == ""
    assert controller.sample(10.0, ZERO, ZERO).tolist() == [2.0, 1.0]


# --- the safety node's messages, through the controller, before a judge -------------------------------------------


def judged(messages: list[tuple[float, float, list[TrajectoryPoint]]], robot: str = "fr3") -> LimitMonitor:
    """What a monitor says of the arm's way: arrival [s], stamp [s], points."""
    arm = ROBOTS[robot]
    monitor = LimitMonitor.of(arm, 0.001)
    home = np.array(arm.home)
    controller = TrajectoryController(arm.joints, home)
    waiting = sorted(messages, key=lambda message: message[0])
    for k in range(2500):
        now = 100.0 + 0.001 * k
        while waiting and waiting[0][0] <= now:
            _, begin, points = waiting.pop(0)
            controller.accept(arm.joints, points, begin, now)
        monitor.command(controller.sample(now, controller.desired, ZERO), now)
    return monitor


def swing(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities of step `k`: 0.7 rad within 2 s, with the least jerk."""
    s = min(0.005 * k / 2, 1.0)
    way, speed = s**3 * (10 - 15 * s + 6 * s * s), 15 * s * s * (1 - s) ** 2
    return np.array(ROBOTS["fr3"].home) + 0.7 * way, np.full(7, 0.7 * speed)


LATE = {200: 0.020, 201: 0.015, 202: 0.010, 203: 0.005}  # in mid-motion


def ahead(late: dict[int, float]) -> list[tuple[float, float, list[TrajectoryPoint]]]:
    horizon, out = Horizon(0.005, 0.04), []
    for k in range(450):
        now = 100.0 + 0.005 * k
        q, v = swing(k)
        due = horizon.points(q, v, Knots(np.ones(1), (q + 0.5 * v)[None], np.zeros((1, 7))), now)  # within a second
        horizon.sent()
        points = [TrajectoryPoint(p.at - due[0].at, p.positions, p.velocities) for p in due]
        out.append((now + 0.0005 + late.get(k, 0.0), due[0].at, points))
    return out


@pytest.mark.long
def test_a_message_late_by_20_ms_is_no_violation() -> None:
    for late in ({}, LATE):
        summary = judged(ahead(late)).summary()
        assert summary["violations"] == 0 and summary["peak"]["velocity"] > 0.5, summary


def test_the_judge_sees_what_one_point_a_message_does_to_the_arm() -> None:
    out = []
    for k in range(450):
        out.append((100.0005 + 0.005 * k + LATE.get(k, 0.0), 0.0, [TrajectoryPoint(0.005, swing(k)[0], None)]))
    found = judged(out).summary()["violations_by_kind"]
    assert found["acceleration"] > 0 and found["velocity"] > 0


def test_a_message_comes_late_only_to_a_controller_that_runs() -> None:
    info = {"source_timestamp": 100_000_000_000, "received_timestamp": 100_030_000_000}
    assert came_at(info, 100.02) == 100.03, "30 ms on its way, while the controller ran"
    assert came_at(info, 99.99) == 100.0, "the process stood still, and its middleware with it"
