"""Whose dead-man's switch moves the arm: two operators and a stranger, through the supervisor on a fake clock."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.safety import SafetyRefused, SafetyState
from hardware.safety.supervisor import SafetySupervisor
from robots.stations import load_contract

CONTRACT = load_contract("sim")
HOME = np.array(CONTRACT.robot.home)
PERIOD = 1.0 / CONTRACT.stream_hz
BEAT = 10  # periods between two heartbeats
TIMEOUT = CONTRACT.limits.deadman_timeout_s


class Room:
    """Attributes: `switches`: who publishes heartbeats, and whether theirs is held."""

    def __init__(self) -> None:
        self.now = 10.0
        self.supervisor = SafetySupervisor(CONTRACT, lambda: self.now, lambda: self.now, lambda who: f"/{who}")
        self.supervisor.streamers_alive(1, "targets")
        self.switches: dict[str, bool] = {"deploy": True}
        self._ticks = 0
        self.run(0.4)

    @property
    def state(self) -> SafetyState:
        return self.supervisor.state

    @property
    def reason(self) -> str:
        return self.supervisor.filter.reason

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD)):
            self.now += PERIOD
            self._ticks += 1
            for k, (who, held) in enumerate(self.switches.items()):
                if self._ticks % BEAT == k:
                    self.supervisor.deadman(held, who)
            self.supervisor.joint_state(CONTRACT.joints, HOME, self.now, "driver")
            if self.state is SafetyState.ARMED:
                self.supervisor.target(CONTRACT.joints, HOME, round(1e9 * self.now))
            self.supervisor.step()

    def arm(self, caller: str = "deploy") -> None:
        if reason := self.supervisor.unauthorised(caller) or self.supervisor.refusal("targets"):
            raise SafetyRefused(reason)
        self.supervisor.arm()


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_terminal_beside_a_running_deployment_is_no_fault(room: Room) -> None:
    room.switches["operate"] = False
    room.run(0.2)
    room.arm()
    room.run(1.0)
    assert room.state is SafetyState.ARMED
    room.switches["another"] = False
    room.run(1.0)
    assert room.state is SafetyState.ARMED
    room.supervisor.filter.estop()  # which everybody may press
    room.run(0.3)
    assert room.state is SafetyState.LATCHED


def test_a_second_switch_that_is_held_stops_the_arm_and_keeps_it_from_being_armed(room: Room) -> None:
    room.arm()
    room.run(0.2)
    room.switches["stranger"] = True
    room.run(BEAT * PERIOD)
    assert room.state is not SafetyState.ARMED
    assert "2 dead-man's switches are held at once, by /deploy and /stranger" in room.reason
    room.run(0.5)
    room.supervisor.filter.reset()
    with pytest.raises(SafetyRefused, match="2 dead-man's switches are held at once"):
        room.arm()
    room.switches["stranger"] = False
    room.run(0.1)
    room.arm()
    room.run(0.5)
    assert room.state is SafetyState.ARMED


def test_an_operator_who_is_frozen_stops_the_arm_whatever_a_stranger_sends(room: Room) -> None:
    room.switches["stranger"] = False
    room.run(0.1)
    room.arm()
    room.run(0.2)
    del room.switches["deploy"]
    begun = room.now
    while room.state is SafetyState.ARMED:
        room.run(PERIOD)
        assert room.now - begun < TIMEOUT + 0.02
    assert "dead-man's heartbeat is 0.25" in room.reason


def test_a_stranger_does_not_take_over_from_an_operator_who_is_frozen(room: Room) -> None:
    room.arm()
    room.run(0.2)
    del room.switches["deploy"]
    room.run(0.2)
    room.switches["stranger"] = True
    room.run(0.1)
    assert room.state is not SafetyState.ARMED and "dead-man" in room.reason


def test_letting_go_stops_the_arm_beside_whatever_else_is_held_a_moment_later(room: Room) -> None:
    room.switches["operate"] = False
    room.run(0.1)
    room.arm()
    room.switches["deploy"] = False
    room.run(BEAT * PERIOD)
    assert "the dead-man's switch was released" in room.reason


def test_nobody_who_looks_on_takes_the_switch_from_who_holds_it(room: Room) -> None:
    """Of two heartbeats the newest is not all that counts."""
    room.switches["operate"] = False
    for _ in range(2 * BEAT):
        room.run(PERIOD)
        assert room.supervisor.filter.status()["deadman_held"]
    room.switches["deploy"] = False
    room.run(0.1)
    with pytest.raises(SafetyRefused, match="the dead-man's switch is not held"):
        room.arm()
    room.switches = {"operate": True}
    room.run(0.1)
    room.arm("operate")


def test_only_who_holds_the_switch_arms_and_resets(room: Room) -> None:
    with pytest.raises(SafetyRefused, match="/deploy holds the dead-man's switch, and another node calls"):
        room.arm("stranger")
    room.arm("deploy")
    room.supervisor.filter.estop()
    room.run(0.3)
    assert "/deploy holds" in room.supervisor.unauthorised("stranger") and not room.supervisor.unauthorised("deploy")
    room.switches["deploy"] = False
    room.run(0.1)
    assert not room.supervisor.unauthorised("stranger"), "nobody holds it, and nothing can be armed"
