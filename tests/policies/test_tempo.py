"""A policy at another tempo: displacements are stretched, everything else is what it was."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.wrappers.wrapper import TempoPolicy, at_tempo
from robolearn.core import ArraySpec, BadInput, Interface, Observation

NAMES = ("x", "y", "z", "rx", "ry", "rz", "gripper")


class Constant:
    """Always the same chunk of one step."""

    execute_steps, observes_every_step = 1, False

    def __init__(self, kind: str = "tcp_delta") -> None:
        action = ArraySpec((7,), names=NAMES)
        self.interface = Interface({"proprio": ArraySpec((2,))}, action, 20.0, action_kind=kind)

    def bind(self, offered: Interface) -> None: ...

    def reset(self, seed: int) -> None: ...

    def begin(self, worlds: NDArray[np.bool_]) -> None: ...

    def observe(self, observation: Observation) -> None: ...

    def act(self, observation: Observation) -> NDArray[np.float32]:
        return np.array([[[0.1, -0.2, 0.6, 0.0, -0.9, 0.3, 0.5]]], np.float32)


def test_displacements_are_multiplied_and_clipped_and_the_gripper_stays() -> None:
    chunk = TempoPolicy(Constant(), 1.5).act({"proprio": np.zeros((1, 2), np.float32)})
    np.testing.assert_allclose(chunk, [[[0.15, -0.3, 0.9, 0.0, -1.0, 0.45, 0.5]]], rtol=1e-6)
    assert np.asarray(chunk).dtype == np.float32


def test_a_tempo_of_one_is_the_policy_itself() -> None:
    policy = Constant()
    assert at_tempo(policy, 1.0) is policy


@pytest.mark.parametrize("factor", [0.0, -1.0, 4.1, float("nan"), float("inf")])
def test_a_factor_that_is_none_is_refused(factor: float) -> None:
    with pytest.raises(BadInput, match="--tempo"):
        at_tempo(Constant(), factor)


def test_positions_have_no_tempo() -> None:
    with pytest.raises(BadInput, match="joint_position"):
        at_tempo(Constant("joint_position"), 1.5)
