"""A driver that repeats its last values is found out; an arm that was held up for a moment is not."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.safety.measured import AWAY_RAD, REPEATS, OwnJoints, Stuck

REST = np.array([0.1, -0.2, 0.3])
NAMES = ("pan", "lift", "roll")


class Seen(Stuck):
    """Joint states as they come, by default of the arm alone and in its own order."""

    def __init__(self, delay: float) -> None:
        super().__init__(delay)
        self.own = OwnJoints(NAMES)

    def __call__(self, positions, set_point, now, names=NAMES):
        own = self.own(names, positions)
        return own is not None and super().__call__(own, set_point, now)


def at(away: float) -> np.ndarray:
    return REST + np.array([0.0, away, 0.0])


def test_the_same_values_again_and_again_while_the_set_point_goes() -> None:
    stuck = Seen(0.0)
    assert not stuck(REST, at(0.0), 1.0)
    said = [stuck(REST, at(0.01 * i), 1.0) for i in range(1, 12)]
    assert said.index(True) == round(AWAY_RAD / 0.01) and all(said[said.index(True) :])


def test_an_arm_that_was_held_up_together_with_its_commands() -> None:
    """It wakes, says where it is, and only then hears how far the set-point has gone."""
    stuck = Seen(0.0)
    assert not stuck(REST, at(0.0), 1.0)
    assert not any(stuck(REST, at(0.2), 1.0) for _ in range(REPEATS - 1))
    assert not stuck(at(0.01), at(0.21), 1.0)
    assert not any(stuck(at(0.01), at(0.22), 1.0) for _ in range(2 * REPEATS)), "from where it was last new"
    assert stuck(at(0.01), at(0.21 + 1.1 * AWAY_RAD), 1.0)


def test_an_arm_at_rest_and_one_that_is_armed_again() -> None:
    stuck = Seen(0.0)
    assert not any(stuck(REST, at(0.9 * AWAY_RAD), 1.0) for _ in range(100))
    assert not any(stuck(REST, at(-0.05 * AWAY_RAD), 1.0) for _ in range(100))
    stuck.begin()
    assert not any(stuck(REST, at(0.4), 1.0) for _ in range(100))


def test_the_dead_time_of_the_arm_is_waited_for() -> None:
    """Nothing follows for 0.1 s, which is no fault; 0.15 s after the set-point left it is."""
    stuck = Seen(0.145)
    assert not stuck(REST, at(0.0), 1.0)
    said = [stuck(REST, at(0.02 * i), 1.0 + 0.01 * i) for i in range(1, 40)]
    assert said.index(True) + 1 == 3 + 15, "away after 3 steps of 20 mrad, and 15 of 10 ms later"


def frozen_after(
    delay: float, *, speed: float = 0.3, on: float = 0.3, pause: float = 0.0, lag: float = 0.03, step: float = 0.0
) -> float:
    """Seconds from the last new reading to the stop of an arm whose set-point moves at `speed` [rad/s] and goes on at
    `on` after a `pause` [s]; it is measured at 100 Hz, `lag` later, in steps of `step` [rad]. ∞: never, in a second."""

    def way(seconds: float) -> float:
        return speed * min(seconds, 1.0) + on * max(seconds - 1.0 - pause, 0.0)

    def measured(seconds: float) -> np.ndarray:
        away = way(max(min(seconds, 1.0) - lag, 0.0))
        return at(step * round(away / step) if step else away)

    stuck = Seen(delay)
    for i in range(100):
        assert not stuck(measured(0.01 * i), at(way(0.01 * i)), 0.01 * i)
    said = [stuck(measured(0.99), at(way(0.01 * i)), 0.01 * i) for i in range(100, 200)]
    return 0.01 * (1 + said.index(True)) if any(said) else np.inf


def test_an_arm_that_moved_is_stuck_as_soon_as_it_may_lag_no_longer() -> None:
    """At rest the set-point has to be 0.05 rad away first: 0.17 s, and 0.1 s of dead time after it."""
    assert [frozen_after(delay) for delay in (0.1, 0.16)] == pytest.approx([0.1, 0.16])
    assert frozen_after(0.1, step=0.0015) == pytest.approx(0.1) and frozen_after(0.1, on=0.15) == pytest.approx(0.13)
    assert frozen_after(0.1, speed=0.05) == pytest.approx(0.28), "a joint that creeps may stick: as one at rest"
    assert frozen_after(0.1, on=-0.3) == pytest.approx(0.29), "one that is to come back stands for a while"
    assert frozen_after(0.1, pause=0.2) == pytest.approx(0.48), "so does one that was to stop"
    assert frozen_after(0.1, on=0.08) == pytest.approx(0.71), "or to go on slowly"
    assert frozen_after(0.1, on=0.0) == np.inf


def test_what_else_moves_in_the_message_hides_nothing() -> None:
    """A finger or a wheel jitters in every message, in whatever order; the arm's own joints are repeated."""
    stuck, said = Seen(0.0), []
    for i in range(12):
        values = np.array([0.3, 1e-3 * (-1) ** i, 0.1, 7.0 + i, -0.2])
        said.append(stuck(values, at(0.011 * i), 1.0, ("roll", "finger", "pan", "wheel", "lift")))
    assert said.index(True) == 5, "0.055 rad away"
    moving = Seen(0.0)
    for i in range(40):
        values = np.array([0.3, 0.02, 0.1, 7.0, -0.2 + 0.01 * i])  # the arm moves, and all else is still
        assert not moving(values, at(0.01 * i), 1.0, ("roll", "finger", "pan", "wheel", "lift"))
    assert not any(moving(np.zeros(2), at(1.0 + i), 1.0, ("roll", "lift")) for i in range(9)), "refused elsewhere"
