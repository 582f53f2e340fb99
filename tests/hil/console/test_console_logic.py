"""What the console makes of presses and of what the loop shows, without a page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.hil.console.logic import CALM_S, MOST, SURE_S, Curves, HelpSchedule, Latches
from robolearn.hil.operator_console import CURVES, HilMetrics, HilStatus, InControl, OperatorCommand

C = OperatorCommand
POLICY = HilStatus(InControl.POLICY, episode=3, seconds=1.0, robot_minutes=10.0)
PERSON = replace(POLICY, in_control=InControl.PERSON)
NOBODY = replace(POLICY, in_control=InControl.NOBODY)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def latches(clock: Clock) -> Latches:
    made = Latches(clock)
    made.update(POLICY)
    return made


def test_taking_over_is_shown_until_the_person_has_the_arm(latches: Latches) -> None:
    assert latches.press(C.TAKE_OVER) and latches.poll() == (C.TAKE_OVER,) and latches.poll() == ()
    button = latches.view().buttons[C.TAKE_OVER]
    assert button.latched and not button.enabled and "…" in button.label
    assert not latches.press(C.TAKE_OVER), "asked for already"
    latches.update(POLICY)
    assert latches.view().buttons[C.TAKE_OVER].latched, "the loop has not done it yet"
    latches.update(PERSON)
    view = latches.view()
    assert "You" in view.headline and not view.buttons[C.TAKE_OVER].latched and view.buttons[C.HAND_BACK].enabled
    assert not latches.press(C.TAKE_OVER)
    assert latches.press(C.HAND_BACK) and latches.poll() == (C.HAND_BACK,)
    assert latches.view().buttons[C.HAND_BACK].latched
    latches.update(POLICY)
    assert "policy" in latches.view().headline and not latches.view().buttons[C.HAND_BACK].latched


def test_who_has_no_control_hands_nothing_back(latches: Latches) -> None:
    assert not latches.press(C.HAND_BACK)
    latches.update(NOBODY)
    for command in (C.TAKE_OVER, C.HAND_BACK, C.SUCCESS, C.FAILURE, C.RETURN):
        assert not latches.press(command)
    assert latches.poll() == ()
    fresh = Latches()
    assert not fresh.press(C.SUCCESS) and fresh.press(C.STOP), "before the loop was heard of"


def test_a_stop_latches_until_it_is_released_calmly_and_twice(latches: Latches, clock: Clock) -> None:
    latches.press(C.TAKE_OVER)
    assert latches.press(C.STOP)
    for _ in range(3):
        assert latches.poll() == (C.STOP,), "again and again, and what was asked before is dropped"
    latches.update(PERSON)  # whatever the loop says meanwhile
    view = latches.view()
    assert view.stopped and "STOPPED" in view.headline
    enabled = {command for command, button in view.buttons.items() if button.enabled}
    assert enabled == {C.RELEASE} and view.buttons[C.RELEASE].visible
    for command in C:
        if command not in (C.STOP, C.RELEASE):
            assert not latches.press(command)
    for _ in range(5):  # in haste
        assert not latches.press(C.RELEASE)
    assert latches.poll() == (C.STOP,)
    clock.now += CALM_S
    assert not latches.press(C.RELEASE) and "Sure" in latches.view().buttons[C.RELEASE].label
    clock.now += SURE_S + 0.1
    assert not latches.press(C.RELEASE), "too late for the second press: it is a first one"
    assert latches.poll() == (C.STOP,)
    clock.now += 0.1
    assert latches.press(C.RELEASE) and latches.poll() == (C.RELEASE,) and latches.poll() == ()
    assert not latches.view().stopped and not latches.view().buttons[C.RELEASE].visible
    assert latches.press(C.HAND_BACK)


def test_a_stop_of_the_loop_is_shown_and_released_the_same_way(latches: Latches, clock: Clock) -> None:
    assert not latches.press(C.RELEASE), "nothing to release"
    latches.update(replace(POLICY, stopped="the safety filter latched: jump"))
    view = latches.view()
    assert view.stopped and "jump" in view.headline and view.buttons[C.STOP].enabled
    assert latches.poll() == () and not latches.press(C.SUCCESS)
    assert not latches.press(C.RELEASE) and latches.press(C.RELEASE) and latches.poll() == (C.RELEASE,)
    assert latches.view().stopped, "until the loop says otherwise"


def test_one_label_an_episode(latches: Latches) -> None:
    assert latches.press(C.FAILURE)
    view = latches.view().buttons
    assert view[C.FAILURE].latched and "✓" in view[C.FAILURE].label and not view[C.SUCCESS].latched
    for command in (C.SUCCESS, C.FAILURE, C.RETURN, C.TAKE_OVER):
        assert not latches.press(command), "this episode is over"
    assert latches.poll() == (C.FAILURE,)
    latches.update(NOBODY)
    assert latches.view().buttons[C.FAILURE].latched
    latches.update(replace(POLICY, episode=4))
    assert not latches.view().buttons[C.FAILURE].latched and latches.press(C.SUCCESS)


def test_help_is_free_first_and_a_correction_later() -> None:
    schedule = HelpSchedule(free_minutes=5.0, long_s=4.0)
    early, late = replace(POLICY, robot_minutes=3.2), replace(POLICY, robot_minutes=5.0)
    assert "freely" in schedule.sentence(early) and "2 more min" in schedule.sentence(early)
    assert "freely" not in schedule.sentence(late) and "only just before" in schedule.sentence(late)
    assert "unsure" in schedule.sentence(replace(late, asks_help=True))
    mine = replace(late, in_control=InControl.PERSON)
    assert "correct" in schedule.sentence(replace(mine, in_control_s=4.0))
    assert "Hand back now" in schedule.sentence(replace(mine, in_control_s=4.1))
    assert "Hand back now" not in schedule.sentence(replace(mine, in_control_s=60.0, robot_minutes=1.0))
    assert "stopped" in schedule.sentence(replace(mine, stopped="x")) and "Wait" in schedule.sentence(NOBODY)
    for bad in (-1.0, float("nan")):
        with pytest.raises(BadInput, match="free_minutes"):
            HelpSchedule(free_minutes=bad)


def test_curves_keep_what_is_known_and_stay_light() -> None:
    curves = Curves()
    assert curves.add(first := HilMetrics(0.5, success=0.25)) and not curves.add(first)
    assert curves.add(HilMetrics(1.0, q=3.0, success=0.5)) and not curves.add(HilMetrics(0.9, q=9.0))
    assert [values.tolist() for values in curves.curve("success")] == [[0.5, 1.0], [0.25, 0.5]]
    assert [values.tolist() for values in curves.curve("q")] == [[1.0], [3.0]]
    assert [len(curves.curve(name)[0]) for name in CURVES] == [2, 0, 0, 1, 0, 0]
    for k in range(10 * MOST):
        curves.add(HilMetrics(2.0 + k, utd=float(k)))
    x, y = curves.curve("utd")
    assert MOST <= len(x) <= 2 * MOST and x[-1] == 1.0 + 10 * MOST and np.array_equal(y, x - 2.0)
    # 6000 points, every eighth: as dense at the beginning as at the end.
    assert x[0] <= 10.0 and set(np.diff(x)[:-1]) == {8.0} and 0 < x[-1] - x[-2] <= 8.0
