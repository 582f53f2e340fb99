"""Set-points: never too fast, never too hasty, at rest at their goal, as an independent generator moves them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from robots import PANDA
from robots.control import advance, travel

V, A = np.array(PANDA.velocity), np.array(PANDA.acceleration)
DT = 0.005


def moved(goals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(T, n) goals → (T, n) set-points and velocities, from rest at zero."""
    q, v = np.zeros((1, 7)), np.zeros((1, 7))
    qs, vs = [], []
    for goal in goals:
        advance(q, v, goal[None], V, A, DT, np.arange(1))
        qs.append(q[0].copy())
        vs.append(v[0].copy())
    return np.array(qs), np.array(vs)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(0.001, 2.0), st.integers(1, 40))
def test_limits_hold_whatever_is_asked_for(seed: int, size: float, every: int) -> None:
    rng = np.random.default_rng(seed)
    goals = np.repeat(rng.uniform(-size, size, (12, 7)), every, axis=0)
    q, v = moved(goals)
    assert np.all(np.abs(v) <= V + 1e-12)
    assert np.all(np.abs(np.diff(v, axis=0, prepend=0.0)) <= A * DT + 1e-12)
    np.testing.assert_allclose(np.diff(q, axis=0, prepend=0.0), v * DT, atol=1e-15)


def test_it_comes_to_rest_at_the_goal_and_passes_it_by_less_than_a_step_of_braking() -> None:
    goal = np.array([0.5, -0.2, 0.01, 1e-4, -1.0, 0.3, 0.0])
    q, v = moved(np.tile(goal, (400, 1)))
    np.testing.assert_allclose(q[-1], goal, atol=1e-9)
    assert np.all(np.abs(v[-1]) < 1e-6)
    assert np.all(np.abs(q) <= np.abs(goal) + A * DT * DT)


def test_it_is_time_optimal_within_a_step_or_two() -> None:
    """Rest to rest over d takes 2 √(d/a) where the top speed is not reached, and d/v + v/a where it is."""
    for d in (0.02, 0.2, 1.5):
        q, _ = moved(np.full((600, 7), d))
        arrived = np.argmax(np.abs(q - d) < 1e-3 * d, axis=0) * DT
        ideal = np.where(d * A < V**2, 2 * np.sqrt(d / A), d / V + V / A)
        assert np.all(arrived > 0.8 * ideal) and np.all(arrived < ideal + 8 * DT)


def test_a_goal_takes_effect_after_the_delay_of_its_arm() -> None:
    """Arms 0 and 2 of three, late by 3 steps and by none; what an arm does is known from the one that is not late."""
    start, late, latest = np.array([[0.1] * 7, [5.0] * 7, [0.0] * 7]), np.array([3, 0]), np.full((2, 7), 0.2)
    q, v, goal = start.copy(), np.zeros((3, 7)), start.copy()
    out = np.full((2, 8, 7), np.nan)
    travel(q, v, goal, latest, late, V, A, DT, np.array([0, 2]), out)
    expected, _ = moved(np.full((8, 7), 0.2))
    np.testing.assert_array_equal(out[1], expected)
    assert np.all(out[0, :3] == 0.1), "it stands until the goal arrives"
    from_there, _ = moved(np.full((5, 7), 0.1))  # 0.1 to go
    np.testing.assert_allclose(out[0, 3:], 0.1 + from_there, atol=1e-12)
    np.testing.assert_array_equal(q, [out[0, -1], start[1], out[1, -1]])
    np.testing.assert_array_equal(goal, [latest[0], start[1], latest[1]])
    assert np.all(v[1] == 0)
