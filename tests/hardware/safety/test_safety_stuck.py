"""A driver that repeats its last values is found out; an arm that was held up for a moment is not."""

from __future__ import annotations

import numpy as np

from hardware.safety.measured import AWAY_RAD, REPEATS, Stuck

REST = np.array([0.1, -0.2, 0.3])


def at(away: float) -> np.ndarray:
    return REST + np.array([0.0, away, 0.0])


def test_the_same_values_again_and_again_while_the_set_point_goes() -> None:
    stuck = Stuck(0.0)
    assert not stuck(REST, at(0.0), 1.0)
    said = [stuck(REST, at(0.01 * i), 1.0) for i in range(1, 12)]
    assert said.index(True) == round(AWAY_RAD / 0.01) and all(said[said.index(True) :])


def test_an_arm_that_was_held_up_together_with_its_commands() -> None:
    """It wakes, says where it is, and only then hears how far the set-point has gone."""
    stuck = Stuck(0.0)
    assert not stuck(REST, at(0.0), 1.0)
    assert not any(stuck(REST, at(0.2), 1.0) for _ in range(REPEATS - 1))
    assert not stuck(at(0.01), at(0.21), 1.0)
    assert not any(stuck(at(0.01), at(0.22), 1.0) for _ in range(2 * REPEATS)), "from where it was last new"
    assert stuck(at(0.01), at(0.21 + 1.1 * AWAY_RAD), 1.0)


def test_an_arm_at_rest_and_one_that_is_armed_again() -> None:
    stuck = Stuck(0.0)
    assert not any(stuck(REST, at(0.9 * AWAY_RAD), 1.0) for _ in range(100))
    assert not any(stuck(REST, at(-0.05 * AWAY_RAD), 1.0) for _ in range(100))
    stuck.begin()
    assert not any(stuck(REST, at(0.4), 1.0) for _ in range(100))


def test_the_dead_time_of_the_arm_is_waited_for() -> None:
    """Nothing follows for 0.1 s, which is no fault; 0.15 s after the set-point left it is."""
    stuck = Stuck(0.145)
    assert not stuck(REST, at(0.0), 1.0)
    said = [stuck(REST, at(0.02 * i), 1.0 + 0.01 * i) for i in range(1, 40)]
    assert said.index(True) + 1 == 3 + 15, "away after 3 steps of 20 mrad, and 15 of 10 ms later"
