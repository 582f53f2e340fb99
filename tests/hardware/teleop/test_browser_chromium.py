"""The page in a real Chromium: mouse, fingers, TLS, and a browser that stands still.

Patience is ample and the pictures are coarse: Chromium draws in software here, perhaps on a busy machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from browser_driver import PHONE, Chromium, Hands
from browser_rig import Rig

from hardware.teleop import EpisodeEvent

pytestmark = [pytest.mark.realtime, pytest.mark.long]

WINDOW = (800, 600)
HEARTBEAT_S = 0.3  # the device's own
PATIENT_S = 3.0  # where a busy test machine is not what is tested


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


def test_drag_buttons_and_taking_turns(chromium: Chromium) -> None:
    with Rig(heartbeat_s=PATIENT_S) as rig:
        tab = chromium.open(rig.device.url, WINDOW, sharpness=0.25)
        hands = Hands(tab, rig.robot)
        hands.wait_ready()

        # With the dead-man off, a drag moves nothing.
        home = rig.tcp
        hands.drag("x", 0.05)
        assert not rig.engaged and all(sample.action is None for _, sample in rig.samples)

        hands.hold()
        rig.wait(lambda: rig.engaged)
        rig.wait(rig.at_rest)  # switching on moves nothing
        assert np.allclose(rig.tcp, home, atol=1e-3)
        hands.button("Start")
        rig.wait(lambda: rig.events == [EpisodeEvent.START])
        tab.wait("document.querySelector('#robolearn .state').textContent === 'recording 1 of 5'")

        # The tcp looks down: its x is the base's x, its z is down.
        for axis, way in (("x", np.array([0.08, 0, 0])), ("z", np.array([0, 0, -0.06]))):
            before, seen = rig.tcp, len(rig.samples)
            hands.move(axis, 0.08 if axis == "x" else 0.06)
            target, _ = hands.target()
            assert np.allclose(target - before, way, atol=0.015)
            rig.wait(lambda goal=target: bool(np.linalg.norm(rig.tcp - goal) < 1e-3))
            rig.wait(rig.at_rest)
            actions = np.array([s.action for _, s in rig.samples[seen:] if s.action is not None])
            along = "xyz".index(axis)
            assert actions[:, along].sum() > 1.0  # forward in all,
            assert np.abs(np.delete(actions[:, :6], along, axis=1)).max() < 0.1  # and nowhere else

        hands.button("Close gripper")
        rig.wait(lambda: rig.samples[-1][1].action is not None and rig.samples[-1][1].action[6] == -1.0)
        tab.wait("document.querySelector('#robolearn .gripper').textContent === 'Open gripper'")
        hands.button("Success")
        rig.wait(lambda: rig.events[-1] == EpisodeEvent.SUCCESS)
        for event in ("start", "redo", "discard", "start", "failure"):
            hands.button(event.capitalize())
            rig.wait(lambda event=event: rig.events[-1] == event)
        hands.quit()
        rig.wait(lambda: rig.events[-1] == EpisodeEvent.QUIT)

        # A phone watches, and cannot take over while the first page holds on.
        phone = chromium.open(rig.device.url, PHONE, touch=True, sharpness=0.25)
        phone.wait("document.querySelector('#robolearn')?.dataset.role === 'watch'")
        phone.wait("document.querySelector('#robolearn .switch').disabled")
        hands.release()
        rig.wait(lambda: not rig.engaged)
        fingers = Hands(phone, rig.robot)
        fingers.claim()
        tab.wait("document.querySelector('#robolearn').dataset.role === 'watch'")
        tab.close()

        fingers.hold()
        rig.wait(lambda: rig.engaged)
        before = rig.tcp
        fingers.move("y", -0.05)
        target, _ = fingers.target()
        assert np.allclose(target - before, [0, 0.05, 0], atol=0.015)
        rig.wait(lambda: bool(np.linalg.norm(rig.tcp - target) < 1e-3))

        fingers.hold()
        rig.device.arbiter.heartbeat_s = HEARTBEAT_S
        phone.close()
        assert rig.let_go_within(0.5, time.monotonic())
        assert rig.samples[-1][1].action is None


def test_a_browser_that_stands_still_has_let_go(chromium: Chromium) -> None:
    with Rig(heartbeat_s=PATIENT_S) as rig:
        tab = chromium.open(rig.device.url, WINDOW, sharpness=0.25)
        hands = Hands(tab, rig.robot)
        hands.wait_ready()
        hands.hold()
        rig.wait(lambda: rig.engaged)
        chromium.stop()
        rig.device.arbiter.heartbeat_s = HEARTBEAT_S
        try:
            assert rig.let_go_within(0.5, time.monotonic())
            assert "silent" in rig.samples[-1][1].note
        finally:
            chromium.resume()
            rig.device.arbiter.heartbeat_s = PATIENT_S
        # It beats again, but the press that was lost does not come back by itself.
        beat = rig.samples[-1][1].stamp
        rig.wait(lambda: rig.samples[-1][1].stamp > beat + 0.2)
        tab.wait("!document.querySelector('#robolearn .switch').classList.contains('on')")
        assert not rig.engaged
        hands.hold()
        rig.wait(lambda: rig.engaged)
        tab.close()


def test_beyond_loopback_needs_tls_and_the_token(chromium: Chromium, tmp_path: Path) -> None:
    with Rig(host="0.0.0.0", heartbeat_s=PATIENT_S, folder=tmp_path) as rig:
        port = rig.device.url.rpartition(":")[2].partition("/")[0]
        query = rig.device.url.partition("?")[2]
        tab = chromium.open(f"https://127.0.0.1:{port}/", WINDOW, sharpness=0.25)
        tab.wait("document.body?.innerText.includes('token')")
        tab.go(f"https://127.0.0.1:{port}/?{query}")
        hands = Hands(tab, rig.robot)
        hands.wait_ready()
        assert "token" not in tab.js("location.href")
        assert tab.js("document.cookie") == ""
        hands.hold()
        rig.wait(lambda: rig.engaged)
        # A link cannot lead the page to another server: the browser's policy refuses the websocket.
        assert (
            tab.js(
                "new Promise((r) => { const s = new WebSocket('wss://127.0.0.1:9'); "
                "document.addEventListener('securitypolicyviolation', (e) => r(e.effectiveDirective)); })"
            )
            == "connect-src"
        )
        tab.close()
