"""Poses for Cartesian impedance controllers: what the filter sends, and what the double makes of them, by MuJoCo."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from hardware.safety import JointTarget, SafetyFilter
from robolearn.bench.emulators.impedance import ImpedanceController
from robolearn.core.se3 import quat_to_matrix
from robots import FR3, ROBOTS, RobotSpec
from robots.limits import Limits
from robots.spec import Pose, Tool
from sim.realtime import RealtimeWorld

TOOL = Tool(Pose((0.02, -0.01, 0.14), (0.8, 0.0, 0.6, 0.0)))


class Judge:
    """MuJoCo's tcp of an arm and its tool, read from the model."""

    def __init__(self, robot: RobotSpec) -> None:
        spec = mujoco.MjSpec.from_file(str(robot.mjcf))
        if robot.tool is not None:
            last = next(b for b in spec.bodies if any(j.name == robot.joints[-1] for j in b.joints))
            at = np.array(robot.flange) + np.array(robot.tool.tcp.position)
            last.add_site(name="tool", pos=at, quat=robot.tool.tcp.quaternion)
        self.model, self.site = spec.compile(), "tool" if robot.tool is not None else robot.tcp_site
        self.data = mujoco.MjData(self.model)
        joints = [self.model.joint(name) for name in robot.joints]
        self.q, self.v = (np.array([getattr(j, at)[0] for j in joints]) for at in ("qposadr", "dofadr"))

    def tcp(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.data.qpos[self.q] = q
        mujoco.mj_kinematics(self.model, self.data)
        site = self.data.site(self.site)
        return site.xpos.copy(), site.xmat.reshape(3, 3).copy()


@pytest.mark.long
@pytest.mark.parametrize("name", ["panda", "fr3", "ur5e", "so101"])
@pytest.mark.parametrize("tool", [None, TOOL], ids=["hand", "tool"])
def test_a_pose_is_that_of_the_set_point_that_the_filter_allows(name: str, tool: Tool | None) -> None:
    robot = replace(ROBOTS[name], tool=tool)
    now = [10.0]
    filter_ = SafetyFilter(robot, robot.joints, Limits.of(robot), 0.005, lambda: now[0])
    home = np.array(robot.home)
    measured = home
    for _ in range(60):
        now[0] += 0.005
        filter_.measured(robot.joints, home)
        filter_.deadman(True)
    filter_.arm()
    judge, far = Judge(robot), 0.0
    for k in range(200):
        now[0] += 0.005
        filter_.measured(robot.joints, measured)
        filter_.deadman(True)
        goal = home + 0.15 * np.sin(0.02 * k * (1 + np.arange(len(home))))
        filter_.target(JointTarget(robot.joints, goal))
        command = filter_.step()
        assert command is not None, filter_.reason
        measured = command.positions
        position, rotation = judge.tcp(command.positions)
        np.testing.assert_allclose(command.pose[0], position, atol=1e-9)
        np.testing.assert_allclose(quat_to_matrix(command.pose[1]), rotation, atol=1e-9)
        far = max(far, float(np.abs(command.positions - home).max()))
    assert far > 0.05, "it moved"


class Torqued:
    """An FR3 with bare motors at 1 kHz, carried against gravity, in MuJoCo."""

    def __init__(self) -> None:
        self.judge = Judge(FR3)
        model = self.judge.model
        model.dof_damping[self.judge.v] = 0.1
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION | mujoco.mjtDisableBit.mjDSBL_CONTACT
        model.opt.timestep = 0.001
        self.data = mujoco.MjData(model)
        self.data.qpos[self.judge.q] = FR3.home
        self.controller = ImpedanceController(FR3, np.array(FR3.home))
        self.torques: list[np.ndarray] = []

    @property
    def q(self) -> np.ndarray:
        return self.data.qpos[self.judge.q].copy()

    def run(self, seconds: float, push: np.ndarray | None = None) -> None:
        for _ in range(round(seconds / 0.001)):
            tau = self.controller.sample(self.q, self.data.qvel[self.judge.v].copy())
            self.torques.append(tau)
            self.data.qfrc_applied[self.judge.v] = tau if push is None else tau + push
            mujoco.mj_step(self.judge.model, self.data)


@pytest.mark.long
def test_the_double_draws_the_tcp_to_the_pose() -> None:
    rig = Torqued()
    pos, rot = rig.judge.tcp(rig.q)
    goal = pos + np.array([0.04, -0.05, 0.03])
    turn = quat_to_matrix(np.array([np.cos(0.1), 0.0, np.sin(0.1), 0.0]))
    rig.controller.pose(goal, turn @ rot)
    rig.run(3.0)
    at, now = rig.judge.tcp(rig.q)
    assert np.linalg.norm(at - goal) < 2e-3
    np.testing.assert_allclose(now, turn @ rot, atol=0.02)
    assert np.abs(np.diff(rig.torques, axis=0)).max() <= 0.5 + 1e-9, "the change of a torque is bounded"


@pytest.mark.long
def test_it_gives_way_as_its_stiffness_says() -> None:
    """10 N at the tcp move it by 10 N / 500 N/m."""
    rig = Torqued()
    pos, _ = rig.judge.tcp(rig.q)
    jacobian = np.zeros((3, rig.judge.model.nv))
    mujoco.mj_comPos(rig.judge.model, rig.judge.data)
    mujoco.mj_jacSite(rig.judge.model, rig.judge.data, jacobian, None, rig.judge.model.site(FR3.tcp_site).id)
    rig.run(4.0, push=jacobian[:, rig.judge.v].T @ [0.0, 10.0, 0.0])
    moved = rig.judge.tcp(rig.q)[0] - pos
    assert moved[1] == pytest.approx(10.0 / 500.0, rel=0.15) and np.abs(moved[[0, 2]]).max() < 3e-3


@pytest.mark.long
def test_the_elbow_goes_where_the_posture_says_and_nowhere_by_a_pose_alone() -> None:
    rig = Torqued()
    judge = rig.judge
    home = np.array(FR3.home)
    jacobian = np.zeros((6, judge.model.nv))
    judge.tcp(home)
    mujoco.mj_comPos(judge.model, judge.data)
    mujoco.mj_jacSite(judge.model, judge.data, jacobian[:3], jacobian[3:], judge.model.site(FR3.tcp_site).id)
    free = np.linalg.svd(jacobian[:, judge.v])[2][-1]  # the motion that leaves the tcp where it is
    posture = home + 0.2 * free / np.abs(free).max()
    pose = judge.tcp(posture)
    rig.controller.pose(*pose)
    rig.run(3.0)
    assert abs((rig.q - home) @ free) < 0.05, "the same pose by other joints"
    rig.controller.posture(posture)
    rig.run(6.0)
    assert np.abs(rig.q - posture).max() < 0.05
    assert np.linalg.norm(judge.tcp(rig.q)[0] - pose[0]) < 3e-3


def test_torques_of_a_simulated_world_are_those_that_were_asked_for() -> None:
    """Its motors are position servos; by Newton the arm has to accelerate as bare motors would let it."""
    world = RealtimeWorld("lift", 0, robot=FR3, randomise=False)
    q, v = (x[:7].copy() for x in world.joint_state()[1:])
    judge = Judge(FR3)
    tau = np.array([3.0, -2.0, 1.0, 2.0, 0.5, -0.5, 0.3])
    for _ in range(4):
        world.push(tau)
        world.advance(0.005)
    _, after, fast = (x[:7] if i else x for i, x in enumerate(world.joint_state()))
    mass = np.zeros((judge.model.nv, judge.model.nv))
    judge.data.qpos[judge.q] = q
    mujoco.mj_forward(judge.model, judge.data)
    mujoco.mj_fullM(judge.model, judge.data, mass)
    # The joint's damping is integrated implicitly: that adds h D to the inertia, though its torque is taken out again.
    own = mass[np.ix_(judge.v, judge.v)] + np.diag(0.005 * judge.model.dof_damping[judge.v])
    np.testing.assert_allclose(fast, np.linalg.solve(own, tau) * 0.02, rtol=0.1, atol=1e-3)
    assert np.abs(after - q).max() > 1e-5 and np.abs(v).max() < 1e-9
