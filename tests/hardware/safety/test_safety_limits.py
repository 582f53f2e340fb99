"""Limits come from the robot and can only be tightened."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.safety import Limits
from robolearn.core import BadInput
from robots import PANDA


def test_the_robots_own() -> None:
    limits = Limits.of(PANDA)
    assert limits.n == 7
    assert np.array_equal(limits.lower, PANDA.lower) and np.array_equal(limits.upper, PANDA.upper)
    assert np.array_equal(limits.velocity, PANDA.velocity) and np.array_equal(limits.jerk, PANDA.jerk)
    assert limits.workspace is None and limits.gripper_max == 0.08
    with pytest.raises(ValueError, match="read-only"):
        limits.velocity[0] = 100.0


def test_tighter_is_taken() -> None:
    limits = Limits.of(PANDA).tightened(
        velocity=0.5, lower=PANDA.lower + 0.1, workspace=[[0.2, -0.4, 0.0], [0.8, 0.4, 0.6]], max_jump=0.1
    )
    assert np.array_equal(limits.velocity, np.full(7, 0.5))
    assert limits.workspace is not None and limits.workspace.shape == (2, 3)
    again = limits.tightened(workspace=[[0.3, -0.4, 0.1], [0.8, 0.4, 0.6]], collision_distance=0.03)
    assert again.collision_distance == 0.03


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("velocity", 5.0, "velocity of joint 1: got 5.0, expected at most 2.175"),
        ("lower", -3.2, "lower of joint 1"),
        ("upper", 4.0, "upper of joint 1"),
        ("max_jump", 2.0, "max_jump: got 2.0, expected at most 0.35"),
        ("command_timeout_s", 0.2, "command_timeout_s"),
        ("collision_distance", 0.0, "at least 0.02"),
        ("gripper_max", 0.1, "gripper_max"),
        ("velocity", [1.0, 1.0], "shape"),
        ("velocity", -1.0, "more than 0"),
        ("velocity", float("nan"), "finite"),
        ("deadman_timeout_s", float("inf"), "finite"),
        ("lower", 1.7, "below upper"),
        ("velocitys", 1.0, "did you mean velocity"),
        ("workspace", [[0, 0, 0], [1, 1, -1]], "lower corner below"),
    ],
)
def test_looser_and_nonsense_are_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Limits.of(PANDA).tightened(**{name: value})


def test_a_workspace_can_only_shrink() -> None:
    boxed = Limits.of(PANDA).tightened(workspace=[[0.2, -0.4, 0.0], [0.8, 0.4, 0.6]])
    for box in (None, [[0.1, -0.4, 0.0], [0.8, 0.4, 0.6]], [[0.2, -0.4, 0.0], [0.8, 0.5, 0.6]]):
        with pytest.raises(BadInput, match="a box inside"):
            boxed.tightened(workspace=box)
