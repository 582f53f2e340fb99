"""Every arm: kinematics against MuJoCo, published tables and differences; facts that agree with each other."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from robolearn.core import BadInput
from robots import (
    FR3,
    NO_GRIPPER,
    PANDA,
    ROBOTS,
    SO101,
    UR5E,
    GripperKind,
    GripperSpec,
    IKConfig,
    RobotSpec,
    make_control,
    solve,
)
from robots.limits import Limits

every_robot = pytest.mark.parametrize("robot", ROBOTS.values(), ids=lambda robot: robot.name)


def draw(robot: RobotSpec, n: int, seed: int, margin: float = 0.0) -> NDArray:
    """(n, joints) positions inside the limits."""
    return np.random.default_rng(seed).uniform(robot.lower + margin, robot.upper - margin, (n, len(robot.joints)))


@every_robot
def test_kinematics_are_mujocos(robot: RobotSpec) -> None:
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data = mujoco.MjData(model)
    q = draw(robot, 50, 0)
    pos, rot = robot.chain.forward(q)
    jacobian = robot.chain.jacobian(q)
    columns = [model.joint(name).dofadr[0] for name in robot.joints]
    linear, angular = np.zeros((2, 3, model.nv))
    for i, row in enumerate(q):
        data.qpos[[model.joint(name).qposadr[0] for name in robot.joints]] = row
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        site = data.site(robot.tcp_site)
        mujoco.mj_jacSite(model, data, linear, angular, site.id)
        np.testing.assert_allclose(pos[i], site.xpos, atol=1e-6)
        np.testing.assert_allclose(rot[i], site.xmat.reshape(3, 3), atol=1e-6)
        np.testing.assert_allclose(jacobian[i], np.concatenate([linear, angular])[:, columns], atol=1e-6)


@every_robot
def test_the_jacobian_is_the_derivative(robot: RobotSpec) -> None:
    q, h = draw(robot, 20, 1, 0.01), 1e-6
    jacobian = robot.chain.jacobian(q)
    for i in range(len(robot.joints)):
        step = np.zeros(len(robot.joints))
        step[i] = h
        (ahead, turned), (behind, before) = robot.chain.forward(q + step), robot.chain.forward(q - step)
        np.testing.assert_allclose(jacobian[:, :3, i], (ahead - behind) / (2 * h), atol=1e-8)
        spin = Rotation.from_matrix(turned @ np.swapaxes(before, 1, 2)).as_rotvec() / (2 * h)
        np.testing.assert_allclose(jacobian[:, 3:, i], spin, atol=1e-8)


@every_robot
def test_the_facts_agree_with_each_other_and_the_model(robot: RobotSpec) -> None:
    n = len(robot.joints)
    for values in (robot.home, robot.velocity, robot.acceleration, robot.jerk, robot.effort):
        assert len(values) == n and np.isfinite(values).all()
    for values in (robot.velocity, robot.acceleration, robot.jerk, robot.effort):
        assert min(values) > 0
    margin = np.minimum(robot.home - robot.lower, robot.upper - robot.home)
    assert margin.min() > 0.1
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    for joint, effort in zip(robot.joints, robot.effort, strict=True):
        np.testing.assert_array_equal(model.actuator(joint).forcerange, [-effort, effort])
    for finger in robot.gripper.joints:
        np.testing.assert_allclose(np.sort(robot.gripper.joint_range), model.joint(finger).range, rtol=1e-12)
        assert finger in [model.actuator(i).name for i in range(model.nu)]
        slides = model.joint(finger).type == mujoco.mjtJoint.mjJNT_SLIDE
        assert robot.gripper.kind == (GripperKind.PARALLEL if slides else GripperKind.REVOLUTE)
    assert "wrist" in [model.camera(i).name for i in range(model.ncam)]
    assert robot.source.startswith("https://")


@every_robot
def test_home_looks_straight_down_in_front_of_the_arm(robot: RobotSpec) -> None:
    pos, rot = robot.chain.forward(np.array([robot.home]))
    expected = [0.2233, 0.0, 0.0522] if robot is SO101 else [0.5, 0.0, 0.28]
    np.testing.assert_allclose(pos[0], expected, atol=2e-3)
    np.testing.assert_allclose(rot[0][:, 2], [0, 0, -1], atol=2e-3)
    np.testing.assert_allclose(np.abs(rot[0][:, 1]), [1, 0, 0] if robot is SO101 else [0, 1, 0], atol=2e-3)


@every_robot
def test_the_fingers_part_along_the_tcps_y_axis_as_the_gripper_opens(robot: RobotSpec) -> None:
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data = mujoco.MjData(model)
    closed, opened = robot.gripper.joint_range

    def gap(share: float) -> tuple[float, NDArray]:
        for joint in robot.gripper.joints:
            data.qpos[model.joint(joint).qposadr[0]] = closed + share * (opened - closed)
        mujoco.mj_kinematics(model, data)
        pads = [i for i in range(model.ngeom) if "pad" in model.geom(i).name or "jaw" in model.geom(i).name]
        apart = data.geom_xpos[pads[0]] - data.geom_xpos[pads[1]]
        tcp = data.site(robot.tcp_site).xmat.reshape(3, 3)
        return float(np.linalg.norm(apart)), tcp.T @ apart

    (shut, _), (a_little, direction) = gap(0.0), gap(0.2)
    wide, _ = gap(1.0)
    assert shut < a_little < wide
    assert np.argmax(np.abs(direction)) == 1
    if len(robot.gripper.joints) == 2:
        assert wide - shut == pytest.approx(robot.gripper.max_width, abs=1e-9)


@every_robot
def test_inverse_kinematics_reach_poses_around_home(robot: RobotSpec) -> None:
    """As a controller does: each call begins where the last one ended, and the pose is one that the arm can take."""
    goal = np.array(robot.home) + np.random.default_rng(2).uniform(-0.4, 0.4, (100, len(robot.joints)))
    goal = np.clip(goal, robot.lower + 0.05, robot.upper - 0.05)
    pos, rot = robot.chain.forward(goal)
    q = np.tile(robot.home, (100, 1))
    for _ in range(60):
        q = solve(robot.chain, q, pos, rot, rest=np.array(robot.home), config=IKConfig(posture_gain=0.0))
    p, R = robot.chain.forward(q)
    turned = Rotation.from_matrix(np.swapaxes(R, 1, 2) @ rot).magnitude()
    assert np.linalg.norm(p - pos, axis=1).max() < 1e-4 and turned.max() < 1e-3
    assert (q > robot.lower).all() and (q < robot.upper).all()


@every_robot
@pytest.mark.parametrize("kind", ["tcp_delta", "joint_position"])
def test_controls_stay_inside_the_limits(robot: RobotSpec, kind: str) -> None:
    control = make_control(kind, robot)
    rng = np.random.default_rng(3)
    q = draw(robot, 100, 4)
    goal, width = control.targets(q, None, rng.uniform(-1, 1, (100, control.spec.size)))
    assert goal.shape == q.shape and (goal >= robot.lower).all() and (goal <= robot.upper).all()
    assert (width >= 0).all() and (width <= robot.gripper.max_width).all()


@pytest.mark.parametrize("hz", [10.0, 20.0, 50.0])
def test_a_step_is_no_longer_than_the_joints_are_quick(hz: float) -> None:
    """From one end of the range to the other: velocity / rate of the first joint in a step, whatever is asked for."""
    control = make_control("joint_position", UR5E, hz)
    goal, _ = control.targets(UR5E.lower[None], None, np.ones((1, 7)))
    np.testing.assert_allclose(goal[0] - UR5E.lower, np.asarray(UR5E.velocity) / hz)
    # A motion of the tcp that asks for more than the joints have in that time: the quickest one is at its limit.
    slow = dataclasses.replace(UR5E, velocity=tuple(0.05 * v for v in UR5E.velocity))
    goal, _ = make_control("tcp_delta", slow, hz).targets(np.array([slow.home]), None, np.ones((1, 7)))
    share = np.abs(goal[0] - slow.home) / (np.asarray(slow.velocity) / hz)
    assert share.max() == pytest.approx(1.0)


def denavit_hartenberg(rows: list[tuple[float, float, float]], q: NDArray) -> NDArray:
    """(4, 4) pose of the last frame: Rot_z(q) Trans_z(d) Trans_x(a) Rot_x(α) for each row (a, d, α)."""
    pose = np.eye(4)
    for (a, d, alpha), angle in zip(rows, q, strict=True):
        c, s, ca, sa = np.cos(angle), np.sin(angle), np.cos(alpha), np.sin(alpha)
        pose = pose @ np.array([[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]])
    return pose


def test_the_ur5e_is_universal_robots_table() -> None:
    table = [
        (0.0, 0.1625, np.pi / 2),
        (-0.425, 0.0, 0.0),
        (-0.3922, 0.0, 0.0),
        (0.0, 0.1333, np.pi / 2),
        (0.0, 0.0997, -np.pi / 2),
        (0.0, 0.0996, 0.0),
    ]
    base = np.diag([-1.0, -1.0, 1.0, 1.0])  # the table's base in ROS's base_link
    q = draw(UR5E, 50, 5)
    pos, rot = UR5E.chain.forward(q)
    for i, row in enumerate(q):
        flange = base @ denavit_hartenberg(table, row)
        np.testing.assert_allclose(pos[i], flange[:3, 3] + 0.15 * flange[:3, 2], atol=1e-9)
        np.testing.assert_allclose(rot[i], flange[:3, :3], atol=1e-9)


def test_the_fr3_is_frankas_table() -> None:
    """Craig's convention: Rot_x(α) Trans_x(a) Rot_z(q) Trans_z(d)."""
    h = np.pi / 2
    table = [(0, 0.333, 0), (0, 0, -h), (0, 0.316, h), (0.0825, 0, h), (-0.0825, 0.384, -h), (0, 0, h), (0.088, 0, h)]
    hand = np.eye(4)
    hand[:3, :3] = Rotation.from_rotvec([0, 0, -np.pi / 4]).as_matrix()
    hand[2, 3] = 0.107 + 0.1034  # flange, then the Franka Hand's tcp
    q = draw(FR3, 50, 6)
    pos, rot = FR3.chain.forward(q)
    for i, row in enumerate(q):
        pose = np.eye(4)
        for (a, d, alpha), angle in zip(table, row, strict=True):
            turn, move = np.eye(4), np.eye(4)
            turn[:3, :3] = Rotation.from_rotvec([alpha, 0, 0]).as_matrix()
            turn[0, 3] = a
            move[:3, :3] = Rotation.from_rotvec([0, 0, angle]).as_matrix()
            move[2, 3] = d
            pose = pose @ turn @ move
        pose = pose @ hand
        np.testing.assert_allclose(pos[i], pose[:3, 3], atol=1e-9)
        np.testing.assert_allclose(rot[i], pose[:3, :3], atol=1e-9)
    both = np.clip(q, PANDA.lower, PANDA.upper)
    np.testing.assert_allclose(FR3.chain.forward(both)[0], PANDA.chain.forward(both)[0], atol=1e-12)


def test_the_so101_is_its_makers_model() -> None:
    """The gripper frame with every joint at zero, and each joint alone at half a radian: from the published model."""
    pos, _ = SO101.chain.forward(np.concatenate([np.zeros((1, 5)), 0.5 * np.eye(5)]))
    published = [
        [0.391362, -0.000011, 0.226469],
        [0.348201, -0.169020, 0.226469],
        [0.404602, -0.000011, 0.058583],
        [0.354061, -0.000011, 0.085787],
        [0.368082, -0.000011, 0.151098],
        [0.391362, -0.003820, 0.227356],
    ]
    np.testing.assert_allclose(pos, published, atol=2e-6)


def test_every_robot_is_known_by_its_own_name() -> None:
    assert all(robot.name == name for name, robot in ROBOTS.items()) and len(ROBOTS) == 4


def test_openings_are_those_of_the_makers() -> None:
    """Franka Hand 80 mm, Robotiq 2F-85 85 mm; the jaw's is derived in the arm's file."""
    assert {name: robot.gripper.max_width for name, robot in ROBOTS.items()} == {
        "panda": 0.08, "fr3": 0.08, "ur5e": 0.085, "so101": 0.13,
    }  # fmt: skip
    assert PANDA.gripper.joint_range == (0.0, 0.04) and SO101.gripper.joint_range == (-0.174533, 1.74533)


def test_an_arm_without_a_gripper() -> None:
    bare = dataclasses.replace(PANDA, gripper=NO_GRIPPER)
    limits = Limits.of(bare)
    assert limits.gripper_max == 0.0 and limits.gripper_speed > 0
    control = make_control("tcp_delta", bare)
    home = np.array([bare.home])
    _, width = control.targets(home, None, np.ones((1, 7)))
    assert width == 0.0 and np.isfinite(control.actions(home, home, width)).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": GripperKind.PARALLEL, "joints": ("a",), "max_width": 0.1, "max_speed": 1, "max_force": 1}, "2 names"),
        (
            {"kind": GripperKind.REVOLUTE, "joints": ("a",), "max_width": 0.1, "max_speed": 1, "max_force": 1},
            "jaw_range",
        ),
        ({"kind": GripperKind.PARALLEL, "joints": ("a", "b"), "max_speed": 1, "max_force": 1}, "more than 0"),
        ({"kind": GripperKind.NONE, "max_width": 0.1}, "expected 0"),
    ],
)
def test_a_gripper_that_contradicts_its_kind_is_refused(values: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        GripperSpec(**values)
