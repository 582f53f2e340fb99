"""Targets along the border of a station: motion at right angles to it ends there, and the rest of the motion stays.

The judge is MuJoCo on the arm's own model: how far its geoms are from the table.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from hardware.execution.setpoints import SetPoints
from robots import ROBOTS
from robots.limits import Plane
from robots.stations import Contract, load_contract

DOWN = np.array([0.0, 1.0, 0.0, 0.0])


def lowest(robot: str, q: np.ndarray) -> float:
    """Height of the lowest corner of what the last link carries, with the fingers open or closed [m]."""
    spec = ROBOTS[robot]
    model = mujoco.MjModel.from_xml_path(str(spec.mjcf))
    data = mujoco.MjData(model)
    least = np.inf
    for share in (0.0, 1.0):
        for name, value in zip(spec.joints, q, strict=True):
            data.joint(name).qpos[0] = value
        for name in spec.gripper.joints:
            data.joint(name).qpos[0] = share * model.joint(name).range[1]
        mujoco.mj_kinematics(model, data)
        hand = int(model.joint(spec.joints[-1]).bodyid[0])
        for geom in range(model.ngeom):
            body = int(model.geom_bodyid[geom])
            while body not in (hand, 0):
                body = int(model.body_parentid[body])
            if body != hand:
                continue
            centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
            z = data.geom_xmat[geom].reshape(3, 3)[2]
            least = min(least, data.geom_xpos[geom][2] + z @ centre - np.abs(z) @ half)
    return float(least)


def push(contract: Contract, action: list[float], steps: int) -> list[np.ndarray]:
    """Postures of an arm that goes at once where each target is."""
    points, q = SetPoints(contract), np.array(contract.robot.home)
    way = [q]
    for _ in range(steps):
        q = points.target(q, np.array(action))[:-1]
        way.append(q)
    return way


@pytest.mark.parametrize("robot", ["ur5e", "fr3"])
def test_a_tool_that_is_pushed_down_and_aside_slides_above_the_table(robot: str) -> None:
    contract = load_contract(robot)
    way = push(contract, [0.2, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0], 60)  # x of the tcp is forward, z down
    heights = [lowest(robot, q) for q in way]
    distance = contract.limits.obstacle_distance
    assert distance < min(heights) < distance + 0.004, "as low as the filter lets it, no lower, and not far above"
    places = np.array([contract.robot.chain.forward(q[None])[0][0] for q in way])
    slid = np.linalg.norm(places[-1, :2] - places[40, :2])
    assert slid > 0.9 * 20 * 0.2 * 0.02, "what remains of the motion is all there"
    # A cube of 4 cm that lies on the table is within reach of the shipped contract: the tcp at its middle.
    assert places[:, 2].min() < 0.0205


def test_noise_does_not_lead_it_outside_step_by_step() -> None:
    contract, noise = load_contract("ur5e"), np.random.default_rng(0)
    points, q = SetPoints(contract), np.array(contract.robot.home)
    for step in range(200):
        q = points.target(q, np.array([0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0]))[:-1] + noise.normal(0.0, 2e-4, 6)
        if step > 100:
            assert lowest("ur5e", q) > contract.limits.obstacle_distance


def test_a_wall_that_leans_and_what_the_gripper_holds() -> None:
    contract = load_contract("fr3")
    wall = Plane("wall", np.array([-1.0, 0.0, 1.0]), -0.4 / np.sqrt(2))  # x - z stays below 0.4 m
    limits = replace(contract.limits, obstacles=(wall,), workspace=None)
    reach = {}
    for held in (None, np.array([[-0.02, -0.02, -0.02], [0.02, 0.02, 0.06]])):
        way = push(replace(contract, limits=replace(limits, held=held)), [0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0], 30)
        x, _, z = contract.robot.chain.forward(way[-1][None])[0][0]
        reach[held is not None] = (0.4 - (x - z)) / np.sqrt(2)  # of the tcp from the wall
    assert 0.0 < reach[False] < 0.08
    # The box reaches 2 cm to the side and 6 cm ahead of a tcp that looks down.
    assert reach[True] == pytest.approx((0.02 + 0.06) / np.sqrt(2) + 0.006, abs=0.002)


def test_the_sides_of_the_workspace_hold_and_an_arm_outside_is_not_moved_back() -> None:
    contract = load_contract("ur5e")
    chain, home = contract.robot.chain, np.array(contract.robot.home)
    assert contract.limits.workspace is not None
    for axis, sign in ((0, 1.0), (1, -1.0)):
        action = [0.0] * 6 + [1.0]
        rot = chain.forward(home[None])[1][0]
        action[:3] = (rot.T @ (sign * np.eye(3)[axis])).tolist()
        end = chain.forward(push(contract, action, 60)[-1][None])[0][0]
        border = contract.limits.workspace[1 if sign > 0 else 0, axis]
        assert 0.0 < sign * (border - end[axis]) < 0.003
    narrow = replace(contract.limits, workspace=np.array([[0.3, -0.1, 0.3], [0.6, 0.1, 0.5]]))
    outside = replace(contract, limits=narrow)  # home is 2 cm below this box
    still, down, up = (
        chain.forward(SetPoints(outside).target(home, np.array([0, 0, z, 0, 0, 0, 1.0]))[None, :-1])[0][0]
        for z in (0.0, 0.5, -0.5)
    )
    here = chain.forward(home[None])[0][0]
    assert np.allclose(still, here, atol=1e-4) and np.allclose(down, here, atol=1e-3)
    assert up[2] - here[2] == pytest.approx(0.01, abs=1e-3)


def test_joint_positions_are_left_as_they_are() -> None:
    contract = load_contract("so101")
    points, q = SetPoints(contract), np.array(contract.robot.home)
    low = replace(contract, limits=replace(contract.limits, workspace=None, obstacles=()))
    action = np.full(6, -0.2)
    assert np.array_equal(points.target(q, action), SetPoints(low).target(q, action))


@pytest.mark.parametrize("hz", [10.0, 50.0])
def test_steps_are_as_long_as_the_contracts_rate_allows(hz: float) -> None:
    contract = replace(load_contract("sim"), control_hz=hz, action_kind="joint_position")
    points, q = SetPoints(contract), np.array(contract.robot.home)
    target = points.target(q, np.ones(points.spec.size))
    step = np.asarray(contract.robot.velocity) / hz
    np.testing.assert_allclose(target[:-1] - q, np.minimum(step, contract.robot.upper - q))
