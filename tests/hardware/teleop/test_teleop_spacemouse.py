"""The SpaceMouse: HID reports as the models send them, through PySpaceMouse's own parser."""

from __future__ import annotations

import io
import os
import pty
import select
from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest
from base_frame import in_base

from hardware.teleop import EpisodeEvent, Status
from hardware.teleop.spacemouse import CONFIG, SILENCE_S, SpaceMouse, found
from robolearn.core import BadInput, Interface
from robots import PANDA

# SpaceMouse Compact: three little-endian int16 each, -350 to 350; right, towards the user, down.
PUSHED_FORWARD = bytes.fromhex("01 0000 a2fe 0000")  # translation (0, -350, 0)
LIFTED_A_BIT = bytes.fromhex("01 0000 0000 51ff")  # (0, 0, -175)
CENTRED = bytes.fromhex("01 0000 0000 0000")
TWISTED_LEFT = bytes.fromhex("02 0000 0000 a2fe")  # rotation (0, 0, -350)
UNTWISTED = bytes.fromhex("02 0000 0000 0000")
LEFT_DOWN, RIGHT_DOWN, UP = (bytes.fromhex(f"03 {b} 00") for b in ("01", "02", "00"))
# SpaceMouse Wireless: all six in one report.
BOTH = bytes.fromhex("01 a2fe 0000 0000 0000 0000 5e01")  # (-350, 0, 0), (0, 0, 350)

COMPACT = {"vendor_id": 0x256F, "product_id": 0xC635, "path": b"/dev/hidraw3", "usage_page": 1, "usage": 8}
WIRELESS = {"vendor_id": 0x256F, "product_id": 0xC62E, "path": b"/dev/hidraw4", "usage_page": 1, "usage": 8}
RECEIVER_KEYS = {"vendor_id": 0x256F, "product_id": 0xC652, "path": b"/dev/hidraw5", "usage_page": 1, "usage": 6}
MOUSE = {"vendor_id": 0x046D, "product_id": 0xC08B, "path": b"/dev/hidraw0", "usage_page": 1, "usage": 2}


class Hid:
    """In place of hidapi's module: one open device, whose reports a test puts into `reports`."""

    def __init__(self, *plugged: dict) -> None:
        self.plugged = list(plugged)
        self.reports: deque[bytes] = deque()
        self.fault: OSError | None = None
        self.path = b""

    def enumerate(self) -> list[dict]:
        return self.plugged

    def device(self) -> Hid:
        return self

    def open_path(self, path: bytes) -> None:
        self.path = path
        if self.fault is not None:
            raise self.fault

    def set_nonblocking(self, on: bool) -> None:
        assert on

    def read(self, size: int) -> list[int]:
        if self.fault is not None:
            raise self.fault
        return list(self.reports.popleft()[:size]) if self.reports else []

    def close(self) -> None:
        self.path = b""


@pytest.fixture
def hid() -> Hid:
    return Hid(MOUSE, RECEIVER_KEYS, COMPACT, WIRELESS)


@pytest.fixture
def mouse(interface: Interface, hid: Hid, clock, no_terminal: int) -> Iterator[SpaceMouse]:
    device = SpaceMouse(interface, PANDA, hid=hid, clock=clock, fd=no_terminal, out=io.StringIO())
    device.open()
    yield device
    device.close()


def half() -> float:
    u = (0.5 - CONFIG.dead_zone) / (1 - CONFIG.dead_zone)
    return (1 - CONFIG.expo) * u + CONFIG.expo * u**3


def test_the_cap_moves_along_the_base(mouse: SpaceMouse, hid: Hid, observe) -> None:
    assert hid.path == b"/dev/hidraw3"
    for reports, expected in (
        ((), np.zeros(6)),
        ((PUSHED_FORWARD,), [1, 0, 0, 0, 0, 0]),
        ((LIFTED_A_BIT, TWISTED_LEFT), [0, 0, half(), 0, 0, 1]),
        ((PUSHED_FORWARD, LIFTED_A_BIT, CENTRED, UNTWISTED), np.zeros(6)),
    ):
        hid.reports.extend(reports)
        sample = mouse.sample(observe())
        assert sample.engaged
        np.testing.assert_allclose(in_base(sample.action), expected, atol=1e-4)


def test_models_that_send_all_axes_at_once(interface: Interface, hid: Hid, clock, no_terminal, observe) -> None:
    device = SpaceMouse(interface, PANDA, hid=hid, index=1, clock=clock, fd=no_terminal, out=io.StringIO())
    device.open()
    hid.reports.append(BOTH)
    np.testing.assert_allclose(in_base(device.sample(observe()).action), [0, 1, 0, 0, 0, -1], atol=1e-4)
    device.close()


def test_the_buttons_grip_and_begin_and_end(mouse: SpaceMouse, hid: Hid, observe) -> None:
    hid.reports.extend([LEFT_DOWN, UP])
    assert mouse.sample(observe()).action[6] == -1
    hid.reports.append(RIGHT_DOWN)
    assert mouse.sample(observe()).events == (EpisodeEvent.START,)
    hid.reports.append(RIGHT_DOWN)
    assert mouse.sample(observe()).events == (), "still down"
    mouse.show(Status("recording", "", 0, 1, 0, 0.0))
    hid.reports.extend([UP, RIGHT_DOWN])
    assert mouse.sample(observe()).events == (EpisodeEvent.SUCCESS,)


def test_the_terminal_gives_the_other_keys(interface: Interface, hid: Hid, observe) -> None:
    person, program = pty.openpty()
    device = SpaceMouse(interface, PANDA, hid=hid, fd=program, out=io.StringIO())
    device.open()
    os.write(person, b"-")
    assert select.select([program], [], [], 5)[0]
    assert device.sample(observe()).events == (EpisodeEvent.FAILURE,)
    device.close()
    os.close(person)
    os.close(program)


def test_at_rest_it_may_be_silent_but_not_while_it_is_pushed(mouse: SpaceMouse, hid: Hid, clock, observe) -> None:
    clock.now += 3600
    assert mouse.sample(observe()).engaged
    hid.reports.append(PUSHED_FORWARD)
    assert mouse.sample(observe()).stamp == clock.now
    clock.now += 0.9 * SILENCE_S
    assert mouse.sample(observe()).engaged
    clock.now += 0.2 * SILENCE_S
    sample = mouse.sample(observe())
    assert not sample.engaged and sample.action is None and "silent for 0.55 s" in sample.note
    hid.reports.append(CENTRED)
    assert not mouse.sample(observe()).engaged


def test_unplugged_it_is_gone_until_it_is_opened_anew(mouse: SpaceMouse, hid: Hid, observe) -> None:
    hid.fault = OSError("read error")
    for _ in range(2):
        sample = mouse.sample(observe())
        assert not sample.engaged and sample.note == "spacemouse: unplugged (read error)"
        hid.fault = None
    mouse.close()
    mouse.open()
    assert mouse.sample(observe()).engaged


def test_a_device_gone_mad_does_not_block(mouse: SpaceMouse, hid: Hid, observe) -> None:
    hid.reports.extend([PUSHED_FORWARD] * 5000)
    assert mouse.sample(observe()).engaged and len(hid.reports) > 4000


def test_what_is_missing_is_said_in_one_line(interface: Interface, hid: Hid, no_terminal) -> None:
    with pytest.raises(BadInput, match=r"^spacemouse: missing; expected at least 1\. Plug one in"):
        SpaceMouse(interface, PANDA, hid=Hid(MOUSE, RECEIVER_KEYS)).open()
    with pytest.raises(BadInput, match="got SpaceMouseCompact, SpaceMouseWireless, expected at least 4"):
        SpaceMouse(interface, PANDA, hid=hid, index=3).open()
    hid.fault = OSError("open failed")
    with pytest.raises(BadInput, match=r"SpaceMouseCompact at /dev/hidraw3: got open failed.*udev rule"):
        SpaceMouse(interface, PANDA, hid=hid, fd=no_terminal).open()


def test_the_real_library_can_be_asked() -> None:
    from hardware.teleop.spacemouse import hid_library

    assert isinstance(found(hid_library()), list)
