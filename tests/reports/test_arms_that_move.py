"""Arms that jumped, went on, or caught up: the safety filter on a fake clock, judged by differences of its commands."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))

from safety_rig import BASE, HOME, PERIOD, Rig

from hardware.execution.horizon import Horizon, Knots
from hardware.safety import Limits, PoseTarget, SafetyState
from hardware.safety.supervisor import SafetySupervisor
from robolearn.core import RobolearnError
from robots import PANDA, UR5E
from robots.stations import load_contract

ROUNDING = 1.0 + 1e-6
FAR = HOME + 0.3 * BASE
START = PANDA.chain.forward(HOME[None])[0][0]  # of the tcp [m]


def pose(x: float = 0.0, y: float = 0.0, turned: float = 0.0) -> PoseTarget:
    """The tool pointing down, so far from `START` [m], turned about the vertical [rad]."""
    half = 0.5 * turned
    return PoseTarget(START + np.array([x, y, 0.0]), np.array([0.0, np.cos(half), np.sin(half), 0.0]))


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def at_rest(rig: Rig) -> bool:
    """The last two positions differ by less than a motion of 2 mrad/s."""
    return len(rig.sent) > 2 and float(np.abs(rig.sent[-1] - rig.sent[-2]).max()) < 0.002 * PERIOD


def to_and_fro(rig: Rig, far: float) -> bool:
    """Goals `far` [rad] on either side, each before the other is reached: the arm is armed still."""
    there, back = (rig.goal(rig.measured + sign * far * BASE) for sign in (1, -1))
    for target in (there, back, there, back):
        rig.run(target, 6)
    return rig.filter.state is SafetyState.ARMED


@pytest.mark.parametrize(("far", "armed"), [(0.01, True), (0.15, True), (0.5, False), (2.5, False)])
def test_franka_ros2_168_a_goal_that_jumps_is_no_discontinuity(far: float, armed: bool) -> None:
    rig = Rig().moving()
    assert to_and_fro(rig, far) is armed, "further than an arm gets between two targets is refused"
    assert (rig.worst()[1:] <= ROUNDING).all(), rig.worst()


def test_franka_ros2_174_a_goal_that_jumps_keeps_to_the_limits_of_a_careful_user() -> None:
    """0.2 rad/s and 0.1 rad/s² stood in the configuration."""
    rig = Rig(Limits.of(PANDA).tightened(velocity=0.2, acceleration=0.1)).arm()
    assert to_and_fro(rig, 0.01) and (rig.worst()[1:] <= ROUNDING).all(), rig.worst()


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


def test_moveit_2254_an_arm_comes_to_rest_when_joint_goals_end() -> None:
    rig = Rig().moving()
    speed = np.abs(np.diff(rig.sent[-2:], axis=0)).max() / PERIOD
    rig.run(None, 200)
    assert speed > 0.1 and at_rest(rig), "the last velocity does not remain"
    assert (rig.worst()[1:] <= ROUNDING).all()


def test_moveit_3049_an_arm_comes_to_rest_when_poses_end() -> None:
    rig = Rig().arm()
    for k in range(60):
        rig.tick(pose(y=0.001 * k))
    speed = np.abs(np.diff(rig.sent[-2:], axis=0)).max() / PERIOD
    rig.run(None, 200)
    assert speed > 0.1 and at_rest(rig) and (rig.worst()[1:] <= ROUNDING).all()


def test_universal_robots_ros_driver_68_after_an_emergency_stop_the_rest_of_a_motion_is_forgotten() -> None:
    rig = Rig().moving()
    rig.filter.target(rig.goal(FAR))
    rig.filter.estop()
    rig.settle()
    rig.filter.reset()
    rig.arm()
    stood = rig.measured.copy()
    rig.run(None, 100)
    assert np.abs(rig.measured - stood).max() < 1e-6 and rig.filter.state is SafetyState.ARMED


def test_universal_robots_ros_driver_274_a_target_that_comes_after_a_stop_moves_nothing() -> None:
    rig = Rig().moving()
    rig.filter.stop("a person")
    rig.settle()
    stood = rig.measured.copy()
    rig.run(rig.goal(FAR), 50)
    assert rig.filter.state is not SafetyState.ARMED and np.abs(rig.measured - stood).max() == 0.0
    with pytest.raises(RobolearnError):
        rig.filter.arm()  # a stop latches: a person resets first


def test_universal_robots_ros2_driver_1251_an_arm_that_is_held_back_is_not_caught_up_with() -> None:
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


def test_ros2_control_817_zeros_before_the_first_reading_are_no_place_to_begin() -> None:
    straight = np.zeros(6)  # of a UR5e: within its limits, and where a position controller would send it at once
    with pytest.raises(RobolearnError, match="exactly 0 rad, as drivers report before their first reading"):
        Rig(robot=UR5E).arm(at=straight)
    assert Rig(robot=UR5E).arm(at=straight + 1e-5).filter.state is SafetyState.ARMED, "an encoder's reading"


def test_abb_ros2_44_zeros_while_the_arm_moves_stop_it() -> None:
    rig = Rig().moving()
    rig.measured, rig.follows = np.zeros(7), False
    rig.tick(rig.goal(rig.sent[-1]))
    assert rig.filter.state is not SafetyState.ARMED, "a driver that begins anew while the arm moves"


def test_ros2_controllers_683_a_motion_that_is_given_up_is_commanded_until_rest() -> None:
    rig = Rig().moving()
    rig.filter.stop("a person")
    before = len(rig.sent)
    rig.settle()
    assert len(rig.sent) > before + 5 and at_rest(rig)
    assert (rig.worst()[1:] <= ROUNDING).all()


def test_ros2_controllers_514_an_error_beyond_the_tolerance_leaves_no_arm_without_commands() -> None:
    rig = Rig().moving()
    rig.follows = False
    while rig.filter.state is SafetyState.ARMED:
        rig.tick(rig.goal(rig.sent[-1] + 0.05 * BASE))
    before = len(rig.sent)
    rig.settle()
    assert len(rig.sent) > before, "what holds the arm is the last position, not nothing"
    assert np.abs(rig.sent[-1] - rig.sent[-2]).max() < 0.01 * PERIOD and (rig.worst()[1:] <= ROUNDING).all()


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


def test_moveit_3116_pulled_beyond_its_reach_no_joint_is_faster_than_its_limit() -> None:
    rig = Rig().arm()
    for k in range(600):
        rig.tick(pose(x=0.001 * k))
    reached = rig.robot.chain.forward(rig.measured[None])[0][0]
    assert reached[0] - START[0] > 0.05 and (rig.worst()[1:] <= ROUNDING).all()
    assert rig.filter.state is not SafetyState.ARMED, "a metre beyond its reach there is nowhere to go"


def test_moveit_3069_a_tool_that_is_turned_halts_at_no_joint_s_speed() -> None:
    rig = Rig().arm()
    for k in range(500):
        rig.tick(pose(turned=PERIOD * k))  # 1 rad/s
    assert np.ptp(np.array(rig.sent), axis=0).max() > 2.0 and (rig.worst() <= ROUNDING).all(), rig.worst()
    assert rig.filter.state is SafetyState.ARMED


def test_moveit2_3378_the_first_pose_after_joint_goals_leads_from_where_the_arm_is() -> None:
    rig = Rig().moving()
    rig.filter.disarm()
    rig.settle()
    elsewhere = HOME - 0.6 * BASE  # by hand, while nothing was commanded
    rig.arm(at=elsewhere)
    rig.sent.clear()
    position = rig.robot.chain.forward(elsewhere[None])[0][0]
    for _ in range(200):
        rig.tick(PoseTarget(position + np.array([0.0, 0.0, 0.02]), pose(turned=-0.6).quaternion))
    found = rig.robot.chain.forward(np.array(rig.sent))[0]
    assert (np.linalg.norm(found - position, axis=1) < 0.021).all(), "never by way of where it was armed before"
    assert found[-1][2] - position[2] == pytest.approx(0.02, abs=1e-3) and (rig.worst()[1:] <= ROUNDING).all()


def test_moveit2_2136_messages_that_come_late_let_no_speed_of_the_controller_s_drop() -> None:
    """0.3 rad/s, each message up to 15 ms on its way to a controller that stands still where its points run out."""
    horizon, draw, messages = Horizon(PERIOD, 0.05), np.random.default_rng(0), []
    horizon.begin()
    for k in range(200):
        q, v = np.array([0.3 * PERIOD * k]), np.array([0.3])
        rest = Knots(np.array([0.1]), np.array([q + 0.05 * v]), np.array([0 * v]))
        messages.append((PERIOD * k + draw.uniform(0, 0.015), horizon.points(q, v, rest, PERIOD * k)))
        horizon.sent()
    times, followed = np.arange(0.1, 0.9, 0.001), []
    for t in times:
        points = max((one for one in messages if one[0] <= t), key=lambda one: one[0])[1]
        followed.append(np.interp(t, [point.at for point in points], [point.positions[0] for point in points]))
    speeds = np.diff(followed) / 0.001
    assert speeds.min() > 0.27 and speeds.max() < 0.33


def test_universal_robots_ros2_driver_520_zeros_until_the_arm_has_power_are_not_gone_to() -> None:
    rig = Rig(robot=UR5E)
    rig.measured = np.zeros(6)
    rig.stand(2.0)  # the driver is up and reports, the arm has no power
    with pytest.raises(RobolearnError, match="exactly 0 rad"):
        rig.filter.arm()
    home = np.array(UR5E.home)
    rig.arm(at=home)
    rig.run(None, 100)
    assert np.abs(np.array(rig.sent) - home).max(initial=0.0) < 1e-6


def test_universal_robots_ros2_driver_1129_a_slider_that_a_controller_may_not_heed_is_watched() -> None:
    clock = FakeClock()
    contract = load_contract("ur5e")
    supervisor = SafetySupervisor(contract, clock, clock)
    supervisor.streamers_alive(1, "/target")
    conditions = {"External Control program": 1.0, "robot mode": 7.0, "safety mode": 1.0}

    def stand(slider: float) -> None:
        for name, value in conditions.items():
            supervisor.condition(name, value)
        for _ in range(60):
            clock.now += PERIOD
            supervisor.joint_state(contract.joints, np.array(contract.robot.home), clock.now, "driver")
            supervisor.deadman(True, "operator")
            supervisor.condition("speed", slider)
            if supervisor.moving:
                supervisor.step()
                supervisor.filter.sent()

    stand(50.0)
    assert "move the speed slider of the teach pendant to 100 %" in supervisor.refusal("/target")
    stand(100.0)
    supervisor.arm()
    stand(50.0)
    assert supervisor.state is not SafetyState.ARMED and "speed" in supervisor.filter.reason


@pytest.mark.parametrize("ends", ["disarm", "stop"])
def test_ros2_controllers_2587_a_motion_that_is_cancelled_steps_back_by_no_following_error(ends: str) -> None:
    rig = Rig().arm()
    rig.follows = False
    for _ in range(40):
        commanded = rig.sent[-1] if rig.sent else HOME
        rig.measured = commanded - 0.0056 * BASE * bool(rig.sent)
        rig.tick(rig.goal(commanded + 0.3 * BASE))
    rig.filter.disarm() if ends == "disarm" else rig.filter.stop("cancelled")
    begun = len(rig.sent) - 1
    rig.settle()
    steps = np.diff([q[0] for q in rig.sent[begun:]])
    assert len(steps) > 5 and (steps > -1e-9).all() and (rig.worst()[1:] <= ROUNDING).all(), rig.worst()
