"""Who is at the controls, and when they have let go; with a clock of our own."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.teleop import EpisodeEvent
from hardware.teleop.browser.control_arbiter import ControlArbiter


@pytest.fixture
def arbiter(clock) -> ControlArbiter:
    arbiter = ControlArbiter(0.3, clock)
    arbiter.join(1)
    return arbiter


HERE = np.array([0.5, 0.0, 0.3]), np.eye(3)
THERE = np.array([0.6, 0.1, 0.2])


def test_the_switch_must_be_kept(arbiter: ControlArbiter, clock) -> None:
    assert not arbiter.request().engaged
    arbiter.beat(1, 1)
    assert arbiter.request().engaged
    clock.now += 0.29
    assert arbiter.request().engaged
    arbiter.beat(1, 1)
    clock.now += 0.29
    assert arbiter.request().engaged
    arbiter.beat(1, 0)
    assert not arbiter.request().engaged and arbiter.request().note == "the dead-man is off"
    assert arbiter.request().released


def test_a_silent_page_has_let_go_and_must_press_anew(arbiter: ControlArbiter, clock) -> None:
    arbiter.beat(1, 1)
    clock.now += 0.31
    request = arbiter.request()
    assert not request.engaged and "silent" in request.note and request.stamp == 100.0 and not request.released
    arbiter.beat(1, 1)  # beats again, still with the press that was lost
    assert not arbiter.request().released
    assert not arbiter.request().engaged and "silent" in arbiter.request().note
    arbiter.beat(1, 0)
    assert "silent" in arbiter.request().note  # the reason stays until the next press
    assert not arbiter.request().released, "it had let go before"
    arbiter.beat(1, 2)
    assert arbiter.request().engaged and arbiter.request().note == ""


def test_a_late_beat_cannot_hide_that_it_was_late(arbiter: ControlArbiter, clock) -> None:
    arbiter.beat(1, 1)
    clock.now += 0.31
    arbiter.beat(1, 1)  # nobody asked in between
    assert not arbiter.request().engaged


def test_a_page_whose_beats_are_all_late_has_let_go(arbiter: ControlArbiter, clock) -> None:
    delay = 0.0

    def beats(press: int, count: int = 20) -> None:
        for _ in range(count):  # steadily, twenty times a second
            told = arbiter.standing(1)["t"]
            clock.now += 0.05
            arbiter.beat(1, press, told - delay)

    beats(1)
    assert arbiter.request().engaged
    delay = 0.4  # and 0.05 s
    beats(1)
    assert arbiter.request().engaged
    delay = 0.97
    beats(1)
    request = arbiter.request()
    assert not request.engaged and request.note == "the network is slow: word and answer took 1.0 s"
    delay = 0.0
    beats(1)
    assert not arbiter.request().engaged, "the operator must press anew"
    beats(2)
    assert arbiter.request().engaged
    for press, nonsense in ((3, float("nan")), (4, clock.now + 60)):
        arbiter.beat(1, press)
        assert arbiter.request().engaged
        arbiter.beat(1, press, nonsense)
        assert not arbiter.request().engaged


@pytest.mark.parametrize("end", ["leave", "silence", "release"])
def test_ends_of_a_page(arbiter: ControlArbiter, end: str) -> None:
    arbiter.beat(1, 1)
    {
        "leave": lambda: arbiter.leave(1),
        "silence": lambda: arbiter.silence(1, "gone"),
        "release": lambda: arbiter.release("x"),
    }[end]()
    assert not arbiter.request().engaged and not arbiter.request().released
    arbiter.beat(1, 1)
    assert not arbiter.request().engaged


def test_one_has_control_the_others_watch(arbiter: ControlArbiter) -> None:
    arbiter.join(2)
    arbiter.place(*HERE, 1.0)
    arbiter.beat(1, 1)
    arbiter.beat(2, 1)  # a spectator's switch is no switch
    arbiter.ask(2, EpisodeEvent.QUIT)
    arbiter.grip(2, 0.0)
    assert not arbiter.drag(2, THERE, np.eye(3))
    assert not arbiter.claim(2)  # not while the first holds on
    assert arbiter.standing(2)["role"] == "watch" and not arbiter.standing(2)["free"]
    request = arbiter.request()
    assert request.engaged and request.events == () and request.opening == 1.0
    assert np.array_equal(request.target[0], HERE[0])

    arbiter.beat(1, 0)
    assert arbiter.claim(2) and arbiter.controller == 2
    assert not arbiter.request().engaged  # what it pressed as a spectator does not count
    arbiter.beat(2, 1)
    assert not arbiter.request().engaged
    arbiter.beat(2, 2)
    assert arbiter.request().engaged
    arbiter.beat(1, 5)
    arbiter.silence(1, "gone")
    assert arbiter.request().engaged  # the first is a spectator now


def test_control_is_free_when_its_page_has_gone(arbiter: ControlArbiter) -> None:
    arbiter.join(2)
    arbiter.leave(1)
    assert arbiter.controller is None and "gone" in arbiter.request().note
    assert arbiter.claim(2) and arbiter.controller == 2
    assert not arbiter.claim(7)


def test_target_rests_on_the_arm_while_the_switch_is_off(arbiter: ControlArbiter) -> None:
    arbiter.place(*HERE, 0.4)
    assert not arbiter.drag(1, THERE, np.eye(3))
    arbiter.beat(1, 1)
    assert arbiter.drag(1, THERE, np.eye(3))
    arbiter.place(*HERE, 0.4)
    assert np.array_equal(arbiter.request().target[0], THERE)  # the arm goes there, not the target to the arm
    arbiter.place(*HERE, 0.4, always=True)
    assert np.array_equal(arbiter.request().target[0], HERE[0])
    arbiter.drag(1, THERE, np.eye(3))
    arbiter.beat(1, 0)
    arbiter.place(*HERE, 0.4)
    assert np.array_equal(arbiter.request().target[0], HERE[0])


def test_gripper_keeps_its_opening_until_asked(arbiter: ControlArbiter) -> None:
    assert arbiter.request().opening is None
    arbiter.place(*HERE, 0.4)
    arbiter.place(*HERE, 0.9)  # what it grasped keeps it open; nobody asked for that
    assert arbiter.request().opening == 0.4
    for asked, given in ((0.0, 0.0), (7.0, 1.0), (float("nan"), 1.0)):
        arbiter.grip(1, asked)
        assert arbiter.request().opening == given


def test_events_come_once_and_in_order_and_nonsense_is_no_target(arbiter: ControlArbiter) -> None:
    for event in (EpisodeEvent.START, EpisodeEvent.SUCCESS):
        arbiter.ask(1, event)
    assert arbiter.request().events == (EpisodeEvent.START, EpisodeEvent.SUCCESS)
    assert arbiter.request().events == ()
    arbiter.beat(1, 1)
    assert not arbiter.drag(1, np.array([np.nan, 0, 0]), np.eye(3))
    assert not arbiter.drag(1, THERE, np.full((3, 3), np.inf))


def test_keys_tell_pages_apart(arbiter: ControlArbiter) -> None:
    key = arbiter.join(2)
    assert arbiter.owner(key) == 2
    assert arbiter.owner("") is None and arbiter.owner("ü") is None
    arbiter.leave(2)
    assert arbiter.owner(key) is None
