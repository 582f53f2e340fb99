"""Joint states that the filter takes or refuses, and what it needs before it arms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.safety import Limits, SafetyRefused, SafetyState
from robots import PANDA

HOME = np.array(PANDA.home)
NAMES = PANDA.joints


def one(i: int, value: float) -> np.ndarray:
    q = HOME.copy()
    q[i] = value
    return q


@pytest.mark.parametrize(
    ("names", "positions", "words"),
    [
        (NAMES[1:], HOME[1:], "joint state: no panda_joint1; got panda_joint2"),
        (NAMES, one(2, math.nan), "joint state: component 3 of 7 is nan"),
        (NAMES, HOME[:6], "joint state: 6 positions for 7 names"),
        ((), [], "joint state: no panda_joint1"),
        (NAMES, "here", "could not convert"),
    ],
)
def test_joint_states_that_cannot_be_used(make_rig, names, positions, words: str) -> None:
    rig = make_rig()
    rig.filter.measured(names, positions)
    rig.filter.deadman(True)
    with pytest.raises(SafetyRefused, match="no joint state that can be used"):
        rig.filter.arm()
    rig = make_rig()
    rig.arm()
    rig.filter.measured(names, positions)
    assert rig.filter.state is SafetyState.BRAKING and words in rig.filter.reason


def test_joint_states_in_any_order_with_others_among_them(rig) -> None:
    order = [6, 2, 0, 1, 5, 4, 3]
    rig.filter.deadman(True)
    for _ in range(50):
        rig.now += rig.period
        rig.filter.measured(("finger", *[NAMES[i] for i in order]), [0.04, *HOME[order]])
    rig.filter.arm()
    assert np.array_equal(rig.tick().positions, HOME)


def test_arming_is_refused_without_what_it_needs(make_rig) -> None:
    rig = make_rig()

    def refused(words: str) -> None:
        with pytest.raises(SafetyRefused, match=words):
            rig.filter.arm()
        assert rig.filter.state is SafetyState.DISARMED and rig.filter.step() is None

    refused("not armed: the dead-man's switch is not held")
    rig.filter.deadman(False)
    refused("dead-man's switch is not held")
    rig.filter.deadman(True)
    refused("no joint state that can be used: none has arrived")
    rig.feed()
    rig.now += 0.2
    refused("joint state is 0.200 s old, allowed 0.100 s")
    rig.now += 0.2
    rig.filter.measured(NAMES, HOME)
    refused("dead-man's heartbeat is 0.400 s old")
    rig.measured = one(3, -3.08)
    rig.stand()
    refused("panda_joint4 is measured at -3.0800 rad, limits -3.0718 to -0.0698 rad")
    rig.arm(at=HOME)


def test_arming_outside_the_workspace_is_refused(make_rig) -> None:
    rig = make_rig(Limits.of(PANDA).tightened(workspace=[[0.2, -0.4, 0.3], [0.8, 0.4, 0.6]]))
    with pytest.raises(SafetyRefused, match=r"the tcp is 0\.020 m outside the workspace"):
        rig.arm()


def test_a_joint_a_hair_over_its_limit_is_taken_back(rig) -> None:
    rig.arm(at=one(3, -3.0728))
    assert rig.tick().positions[3] == rig.limits.lower[3]


def refused(rig, words: str) -> None:
    with pytest.raises(SafetyRefused, match=words):
        rig.filter.arm()
    assert rig.filter.state is SafetyState.DISARMED and rig.tick(feed=False) is None


def test_arming_needs_an_arm_that_was_at_rest_for_a_while(rig) -> None:
    rig.feed()
    refused(rig, r"measured at rest for 0\.00 s in 1 joint states, expected 0\.20 s")
    rig.stand(0.15)
    refused(rig, r"at rest for 0\.1\d s in \d+ joint states, expected 0\.20 s")
    rig.stand(0.06)
    rig.filter.arm()


def test_one_bad_sample_is_enough_to_refuse(rig) -> None:
    """A second sender 0.3 rad off, seen once: neither is believed, whichever spoke last."""
    rig.stand()
    rig.measured = one(0, 0.3)
    rig.feed()
    refused(rig, r"panda_joint1 went from 0\.000 to 0\.300 rad")
    rig.measured = HOME.copy()
    rig.feed()
    refused(rig, r"panda_joint1 went from 0\.300 to 0\.000 rad")
    rig.filter.measured(NAMES, one(2, math.nan))
    rig.stand(0.15)
    refused(rig, "expected 0.20 s")
    rig.arm()
    assert np.array_equal(rig.tick().positions, HOME)


@pytest.mark.parametrize(("speed", "arms"), [(1.0, False), (0.1, False), (0.03, False), (0.002, True), (0.0, True)])
def test_an_arm_that_moves_is_not_armed(rig, speed: float, arms: bool) -> None:
    for _ in range(200):
        rig.now += rig.period
        rig.measured = rig.measured + speed * rig.period
        rig.feed()
    if arms:
        rig.filter.arm()
    else:
        refused(rig, "at rest")


def test_samples_with_a_pause_between_them_are_no_window(rig) -> None:
    """A driver that was held up, or one state in a while from somebody else."""
    for _ in range(20):
        rig.now += 0.11
        rig.feed()
    refused(rig, "in 1 joint states")


def test_what_was_measured_while_the_arm_was_armed_is_no_rest(rig) -> None:
    rig.arm()
    rig.run(None, 100)
    rig.filter.stop("the chunk ran out")
    rig.tick()
    assert rig.filter.state is SafetyState.LATCHED
    rig.filter.reset()
    refused(rig, "at rest")
    rig.arm()
