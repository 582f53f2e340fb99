"""One device for each arm, as one: the arms move together or not at all."""

from __future__ import annotations

import io
import os
import time
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hardware.teleop import Device, EpisodeEvent, Sample, Status, make_device
from hardware.teleop.gamepad import GamepadConfig
from hardware.teleop.joined import JoinedDevices
from hardware.teleop.leader import LeaderConfig
from hardware.teleop.wrapped import clutched, reconnecting
from robolearn.core import BadInput
from robots import PAIRS
from robots.stations import load_pair

PAIR = load_pair("panda_pair")
SO101S = load_pair("so101_pair")
SEEN = np.arange(34, dtype=np.float32)  # 7 joints, opening, 9 of the tcp: twice
STATUS = Status("waiting", "", 0, 1, 0, 0.0)


class Stick(Device):
    """Gives what a test says."""

    name = "stick"

    def __init__(self, **given: object) -> None:
        self.given = Sample(np.zeros(7, np.float32), True, (), 1.0)
        self.given = replace(self.given, **given)
        self.seen: list[NDArray | None] = []
        self.heard: list[str] = []
        self.refuses = ""

    def open(self) -> None:
        if self.refuses:
            raise BadInput(self.refuses)
        self.heard.append("open")

    def close(self) -> None:
        self.heard.append("close")

    def sample(self, observation) -> Sample:
        self.seen.append(None if observation is None else observation["proprio"])
        return self.given

    def prepared(self) -> None:
        self.heard.append("prepared")

    def show(self, status: Status) -> None:
        self.heard.append(status.state)


def joined(left: Stick, right: Stick) -> JoinedDevices:
    return JoinedDevices({"left": left, "right": right}, PAIR.robot)


def test_each_sees_its_own_arm_and_an_action_is_theirs_one_after_the_other() -> None:
    left, right = Stick(action=np.full(7, 0.1, np.float32), stamp=5.0), Stick(stamp=4.0)
    both = joined(left, right)
    sample = both.sample({"proprio": SEEN, "objects": np.zeros(3)})
    np.testing.assert_array_equal(left.seen[0], np.arange(17))
    np.testing.assert_array_equal(right.seen[0], np.arange(17, 34))
    np.testing.assert_array_equal(sample.action, [np.float32(0.1)] * 7 + [0.0] * 7)
    assert sample.engaged and sample.stamp == 4.0 and sample.note == "" and sample.released is None
    assert both.sample(None).action is not None and left.seen[1] is right.seen[1] is None
    for act in (both.open, both.prepared, lambda: both.show(STATUS), both.close):
        act()
    assert left.heard == right.heard == ["open", "prepared", "waiting", "close"]


def test_where_one_asks_for_nothing_both_hold_still() -> None:
    sample = joined(Stick(), Stick(action=None, note="bring it there")).sample({"proprio": SEEN})
    assert sample.action is None and sample.engaged and sample.note == "right: bring it there"


@pytest.mark.parametrize(
    ("left", "right", "released"),
    [((False, True), (True, None), True), ((False, None), (False, True), None), ((False, None), (False, False), False)],
)
def test_one_that_lets_go_lets_go_of_both(
    left: tuple[bool, bool | None], right: tuple[bool, bool | None], released: bool | None
) -> None:
    made = [Stick(engaged=engaged, released=known) for engaged, known in (left, right)]
    sample = joined(made[0], made[1]).sample({"proprio": SEEN})
    assert not sample.engaged and sample.released is released


def test_what_both_press_at_once_counts_once() -> None:
    start, success = EpisodeEvent.START, EpisodeEvent.SUCCESS
    sample = joined(Stick(events=(start,)), Stick(events=(start, success))).sample(None)
    assert sample.events == (start, success)


def test_one_that_is_not_there_is_named_and_the_other_is_closed() -> None:
    left, right = Stick(), Stick()
    right.refuses = "leader at /dev/ttyACM1: got nothing there"
    with pytest.raises(BadInput, match=r"^right: leader at /dev/ttyACM1"):
        joined(left, right).open()
    assert left.heard == ["open", "close"] and right.heard == []


class Mouse(Stick):
    moving, gone, comes = False, "", True

    def reconnect(self) -> bool:
        self.heard.append("reconnect")
        self.gone = "" if self.comes else self.gone
        return self.comes


def test_a_clutch_is_on_where_one_is_moved_and_only_devices_without_a_dead_man_have_one() -> None:
    sticks = joined(Stick(), Stick())
    assert clutched(sticks) is sticks
    left, right = Mouse(), Mouse()
    clutch = clutched(joined(left, right))
    assert not clutch.sample({"proprio": SEEN}).engaged
    right.moving = True
    assert clutch.sample({"proprio": SEEN}).engaged


def test_those_that_are_gone_are_opened_anew() -> None:
    left, right = Mouse(), Mouse()
    both = joined(left, right)
    assert both.gone == "" and reconnecting(both, both) is not both
    right.gone, right.comes = "spacemouse: unplugged", False
    assert both.gone == "right: spacemouse: unplugged" and not both.reconnect()
    right.comes = True
    assert both.reconnect() and both.gone == "" and left.heard == []


def test_two_of_a_sort_are_told_apart_by_number_or_by_port() -> None:
    assert [one.index for one in GamepadConfig(index=1).for_arms(("left", "right"))] == [1, 2]
    leaders = LeaderConfig(port="/dev/a, /dev/b", calibration="one,two", align=0.2).for_arms(("left", "right"))
    assert [(one.port, one.calibration, one.align) for one in leaders] == [
        ("/dev/a", "one", 0.2),
        ("/dev/b", "two", 0.2),
    ]
    alone = LeaderConfig(port="/dev/a,b")  # of one arm it is a path like any other
    assert alone.for_arms(("",)) == (alone,)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "leader_port: got /dev/ttyACM0, expected 2 that differ, with a comma in between: those of left and right"),
        ({"port": "/dev/a,/dev/a", "calibration": "one,two"}, "leader_port: got /dev/a,/dev/a, expected 2 that differ"),
        ({"port": "/dev/a,/dev/b,", "calibration": "one,two"}, "leader_port: got /dev/a,/dev/b,, expected 2"),
        ({"port": "/dev/a,/dev/b"}, "leader_id: got leader, expected 2 that differ"),
    ],
)
def test_leaders_that_are_not_one_for_each_arm_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(BadInput) as raised:
        make_device("leader", SO101S.interface, SO101S.robot, **options)
    assert says in str(raised.value)


@pytest.mark.parametrize("name", ["keyboard", "browser"])
def test_a_device_for_one_arm_is_refused_for_two(name: str) -> None:
    with pytest.raises(BadInput) as raised:
        make_device(name, PAIR.interface, PAIR.robot)
    line = (
        f"teleoperation device: got {name} for the arms left, right; available: gamepad, spacemouse, leader, scripted"
    )
    assert line in str(raised.value)


def test_a_leader_of_another_arm_is_named() -> None:
    with pytest.raises(BadInput, match=r"^left: leader: robot: got panda, expected the joints shoulder_pan"):
        make_device("leader", PAIR.interface, PAIR.robot, port="/dev/a,/dev/b", calibration="one,two")


class Silent:
    """A SpaceMouse's hidapi without a mouse."""


def test_one_of_two_reads_the_terminal() -> None:
    """Two that put one terminal into their mode, and read it, would take each other's keys."""
    screen, inner = os.openpty()
    try:
        made = make_device(
            "spacemouse", PAIR.interface, PAIR.robot, fd=inner, out=io.StringIO(), clock=time.monotonic, hid=Silent()
        )
        left, right = made.devices.values()  # type: ignore[attr-defined]
        for one in (left, right):
            one.open_keys()
        os.write(screen, b"\n")
        time.sleep(0.05)
        assert right.key_events() == () and left.key_events() == (EpisodeEvent.START,)
        assert (left.index, right.index) == (0, 1)
        left.close()
    finally:
        os.close(screen)
        os.close(inner)


def test_a_script_commands_all_arms() -> None:
    class Script:
        def reset(self, rows) -> None: ...

        def command(self, observation):
            return np.full((1, 14), 0.5, np.float32)

    interface = PAIR.interface
    made = make_device("scripted", interface, PAIRS["panda_pair"], teleoperator=Script(), succeeded=lambda: False)
    made.open()
    assert made.sample({"proprio": SEEN}).action.shape == (14,)  # type: ignore[union-attr]
