"""Jerk-limited motion against its limits, and the closed form of braking against Ruckig and against integration."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline

from hardware.safety import Limits
from hardware.safety.motion import SHARE, Motion
from robots import PANDA

LIMITS = Limits.of(PANDA)
PERIOD = 0.005
shares = st.lists(st.floats(-1.0, 1.0), min_size=7, max_size=7).map(np.array)


def moving(v: np.ndarray, a: np.ndarray) -> Motion:
    """At zero, with these shares of the velocity and acceleration that may be, and no faster when a is gone."""
    motion = Motion(LIMITS, PERIOD)
    v_max, a_max, j = SHARE * LIMITS.velocity, SHARE * LIMITS.acceleration, SHARE * LIMITS.jerk
    a = a * a_max
    v = np.clip(v * v_max, -v_max + np.maximum(-a, 0) ** 2 / (2 * j), v_max - np.maximum(a, 0) ** 2 / (2 * j))
    motion.take(([0.0] * 7, v.tolist(), a.tolist()))
    return motion


@settings(max_examples=60, deadline=None)
@given(shares, shares)
def test_the_way_to_rest(v, a) -> None:
    """Ruckig's braking ends where the closed form says, stays between its extremes, and passes its samples."""
    motion, twin = moving(v, a), moving(v, a)
    way, low, high, _ = motion.way_to_rest((motion.q, motion.v, motion.a))
    way, low, high = way.copy(), low.copy(), high.copy()
    assert np.allclose(way[0], motion.q)
    path = [np.array(motion.q)]
    while not motion.at_rest:
        by_formula = twin.braked_by_formula()
        motion.take(motion.braked())
        assert np.allclose(by_formula, (motion.q, motion.v, motion.a), rtol=0, atol=1e-6)
        twin.take((motion.q, motion.v, motion.a))
        path.append(np.array(motion.q))
        assert len(path) < 200
    assert np.allclose(path[-1], way[-1], rtol=0, atol=1e-9)
    assert (np.min(path, 0) >= low - 1e-9).all() and (np.max(path, 0) <= high + 1e-9).all()
    assert (way.min(0) >= low - 1e-9).all() and (way.max(0) <= high + 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(shares, shares)
@example(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.192092896e-07]), np.zeros(7))
def test_cubics_through_the_knots_are_the_way_to_rest(v, a) -> None:
    """scipy's Hermite spline through them, period by period where Ruckig brakes; a joint at rest has no knot, nor one
    that rests within 20 µs: no two knots are so near."""
    motion = moving(v, a)
    rests = motion.at_rest or motion.way_to_rest((motion.q, motion.v, motion.a)).seconds < 2e-5
    times, positions, velocities = motion.knots_to_rest()
    assert len(times) <= 21 and (np.diff(times) > 1e-5).all() and (len(times) > 0) == (not rests)
    if not len(times):
        return
    spline = CubicHermiteSpline([0.0, *times], [motion.q, *positions], [motion.v, *velocities])
    assert not velocities[-1].any()
    for k in range(1, int(times[-1] / PERIOD) + 1):
        motion.take(motion.braked())
        assert np.allclose(spline(k * PERIOD), motion.q, rtol=0, atol=1e-7)
        assert np.allclose(spline(k * PERIOD, 1), motion.v, rtol=0, atol=1e-4)
    motion.take(motion.braked())
    assert motion.at_rest and np.allclose(positions[-1], motion.q, rtol=0, atol=1e-7)


MOVES = """
import sys
import numpy as np
from hardware.safety import SafetyFilter
from hardware.safety.states import joint_target
from robots.stations import load_any_contract
c, now, rng = load_any_contract(sys.argv[1]), 100.0, np.random.default_rng(0)
made = lambda: {f"{m}.{f.__name__}": len(f.signatures) for m, module in list(sys.modules.items())
                if m.startswith(("robots.", "hardware.")) for f in vars(module).values() if hasattr(f, "signatures")}
guard = SafetyFilter(c.robot, c.joints, c.limits, 1 / c.stream_hz, lambda: now, ahead=c.horizon_s > 0)
before, n = made(), len(c.joints)
for episode in range(12):
    q = goal = np.clip(c.robot.home, c.limits.lower + 0.02, c.limits.upper - 0.02)
    for k in range(700):
        now += 1 / c.stream_hz
        guard.deadman(True)
        guard.measured(c.joints, q)
        if k == 60:
            guard.arm()
        if 60 < k < 400:
            goal = np.clip(goal + 0.15 * rng.normal(size=n), q - 0.3, q + 0.3) if k % 20 == 0 else goal
            guard.target(joint_target(c.robot.slices, c.joints, goal))
        elif k == 400:
            [guard.estop, guard.disarm, lambda: guard.contact("it"), lambda: guard.left_to_rest(q, 0.1)][episode % 4]()
        if (command := guard.step()) and (command := guard.checked(command)):
            q = command.positions.copy()
            guard.knots_to_rest()
            guard.sent()
    guard.reset()
seen = guard.status()["refusals"]
print(len(before), *[name for name, count in made().items() if count != before.get(name)], file=sys.stderr)
print(*seen)
"""


@pytest.mark.long
@pytest.mark.parametrize("robot", ["ur5e", "fr3", "fr3_pair"])
def test_nothing_is_compiled_in_mid_motion(robot: str) -> None:
    """A fresh process that has made a filter has machine code of all that a step calls, whatever comes: the compiler
    holds the safety node for seconds."""
    done = subprocess.run([sys.executable, "-c", MOVES, robot], check=True, capture_output=True, text=True)
    count, *more = done.stderr.splitlines()[-1].split()
    assert int(count) > 20 and not more, more
    assert {"e-stop", "contact"} <= set(done.stdout.split()), "and some are stopped by what is near"


def test_braking_by_hand() -> None:
    """From 1 rad/s, a_max 10 rad/s², j 100 rad/s³: 0.1 s each of ramping down and up, nothing between; 0.1 m."""
    limits = Limits(*(np.full(1, x) for x in (-3.0, 3.0, 2.0, 10.0 / SHARE, 100.0 / SHARE)))
    motion = Motion(limits, PERIOD)
    motion.take(([0.0], [1.0], [0.0]))
    way, low, high, _ = motion.way_to_rest((motion.q, motion.v, motion.a))
    # t − j t³/6, and the same back from the end: symmetric ramps take (t₁ + t₃)/2 · v = 0.1 rad, whatever j
    down, left = np.linspace(0.0, 0.1, 4), np.linspace(0.1, 0.0, 4)[1:]
    assert np.allclose(way[:, 0], [*(down - 100 / 6 * down**3), *(0.1 - 100 / 6 * left**3)])
    assert low[0] == 0.0 and np.isclose(high[0], 0.1)
    motion.take(([0.0], [-0.1], [10.0]))  # turns round: v = 0 where −0.1 + 10 t − 50 t² = 0
    _, low, high, _ = motion.way_to_rest((motion.q, motion.v, motion.a))
    t = (10 - np.sqrt(80)) / 100
    assert np.isclose(low[0], -0.1 * t + 5 * t**2 - 100 / 6 * t**3) and high[0] > 0.0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(shares, st.integers(1, 40)), min_size=1, max_size=8))
def test_goals_that_change_at_any_time(goals) -> None:
    motion = Motion(LIMITS, PERIOD)
    path = [np.zeros(7)] * 3
    for goal, steps in goals:
        for _ in range(steps):
            motion.take(motion.toward((2.5 * goal).tolist()))
            path.append(np.array(motion.q))
    for k, most in enumerate((LIMITS.velocity, LIMITS.acceleration, LIMITS.jerk), start=1):
        assert (np.abs(np.diff(path, n=k, axis=0)) / PERIOD**k <= most).all()


def test_every_joint_by_itself() -> None:
    """A joint with a short way arrives early: no synchronisation, as in the simulator."""
    motion = Motion(LIMITS, PERIOD)
    for _ in range(30):
        motion.take(motion.toward([0.5, 0.01, 0, 0, 0, 0, 0]))
    assert np.isclose(motion.q[1], 0.01) and motion.q[0] < 0.3
