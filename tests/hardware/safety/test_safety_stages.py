"""Each stage: what it lets pass, what it refuses, with which words, and what happens then."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.safety import JointTarget, Limits, PoseTarget, SafetyFilter, SafetyState
from robolearn.bench.safety.collisions import CollisionReference
from robolearn.core import BadInput
from robots import PANDA

HOME = np.array(PANDA.home)
NAMES = PANDA.joints
BASE = np.eye(7)[0]  # the first joint, by 1 rad
DOWN = np.array([0.0, 1.0, 0.0, 0.0])


def latched(rig, stage: str, words: str) -> None:
    """The filter brakes for this reason, keeps all limits on the way, and latches."""
    assert rig.filter.state in (SafetyState.BRAKING, SafetyState.LATCHED), rig.filter.status()
    assert words in rig.filter.reason, rig.filter.reason
    assert rig.filter.status()["refusals"] == {stage: 1}
    rig.settle()
    assert rig.filter.state is SafetyState.LATCHED
    assert np.isfinite(rig.sent).all() and rig.worst().max() <= 1.0


def one(i: int, value: float) -> np.ndarray:
    q = HOME.copy()
    q[i] = value
    return q


@pytest.mark.parametrize(
    ("target", "stage", "words"),
    [
        (JointTarget(NAMES, one(3, math.nan)), "finite", "finite: target: component 4 of 7 is nan"),
        (JointTarget(NAMES, one(0, -math.inf)), "finite", "component 1 of 7 is -inf"),
        (JointTarget(NAMES, HOME, math.nan), "finite", "gripper: component 1 of 1 is nan"),
        (JointTarget(NAMES, "up"), "finite", "got 'up', expected numbers"),  # type: ignore
        (JointTarget(NAMES, None), "finite", "is nan"),  # type: ignore
        (JointTarget(NAMES[:6], HOME[:6]), "names", "6 joints, expected 7; missing: panda_joint7"),
        (JointTarget((*NAMES[:6], "elbow"), HOME), "names", "unknown: elbow; missing: panda_joint7"),
        (JointTarget((*NAMES, "gripper"), np.append(HOME, 0)), "names", "8 joints, expected 7; unknown: gripper"),
        (JointTarget(NAMES[::-1], HOME), "names", "in the order panda_joint7, panda_joint6"),
        (JointTarget((), HOME), "names", "0 joints"),
        (JointTarget(NAMES, HOME[:5]), "names", "positions of shape (5,), expected (7,)"),
        (JointTarget(NAMES, HOME[None]), "names", "positions of shape (1, 7)"),
        (JointTarget(NAMES, np.zeros(0)), "names", "positions of shape (0,)"),
        (JointTarget(NAMES, one(1, 5.0)), "jump", "panda_joint2 at 5 rad is 5.085 rad from the measured -0.0851 rad"),
        (JointTarget(NAMES, one(6, 1e300)), "jump", "panda_joint7 at 1e+300 rad"),
        (PoseTarget(np.array([0.5, math.inf, 0.3]), DOWN), "finite", "target position: component 2 of 3 is inf"),
        (PoseTarget(np.array([0.5, 0, 0.3]), DOWN * math.nan), "finite", "target quaternion: component 1 of 4 is nan"),
        (PoseTarget(np.array([0.5, 0]), DOWN), "names", "target pose: 2 and 4 numbers, expected 3 and 4"),
        (PoseTarget(np.array([0.5, 0, 0.3]), 2 * DOWN), "names", "target quaternion: length 2.000, expected 1"),
        (PoseTarget(np.array([1.5, 0, 0.3]), DOWN), "reach", "the arm misses it by"),
        (PoseTarget(np.array([0.3, 0.4, 0.4]), DOWN), "jump", "from the measured"),
        (object(), "exception", "AttributeError"),
    ],
)
def test_bad_targets_brake_and_latch(rig, target, stage: str, words: str) -> None:
    rig.arm()
    rig.run(rig.goal(HOME + 0.1), 20)
    if stage in ("jump", "reach"):
        rig.run(rig.goal(HOME), 200)
    rig.tick(target)
    latched(rig, stage, words)


def test_a_jump_is_measured_from_where_the_arm_is(rig) -> None:
    rig.arm()
    rig.run(rig.goal(one(0, 0.349)), 200)
    assert rig.filter.state is SafetyState.ARMED
    rig.run(rig.goal(one(0, 0.69)), 200)
    assert rig.filter.state is SafetyState.ARMED and abs(rig.measured[0] - 0.69) < 1e-9
    rig.tick(rig.goal(one(0, 0.33)))
    latched(rig, "jump", "jump: target: panda_joint1 at 0.33 rad is 0.36 rad from the measured 0.69 rad, allowed 0.35")


def test_stale_targets(rig) -> None:
    rig.arm()
    rig.run(rig.goal(HOME + 0.3), 30)
    rig.run(None, 19)
    assert rig.filter.state is SafetyState.ARMED, "0.095 s"
    rig.run(None, 2)
    latched(rig, "freshness", "freshness: the target is 0.105 s old, allowed 0.100 s")


@pytest.mark.parametrize("first", ["names", "nan"])
def test_a_refused_target_is_not_taken(rig, first: str) -> None:
    rig.moving()
    rig.tick(JointTarget(NAMES[:6], HOME[:6]) if first == "names" else rig.goal(HOME * math.nan))
    speed = rig.sent[-1][0] - rig.sent[-2][0]
    rig.tick(rig.goal(rig.measured + 0.3))
    assert rig.sent[-1][0] - rig.sent[-2][0] < speed, "it goes on braking"


def test_stale_joint_states(rig) -> None:
    rig.moving()
    for _ in range(21):
        rig.now += rig.period
        rig.filter.deadman(True)
        rig.filter.target(rig.goal(rig.measured))
        rig.filter.step()
    assert "joint state: the joint state is 0.105 s old, allowed 0.100 s" in rig.filter.reason


def test_an_arm_that_does_not_follow(rig) -> None:
    rig.arm()
    rig.follows = False
    for _ in range(400):
        rig.tick(rig.goal(HOME + 0.34 * BASE))
    assert rig.filter.state is SafetyState.ARMED, "a lag of 0.34 rad is no fault yet"
    rig.measured = HOME - 0.02 * BASE
    rig.tick(rig.goal(HOME))
    assert "following: set-point: panda_joint1 at 0.34 rad is 0.36 rad from the measured -0.02 rad" in rig.filter.reason


def test_deadman(rig) -> None:
    rig.moving()
    rig.now += rig.period
    rig.filter.deadman(False)
    assert rig.filter.state is SafetyState.BRAKING
    assert rig.filter.reason == "dead-man: the dead-man's switch was released"
    assert rig.filter.status()["refusals"] == {"dead-man": 1}


def test_a_silent_deadman(rig) -> None:
    rig.moving()
    for k in range(51):
        assert rig.filter.state is SafetyState.ARMED, k
        rig.now += rig.period
        rig.filter.measured(NAMES, rig.measured)
        rig.filter.target(rig.goal(rig.measured))
        command = rig.filter.step()
        assert command is not None
        rig.measured = command.positions
    assert "dead-man: the dead-man's heartbeat is 0.255 s old, allowed 0.250 s" in rig.filter.reason


def test_targets_over_the_joint_limits_are_clamped(rig) -> None:
    rig.arm(at=one(3, -0.2))
    rig.run(rig.goal(one(3, 0.1)), 300)
    assert rig.filter.state is SafetyState.ARMED and rig.filter.status()["clamped"] == 300
    assert abs(rig.measured[3] - (PANDA.upper[3] - 1e-3)) < 1e-9
    assert np.array(rig.sent)[:, 3].max() < PANDA.upper[3]


def test_a_planner_gone_wrong_stops_short_of_the_joint_limits(rig) -> None:
    rig.arm(at=one(0, 2.0))
    motion = rig.filter.motion
    toward = motion.toward
    motion.toward = lambda goal: toward([9.0, *goal[1:]])
    for _ in range(200):
        rig.tick(rig.goal(rig.measured))
        if rig.filter.state is not SafetyState.ARMED:
            break
    latched(rig, "joint box", "before it stops, limits -2.8973 to 2.8973 rad")
    assert 2.8 < rig.sent[-1][0] <= 2.8973


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (lambda q: ([q[0] + 0.1, *q[1:]], [0.0] * 7, [0.0] * 7), "velocity of joint 1 would be 20.0000 rad/s, allowed"),
        (lambda q: ([*q[:6], q[6] + 0.005], [0.0] * 7, [0.0] * 7), "acceleration of joint 7 would be"),
        (lambda q: ([q[0], q[1] + 0.0003, *q[2:]], [0.0] * 7, [0.0] * 7), "acceleration of joint 2"),
        (lambda q: ([math.nan] * 7, [0.0] * 7, [0.0] * 7), "would"),
    ],
)
def test_the_output_is_checked_whatever_made_it(rig, state, words: str) -> None:
    """Motion limits broken by the planner itself never leave the filter."""
    rig.arm()
    rig.run(rig.goal(HOME), 3)
    rig.filter.motion.toward = lambda goal: state(HOME.tolist())
    rig.tick(rig.goal(HOME))
    assert rig.filter.state is SafetyState.LATCHED and words in rig.filter.reason
    assert np.array_equal(rig.sent[-1], HOME)


def test_jerk_of_the_output_is_checked(make_rig) -> None:
    rig = make_rig(Limits.of(PANDA).tightened(jerk=100.0))
    rig.arm()
    rig.tick()
    rig.filter.motion.toward = lambda goal: ([HOME[0] + 2e-5, *HOME[1:]], [0.0] * 7, [0.0] * 7)
    rig.tick(rig.goal(HOME))
    assert "output: jerk of joint 1 would be 160.0000 rad/s³, allowed 100.0000" in rig.filter.reason


def test_workspace_stops_at_the_border_and_lets_back_in(make_rig) -> None:
    box = np.array([[0.3, -0.3, 0.2], [0.7, 0.1, 0.6]])
    rig = make_rig(Limits.of(PANDA).tightened(workspace=box))
    rig.arm()
    tcp = lambda: PANDA.chain.forward(np.array(rig.sent))[0]  # noqa: E731
    for _ in range(300):
        rig.tick(rig.goal(rig.measured + 0.2 * BASE))  # turning the base moves the tcp along +y
    assert rig.filter.state is SafetyState.ARMED
    assert "the tcp would come to y = 0.1" in rig.filter.reason and "waiting at the border" in rig.filter.reason
    assert rig.filter.status()["refusals"]["workspace"] > 0
    assert 0.08 < tcp()[-1, 1] <= 0.1 and tcp()[:, 1].max() <= 0.1
    still = np.array(rig.sent)[-50:]
    assert np.ptp(still, axis=0).max() < 1e-9, "it does not push against the border"
    rig.run(rig.goal(HOME), 200)
    assert np.allclose(rig.measured, HOME) and rig.filter.reason == ""
    assert rig.worst().max() <= 1.0


def test_self_collision_brakes_and_latches(rig) -> None:
    folded = np.array([0.0, 1.6, 0.0, -2.9, 0.0, 3.6, 0.8])  # the hand towards the base
    rig.arm()
    for _ in range(2000):
        rig.tick(rig.goal(rig.measured + np.clip(folded - rig.measured, -0.2, 0.2)))
        if rig.filter.state is not SafetyState.ARMED:
            break
    latched(rig, "self-collision", "would come within 0.0")
    judge = CollisionReference(PANDA, rig.limits)
    assert min(judge.look(q).free for q in rig.sent[::5]) >= 0.0199


def test_singularity_brakes_and_latches(make_rig) -> None:
    rig = make_rig(Limits.of(PANDA).tightened(singularity=30.0))
    stretched = HOME.copy()
    stretched[[1, 3]] = 0.6, -0.1  # the elbow out
    rig.arm()
    for _ in range(2000):
        rig.tick(rig.goal(rig.measured + np.clip(stretched - rig.measured, -0.1, 0.1)))
        if rig.filter.state is not SafetyState.ARMED:
            break
    latched(rig, "singularity", "near a singularity: condition number 3")
    assert rig.filter.geometry.condition(rig.sent[-1]) <= 30.0
    rig.filter.reset()
    rig.arm()
    rig.run(rig.goal(rig.measured + np.clip(HOME - rig.measured, -0.2, 0.2)), 20)
    assert rig.filter.state is SafetyState.ARMED, "the way back is open"


def test_a_process_that_was_stopped_does_not_go_on(rig) -> None:
    rig.moving()
    rig.now += 1.0  # SIGSTOP … SIGCONT
    rig.feed()
    rig.filter.target(rig.goal(rig.measured))
    assert rig.filter.step() is None
    assert rig.filter.state is SafetyState.LATCHED
    assert rig.filter.reason == "gap: the safety filter did not run for 1.00 s, allowed 0.25 s"
    rig.filter.reset()
    rig.arm()
    assert np.array_equal(rig.tick().positions, rig.sent[-2]), "from where the arm stands"


def test_a_gap_while_braking(rig) -> None:
    rig.moving().filter.estop()
    rig.tick()
    rig.now += 0.3
    assert rig.filter.step() is None and rig.filter.state is SafetyState.LATCHED
    assert rig.filter.reason == "e-stop pressed"


def test_a_clock_that_goes_back(rig) -> None:
    rig.moving()
    rig.now -= 5.0
    assert rig.tick() is not None
    assert "clock: the steady clock went back by 4.995 s" in rig.filter.reason


@pytest.mark.parametrize("broken", ["toward", "way_to_rest"])
def test_any_exception_brakes_and_latches(rig, broken: str) -> None:
    def fails(*_):
        raise ZeroDivisionError("division by zero")

    rig.moving()
    setattr(rig.filter.motion, broken, fails)
    assert rig.tick(rig.goal(rig.measured)) is not None
    latched(rig, "exception", "exception: ZeroDivisionError: division by zero")


def test_braking_without_ruckig(rig) -> None:
    """The closed form brakes when the library fails."""

    def fails(*_):
        raise RuntimeError("ruckig")

    rig.moving()
    rig.filter.motion.toward = rig.filter.motion.braked = fails
    rig.tick(rig.goal(rig.measured))
    rig.settle()
    assert rig.filter.state is SafetyState.LATCHED and "RuntimeError: ruckig" in rig.filter.reason
    assert rig.worst().max() <= 1.0 and np.abs(rig.sent[-1] - rig.sent[-2]).max() < 1e-4


def test_a_clock_that_fails(rig) -> None:
    rig.moving()

    def fails() -> float:
        raise OSError("no clock")

    rig.filter._clock = fails
    assert rig.filter.step() is not None
    assert rig.filter.state is SafetyState.BRAKING and "OSError: no clock" in rig.filter.reason


def test_gripper(rig) -> None:
    rig.arm()
    assert rig.tick().gripper is None, "nobody said where it is"
    assert rig.tick(rig.goal(HOME, 0.05)).gripper == 0.05
    openings = [rig.tick(rig.goal(HOME, 5.0)).gripper for _ in range(60)]
    assert np.allclose(np.diff(openings[:20]), 0.2 * rig.period), "0.2 m/s"
    assert openings[-1] == 0.08
    assert rig.run(rig.goal(HOME, -1.0), 100).gripper == 0.0
    rig.run(rig.goal(HOME, 0.08), 10)
    rig.filter.estop()
    held = rig.tick().gripper
    assert 0.0 < held < 0.08, "braking leaves it as it is"


def test_poses_reach_where_they_say(rig) -> None:
    rig.arm()
    goal = PoseTarget(np.array([0.52, 0.03, 0.25]), DOWN, 0.04)
    command = rig.run(goal, 200)
    assert rig.filter.state is SafetyState.ARMED, rig.filter.reason
    position, quaternion = command.pose
    assert np.abs(position - goal.position).max() < 1e-3 and abs(quaternion @ DOWN) > 0.9999
    assert command.gripper == 0.04 and rig.worst().max() <= 1.0


def test_velocities_are_those_of_the_positions(rig) -> None:
    rig.arm()
    commands = [rig.tick(rig.goal(HOME + 0.2)) for _ in range(40)]
    q, v = np.array([c.positions for c in commands]), np.array([c.velocities for c in commands])
    assert np.allclose(np.diff(q, axis=0) / rig.period, 0.5 * (v[1:] + v[:-1]), atol=0.02)


def test_construction_is_checked() -> None:
    limits = Limits.of(PANDA)
    for joints, period, words in (
        (NAMES[:6], 0.005, "6 names"),
        ((*NAMES[:6], NAMES[0]), 0.005, "differ"),
        (NAMES, 0.0, "period"),
        (NAMES, 0.1, "period"),
    ):
        with pytest.raises(BadInput, match=words):
            SafetyFilter(PANDA, joints, limits, period)
    loose = Limits(limits.lower, limits.upper, 2 * limits.velocity, limits.acceleration, limits.jerk)
    with pytest.raises(BadInput, match="velocity of joint 1"):
        SafetyFilter(PANDA, NAMES, loose, 0.005)
