"""Arms that jumped, went on, or caught up: the safety filter on a fake clock, judged by differences of its commands."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))

from safety_rig import BASE, HOME, PERIOD, Rig

from hardware.safety import PoseTarget, SafetyState
from robolearn.core import RobolearnError
from robots import UR5E

ROUNDING = 1.0 + 1e-6
FAR = HOME + 0.3 * BASE


def at_rest(rig: Rig) -> bool:
    """The last two positions differ by less than a motion of 2 mrad/s."""
    return len(rig.sent) > 2 and float(np.abs(rig.sent[-1] - rig.sent[-2]).max()) < 0.002 * PERIOD


@pytest.mark.parametrize(("far", "armed"), [(0.01, True), (0.15, True), (0.5, False), (2.5, False)])
def test_franka_ros2_168_and_174_a_goal_that_jumps_is_no_discontinuity(far: float, armed: bool) -> None:
    rig = Rig().moving()
    there, back = (rig.goal(rig.measured + sign * far * BASE) for sign in (1, -1))
    for target in (there, back, there, back):
        rig.run(target, 6)  # back before it is there
    assert (rig.filter.state is SafetyState.ARMED) is armed, "further than an arm gets between two targets is refused"
    assert (rig.worst()[1:] <= ROUNDING).all(), rig.worst()


def test_franka_ros2_127_positions_rounded_to_a_tenth_of_a_milliradian_are_smoothed() -> None:
    """Finite differences of a smooth motion that was rounded: 40 rad/s² of noise at 200 Hz."""
    rig = Rig().arm()
    for k in range(200):
        rig.tick(rig.goal(np.round(HOME + 0.2 * (1 - np.cos(0.01 * k)) * BASE, 4)))
    assert (rig.worst()[1:] <= ROUNDING).all() and rig.filter.state is SafetyState.ARMED
    assert np.abs(rig.sent[-1] - HOME).max() > 0.1


def test_franka_ros2_55_motion_begins_at_the_place_that_was_measured() -> None:
    rig = Rig().arm(at=HOME + 1e-5 * np.arange(7))
    rig.tick(rig.goal(HOME + 0.5 * BASE))
    jerk = rig.limits.jerk.max() * PERIOD**3
    assert np.abs(rig.sent[0] - (HOME + 1e-5 * np.arange(7))).max() <= jerk * ROUNDING


def test_moveit2_1036_nothing_of_an_earlier_motion_is_gone_back_to_when_an_arm_is_armed_elsewhere() -> None:
    rig = Rig().moving()
    rig.filter.disarm()
    rig.settle()
    rig.sent.clear()
    rig.arm(at=HOME - 0.6 * BASE)  # by hand, or by another program
    rig.run(None, 20)
    assert np.abs(np.array(rig.sent) - (HOME - 0.6 * BASE)).max(initial=0.0) < 1e-6


def test_moveit_2254_and_3049_an_arm_comes_to_rest_when_commands_end() -> None:
    rig = Rig().moving()
    speed = np.abs(np.diff(rig.sent[-2:], axis=0)).max() / PERIOD
    rig.run(None, 200)
    assert speed > 0.1 and at_rest(rig), "the last velocity does not remain"
    assert (rig.worst()[1:] <= ROUNDING).all()


def test_ur_ros_driver_68_after_an_emergency_stop_the_rest_of_a_motion_is_forgotten() -> None:
    rig = Rig().moving()
    rig.filter.target(rig.goal(FAR))
    rig.filter.estop()
    rig.settle()
    rig.filter.reset()
    rig.arm()
    stood = rig.measured.copy()
    rig.run(None, 100)
    assert np.abs(rig.measured - stood).max() < 1e-6 and rig.filter.state is SafetyState.ARMED


def test_ur_ros_driver_274_a_target_that_comes_after_a_stop_moves_nothing() -> None:
    rig = Rig().moving()
    rig.filter.stop("a person")
    rig.settle()
    stood = rig.measured.copy()
    rig.run(rig.goal(FAR), 50)
    assert rig.filter.state is not SafetyState.ARMED and np.abs(rig.measured - stood).max() == 0.0
    with pytest.raises(RobolearnError):
        rig.filter.arm()  # a stop latches: a person resets first


def test_ur_ros2_driver_1251_an_arm_that_is_held_back_is_not_caught_up_with() -> None:
    rig = Rig().moving()
    rig.follows, held = False, rig.measured.copy()
    for _ in range(200):
        rig.tick(rig.goal(rig.sent[-1] + 0.05 * BASE))  # motion goes on as if the arm did
    assert rig.filter.state is SafetyState.LATCHED and np.abs(rig.sent[-1] - held).max() < rig.limits.max_jump
    rig.filter.reset()
    rig.arm(at=held)
    rig.sent.clear()
    rig.follows = True
    rig.run(None, 50)
    assert np.abs(np.array(rig.sent) - held).max(initial=0.0) < 1e-6


def test_ros2_control_817_and_abb_ros2_44_zeros_before_the_first_reading_are_no_place_to_begin() -> None:
    straight = np.zeros(6)  # of a UR5e: within its limits, and where a position controller would send it at once
    with pytest.raises(RobolearnError, match="exactly 0 rad, as drivers report before their first reading"):
        Rig(robot=UR5E).arm(at=straight)
    assert Rig(robot=UR5E).arm(at=straight + 1e-5).filter.state is SafetyState.ARMED, "an encoder's reading"
    rig = Rig().moving()
    rig.measured, rig.follows = np.zeros(7), False
    rig.tick(rig.goal(rig.sent[-1]))
    assert rig.filter.state is not SafetyState.ARMED, "a driver that begins anew while the arm moves"


def test_ros2_controllers_683_and_514_while_it_brakes_positions_are_commanded_until_rest() -> None:
    rig = Rig().moving()
    rig.filter.stop("a person")
    before = len(rig.sent)
    rig.settle()
    assert len(rig.sent) > before + 5 and at_rest(rig)
    assert (rig.worst()[1:] <= ROUNDING).all()


def test_ros_controllers_177_a_stop_begins_at_what_was_commanded_not_at_an_arm_that_lags() -> None:
    rig = Rig().arm()
    for _ in range(40):
        commanded = rig.sent[-1] if rig.sent else HOME
        rig.follows, rig.measured = False, 0.5 * (rig.measured + commanded)  # a servo that trails behind
        rig.tick(rig.goal(commanded + 0.3 * BASE))
    lag = np.abs(rig.sent[-1] - rig.measured).max()
    rig.filter.stop("a person")
    rig.settle()
    assert lag > 1e-3 and (rig.worst()[1:] <= ROUNDING).all(), "an anchor at the measured place is a jump by the lag"


def test_moveit_3069_and_3116_pulled_beyond_its_reach_no_joint_is_faster_than_its_limit() -> None:
    rig = Rig().arm()
    start = rig.robot.chain.forward(HOME[None])[0][0]
    for k in range(600):
        rig.tick(PoseTarget(start + np.array([0.001 * k, 0.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])))
    reached = rig.robot.chain.forward(rig.measured[None])[0][0]
    assert reached[0] - start[0] > 0.05 and (rig.worst()[1:] <= ROUNDING).all()
    assert rig.filter.state is not SafetyState.ARMED, "a metre beyond its reach there is nowhere to go"
