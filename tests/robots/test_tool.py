"""The tool of a station: kinematics, inverse kinematics, workspace and collisions obey it. MuJoCo is the judge."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import yaml

from hardware.safety.geometry import Geometry
from robolearn.core import BadInput
from robots import ROBOTS, RobotSpec, solve
from robots.limits import Limits
from robots.spec import Pose, Tool, ToolBox
from robots.stations import CONTRACTS, Contract, load_contract

TOOL = Tool(Pose.from_rpy((0.02, -0.03, 0.21), (0.3, -0.4, 1.1)))
LAST = {"panda": "panda_link7", "fr3": "fr3_link7", "ur5e": "ur5e_wrist_3", "so101": "so101_gripper"}
FLANGE = {"panda": 0.107, "fr3": 0.107, "ur5e": 0.0, "so101": 0.0}  # along z of the last link, by the vendors' URDFs


def load(tmp_path: Path, name: str, **keys: Any) -> Contract:
    data = {**yaml.safe_load((CONTRACTS / f"{name}.yaml").read_text()), **keys}
    path = tmp_path / "station.yaml"
    path.write_text(yaml.safe_dump(data))
    return load_contract(path)


def judged(robot: RobotSpec, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position and rotation of the tool's tcp by MuJoCo: a site of the pose on a body at the flange."""
    spec = mujoco.MjSpec.from_file(str(robot.mjcf))
    flange = spec.body(LAST[robot.name]).add_body(name="flange", pos=[0, 0, FLANGE[robot.name]])
    roll, pitch, yaw = 0.3, -0.4, 1.1
    turned = flange.add_body(name="turned", pos=[0.02, -0.03, 0.21])
    quat = np.zeros(4)
    mujoco.mju_euler2Quat(quat, np.array([roll, pitch, yaw]), "XYZ")  # fixed axes, as in a URDF
    turned.quat = quat
    turned.add_site(name="judge")
    model = spec.compile()
    data = mujoco.MjData(model)
    for name, value in zip(robot.joints, q, strict=True):
        data.qpos[model.joint(name).qposadr[0]] = value
    mujoco.mj_kinematics(model, data)
    return data.site("judge").xpos, data.site("judge").xmat.reshape(3, 3)


@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_forward_kinematics_end_at_the_tool(name: str) -> None:
    robot = replace(ROBOTS[name], tool=TOOL)
    rng = np.random.default_rng(5)
    for q in rng.uniform(robot.lower, robot.upper, (20, len(robot.joints))):
        pos, rot = robot.chain.forward(q[None])
        wanted_pos, wanted_rot = judged(robot, q)
        np.testing.assert_allclose(pos[0], wanted_pos, atol=1e-9)
        np.testing.assert_allclose(rot[0], wanted_rot, atol=1e-9)


def test_flanges_by_the_vendors_numbers() -> None:
    zero = np.zeros((1, 7))
    # Franka: d1 + d3 + d5 up, a7 out, and the flange 0.107 m below joint 7, which looks down.
    for name in ("panda", "fr3"):
        np.testing.assert_allclose(
            ROBOTS[name].flange_chain.forward(zero)[0][0], [0.088, 0, 0.333 + 0.316 + 0.384 - 0.107]
        )
    # UR5e: a2 + a3 out, d4 + d6 aside, d1 − d5 up; base_link is turned by π against the DH base.
    found = ROBOTS["ur5e"].flange_chain.forward(np.zeros((1, 6)))[0][0]
    np.testing.assert_allclose(found, [0.425 + 0.3922, 0.1333 + 0.0996, 0.1625 - 0.0997], atol=1e-9)


def test_inverse_kinematics_brings_the_tool_there() -> None:
    robot = replace(ROBOTS["fr3"], tool=TOOL)
    q = np.array([robot.home])
    goal, rot = robot.chain.forward(q + 0.05)
    found = q
    for _ in range(20):
        found = solve(robot.chain, found, goal, rot, rest=q[0])
    pos, turned = judged(robot, found[0])
    np.testing.assert_allclose(pos, goal[0], atol=1e-3)
    np.testing.assert_allclose(turned, rot[0], atol=1e-2)


def test_the_workspace_is_that_of_the_tool(tmp_path: Path) -> None:
    longer = {"tcp": {"position": [0.0, 0.0, 0.3]}}
    plain, tooled = load(tmp_path, "fr3"), load(tmp_path, "fr3", tool=longer)
    home = np.array(plain.robot.home)
    # The hand's tcp is 0.1034 m from the flange and 0.28 m above the table: a tool of 0.3 m ends at 0.083 m.
    height = tooled.robot.chain.forward(home[None])[0][0][2]
    assert height == pytest.approx(plain.robot.chain.forward(home[None])[0][0][2] - (0.3 - 0.1034), abs=1e-3)
    box = np.array([[0.2, -0.5, 0.15], [0.8, 0.5, 0.9]])
    for contract, inside in ((plain, True), (tooled, False)):
        limits = replace(Limits.of(contract.robot), workspace=box)
        geometry = Geometry(contract.robot.chain, contract.robot.pieces, limits, home)
        assert (geometry.outside(home)[0] == 0.0) is inside


def test_a_box_of_the_tool_meets_obstacles(tmp_path: Path) -> None:
    boxes = {"camera": {"lower": [0.05, -0.04, 0.02], "upper": [0.15, 0.04, 0.3]}}
    tool = {"tcp": {"position": [0.0, 0.0, 0.1034]}, "boxes": boxes}
    plain, tooled = load(tmp_path, "fr3"), load(tmp_path, "fr3", tool=tool)
    assert len(tooled.robot.pieces) == len(plain.robot.pieces) + 1
    piece = tooled.robot.pieces[-1]
    low, high = piece.points.min(0) - piece.radius, piece.points.max(0) + piece.radius
    # In the frame of the last link, the flange is 0.107 m along z.
    np.testing.assert_allclose(low, [0.05, -0.04, 0.127], atol=0.004)
    np.testing.assert_allclose(high, [0.15, 0.04, 0.407], atol=0.004)
    depths = []
    for contract in (plain, tooled):
        geometry = Geometry(contract.robot.chain, contract.robot.pieces, contract.limits, np.array(contract.robot.home))
        depths.append(geometry.outside(_lowered())[0])
    assert depths[0] == 0.0 < depths[1]


def _lowered() -> np.ndarray:
    """A posture with the hand's tip 0.05 m above the table and the box, which is longer, in it."""
    hand = ROBOTS["fr3"]
    goal = np.array([[0.5, 0.0, 0.05]])
    _, rot = hand.chain.forward(np.array(hand.home)[None])
    found = np.array([hand.home])
    for _ in range(40):
        found = solve(hand.chain, found, goal, rot, rest=np.array(hand.home))
    return found[0]


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({"tcp": {"position": [0, 0]}}, "tool.tcp.position"),
        ({"tcp": {"position": [0.0, 0, 0.1], "quaternion": [1, 1, 0, 0]}}, "length 1, got|got 1.414"),
        (
            {"tcp": {"position": [0.0, 0, 0.1], "quaternion": [1, 0, 0, 0], "rpy": [0, 0, 0]}},
            "either quaternion or rpy",
        ),
        ({"tcp": {"position": [0.0, 0, 0.1], "rpy": [90, 0, 0]}}, "tool.tcp.rpy.0: got 90"),
        ({"boxes": {}}, "the key 'tcp'"),
        (
            {"tcp": {"position": [0, 0, 0.1]}, "boxes": {"a": {"lower": [0, 0, 1], "upper": [1, 1, 0.5]}}},
            "lower corner below",
        ),
    ],
)
def test_a_tool_that_makes_no_sense(tmp_path: Path, tool: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(tmp_path, "fr3", tool=tool)


def test_roll_pitch_yaw_turn_about_fixed_axes() -> None:
    # A quarter turn about x, then one about z: y → z stays, z → −y → x.
    pose = Pose.from_rpy((0, 0, 0), (math.pi / 2, 0, math.pi / 2))
    np.testing.assert_allclose(pose.rotation @ [0, 1, 0], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(pose.rotation @ [0, 0, 1], [1, 0, 0], atol=1e-12)
    assert ToolBox("a", (0, 0, 0), (1, 1, 1)).name == "a"
