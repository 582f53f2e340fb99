"""Who is at the controls, and when they have let go; with a clock of our own."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.teleop import EpisodeEvent
from hardware.teleop.browser.desk import Desk


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(clock: Clock) -> Desk:
    desk = Desk(0.3, clock)
    desk.join(1)
    return desk


HERE = np.array([0.5, 0.0, 0.3]), np.eye(3)
THERE = np.array([0.6, 0.1, 0.2])


def test_the_switch_must_be_kept(desk: Desk, clock: Clock) -> None:
    assert not desk.wish().engaged
    desk.beat(1, 1)
    assert desk.wish().engaged
    clock.now += 0.29
    assert desk.wish().engaged
    desk.beat(1, 1)
    clock.now += 0.29
    assert desk.wish().engaged
    desk.beat(1, 0)
    assert not desk.wish().engaged and desk.wish().note == "the dead-man is off"


def test_a_silent_page_has_let_go_and_must_press_anew(desk: Desk, clock: Clock) -> None:
    desk.beat(1, 1)
    clock.now += 0.31
    wish = desk.wish()
    assert not wish.engaged and "silent" in wish.note and wish.stamp == 100.0
    desk.beat(1, 1)  # beats again, still with the press that was lost
    assert not desk.wish().engaged and "silent" in desk.wish().note
    desk.beat(1, 0)
    assert "silent" in desk.wish().note  # the reason stays until the next press
    desk.beat(1, 2)
    assert desk.wish().engaged and desk.wish().note == ""


def test_a_late_beat_cannot_hide_that_it_was_late(desk: Desk, clock: Clock) -> None:
    desk.beat(1, 1)
    clock.now += 0.31
    desk.beat(1, 1)  # nobody asked in between
    assert not desk.wish().engaged


def test_a_page_whose_beats_are_all_late_has_let_go(desk: Desk, clock: Clock) -> None:
    delay = 0.0

    def beats(press: int, count: int = 20) -> None:
        for _ in range(count):  # steadily, twenty times a second
            told = desk.standing(1)["t"]
            clock.now += 0.05
            desk.beat(1, press, told - delay)

    beats(1)
    assert desk.wish().engaged
    delay = 0.4  # and 0.05 s
    beats(1)
    assert desk.wish().engaged
    delay = 0.97
    beats(1)
    wish = desk.wish()
    assert not wish.engaged and wish.note == "the network is slow: word and answer took 1.0 s"
    delay = 0.0
    beats(1)
    assert not desk.wish().engaged, "the operator must press anew"
    beats(2)
    assert desk.wish().engaged
    for press, nonsense in ((3, float("nan")), (4, clock.now + 60)):
        desk.beat(1, press)
        assert desk.wish().engaged
        desk.beat(1, press, nonsense)
        assert not desk.wish().engaged


@pytest.mark.parametrize("end", ["leave", "silence", "release"])
def test_ends_of_a_page(desk: Desk, end: str) -> None:
    desk.beat(1, 1)
    {"leave": lambda: desk.leave(1), "silence": lambda: desk.silence(1, "gone"), "release": lambda: desk.release("x")}[
        end
    ]()
    assert not desk.wish().engaged
    desk.beat(1, 1)
    assert not desk.wish().engaged


def test_one_has_control_the_others_watch(desk: Desk) -> None:
    desk.join(2)
    desk.place(*HERE, 1.0)
    desk.beat(1, 1)
    desk.beat(2, 1)  # a spectator's switch is no switch
    desk.ask(2, EpisodeEvent.QUIT)
    desk.grip(2, 0.0)
    assert not desk.drag(2, THERE, np.eye(3))
    assert not desk.claim(2)  # not while the first holds on
    assert desk.standing(2)["role"] == "watch" and not desk.standing(2)["free"]
    wish = desk.wish()
    assert wish.engaged and wish.events == () and wish.opening == 1.0
    assert np.array_equal(wish.target[0], HERE[0])

    desk.beat(1, 0)
    assert desk.claim(2) and desk.controller == 2
    assert not desk.wish().engaged  # what it pressed as a spectator does not count
    desk.beat(2, 1)
    assert not desk.wish().engaged
    desk.beat(2, 2)
    assert desk.wish().engaged
    desk.beat(1, 5)
    desk.silence(1, "gone")
    assert desk.wish().engaged  # the first is a spectator now


def test_control_is_free_when_its_page_has_gone(desk: Desk) -> None:
    desk.join(2)
    desk.leave(1)
    assert desk.controller is None and "gone" in desk.wish().note
    assert desk.claim(2) and desk.controller == 2
    assert not desk.claim(7)


def test_target_rests_on_the_arm_while_the_switch_is_off(desk: Desk) -> None:
    desk.place(*HERE, 0.4)
    assert not desk.drag(1, THERE, np.eye(3))
    desk.beat(1, 1)
    assert desk.drag(1, THERE, np.eye(3))
    desk.place(*HERE, 0.4)
    assert np.array_equal(desk.wish().target[0], THERE)  # the arm goes there, not the target to the arm
    desk.place(*HERE, 0.4, always=True)
    assert np.array_equal(desk.wish().target[0], HERE[0])
    desk.drag(1, THERE, np.eye(3))
    desk.beat(1, 0)
    desk.place(*HERE, 0.4)
    assert np.array_equal(desk.wish().target[0], HERE[0])


def test_gripper_keeps_its_opening_until_asked(desk: Desk) -> None:
    assert desk.wish().opening is None
    desk.place(*HERE, 0.4)
    desk.place(*HERE, 0.9)  # what it grasped keeps it open; nobody asked for that
    assert desk.wish().opening == 0.4
    for asked, given in ((0.0, 0.0), (7.0, 1.0), (float("nan"), 1.0)):
        desk.grip(1, asked)
        assert desk.wish().opening == given


def test_events_come_once_and_in_order_and_nonsense_is_no_target(desk: Desk) -> None:
    for event in (EpisodeEvent.START, EpisodeEvent.SUCCESS):
        desk.ask(1, event)
    assert desk.wish().events == (EpisodeEvent.START, EpisodeEvent.SUCCESS)
    assert desk.wish().events == ()
    desk.beat(1, 1)
    assert not desk.drag(1, np.array([np.nan, 0, 0]), np.eye(3))
    assert not desk.drag(1, THERE, np.full((3, 3), np.inf))


def test_keys_tell_pages_apart(desk: Desk) -> None:
    key = desk.join(2)
    assert desk.owner(key) == 2
    assert desk.owner("") is None and desk.owner("ü") is None
    desk.leave(2)
    assert desk.owner(key) is None
