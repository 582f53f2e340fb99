"""Episodes of the whole chain, by kind, on a clock of their own: whatever befalls them, what is asked of an FR3 each
millisecond stays within its maker's limits, and comes to rest.

`make test-maker ARGS="--episodes 1000"` judges many more of them, and has libfranka follow some.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

import maker_chain
import maker_episodes as made

pytestmark = pytest.mark.long


def judged(kind: str, seed: int = 3) -> made.Episode:
    one = made.episode(np.random.default_rng(seed), kind)
    acceleration, jerk = one.largest()
    assert acceleration < made.ACCELERATION and jerk < made.JERK, (acceleration, jerk, one.ended)
    assert one.refused == () and np.ptp(one.way, axis=0).max() > 0.02, "it moved"
    return one


@pytest.mark.parametrize("kind", made.KINDS)
def test_an_episode_of_each_kind_stays_within_the_makers_limits(kind: str) -> None:
    one = judged(kind)
    assert bool(one.own) == (kind in made.OF_THE_CONTROLLER)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("missing chunk", "action chunk ran out"),
        ("e-stop", "e-stop pressed"),
        ("dead-man", "the dead-man's switch was released"),
        ("kill policy", "the policy node is gone"),
        ("kill streamer", "targets are late"),
        ("kill driver", "joint states on"),
        ("kill teleop", "the target is|targets are late|dead-man"),
    ],
)
def test_what_befalls_it_is_why_it_is_stopped(kind: str, why: str) -> None:
    for seed in range(4):
        one = judged(kind, seed)
        if one.ended.startswith(("latched", "braking")):
            assert any(part in one.ended for part in why.split("|")), one.ended
            return
    pytest.fail(f"{kind}: never stopped")


def test_a_person_takes_over_in_mid_motion_and_hands_back(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[bool] = []
    whole = maker_chain.Supervised.sample

    def sample(self, observation):
        found = whole(self, observation)
        turns.append(found.intervention)
        return found

    monkeypatch.setattr(maker_chain.Supervised, "sample", sample)
    judged("hand-over")
    assert np.abs(np.diff(turns)).sum() >= 3 and 0.1 < np.mean(turns) < 0.9


def test_a_cancelled_goal_is_a_step_of_the_controllers_own() -> None:
    """No sender can prevent it. It is measured, and left out of what is judged."""
    one = max((judged("cancel", seed) for seed in range(4)), key=made.Episode.own_step)
    assert one.own_step() > 10 * made.ACCELERATION and made.largest(one.way)[0] == one.own_step()


def test_a_busy_machine_whose_ticks_and_messages_are_late_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A motion that begins in a late tick, and whose message is late, too."""
    monkeypatch.setattr(maker_chain, "LATE_SHARE", 0.1)
    monkeypatch.setattr(maker_chain, "SLOW_SHARE", 0.3)
    for k, kind in ((0, "teleoperation"), (37, "stop"), (53, "disarmed"), (58, "stop")):
        one = made.episode(np.random.default_rng([5, k]), kind)
        acceleration, jerk = one.largest()
        assert acceleration < made.ACCELERATION and jerk < made.JERK, (kind, acceleration, jerk)


def test_a_chain_whose_points_begin_anew_each_time_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge sees a schedule that does not go on where the last message left off."""
    points = maker_chain.Horizon.points

    def jumping(self, positions, velocities, rest, now):
        self.begin()
        return points(self, positions, velocities, rest, now)

    monkeypatch.setattr(maker_chain.Horizon, "points", jumping)
    one = made.episode(np.random.default_rng(3), "policy")
    assert one.largest()[0] > made.ACCELERATION
