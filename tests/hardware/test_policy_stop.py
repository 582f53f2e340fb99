"""The stops that a policy asks for, on a fake clock: at once what is certain, what lasts, and no mere waiting."""

from __future__ import annotations

import numpy as np
import pytest
from builtin_interfaces.msg import Time

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.execution.policy_stop import AGAIN_S, LASTS_S, PolicyStop
from hardware.ros2 import messages


class Rig:
    def __init__(self) -> None:
        self.now = 50.0
        self.stop = PolicyStop(lambda: self.now)

    def see(self, problem: str, seconds: float) -> str:
        """The first reason that is said while `problem` is seen for so long, at 100 Hz."""
        for _ in range(round(seconds / 0.01)):
            self.now += 0.01
            self.stop.look(problem)
            if reason := self.stop.due():
                return reason
        return ""


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.stop.begin("3")
    return rig


def test_a_policy_that_failed_is_a_stop_at_once_even_before_its_first_chunk(rig: Rig) -> None:
    rig.stop.failed("")
    assert rig.stop.due() == ""
    rig.stop.failed("lost its mind")
    assert rig.stop.due() == "lost its mind"


@pytest.mark.parametrize("turn", ["", None])
def test_nothing_is_a_stop_while_the_arm_is_not_armed(rig: Rig, turn: object) -> None:
    rig.stop.acted()
    rig.stop.begin(turn)
    rig.stop.acted()
    rig.stop.failed("it failed")
    rig.stop.refused("too far away")
    assert rig.see("the picture is black", 1.0) == ""


def test_what_is_waited_for_before_the_first_chunk_is_no_stop(rig: Rig) -> None:
    assert rig.see("nothing arrived yet", 5.0) == ""
    rig.stop.refused("too far away")
    assert rig.stop.due() == ""
    rig.stop.acted()
    assert rig.see("the picture is black", 0.05) == "", "what was wrong before does not count"


def test_a_problem_is_a_stop_once_it_has_lasted_and_none_where_one_message_was_wrong(rig: Rig) -> None:
    rig.stop.acted()
    for _ in range(20):  # every second picture of a camera at 20 Hz
        assert rig.see("the picture is black", 0.05) == ""
        assert rig.see("", 0.05) == ""
    begun = rig.now
    assert rig.see("the picture is black", 1.0) == "the picture is black"
    assert LASTS_S < rig.now - begun < LASTS_S + 0.025


def test_silence_has_lasted_already_but_one_look_may_come_before_what_has_arrived_is_read(rig: Rig) -> None:
    silent = "camera front: silent for 0.16 s"
    rig.stop.look(silent, silent=True)
    rig.stop.acted()
    for _ in range(20):
        for problem in (silent, "", "the picture is black"):
            rig.now += 0.01
            rig.stop.look(problem, silent=problem == silent)
            assert rig.stop.due() == ""
    for reason in ("", silent):
        rig.now += 0.01
        rig.stop.look(silent, silent=True)
        assert rig.stop.due() == reason
    rig.stop.begin("4")
    rig.stop.acted()
    rig.stop.look(silent, silent=True)
    assert rig.stop.due() == "", "another arming"


def test_what_the_policy_does_not_act_on_is_a_stop_at_once(rig: Rig) -> None:
    rig.stop.acted()
    rig.stop.refused("too far away")
    assert rig.stop.due() == "too far away"


def test_a_stop_is_said_again_and_again_with_its_first_reason(rig: Rig) -> None:
    """The first one may come before the streamer knows that the arm is armed."""
    rig.stop.acted()
    rig.stop.failed("the first")
    rig.stop.failed("the second")
    said = []
    for _ in range(50):
        said.append(rig.stop.due())
        rig.now += 0.01
        rig.stop.look("")
    assert set(said) == {"the first", ""} and 0.8 < said.count("the first") * AGAIN_S / 0.5 <= 1.0
    rig.stop.begin("4")
    assert rig.see("", 0.5) == "", "another arming"


def test_a_stop_travels_as_a_chunk_without_points_and_with_its_reason_in_one_line() -> None:
    sent = messages.stop("camera\x1b[2J front:\nblack " + 1000 * "x", Time(sec=7, nanosec=8))
    assert messages.nanoseconds(sent.header.stamp) == 7_000_000_008
    reason = messages.stop_reason(sent)
    assert reason.startswith("camera [2J front: black xxx") and reason.isprintable() and len(reason) < 500
    chunk = messages.chunk(("a",), np.array([[0.5]]), Time(sec=7), 0.05)
    chunk.header.frame_id = "an action is none"
    assert messages.stop_reason(chunk) == "" and messages.stop_reason(messages.stop("")) == ""
