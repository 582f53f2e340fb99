"""The inverse of a control: which action leads to given set-points."""

from __future__ import annotations

import numpy as np
import pytest

from robots import ROBOTS, make_control

RNG = np.random.default_rng(0)
N = 200


def postures(name: str) -> np.ndarray:
    robot = ROBOTS[name]
    q = np.asarray(robot.home) + RNG.uniform(-0.3, 0.3, (N, len(robot.joints)))
    return np.clip(q, robot.lower + 0.1, robot.upper - 0.1)


@pytest.mark.parametrize("kind", ["tcp_delta", "joint_position"])
@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_the_inverse_leads_to_the_same_set_points(name: str, kind: str) -> None:
    control, q = make_control(kind, ROBOTS[name]), postures(name)
    asked = RNG.uniform(-0.3, 0.3, (N, control.spec.size))
    goal, width = control.targets(q, None, asked)
    found = control.actions(q, goal, width)
    again, width_again = control.targets(q, None, found)
    np.testing.assert_allclose(again, goal, atol=1e-9)
    np.testing.assert_allclose(width_again, width, atol=1e-12)
    assert np.abs(found).max() <= 1.0
    if name != "so101" and kind == "tcp_delta":  # five joints: several motions of the tcp lead to the same set-points
        np.testing.assert_allclose(found, asked, atol=1e-9)


@pytest.mark.parametrize("name", ["panda", "ur5e", "fr3"])
def test_at_full_deflection_the_action_itself_comes_back(name: str) -> None:
    control, q = make_control("tcp_delta", ROBOTS[name]), postures(name)
    asked = RNG.uniform(-1.0, 1.0, (N, 7))
    goal, width = control.targets(q, None, asked)
    most = np.asarray(ROBOTS[name].velocity) / 20.0
    whole = (np.abs(goal - q) < most * (1 - 1e-9)).all(1)  # not shortened to what the joints can do in a step
    assert whole.mean() > 0.2
    np.testing.assert_allclose(control.actions(q, goal, width)[whole], asked[whole], atol=1e-9)


def test_set_points_that_no_action_reaches_give_the_action_that_comes_nearest() -> None:
    robot, control, q = ROBOTS["panda"], make_control("tcp_delta", ROBOTS["panda"]), postures("panda")
    goal = q + RNG.uniform(-0.01, 0.01, q.shape)  # the elbow goes its own way
    action = control.actions(q, goal, np.full(N, 0.04))
    reached, _ = control.targets(q, None, action)
    wanted, found = robot.chain.forward(goal), robot.chain.forward(reached)
    inside = np.abs(action[:, :6]).max(1) < 1.0
    assert inside.mean() > 0.5
    np.testing.assert_allclose(found[0][inside], wanted[0][inside], atol=1e-8)
    np.testing.assert_allclose(found[1][inside], wanted[1][inside], atol=1e-7)
    assert np.abs(action).max() <= 1.0 and action[:, 6] == pytest.approx(0.0)


def test_far_goals_are_bounded() -> None:
    control, q = make_control("tcp_delta", ROBOTS["panda"]), postures("panda")
    action = control.actions(q, q + 1.0, np.full(N, 1.0))
    assert np.isfinite(action).all() and np.abs(action).max() <= 1.0 and (action[:, 6] == 1.0).all()
