"""When a device that is gone is looked for."""

from __future__ import annotations

from typing import Any

from hardware.teleop.device import RECORDING, WAITING, Sample, Status
from hardware.teleop.device import EpisodeEvent as E
from hardware.teleop.wrapped import LOOK_S, Reconnecting, reconnecting


class Pad:
    name = "pad"

    def __init__(self) -> None:
        self.gone, self.plugged, self.looks = "", True, 0
        self.events: tuple[E, ...] = ()

    def open(self) -> None: ...
    def close(self) -> None: ...
    def prepared(self) -> None: ...
    def show(self, status: Status) -> None: ...

    def reconnect(self) -> bool:
        self.looks += 1
        self.gone = "" if self.plugged else "pad: unplugged"
        return self.plugged

    def sample(self, observation: Any) -> Sample:
        return Sample(None, not self.gone, self.events, 0.0, self.gone)


def test_a_device_that_is_gone_is_looked_for_while_start_is_waited_for(clock) -> None:
    pad = Pad()
    device = Reconnecting(pad, pad, clock)

    def look(state: str, seconds: float) -> int:
        before = pad.looks
        device.show(Status(state, "", 0, 1, 0, 0.0))
        for _ in range(round(20 * seconds)):
            device.sample(None)
            clock.now += 0.05
        return pad.looks - before

    assert look(WAITING, 5.0) == 0, "it lives"
    pad.gone, pad.plugged = "pad: unplugged", False
    assert look(RECORDING, 5.0) == 0, "the arm may be moving"
    assert 2 <= look(WAITING, 3.0 * LOOK_S) <= 4
    pad.plugged = True
    assert look(RECORDING, 5.0) == 0 and not device.sample(None).engaged
    assert look(WAITING, 2.0 * LOOK_S) == 1 and device.sample(None).engaged and not device.gone


def test_a_device_that_has_just_died_is_not_opened_before_the_arm_stands(clock) -> None:
    pad = Pad()
    device = Reconnecting(pad, pad, clock)
    device.show(Status(WAITING, "", 0, 1, 0, 0.0))  # armed, and the operator puts the arm in its place
    device.sample(None)
    pad.gone, clock.now = "pad: unplugged", clock.now + 60.0
    device.sample(None)
    clock.now += 0.9 * LOOK_S
    device.sample(None)
    assert pad.looks == 0


def test_start_begins_nothing_while_the_device_is_gone(clock) -> None:
    """An episode that begins without its device ends at once, and moves nothing but the arm to its place."""
    pad = Pad()
    device = Reconnecting(pad, pad, clock)
    device.show(Status(WAITING, "", 0, 1, 0, 0.0))
    pad.events = (E.START, E.QUIT)
    assert device.sample(None).events == (E.START, E.QUIT)
    pad.gone, pad.plugged = "pad: unplugged", False
    for _ in range(3):
        sample = device.sample(None)
        assert sample.events == (E.QUIT,), "the rest is asked for as ever"
        assert sample.note == "pad: unplugged; press Start when it is back"
        clock.now += LOOK_S
    pad.plugged = True
    assert device.sample(None).events == (E.START, E.QUIT), "it is back"
    device.show(Status(RECORDING, "", 0, 1, 0, 0.0))
    pad.gone = "pad: unplugged"
    assert device.sample(None) == Sample(None, False, pad.events, 0.0, "pad: unplugged"), "whoever records is told why"


def test_what_comes_back_by_itself_is_left_alone() -> None:
    page = object()
    assert reconnecting(page, page) is page  # type: ignore[arg-type, comparison-overlap]
