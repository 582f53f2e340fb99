"""What the robot's controller has to report before the arm may move: values, silence, words for the operator."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.safety import SafetyState
from hardware.safety.senders import Conditions
from hardware.safety.supervisor import SafetySupervisor
from robots.stations import Condition, load_contract

PROGRAM = Condition(
    "program", "/running", "std_msgs/msg/Bool", latched=True, allowed=(1,), words={0: "stopped", 1: "playing"},
    mend="press Play",
)  # fmt: skip
SPEED = Condition("speed", "/speed", "std_msgs/msg/Float64", least=99.0, max_age_s=0.5, mend="move the slider")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def heard(clock: Clock, **values: float) -> Conditions:
    conditions = Conditions((PROGRAM, SPEED), clock)
    for name, value in values.items():
        conditions.heard(name, value)
    return conditions


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"program": 1, "speed": 100.0}, ""),
        ({}, "the program on /running: nothing arrived yet: press Play"),
        ({"program": 1}, "the speed on /speed: nothing arrived yet: move the slider"),
        ({"program": 0, "speed": 100.0}, "the program is stopped, expected playing: press Play"),
        ({"program": 0}, "the program is stopped, expected playing: press Play"),
        ({"program": 1, "speed": 50.0}, "the speed is 50, expected at least 99: move the slider"),
        ({"program": 1, "speed": math.nan}, "the speed is nan, expected at least 99: move the slider"),
        ({"program": math.nan, "speed": 100.0}, "the program is nan, expected playing: press Play"),
    ],
)
def test_what_forbids_motion(values: dict[str, float], problem: str) -> None:
    assert heard(Clock(), **values).problem() == problem


def test_what_is_published_on_change_may_be_old_and_a_stream_may_not() -> None:
    clock = Clock()
    conditions = heard(clock, program=1, speed=100.0)
    clock.now += 0.6
    assert conditions.problem() == "the speed on /speed: silent for 0.60 s: move the slider"
    conditions.heard("speed", 100.0)
    clock.now += 0.4
    assert conditions.problem() == ""


# --- the supervisor of a UR5e ---------------------------------------------------------------------------------------

FINE = {"External Control program": 1.0, "robot mode": 7.0, "safety mode": 1.0, "speed": 100.0}


class Station:
    """A supervisor of the UR5e's contract at rest at home, with everything else as it should be."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.contract = load_contract("ur5e")
        self.q = np.array([0.0, -1.57, 1.57, -1.57, -1.57, 0.0])
        self.q = np.array(self.contract.robot.home)
        self.supervisor = SafetySupervisor(self.contract, self.clock, self.clock)
        self.supervisor.streamers_alive(1, "/target")

    def run(self, seconds: float, **changes: float) -> None:
        for _ in range(round(seconds * 200)):
            self.clock.now += 0.005
            self.supervisor.joint_state(self.contract.joints, self.q, self.clock.now, "driver")
            self.supervisor.deadman(True, "operator")
            self.supervisor.condition("speed", changes.get("speed", 100.0))
            if self.supervisor.moving:
                self.supervisor.step()
                self.supervisor.filter.sent()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("External Control program", 0, "press Play"),
        ("robot mode", 5, "the robot mode is idle, expected running: press On, then Start"),
        ("safety mode", 3, "the safety mode is protective stop"),
        ("safety mode", 7, "the safety mode is robot emergency stop"),
    ],
)
def test_a_ur5e_is_not_armed_and_latches(name: str, value: float, says: str) -> None:
    station = Station()
    supervisor = station.supervisor
    station.run(0.3)
    assert "nothing arrived yet" in supervisor.refusal("/target"), "silence permits nothing"
    for one, fine in FINE.items():
        supervisor.condition(one, fine)
    station.run(0.1)
    assert supervisor.refusal("/target") == ""
    supervisor.condition(name, value)
    assert says in supervisor.refusal("/target")
    supervisor.condition(name, FINE[name])
    supervisor.arm()
    station.run(0.1)
    assert supervisor.state is SafetyState.ARMED
    supervisor.condition(name, value)
    assert supervisor.state is SafetyState.BRAKING and says in supervisor.filter.reason
    station.run(0.5)
    supervisor.condition(name, FINE[name])
    station.run(0.5)
    assert supervisor.state is SafetyState.LATCHED, "that it is over permits nothing: somebody resets"


def test_a_speed_slider_that_is_pulled_down_stops_the_arm_and_so_does_its_silence() -> None:
    for silence in (False, True):
        station = Station()
        for one, fine in FINE.items():
            station.supervisor.condition(one, fine)
        station.run(0.3)
        station.supervisor.arm()
        if silence:
            station.supervisor.condition = lambda name, value: None  # type: ignore[method-assign]
        station.run(0.7, speed=0.0)
        assert station.supervisor.state is SafetyState.LATCHED
        assert ("silent for" if silence else "the speed is 0") in station.supervisor.filter.reason
