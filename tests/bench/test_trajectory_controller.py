"""The double of joint_trajectory_controller: by hand, and with the messages of the safety node's schedule."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.execution.horizon import Horizon, Knots
from hardware.observing.monitor import LimitMonitor
from robolearn.bench.emulators.trajectory_controller import TrajectoryController, TrajectoryPoint
from robots import ROBOTS

JOINTS = ("a", "b")
ZERO = np.zeros(2)


def point(after: float, q: float, v: float | None = None) -> TrajectoryPoint:
    return TrajectoryPoint(after, np.array([q, 2 * q]), None if v is None else np.array([v, 2 * v]))


def made(*points: TrajectoryPoint, begin: float = 0.0, **how: bool) -> TrajectoryController:
    controller = TrajectoryController(JOINTS, ZERO, **how)
    assert controller.accept(JOINTS, list(points), begin, 10.0) == ""
    return controller


def test_it_goes_in_a_straight_line_from_where_the_arm_is_and_stands_at_the_end() -> None:
    controller = made(point(0.1, 1.0))
    found = [controller.sample(10.0 + t, np.array([0.5, 0.5]), ZERO)[0] for t in (0.0, 0.05, 0.1, 5.0)]
    assert found == pytest.approx([0.5, 0.75, 1.0, 1.0])


def test_it_goes_from_where_it_wanted_to_be_where_that_is_asked_for() -> None:
    controller = made(point(0.1, 1.0), from_desired=True)
    assert controller.sample(10.0, np.array([0.5, 0.5]), ZERO)[0] == 0.0


def test_points_that_are_due_are_left_out_and_cubics_pass_through_the_others() -> None:
    controller = made(point(0.0, 0.0, 0.0), point(0.1, 0.1, 1.5), point(0.2, 0.2, 0.0), begin=10.0)
    q = [controller.sample(10.1 + t, np.array([9.0, 9.0]), ZERO)[0] for t in (0.0, 0.001, 0.05, 0.1, 1.0)]
    assert q[0] == pytest.approx(0.1) and q[3:] == pytest.approx([0.2, 0.2])
    assert (q[1] - q[0]) / 0.001 == pytest.approx(1.5, rel=0.03), "at the velocity of the point"
    assert q[2] == pytest.approx(0.1 + 0.05 + 0.1 * 1.5 / 8), "Hermite: half way, and an eighth of the velocity's way"


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
