"""What a trajectory controller asks an FR3 for each millisecond, by finite differences against the maker's limits.

`make test-maker` has libfranka judge the same motions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

import maker_judge
from maker_episodes import ACCELERATION, JERK, largest


@pytest.mark.long
@pytest.mark.parametrize("ending", maker_judge.STOPS)
def test_whatever_ends_a_motion_it_stays_within_the_makers_limits(ending: str) -> None:
    """A filter that is killed in mid-motion among it."""
    way = maker_judge.filtered(np.random.default_rng(7), ending)
    acceleration, jerk = largest(way)
    assert acceleration < ACCELERATION and jerk < JERK, (acceleration, jerk)
    assert np.abs(way - way[0]).max() > 0.2


@pytest.mark.long
@pytest.mark.parametrize("late_s", [0.015, 0.03, 0.04, 0.06, 0.12])
def test_however_late_a_tick_is_the_arm_stays_within_the_makers_limits(
    late_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller comes to rest by itself, and the next motion begins there."""
    monkeypatch.setattr(maker_judge, "LATE_S", late_s)
    for seed in range(2):
        way = maker_judge.filtered(np.random.default_rng(seed), "goals")
        acceleration, jerk = largest(way)
        assert acceleration < ACCELERATION and jerk < JERK, (seed, acceleration, jerk)
        assert np.abs(way[-700:] - way[0]).max() > 0.05, "and it goes on"


def test_the_same_goals_without_the_filter_do_not() -> None:
    acceleration, jerk = largest(maker_judge.unfiltered(np.random.default_rng(7)))
    assert acceleration > 100 * ACCELERATION and jerk > 100 * JERK


@pytest.mark.long
def test_a_filter_that_takes_a_late_tick_for_a_stall_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set-points are sent ahead: an arm whose next one is late goes on, and a motion from rest would be a jump."""
    whole = maker_judge.SafetyFilter
    monkeypatch.setattr(maker_judge, "LATE_S", 0.03)
    monkeypatch.setattr(maker_judge, "SafetyFilter", lambda *args, ahead: whole(*args))
    worst = max(largest(maker_judge.filtered(np.random.default_rng(k), "goals"))[0] for k in range(3))
    assert worst > ACCELERATION
