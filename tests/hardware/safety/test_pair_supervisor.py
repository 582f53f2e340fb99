"""Two arms behind one supervisor on a fake clock: joint states and targets of each, and what of one stops both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardware.execution.setpoints import SetPoints
from hardware.execution.streamer import Streamer, StreamStop, StreamTarget
from hardware.safety import SafetyRefused, SafetyState
from hardware.safety.supervisor import SafetySupervisor
from robots.limits import Plane
from robots.stations import load_contract, load_pair

PAIR = load_pair("panda_pair")
HOME = np.array(load_contract("sim").robot.home)  # of either arm
JOINTS = load_contract("sim").joints  # the drivers of both call them so
PERIOD = 1.0 / PAIR.stream_hz
SIDES = ("left", "right")
OFF = 0.2 * np.eye(7)[0]  # of the first joint: outwards for the left arm, inwards for the right one


class Station:
    """A supervisor, and the drivers of two arms that are where they were commanded to."""

    def __init__(self) -> None:
        self.now = 10.0
        self.supervisor = SafetySupervisor(PAIR, lambda: self.now, lambda: self.now)
        self.supervisor.streamers_alive(1, "targets")
        self.at = {side: HOME.copy() for side in SIDES}
        self.drivers: dict[str, tuple[str, ...]] = {side: (f"driver of {side}",) for side in SIDES}
        self.frozen = ""
        self.goal = np.concatenate([HOME, HOME])
        self.names = PAIR.joints

    def run(self, seconds: float) -> Station:
        for _ in range(round(seconds / PERIOD)):
            self.now += PERIOD
            self.supervisor.deadman(True)
            for side, drivers in self.drivers.items():
                for one in drivers:
                    self.supervisor.joint_state(JOINTS, self.at[side], self.now, one, side)
            if self.supervisor.state is SafetyState.ARMED:
                self.supervisor.target(self.names, self.goal, round(1e9 * self.now))
            if (command := self.supervisor.step()) is not None:
                for side, one in zip(SIDES, command.arms, strict=True):
                    if side != self.frozen:
                        self.at[side] = one.positions
        return self

    def arm(self) -> Station:
        self.run(0.5)
        if reason := self.supervisor.refusal("targets"):
            raise SafetyRefused(reason)
        self.supervisor.arm()
        return self


def test_each_arm_goes_where_its_part_of_the_target_says() -> None:
    station = Station().arm()
    station.goal = np.concatenate([HOME + OFF, HOME - 0.5 * OFF])
    station.run(2.0)
    assert station.supervisor.state is SafetyState.ARMED
    np.testing.assert_allclose(station.at["left"], HOME + OFF, atol=1e-6)
    np.testing.assert_allclose(station.at["right"], HOME - 0.5 * OFF, atol=1e-6)


@pytest.mark.parametrize("side", SIDES)
def test_the_silence_of_one_arm_stops_both(side: str) -> None:
    station = Station().arm()
    station.goal = np.concatenate([HOME + OFF, HOME + OFF])
    station.run(0.1)
    station.drivers[side] = ()
    station.run(0.2)
    assert station.supervisor.state is SafetyState.LATCHED and "joint state" in station.supervisor.filter.reason
    rest = {one: at.copy() for one, at in station.at.items()}
    station.run(0.5)
    assert all(np.array_equal(rest[one], station.at[one]) for one in SIDES)


@pytest.mark.parametrize("side", SIDES)
def test_a_second_driver_of_one_arm_is_not_armed_and_stops_both(side: str) -> None:
    words = rf"joint states on /{side}/joint_states: 2 publishers at once"
    station = Station()
    station.drivers[side] += ("another",)
    with pytest.raises(SafetyRefused, match=words):
        station.arm()
    station = Station().arm()
    station.drivers[side] += ("another",)
    station.run(0.3)
    assert station.supervisor.state is SafetyState.LATCHED
    assert f"/{side}/joint_states: 2 publishers" in station.supervisor.filter.reason


def test_a_publisher_of_one_arm_that_was_not_heard_is_named_by_its_topic() -> None:
    station = Station().run(0.5)
    refusal = station.supervisor.refusal("targets", ["driver of left"], ["driver of right", "a stranger"])
    assert refusal == "joint states on /right/joint_states: 2 publishers, and nothing was heard of a stranger"
    assert station.supervisor.refusal("targets", ["driver of left"], ["driver of right"]) == ""


@pytest.mark.parametrize("side", SIDES)
def test_an_arm_whose_joint_states_are_frozen_stops_both(side: str) -> None:
    station = Station().arm()
    station.frozen = side
    station.goal = np.concatenate([HOME + OFF, HOME + OFF])
    station.run(0.6)
    assert station.supervisor.state is SafetyState.LATCHED
    reason = station.supervisor.filter.reason
    assert f"joint states on /{side}/joint_states: frozen" in reason or f"{side}_panda_joint1" in reason


def test_joint_states_on_the_topic_of_one_arm_say_nothing_of_the_other() -> None:
    station = Station()
    station.run(0.3)
    for names in (PAIR.joints[7:], ("right_panda_joint1",), PAIR.joints):
        before = station.supervisor.filter._arms.positions
        station.supervisor.joint_state(names, np.zeros(len(names)), station.now + PERIOD, "driver of left", "left")
        assert station.supervisor.filter._arms.positions == before


WRONG: dict[str, tuple[tuple[str, ...], np.ndarray, str]] = {
    "of one arm": (PAIR.joints[:7], HOME, "missing: right_panda_joint1"),
    "of the arms swapped": (PAIR.joints[7:] + PAIR.joints[:7], np.tile(HOME, 2), "unknown: right_panda_joint1"),
    "of an arm that is none of them": (
        (*PAIR.joints[:7], *(f"middle_{name}" for name in JOINTS)), np.tile(HOME, 2), "unknown: middle_panda_joint1",
    ),
    "of joints as their driver calls them": (JOINTS + JOINTS, np.tile(HOME, 2), "unknown: panda_joint1"),
    "of one joint too many": ((*PAIR.joints, "right_panda_joint8"), np.zeros(15), "unknown: right_panda_joint8"),
    "with one gripper": ((*PAIR.joints, "left_gripper"), np.append(np.tile(HOME, 2), 0.04), "unknown: left_gripper"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_target_of_other_arms_stops_both(what: str) -> None:
    station = Station().arm()
    station.names, station.goal, words = WRONG[what]
    station.run(0.3)
    assert station.supervisor.state is SafetyState.LATCHED
    assert words in station.supervisor.filter.reason
    assert all(np.allclose(at, HOME) for at in station.at.values())


def test_the_openings_of_both_grippers_come_behind_the_joints() -> None:
    station = Station().arm()
    names = (*PAIR.joints, "left_gripper", "right_gripper")
    assert names == (*PAIR.joints, *PAIR.grippers) == SetPoints(PAIR).names
    station.supervisor.target(names, [*HOME, *HOME, 0.01, 0.07], round(1e9 * station.now))
    station.supervisor.step()
    stamp, accepted = station.supervisor.newly_accepted() or (0, [])
    assert accepted[14:] == [0.01, 0.07] and stamp == round(1e9 * station.now)


@pytest.mark.parametrize("table", [None, Plane("table", np.array([0.0, 0.0, 1.0]), 0.25)])
def test_set_points_of_two_arms_are_those_of_each_alone(table: Plane | None) -> None:
    sim = load_contract("sim")
    sim = sim if table is None else replace(sim, limits=sim.limits.tightened(obstacles=(table,)))
    points, alone, rng = (
        SetPoints(replace(PAIR, arms=dict.fromkeys(SIDES, sim))),
        SetPoints(sim),
        np.random.default_rng(0),
    )
    q, action = np.concatenate([HOME + OFF, HOME - OFF]), rng.uniform(-1.0, 1.0, 14)
    action[[2, 9]] = 1.0  # downwards
    free = SetPoints(load_contract("sim"))
    assert (table is None) == np.array_equal(alone.target(q[7:], action[7:]), free.target(q[7:], action[7:]))
    left, right = alone.target(q[:7], action[:7]), alone.target(q[7:], action[7:])
    expected = [*left[:7], *right[:7], left[7], right[7]]
    np.testing.assert_allclose(points.target(q, action), expected, atol=1e-12)
    inverse = np.concatenate([alone.action(q[:7], left), alone.action(q[7:], right)])
    np.testing.assert_allclose(points.action(q, np.array(expected)), inverse, atol=1e-12)
    still = np.zeros(14)
    still[[6, 13]] = 1.0
    assert points.at_rest(still) and not points.at_rest(still + 0.1 * np.eye(14)[7])


class Stream:
    """A streamer of two arms on a fake clock."""

    def __init__(self) -> None:
        self.now, self.sent = 10.0, list[StreamTarget | StreamStop]()
        self.streamer = Streamer(PAIR, self.sent.append, clock=lambda: self.now, wall=lambda: self.now)
        self.streamer.safety("1")
        self.feed(SIDES)

    def feed(self, sides: tuple[str, ...]) -> None:
        names = (*JOINTS, "panda_finger_left", "panda_finger_right")
        for side in sides:
            self.streamer.joint_state(names, [*HOME, 0.02, 0.02], self.now, arm=side)

    def chunk(self, names: tuple[str, ...]) -> None:
        actions, times = np.zeros((20, len(names))), 0.05 * np.arange(20)
        self.streamer.chunk(round(1e9 * self.now), names, actions, times)
        self.streamer.heartbeat()

    def tick(self, sides: tuple[str, ...]) -> None:
        self.now += PERIOD
        self.feed(sides)
        self.streamer.heartbeat()
        self.streamer.tick()


ACTION = PAIR.interface.action.names


def test_one_chunk_moves_both_arms() -> None:
    stream = Stream()
    stream.chunk(ACTION)
    (target,) = stream.sent
    assert isinstance(target, StreamTarget) and stream.streamer.names == (*PAIR.joints, *PAIR.grippers)
    np.testing.assert_allclose(target.positions, [*HOME, *HOME, 0.04, 0.04], atol=1e-6)


@pytest.mark.parametrize(
    "names", [ACTION[:7], ACTION[7:] + ACTION[:7], ("dx", "dy", "dz", "rx", "ry", "rz", "gripper")]
)
def test_a_chunk_of_other_arms_is_a_stop(names: tuple[str, ...]) -> None:
    stream = Stream()
    stream.chunk(names)
    (stop,) = stream.sent
    assert isinstance(stop, StreamStop) and "action chunk" in stop.reason


@pytest.mark.parametrize("side", SIDES)
def test_no_target_goes_out_on_the_joint_states_of_one_arm(side: str) -> None:
    stream = Stream()
    stream.chunk(ACTION)
    other = tuple(one for one in SIDES if one != side)
    for _ in range(30):
        stream.tick(other)
    stop = stream.sent[-1]
    assert isinstance(stop, StreamStop) and f"joint states on /{side}/joint_states: silent" in stop.reason
