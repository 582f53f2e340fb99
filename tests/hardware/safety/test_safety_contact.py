"""Contact: an arm in MuJoCo that meets a wall which nobody told the filter of, through the real safety core.

MuJoCo is the judge: when the two touched, with what force, and when the arm came to rest. The safety core hears the
torques on the joints one period late, as a driver would report them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
import pytest

from hardware.observing.monitor import LimitMonitor
from hardware.observing.observer import ContactReader
from hardware.safety import SafetyRefused, SafetyState
from hardware.safety.supervisor import SafetySupervisor
from robots import PANDA
from robots.stations import JOINT_STATE, WRENCH, ContactSensing, load_contract

PERIOD = 0.005
MOST = (25.0,) * 4 + (8.0,) * 3
TORQUES = ContactSensing("/felt", JOINT_STATE, max_torque=MOST)
FORCES = ContactSensing("/felt", WRENCH, max_force=40.0, max_moment=20.0)
PLAIN = replace(load_contract("sim"), joints=PANDA.joints)


@dataclass
class Impact:
    """What MuJoCo saw: when the arm touched the wall and came to rest [s], and the largest normal force [N]."""

    touched: float
    rested: float
    peak: float


class Walled:
    """A Panda beside a wall that its hand meets when joint 1 turns, and a policy that wants it to go on."""

    def __init__(self, contact: ContactSensing | None, wall: float = 0.18) -> None:
        spec = mujoco.MjSpec.from_file(str(PANDA.mjcf))
        spec.worldbody.add_geom(
            name="wall", type=mujoco.mjtGeom.mjGEOM_BOX, pos=[0.5, wall + 0.05, 0.5], size=[0.5, 0.05, 0.5],
            contype=1, conaffinity=1,
        )  # fmt: skip
        spec.option.timestep, spec.option.integrator = 0.001, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self.model = spec.compile()
        names = [self.model.geom(i).name for i in range(self.model.ngeom)]
        self.wall = names.index("wall")
        for i in range(self.model.ngeom):  # the arm meets the wall and nothing else
            self.model.geom_contype[i], self.model.geom_conaffinity[i] = (1, 2) if i == self.wall else (2, 1)
        self.data = mujoco.MjData(self.model)
        self.q = np.array([self.model.joint(j).qposadr[0] for j in PANDA.joints])
        self.v = np.array([self.model.joint(j).dofadr[0] for j in PANDA.joints])
        self.u = np.array([self.model.actuator(j).id for j in PANDA.joints])
        self.data.qpos[self.q] = self.data.ctrl[self.u] = PANDA.home
        mujoco.mj_forward(self.model, self.data)
        self.core = SafetySupervisor(replace(PLAIN, contact=contact), self.clock, self.clock)
        self.core.streamers_alive(1, "targets")
        self.contact = contact
        self.sensor: Callable[[np.ndarray], np.ndarray] = lambda felt: felt
        self.felt = np.zeros(7)
        self.forces: list[tuple[float, float]] = []
        self.sent: list[tuple[float, np.ndarray]] = []

    def clock(self) -> float:
        return 1.0 + self.data.time

    def tick(self, speed: float | None) -> None:
        """A period: what is measured is heard, a set-point is sent, MuJoCo goes on."""
        now = self.clock()
        self.core.joint_state(PANDA.joints, self.data.qpos[self.q], now)
        self.core.deadman(True)
        if self.contact is not None:
            felt = self.sensor(self.felt)
            if self.contact.type == WRENCH:
                jacobian = PANDA.chain.jacobian(self.data.qpos[self.q][None])[0]
                self.core.contact(
                    ("fx", "fy", "fz", "mx", "my", "mz"), np.linalg.lstsq(jacobian.T, felt)[0], now, "driver"
                )
            else:
                self.core.contact(PANDA.joints, felt, now, "driver")
        if speed is not None:
            goal = np.array(self.core.filter.motion.q)
            goal[0] += speed * 0.1
            self.core.target(PANDA.joints, np.clip(goal, -2.8, 2.8), round(1e9 * now))
        command = self.core.step()
        if command is not None:
            self.core.filter.sent()
            self.data.ctrl[self.u] = command.positions
            self.sent.append((now, command.positions))
        self.felt = self.data.qfrc_constraint[self.v].copy()
        for _ in range(round(PERIOD / self.model.opt.timestep)):
            mujoco.mj_step(self.model, self.data)
            self.forces.append((self.clock(), self.pressed()))

    def pressed(self) -> float:
        """Normal force on the wall [N]."""
        total, force = 0.0, np.zeros(6)
        for k in range(self.data.ncon):
            if self.wall in self.data.contact[k].geom:
                mujoco.mj_contactForce(self.model, self.data, k, force)
                total += force[0]
        return total

    def arm(self) -> None:
        for _ in range(60):
            self.tick(None)
        if reason := self.core.refusal("targets"):
            raise SafetyRefused(reason)
        self.core.arm()

    def drive(self, speed: float, seconds: float = 4.0) -> Impact:
        """Towards the wall at a joint speed [rad/s] until the arm has stopped."""
        self.forces.clear()
        rested = None
        for _ in range(round(seconds / PERIOD)):
            self.tick(speed if self.core.state is SafetyState.ARMED else None)
            still = np.abs(self.data.qvel[self.v]).max() < 0.01 and self.core.state is SafetyState.LATCHED
            rested = (rested or self.clock()) if still else None
        touched = next((at for at, force in self.forces if force > 0.0), np.nan)
        return Impact(touched, rested or np.nan, max(force for _, force in self.forces))


def hit(contact: ContactSensing | None, speed: float, **spoilt: Any) -> tuple[Walled, Impact]:
    rig = Walled(contact)
    rig.arm()
    return rig, rig.drive(speed, **spoilt)


@pytest.mark.long
@pytest.mark.parametrize("contact", [TORQUES, FORCES], ids=["torques", "wrench"])
@pytest.mark.parametrize("speed", [0.1, 0.3, 0.5, 1.5])
def test_a_wall_stops_the_arm_and_is_let_go(contact: ContactSensing, speed: float) -> None:
    """Without, a stiff arm presses on with all that its motors have, and nobody notices before 0.35 rad."""
    (blind, before), (rig, after) = hit(None, speed), hit(contact, speed)
    print(f"{speed} rad/s: {before} pressing {blind.forces[-1][1]:.0f} N; {after} pressing {rig.forces[-1][1]:.0f} N")
    assert "jump" in blind.core.filter.reason and blind.forces[-1][1] > 150.0, "or there is nothing to see"
    assert "contact on /felt" in rig.core.filter.reason and rig.core.filter.status()["refusals"]["contact"] == 1
    assert rig.forces[-1][1] < 40.0 and after.peak <= before.peak
    assert after.rested - after.touched < 0.6
    away = np.abs(rig.data.ctrl[rig.u] - rig.data.qpos[rig.q]).max()
    assert away < 0.02, "the set-point ends where the arm is"
    if speed == 0.1:
        assert after.rested - after.touched < 0.3 * (before.rested - before.touched)
        assert after.peak < 0.7 * before.peak
    monitor = LimitMonitor.of(PANDA, PERIOD)
    for at, q in rig.sent:
        monitor.command(q, at)
    assert monitor.summary()["violations"] == 0 and monitor.summary()["commands"] > 50, monitor.summary()


def test_an_e_stop_while_the_arm_gives_way_is_an_e_stop() -> None:
    rig = Walled(TORQUES)
    rig.arm()
    while rig.core.state is SafetyState.ARMED:
        rig.tick(0.5)
    for _ in range(12):
        rig.tick(None)
    before = rig.sent[-1][1]
    assert rig.core.state is SafetyState.BRAKING
    rig.core.filter.estop()
    rig.drive(0.0, 0.5)
    assert rig.core.state is SafetyState.LATCHED and "e-stop" in rig.core.filter.reason
    assert np.abs(rig.sent[-1][1] - before).max() < 0.03


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda felt: np.full(7, np.nan), "contact on /felt: not finite"),
        (lambda felt: felt[:5], "contact on /felt: 7 names and 5 values"),
        (lambda felt: -MOST[4] * 1.1 * np.eye(7)[4], "contact on /felt: panda_joint5 8.8 Nm, allowed 8"),
    ],
)
def test_torques_that_say_nothing_are_a_stop(spoil: Callable, why: str) -> None:
    rig = Walled(TORQUES, wall=2.0)
    rig.arm()
    rig.drive(0.3, 0.2)
    assert rig.core.state is SafetyState.ARMED, rig.core.filter.reason
    rig.sensor = spoil
    rig.drive(0.3, 1.0)
    assert rig.core.state is SafetyState.LATCHED and rig.core.filter.reason.split(": ", 1)[1].startswith(why)


@pytest.mark.parametrize(
    ("fault", "why"), [("silent", "silent for 0.1"), ("frozen", "frozen"), ("stranger", "2 publishers at once")]
)
def test_silence_and_a_second_publisher_are_a_stop(fault: str, why: str) -> None:
    rig = Walled(TORQUES, wall=2.0)
    rig.arm()
    rig.drive(0.3, 0.2)
    heard, stamp = rig.core.contact, rig.clock()
    if fault == "silent":
        rig.core.contact = lambda *_: None  # type: ignore[method-assign]
    elif fault == "frozen":
        rig.core.contact = lambda names, felt, *_: heard(names, felt, stamp, "driver")  # type: ignore[method-assign]
    else:
        heard(PANDA.joints, np.zeros(7), rig.clock(), "somebody else")
    rig.drive(0.3, 1.0)
    assert rig.core.state is SafetyState.LATCHED and why in rig.core.filter.reason, rig.core.filter.reason


def test_a_driver_that_was_started_again_is_believed_before_the_next_arming() -> None:
    rig = Walled(TORQUES, wall=2.0)
    rig.arm()
    rig.core.filter.estop()
    rig.drive(0.0, 0.5)
    for _ in range(250):  # the first one is silent for longer than one that goes on
        rig.core.joint_state(PANDA.joints, rig.data.qpos[rig.q], rig.clock())
        rig.core.contact(PANDA.joints, np.zeros(7), rig.clock(), "the next driver")
        rig.data.time += PERIOD
    assert rig.core.refusal("targets") == ""


def test_an_arm_that_is_pushed_or_feels_nothing_is_not_armed() -> None:
    rig = Walled(TORQUES)
    rig.sensor = lambda felt: 26.0 * np.eye(7)[1]
    with pytest.raises(SafetyRefused, match=r"panda_joint2 26\.0 Nm, allowed 25"):
        rig.arm()
    rig = Walled(TORQUES)
    rig.core.contact = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(SafetyRefused, match="contact on /felt: nothing arrived"):
        rig.arm()


def test_names_count_and_not_their_order() -> None:
    reader = ContactReader(replace(PLAIN, contact=TORQUES), lambda: 5.0)
    names = PANDA.joints[::-1]
    assert reader.update(("jaw", *names), [99.0, *range(7)], 1.0)
    assert reader.values is not None and reader.values.tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert (
        reader.push() == "" and not reader.update(names[1:], range(6), 2.0) and "no 'panda_joint7'" in reader.problem()
    )
