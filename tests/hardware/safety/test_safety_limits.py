"""Limits come from the robot and can only be tightened."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.observing.monitor import LimitMonitor
from hardware.safety import Limits, SafetyState
from robolearn.core import BadInput
from robots import PANDA
from robots.limits import LEAST, Box, Plane


def test_the_robots_own() -> None:
    limits = Limits.of(PANDA)
    assert limits.n == 7
    assert np.array_equal(limits.lower, PANDA.lower) and np.array_equal(limits.upper, PANDA.upper)
    assert np.array_equal(limits.velocity, PANDA.velocity) and np.array_equal(limits.jerk, PANDA.jerk)
    assert limits.workspace is None and limits.gripper_max == 0.08
    with pytest.raises(ValueError, match="read-only"):
        limits.velocity[0] = 100.0


def test_tighter_is_taken() -> None:
    limits = Limits.of(PANDA).tightened(
        velocity=0.5, lower=PANDA.lower + 0.1, workspace=[[0.2, -0.4, 0.0], [0.8, 0.4, 0.6]], max_jump=0.1
    )
    assert np.array_equal(limits.velocity, np.full(7, 0.5))
    assert limits.workspace is not None and limits.workspace.shape == (2, 3)
    again = limits.tightened(workspace=[[0.3, -0.4, 0.1], [0.8, 0.4, 0.6]], collision_distance=0.03)
    assert again.collision_distance == 0.03


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("velocity", 5.0, "velocity of joint 1: got 5.0, expected at most 2.175"),
        ("lower", -3.2, "lower of joint 1"),
        ("upper", 4.0, "upper of joint 1"),
        ("max_jump", 2.0, "max_jump: got 2.0, expected at most 0.7"),
        ("state_timeout_s", 0.5, "state_timeout_s: got 0.5, expected at most 0.3"),
        ("obstacle_distance", 0.0, "obstacle_distance: got 0.0, expected at least 0.005"),
        ("held", [[0, 0, 0], [1, 1, -1]], "held: .*lower corner below"),
        ("command_timeout_s", 0.2, "command_timeout_s"),
        ("collision_distance", 0.0, "at least 0.02"),
        ("gripper_max", 0.1, "gripper_max"),
        ("velocity", [1.0, 1.0], "shape"),
        ("velocity", -1.0, "more than 0"),
        ("velocity", float("nan"), "finite"),
        ("deadman_timeout_s", float("inf"), "finite"),
        ("lower", 1.7, "below upper"),
        ("velocitys", 1.0, "did you mean velocity"),
        ("workspace", [[0, 0, 0], [1, 1, -1]], "lower corner below"),
    ],
)
def test_looser_and_nonsense_are_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Limits.of(PANDA).tightened(**{name: value})


def test_what_belongs_to_the_stations_delay_may_be_widened() -> None:
    limits = Limits.of(PANDA).tightened(state_timeout_s=0.3, max_jump=0.7)
    assert (limits.state_timeout_s, limits.max_jump) == (0.3, 0.7)
    assert limits.tightened(max_jump=0.1).tightened(max_jump=0.5).max_jump == 0.5


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("jerk", 1e-6, 1.0),
        ("acceleration", 1e-9, 0.1),
        ("velocity", 1e-12, 0.01),
        ("max_jump", 1e-9, 0.01),
        ("command_timeout_s", 1e-6, 0.01),
        ("state_timeout_s", 1e-6, 0.01),
        ("deadman_timeout_s", 1e-6, 0.02),
        ("singularity", 1.0, 2.0),
        ("gripper_speed", 1e-9, 0.001),
    ],
)
def test_limits_too_small_to_move_are_refused_by_name(name: str, value: float, least: float) -> None:
    with pytest.raises(BadInput, match=f"limit {name}: got {value}, expected at least {least}: with less"):
        Limits.of(PANDA).tightened(**{name: value})


@pytest.mark.parametrize("period", [0.02, 0.005, 0.001])
def test_the_smallest_limits_are_kept(make_rig, period: float) -> None:
    """Full motion and a stop at the least velocity, acceleration and jerk that a station may set."""
    limits = Limits.of(PANDA).tightened(**{name: LEAST[name] for name in ("velocity", "acceleration", "jerk")})
    rig = make_rig(limits, period=period).arm()
    for _ in range(int(2.0 / period)):
        rig.tick(rig.goal(rig.measured + 0.005))
    assert rig.filter.state is SafetyState.ARMED and np.ptp(np.array(rig.sent)[:, 0]) > 0.01
    rig.filter.estop()
    rig.settle(int(2.0 / period))
    assert rig.filter.state is SafetyState.LATCHED and "exception" not in rig.filter.status()["refusals"]
    monitor = LimitMonitor(limits.lower, limits.upper, limits.velocity, limits.acceleration, limits.jerk, period)
    for k, q in enumerate(rig.sent):
        monitor.command(q, k * period)
    assert monitor.summary()["violations"] == 0, monitor.summary()


@pytest.mark.parametrize("delay", [0.1, 0.15])
def test_an_arm_whose_states_are_late(make_rig, delay: float) -> None:
    """Fast legal motion with states of a while ago: a jump by the usual limits, none by those of the station."""
    for widened in (False, True):
        limits = Limits.of(PANDA)
        rig = make_rig(limits.tightened(state_timeout_s=0.25, max_jump=0.7) if widened else limits).arm()
        rig.follows = False
        goal = rig.measured.copy()
        for k in range(200):
            goal = goal + np.eye(7)[0] * 2.1 * rig.period
            late = k - round(delay / rig.period)
            rig.measured = rig.sent[min(late, len(rig.sent) - 1)] if late >= 0 else np.array(PANDA.home)
            rig.tick(rig.goal(goal + 0.1 * np.eye(7)[0]))
        assert (rig.filter.state is SafetyState.ARMED) == widened, rig.filter.reason


def test_obstacles_stay() -> None:
    table, post = Plane("table", np.array([0, 0, 1.0])), Box("post", np.zeros(3), np.ones(3))
    limits = Limits.of(PANDA).tightened(obstacles=(table,))
    assert limits.tightened(obstacles=(table, post)).obstacles == (table, post)
    with pytest.raises(BadInput, match="obstacles: got no table"):
        limits.tightened(obstacles=(post,))
    held = limits.tightened(held=[[-0.1] * 3, [0.1] * 3])
    assert held.tightened(held=[[-0.2] * 3, [0.1] * 3]).held is not None
    with pytest.raises(BadInput, match=r"held: .*a box around"):
        held.tightened(held=[[-0.05] * 3, [0.1] * 3])
    assert limits.to_json()["obstacles"] == [{"name": "table", "normal": [0, 0, 1], "offset": 0.0}]


def test_a_workspace_can_only_shrink() -> None:
    boxed = Limits.of(PANDA).tightened(workspace=[[0.2, -0.4, 0.0], [0.8, 0.4, 0.6]])
    for box in (None, [[0.1, -0.4, 0.0], [0.8, 0.4, 0.6]], [[0.2, -0.4, 0.0], [0.8, 0.5, 0.6]]):
        with pytest.raises(BadInput, match="a box inside"):
            boxed.tightened(workspace=box)
