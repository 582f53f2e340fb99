"""A driver that repeats its last values is found out; an arm that was held up for a moment is not."""

from __future__ import annotations

import numpy as np

from hardware.safety.stuck import AWAY_RAD, REPEATS, Stuck

REST = np.array([0.1, -0.2, 0.3])


def at(away: float) -> np.ndarray:
    return REST + np.array([0.0, away, 0.0])


def test_the_same_values_again_and_again_while_the_set_point_goes() -> None:
    stuck = Stuck()
    assert not stuck(REST, at(0.0))
    said = [stuck(REST, at(0.01 * i)) for i in range(1, 12)]
    assert said.index(True) == round(AWAY_RAD / 0.01) and all(said[said.index(True) :])


def test_an_arm_that_was_held_up_together_with_its_commands() -> None:
    """It wakes, says where it is, and only then hears how far the set-point has gone."""
    stuck = Stuck()
    assert not stuck(REST, at(0.0))
    assert not any(stuck(REST, at(0.2)) for _ in range(REPEATS - 1))
    assert not stuck(at(0.01), at(0.21))
    assert not any(stuck(at(0.01), at(0.22)) for _ in range(2 * REPEATS)), "from where it was last new"
    assert stuck(at(0.01), at(0.21 + 1.1 * AWAY_RAD))


def test_an_arm_at_rest_and_one_that_is_armed_again() -> None:
    stuck = Stuck()
    assert not any(stuck(REST, at(0.9 * AWAY_RAD)) for _ in range(100))
    assert not any(stuck(REST, at(-0.05 * AWAY_RAD)) for _ in range(100))
    stuck.begin()
    assert not any(stuck(REST, at(0.4)) for _ in range(100))
