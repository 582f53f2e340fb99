"""Raw motor torques as a contact sensor: MuJoCo holds the arm up, weighs what hangs on it, and pushes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import pytest

from hardware.observing.observer import ContactReader
from hardware.safety import SafetyRefused, SafetyState
from hardware.safety.supervisor import SafetySupervisor
from robots import ROBOTS, RobotSpec
from robots.limits import Limits
from robots.spec import Pose, Tool
from robots.stations import JOINT_STATE, ContactSensing, Contract, load_contract

PERIOD = 0.005
LAST = {"panda": "panda_link7", "fr3": "fr3_link7", "ur5e": "ur5e_wrist_3", "so101": "so101_gripper"}
MASS, CENTRE = 1.3, (0.02, -0.03, 0.09)
TOOL = Tool(Pose((0.0, 0.0, 0.1)), mass=MASS, centre=CENTRE)


class Held:
    """An arm in MuJoCo whose motors carry all of it, and what was hung on it.

    By the stiffness of their position control alone; `fed`: the robot's controller feeds gravity forward, which it does
    by the same motors.
    """

    def __init__(self, robot: RobotSpec, mass: float = 0.0, q: np.ndarray | None = None, fed: bool = False) -> None:
        spec = mujoco.MjSpec.from_file(str(robot.mjcf))
        at = np.array(robot.flange) + np.array(CENTRE)
        if mass:
            spec.body(LAST[robot.name]).add_body(pos=at).add_geom(
                type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.001, 0, 0], mass=mass, contype=0, conaffinity=0
            )
        for body in spec.bodies[1:]:
            body.gravcomp = float(fed)
        spec.option.timestep, spec.option.integrator = 0.001, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self.robot, self.model = robot, spec.compile()
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        self.data = mujoco.MjData(self.model)
        joints = [self.model.joint(name) for name in robot.joints]
        self.q, self.v = (np.array([getattr(j, x)[0] for j in joints]) for x in ("qposadr", "dofadr"))
        self.u = np.array([self.model.actuator(j).id for j in robot.joints])
        self.data.qpos[self.q] = self.data.ctrl[self.u] = robot.home if q is None else q
        self.run(1.5)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.001)):
            mujoco.mj_step(self.model, self.data)

    def push(self, force: float) -> np.ndarray:
        """Let a hand push the last link along y [N]; (n,) what that is at the joints [Nm]."""
        body = self.model.body(LAST[self.robot.name]).id
        self.data.xfrc_applied[body, :3] = (0.0, force, 0.0)
        jacobian = np.zeros((3, self.model.nv))
        mujoco.mj_forward(self.model, self.data)
        mujoco.mj_jac(self.model, self.data, jacobian, None, self.data.xipos[body], body)
        return jacobian[:, self.v].T @ [0.0, force, 0.0]

    def measured(self) -> tuple[np.ndarray, np.ndarray]:
        """(n,) positions [rad] and torques of the motors [Nm]."""
        fed = self.data.qfrc_gravcomp[self.v]
        return self.data.qpos[self.q].copy(), self.data.actuator_force[self.u] + fed


@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_an_arm_that_holds_what_its_contract_knows_of_feels_nothing(name: str) -> None:
    light, robot = 0.1 if name == "so101" else MASS, ROBOTS[name]
    tool = replace(TOOL, mass=light)
    rng = np.random.default_rng(4)
    heaviest = 0.0
    for _ in range(4):
        q = np.array(robot.home) + rng.uniform(-0.3, 0.3, len(robot.home))
        bare, loaded = Held(robot, q=q), Held(robot, light, q=q)
        for rig, known in ((bare, robot), (loaded, replace(robot, tool=tool))):
            assert np.abs(rig.data.qvel[rig.v]).max() < 1e-3
            at, effort = rig.measured()
            residual = known.gravity.external(at, effort)
            assert np.abs(residual).max() < 0.02 * max(np.abs(effort).max(), 1.0), (residual, effort)
            heaviest = max(heaviest, float(np.abs(effort).max()))
        unknown = robot.gravity.external(*loaded.measured())
        assert np.abs(unknown).max() > 10 * np.abs(residual).max() > 0, "a weight nobody said anything of is felt"
    assert heaviest > (0.3 if name == "so101" else 5.0), "there is gravity to be taken away"


@pytest.mark.parametrize("name", ["panda", "ur5e"])
def test_what_a_hand_does_is_what_is_felt(name: str) -> None:
    rig = Held(ROBOTS[name])
    pushed = rig.push(20.0)
    rig.run(1.5)
    felt = rig.robot.gravity.external(*rig.measured())
    np.testing.assert_allclose(felt, pushed, atol=0.05 * np.abs(pushed).max())
    assert np.abs(pushed).max() > 4.0


def station(robot: RobotSpec, **changes: Any) -> Contract:
    plain = load_contract("sim")
    raw = ContactSensing(plain.joint_states.topic, JOINT_STATE, max_torque=(12.0,) * 4 + (5.0,) * 3, gravity=True)
    own = Limits.of(robot)  # slow, as the shipped contracts of real arms are: inertia is in the torques, and friction
    slow = own.tightened(velocity=0.05 * own.velocity, acceleration=0.1 * own.acceleration, jerk=0.05 * own.jerk)
    return replace(plain, joints=robot.joints, robot=robot, contact=raw, limits=slow, **changes)


class Driven:
    """The safety core over a `Held` Panda; its messages are joint states with efforts, fingers among them."""

    def __init__(self, mass: float, known: float) -> None:
        robot = ROBOTS["panda"]
        robot = replace(robot, tool=replace(TOOL, mass=known, tcp=Pose((0.0, 0.0, 0.1034)))) if known else robot
        self.rig = Held(ROBOTS["panda"], mass, fed=True)
        self.core = SafetySupervisor(station(robot), self.clock, self.clock)
        self.core.streamers_alive(1, "targets")
        self.joints = robot.joints

    def clock(self) -> float:
        return 1.0 + self.rig.data.time

    def tick(self, speed: float = 0.0) -> None:
        now, (q, effort) = self.clock(), self.rig.measured()
        names = ("finger", *self.joints[::-1])
        self.core.joint_state(names, [0.02, *q[::-1]], now, "driver")
        self.core.contact(names, [0.5, *effort[::-1]], now, "driver", [0.02, *q[::-1]])
        self.core.contact(
            ("finger",), [9.0], now, "another device", [0.02]
        )  # on the same topic, and none of our business
        self.core.deadman(True)
        if self.core.state is SafetyState.ARMED:
            goal = np.array(self.core.filter.motion.q)
            goal[0] += 0.1 * speed
            self.core.target(self.joints, goal, round(1e9 * now))
        command = self.core.step()
        if command is not None:
            self.core.filter.sent()
            self.rig.data.ctrl[self.rig.u] = command.positions
        self.rig.run(PERIOD)

    def arm(self) -> None:
        for _ in range(60):
            self.tick()
        if reason := self.core.refusal("targets"):
            raise SafetyRefused(reason)
        self.core.arm()


def test_an_arm_that_holds_its_tool_is_armed_moves_and_is_stopped_by_a_hand() -> None:
    rig = Driven(MASS, MASS)
    rig.arm()
    for _ in range(200):
        rig.tick(speed=0.1)
    assert rig.core.state is SafetyState.ARMED, rig.core.filter.reason
    begun = rig.clock()
    rig.rig.push(60.0)
    while rig.core.state is SafetyState.ARMED and rig.clock() < begun + 1.0:
        rig.tick(speed=0.0)
    assert rig.core.state is not SafetyState.ARMED and "contact on" in rig.core.filter.reason
    assert rig.clock() - begun < 0.3


def test_a_weight_that_the_contract_does_not_know_keeps_the_arm_from_being_armed() -> None:
    with pytest.raises(SafetyRefused, match=r"contact on .*: panda_joint\d .* Nm, allowed"):
        Driven(4.0, 0.0).arm()


def test_raw_torques_without_their_positions_say_nothing() -> None:
    reader = ContactReader(station(ROBOTS["panda"]), lambda: 5.0)
    names = ROBOTS["panda"].joints
    assert reader.update(names, np.zeros(7), 1.0, np.array(ROBOTS["panda"].home))
    for positions, why in (((), "0 positions beside 7 torques"), (np.full(7, np.nan), "positions that are not finite")):
        assert not reader.update(names, np.zeros(7), 2.0, positions)
        assert why in reader.problem()
    assert not reader.update(("wheel",), [1.0], 2.0, [0.0]) and why in reader.problem(), "another device is passed over"
