"""When a device that is gone is looked for."""

from __future__ import annotations

from typing import Any

from hardware.teleop.device import RECORDING, WAITING, Sample, Status
from hardware.teleop.renewed import LOOK_S, Renewed, renewed


class Pad:
    name = "pad"

    def __init__(self) -> None:
        self.gone, self.plugged, self.looks = "", True, 0

    def open(self) -> None: ...
    def close(self) -> None: ...
    def prepared(self) -> None: ...
    def show(self, status: Status) -> None: ...

    def renew(self) -> bool:
        self.looks += 1
        self.gone = "" if self.plugged else "pad: unplugged"
        return self.plugged

    def sample(self, observation: Any) -> Sample:
        return Sample(None, not self.gone, (), 0.0, self.gone)


def test_a_device_that_is_gone_is_looked_for_while_start_is_waited_for(clock) -> None:
    pad = Pad()
    device = Renewed(pad, pad, clock)

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
    device = Renewed(pad, pad, clock)
    device.show(Status(WAITING, "", 0, 1, 0, 0.0))  # armed, and the operator puts the arm in its place
    device.sample(None)
    pad.gone, clock.now = "pad: unplugged", clock.now + 60.0
    device.sample(None)
    clock.now += 0.9 * LOOK_S
    device.sample(None)
    assert pad.looks == 0


def test_what_comes_back_by_itself_is_left_alone() -> None:
    page = object()
    assert renewed(page, page) is page  # type: ignore[arg-type, comparison-overlap]
