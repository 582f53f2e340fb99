"""Motions for identification: what is kept of them, by hand, and what keeps an arm from moving along one."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from hardware.calibration.motion import GAP_S, resampled
from hardware.execution.played_motion import ELSEWHERE, PlayedMotion, way_from
from robolearn.core import RobolearnError
from robolearn.deploy.excited import TRIES, free_motion
from robots import PANDA
from robots.excitation import excitation
from robots.limits import Plane
from robots.stations import load_contract

PERIOD = 0.01
CONTRACT = load_contract("sim")
HOME = np.array(PANDA.home)


def rows(stamps: list[float], values: list[float]) -> list[tuple[float, np.ndarray]]:
    return [(stamp, np.array([value])) for stamp, value in zip(stamps, values, strict=True)]


@pytest.mark.long
def test_a_log_holds_what_was_sent_and_draws_lines_through_what_was_measured() -> None:
    """By hand: of set-points 0, 1, 2 sent at 0, 12 and 20 ms the last one until each grid point counts; measured is a
    line of slope 100/s, read one period after the grid point."""
    sent = rows([0.0, 0.012, 0.020, 0.030, 0.040], [0.0, 1.0, 2.0, 3.0, 4.0])
    seen = rows([-0.001, 0.013, 0.027, 0.041, 0.055], [-0.1, 1.3, 2.7, 4.1, 5.5])
    log = resampled("panda", PERIOD, sent, seen)
    np.testing.assert_allclose(log.commanded[:, 0], [0.0, 0.0, 2.0])
    np.testing.assert_allclose(log.measured[:, 0], [1.0, 2.0, 3.0])
    assert log.period == PERIOD


def test_a_log_with_a_hole_is_none_and_the_hole_is_named() -> None:
    whole = rows(np.arange(0.0, 1.0, PERIOD).tolist(), [0.0] * 100)
    holed = [row for row in whole if not 0.3 < row[0] < 0.3 + GAP_S + PERIOD]
    with pytest.raises(RobolearnError, match=r"no joint states for 1[12]0 ms, 0\.3 s after the motion began"):
        resampled("panda", PERIOD, whole, holed)
    with pytest.raises(RobolearnError, match="no set-points for"):
        resampled("panda", PERIOD, holed, whole)
    with pytest.raises(RobolearnError, match="1 joint states"):
        resampled("panda", PERIOD, whole, whole[:1])
    with pytest.raises(RobolearnError, match="a clock is off"):
        resampled("panda", PERIOD, whole, [(stamp + 5.0, q) for stamp, q in whole])


def played(motion: PlayedMotion, ticks: int) -> list[float | None]:
    """Targets of a motion of one joint."""
    return [None if (target := motion.target()) is None else float(target[0]) for _ in range(ticks)]


def test_a_motion_begins_with_arming_and_its_last_target_is_held_until_disarmed() -> None:
    way = np.linspace(0.0, 0.5, 6)[:, None]
    motion = PlayedMotion(way, period=0.25)
    assert not motion.ready and played(motion, 2) == [None, None]
    motion.joint_state(1.0, np.array([0.01]))
    assert motion.ready and not motion.seen, "nothing is kept before it moves"
    motion.safety("1")
    assert played(motion, 6) == pytest.approx(way[:, 0].tolist())
    motion.joint_state(2.0, np.array([0.4]))
    motion.joint_state(2.0, np.array([0.4]))  # the same message again
    motion.set_point(2.1, np.array([0.5]))
    assert motion.state == "moving" and motion.done == 6
    assert played(motion, 3) == [0.5] * 3, "two of them are the tail of half a second"
    assert motion.state == "done" and not motion.over
    motion.safety("")
    assert motion.over and played(motion, 1) == [None]
    assert (len(motion.seen), len(motion.sent)) == (1, 1)


def test_a_motion_that_was_stopped_stays_stopped() -> None:
    motion = PlayedMotion(np.zeros((100, 1)), period=PERIOD)
    motion.joint_state(1.0, np.zeros(1))
    motion.safety("1")
    played(motion, 3)
    motion.safety("2")  # latched, reset and armed again between two reports
    assert motion.state == "stopped" and played(motion, 1) == [None]
    motion.safety("3")
    assert motion.state == "stopped" and played(motion, 1) == [None]


def test_an_arm_that_was_moved_since_does_not_jump_to_the_motion() -> None:
    motion = PlayedMotion(np.zeros((100, 1)), period=PERIOD)
    motion.joint_state(1.0, np.array([1.5 * ELSEWHERE]))
    motion.safety("1")
    assert motion.state == "stopped" and "it has moved since" in motion.reason and played(motion, 1) == [None]


def test_the_way_begins_where_the_arm_is() -> None:
    start = HOME + 0.3
    way = way_from(start, np.tile(HOME, (5, 1)), CONTRACT)
    np.testing.assert_allclose(way[0], start)
    np.testing.assert_allclose(way[-5:], np.tile(HOME, (5, 1)))
    speed = np.abs(np.diff(way, axis=0)).max(0) * CONTRACT.stream_hz
    assert (speed <= 0.101 * np.array(PANDA.velocity)).all()


@pytest.mark.long
def test_a_motion_that_the_filter_does_not_let_pass_is_not_played() -> None:
    """A shelf 85 cm above the table: a motion that lifts the arm is drawn anew, and where all do, it is said why."""
    up, still = np.tile(HOME, (400, 1)), np.tile(HOME, (400, 1))
    up[:, 3] += np.linspace(0.0, 1.4, 400)  # the elbow stretches, and lifts the hand
    shelf = Plane("shelf", np.array([0.0, 0.0, -1.0]), -0.85)
    limits = replace(CONTRACT.limits, obstacles=(*CONTRACT.limits.obstacles, shelf))
    contract = replace(CONTRACT, limits=limits)
    asked: list[int] = []

    def draw(attempt: int) -> np.ndarray:
        asked.append(attempt)
        return (up, still)[attempt == 2]

    way = free_motion(contract, HOME, draw)
    assert asked == [0, 1, 2]
    np.testing.assert_allclose(way, way_from(HOME, still, contract))
    with pytest.raises(RobolearnError, match=f"of {TRIES} motions from this posture none passes .*shelf"):
        free_motion(contract, HOME, lambda attempt: up)


@pytest.mark.long
@pytest.mark.parametrize("name", ["fr3", "ur5e", "so101"])
def test_a_motion_for_a_station_keeps_to_its_workspace_and_speeds_and_passes_at_once(name: str) -> None:
    """The workspace is judged by MuJoCo's own kinematics, speeds by differences."""
    contract = load_contract(name)
    robot, limits = contract.robot, contract.limits
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data, joints = mujoco.MjData(model), [model.joint(joint).qposadr[0] for joint in robot.joints]
    assert limits.workspace is not None
    for seed in range(3):
        targets = excitation(robot, 40.0, 1.0 / contract.stream_hz, seed, limits, 0.8)
        way = free_motion(contract, np.array(robot.home), [targets].__getitem__)
        for q in way[::20]:
            data.qpos[joints] = q
            mujoco.mj_kinematics(model, data)
            tcp = data.site(robot.tcp_site).xpos
            assert (tcp > limits.workspace[0]).all() and (tcp < limits.workspace[1]).all()
        speed = np.abs(np.diff(way, axis=0)).max(0) * contract.stream_hz
        assert (speed <= 0.8 * limits.velocity).all() and (way > limits.lower).all() and (way < limits.upper).all()
