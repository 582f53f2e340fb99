"""Whatever arrives, what leaves keeps the limits; whatever moves can stop inside the box."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.observing.monitor import LimitMonitor
from hardware.safety import JointTarget, Limits, SafetyState
from robolearn.bench.safety.fuzz import FAULTS, MOVING, Fuzz
from robots import PANDA, ROBOTS

SOME = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
any_float = st.one_of(st.floats(-0.35, 0.35), st.floats(-4, 4), st.floats())
seven = st.lists(st.floats(-0.34, 0.34), min_size=7, max_size=7)


def judged(rig) -> dict:
    limits = rig.limits
    monitor = LimitMonitor(limits.lower, limits.upper, limits.velocity, limits.acceleration, limits.jerk, rig.period)
    for k, q in enumerate(rig.sent):
        monitor.command(q, k * rig.period)
    return monitor.summary()


@pytest.mark.long
@SOME
@given(st.lists(st.tuples(st.lists(any_float, min_size=6, max_size=8), st.integers(1, 20)), max_size=10))
def test_any_targets(make_rig, stream) -> None:
    """Offsets from the arm of any value and number, each for some steps."""
    rig = make_rig().arm()
    for offsets, steps in stream:
        for _ in range(steps):
            base = rig.measured if len(offsets) == 7 else np.zeros(len(offsets))
            rig.tick(JointTarget(PANDA.joints, base + np.array(offsets), offsets[0]))
    rig.run(None, 60)
    assert judged(rig)["violations"] == 0


@SOME
@given(st.lists(st.tuples(seven, st.integers(1, 30)), min_size=1, max_size=6), st.integers(0, 6), st.booleans())
def test_stopping_from_any_motion_stays_inside_the_box(make_rig, stream, joint, up) -> None:
    """Full speed into a corner of the box, then an e-stop at any time."""
    start = np.array(PANDA.home)
    start[joint] = PANDA.upper[joint] - 0.3 if up else PANDA.lower[joint] + 0.3
    rig = make_rig(Limits.of(PANDA).tightened(collision_distance=0.02, singularity=60.0)).arm(at=start)
    for offsets, steps in stream:
        for _ in range(steps):
            goal = rig.measured + offsets
            goal[joint] = rig.measured[joint] + (0.34 if up else -0.34)
            rig.tick(rig.goal(goal))
    rig.filter.estop()
    rig.settle()
    assert rig.filter.state is SafetyState.LATCHED
    summary = judged(rig)
    assert summary["violations"] == 0 and summary["peak"]["position_margin"] > 0.0


@SOME
@given(st.floats(-0.1, 1.5), st.floats(-0.1, 1.5), st.integers(1, 30))
def test_the_gripper_keeps_its_speed(make_rig, first, second, steps) -> None:
    rig = make_rig().arm()
    openings = [rig.tick(rig.goal(rig.measured, width)).gripper for width in [first] * steps + [second] * steps]
    assert all(0.0 <= width <= 0.08 for width in openings)
    assert np.abs(np.diff(openings)).max(initial=0.0) <= 0.2 * rig.period + 1e-12


@pytest.mark.long
@pytest.mark.parametrize("name", ROBOTS)
def test_fuzzed_arms(name: str) -> None:
    """Three thousand steps of everything for every robot, seen by the independent monitor."""
    robot = ROBOTS[name]
    limits, period = Limits.of(robot), 0.008
    fuzz = Fuzz(robot, limits, period, seed=1, faults=0.5)
    monitor = LimitMonitor.of(robot, period)
    for _ in range(3000):
        monitor.state(fuzz.measured, fuzz.now)
        command = fuzz.step()
        if command is not None:
            monitor.command(command.positions, fuzz.now)
            assert np.allclose(command.pose[0], robot.chain.forward(command.positions[None])[0][0])
        if fuzz.moved:
            monitor.new_motion()
    summary = monitor.summary()
    assert summary["violations"] == 0, summary
    assert summary["commands"] > 2000 and fuzz.latched > 10 and fuzz.armed > 10
    assert not math.isnan(summary["peak"]["jerk"])


def test_the_same_seed_is_the_same_story() -> None:
    stories = []
    for _ in range(2):
        fuzz = Fuzz(PANDA, Limits.of(PANDA), 0.005, seed=5)
        stories.append([command.positions for command in (fuzz.step() for _ in range(500)) if command is not None])
    assert np.array_equal(*stories)


@pytest.mark.long
def test_every_spell_is_cast() -> None:
    fuzz = Fuzz(PANDA, Limits.of(PANDA), 0.005, seed=2, faults=0.8)
    for _ in range(8000):
        fuzz.step()
    assert set(fuzz.spells) == {*MOVING, *FAULTS}
