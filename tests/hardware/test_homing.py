"""The arm's own way home: judged by MuJoCo's kinematics and by hand, and what the streamer does meanwhile."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from hardware.execution.homing import RISE_M, SPEED, goes_home, way_home
from hardware.execution.streamer import Streamer, StreamStop, StreamTarget
from robolearn.core import BadInput, RobolearnError
from robots.limits import Box
from robots.stations import Contract, load_contract

CONTRACT = load_contract("sim")
HOME = np.array(CONTRACT.robot.home)
LOW = HOME + np.array([0.5, 0.35, 0.0, -0.25, 0.0, 0.6, 0.0])  # low above the table, aside


def tcp(contract: Contract, way: np.ndarray) -> np.ndarray:
    """(T, 3) by MuJoCo."""
    model = mujoco.MjModel.from_xml_path(str(contract.robot.mjcf))
    data, found = mujoco.MjData(model), []
    for q in way:
        data.qpos[[model.joint(name).qposadr[0] for name in contract.robot.joints]] = q
        mujoco.mj_kinematics(model, data)
        found.append(data.site(contract.robot.tcp_site).xpos.copy())
    return np.array(found)


def test_an_arm_that_begins_anew_is_not_brought_home() -> None:
    real = load_contract("fr3")
    assert goes_home("motion", real)
    assert not goes_home("person", real) and not goes_home("person", CONTRACT)
    with pytest.raises(BadInput, match="parameter reset: got motion on sim, which begins anew, expected person"):
        goes_home("motion", CONTRACT, what="parameter reset")
    with pytest.raises(BadInput, match="got sometimes; available: person, motion"):
        goes_home("sometimes", real)


def test_the_gripper_opens_the_tool_rises_and_the_arm_goes_home() -> None:
    way = way_home(CONTRACT, LOW)
    assert (way[:, -1] == CONTRACT.limits.gripper_max).all()
    q = way[:, :-1]
    np.testing.assert_allclose(q[0], LOW)
    np.testing.assert_allclose(q[-1], HOME)
    begins = int(np.argmax(np.abs(q - LOW).max(1) > 1e-9))
    assert begins >= 0.9 * CONTRACT.stream_hz, "it waits for the gripper"
    path = tcp(CONTRACT, q[begins - 1 :: 10])
    rise = path - path[0]
    top = int(np.argmax(rise[:, 2] > 0.9 * RISE_M))
    assert np.linalg.norm(rise[:top, :2], axis=1).max() < 0.01, "straight up at first"
    assert (rise[:, 2] > -0.003).all(), "never lower than it was"
    speed = np.abs(np.diff(q, axis=0)).max(0) * CONTRACT.stream_hz
    assert (speed <= 1.01 * SPEED * np.array(CONTRACT.robot.velocity)).all()


def test_a_way_through_an_obstacle_is_refused() -> None:
    post = Box("post", np.array([0.42, 0.02, 0.0]), np.array([0.55, 0.12, 0.5]))
    contract = replace(CONTRACT, limits=replace(CONTRACT.limits, obstacles=(*CONTRACT.limits.obstacles, post)))
    with pytest.raises(RobolearnError, match="post"):
        way_home(contract, LOW)


class Bench:
    """A streamer by a fake clock, and what it sends."""

    def __init__(self) -> None:
        self.now, self.sent = 100.0, []
        self.streamer = Streamer(CONTRACT, self.sent.append, clock=lambda: self.now, wall=lambda: 1e9 + self.now)

    def joints(self, q: np.ndarray) -> None:
        names = (*CONTRACT.joints, *CONTRACT.gripper_joints)
        self.streamer.joint_state(names, np.append(q, [0.04] * len(CONTRACT.gripper_joints)), 1e9 + self.now)

    def tick(self, q: np.ndarray, times: int = 1) -> None:
        for _ in range(times):
            self.now += 1.0 / CONTRACT.stream_hz
            self.joints(q)
            self.streamer.heartbeat()
            self.streamer.tick()

    def chunk(self) -> None:
        names = CONTRACT.interface.action.names
        assert names is not None
        actions = np.full((8, len(names)), 0.5)
        stamp = round(1e9 * (1e9 + self.now))
        self.streamer.chunk(stamp, names, actions, np.arange(8) / CONTRACT.control_hz)


def test_on_its_way_home_the_streamer_takes_no_chunk_and_with_the_next_arming_it_does() -> None:
    bench = Bench()
    bench.tick(HOME)
    way = np.concatenate([np.linspace(HOME, HOME + 0.05, 40), np.full((40, 1), 0.08)], axis=1)
    assert bench.streamer.go_home(way) == 1
    assert bench.streamer.status()["homing"] == [1, "waiting"]
    bench.tick(HOME, 3)
    assert bench.sent == [], "nothing before it is armed"
    bench.streamer.safety("7")
    for k in range(40):
        bench.chunk()
        bench.tick(HOME + 0.05 * k / 39)
    assert all(isinstance(one, StreamTarget) for one in bench.sent)
    np.testing.assert_allclose([one.positions for one in bench.sent], way)
    assert bench.streamer.status()["homing"] == [1, "moving"] and bench.streamer.status()["chunks"] == 0
    bench.tick(HOME + 0.05, round(0.5 * CONTRACT.stream_hz))
    assert bench.streamer.status()["homing"] == [1, "done"]
    np.testing.assert_allclose(bench.sent[-1].positions, way[-1])
    bench.streamer.safety("")
    bench.sent.clear()
    bench.tick(HOME + 0.05, 5)
    bench.streamer.safety("8")
    bench.chunk()
    assert len(bench.sent) == 1, "a chunk's first target goes out with it"
    bench.tick(HOME + 0.05)
    assert bench.streamer.status()["chunks"] == 1 and len(bench.sent) == 2
    assert not np.allclose(bench.sent[0].positions[:-1], way[-1, :-1]), "the policy moves it"


def test_joint_states_that_grow_old_stop_it_and_a_stop_is_no_arrival() -> None:
    bench = Bench()
    bench.tick(HOME)
    bench.streamer.go_home(np.append(HOME, 0.08)[None].repeat(400, 0))
    bench.streamer.safety("1")
    bench.tick(HOME, 10)
    bench.now += 0.5
    bench.streamer.tick()
    assert isinstance(bench.sent[-1], StreamStop) and "joint states" in bench.sent[-1].reason
    bench.streamer.safety("")
    assert bench.streamer.status()["homing"] == [1, "stopped"]
    bench.streamer.safety("2")
    assert bench.streamer.status()["homing"] == [1, ""]


def test_a_homing_that_nobody_arms_for_is_forgotten() -> None:
    bench = Bench()
    bench.tick(HOME)
    bench.streamer.go_home(np.append(HOME, 0.08)[None].repeat(400, 0))
    bench.now += 21.0
    bench.tick(HOME)
    bench.streamer.safety("1")
    bench.chunk()
    bench.tick(HOME)
    assert bench.streamer.status()["homing"] == [1, ""] and bench.streamer.status()["chunks"] == 1
