"""The page to look at, and how every page says that it is over; in a real Chromium."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from browser_driver import Chromium, Hands
from browser_rig import Rig

from hardware.teleop.browser.viewer import Viewer
from hardware.teleop.device import Status
from robolearn.core.scene import Scene, Shape
from robots import PANDA

pytestmark = [pytest.mark.realtime, pytest.mark.long]

WINDOW = (800, 600)
LINE = "document.querySelector('[data-robolearn-view]')"
OVER = "document.querySelector('#robolearn-over')"
PLACE = np.array([0.5, 0.1, 0.3])
PROGRAM = """
import sys, time
from hardware.teleop.browser.viewer import Viewer
from robots import PANDA
viewer = Viewer(PANDA)
viewer.open()
print(viewer.url, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


def status(state: str, place: np.ndarray, seconds: float = 0.0) -> Status:
    shape = Shape("cube/0", "box", (0.02, 0.02, 0.02), (0.0, 1.0, 0.2, 1.0))
    return Status(
        state, "press Enter", 1, 5, 0, seconds, joints=np.array(PANDA.home), opening=0.08,
        images={"front": np.full((48, 64, 3), 90, np.uint8)}, scene=Scene((shape,), np.array([[*place, 1.0, 0, 0, 0]])),
    )  # fmt: skip


def test_the_page_shows_what_happens_and_then_that_it_is_over(chromium: Chromium) -> None:
    viewer = Viewer(PANDA)
    viewer.open()
    try:
        viewer.show(status("waiting", PLACE))
        tab = chromium.open(viewer.invitation(), WINDOW, sharpness=0.25)
        tab.wait(f"{LINE}?.innerText.includes('waiting · episode 2 of 5')", 60.0)
        tab.wait(f"{LINE}.innerText.includes('press Enter')")
        tab.wait("[...document.querySelectorAll('img')].some((e) => e.naturalWidth > 0)")
        assert tab.js(f"{OVER}.hidden")

        def cube() -> np.ndarray:
            tab.wait("scenes.length > 0")
            found = [at for colour, at in tab.meshes() if colour == "00ff33"]
            return found[0] if found else np.full(3, np.inf)

        for place in (PLACE, PLACE + np.array((0.1, -0.2, 0.05))):
            viewer.show(status("recording", place, 2.5))
            tab.wait(f"{LINE}.innerText.includes('2.5 s')")
            end = time.monotonic() + 20.0  # a page without a graphics card draws a frame a second beside other work
            while np.linalg.norm(cube() - place) > 1e-3:
                assert time.monotonic() < end, (cube(), place)
                time.sleep(0.05)
        assert tab.js(f"{LINE}.dataset.state") == "recording"
        # Only to look at: nothing that could be pressed reaches the recording.
        assert tab.js("document.querySelector('#robolearn')") is None
        viewer.close()
        tab.wait(f"!{OVER}.hidden && {OVER}.className === ''", 10.0)
        assert tab.js(f"{OVER}.innerText").split("\n") == ["The recording is over.", "You may close this page."]
        tab.close()
    finally:
        viewer.close()


def test_a_page_whose_program_was_killed_says_so(chromium: Chromium) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            tab = chromium.open(program.stdout.readline().strip(), WINDOW, sharpness=0.25)
            tab.wait(f"{LINE} !== null || document.querySelector('canvas') !== null", 60.0)
            tab.wait("document.documentElement.dataset.robolearnOver === 'false'")
            # While the program only stands still nothing is over.
            program.send_signal(signal.SIGSTOP)
            tab.js("new Promise((r) => setTimeout(r, 4000))")
            assert tab.js(f"{OVER}.hidden")
        finally:
            program.kill()
        tab.wait(f"!{OVER}.hidden", 15.0)
        assert "The recording is over." in tab.js(f"{OVER}.innerText")
        tab.close()


def test_the_page_of_teleoperation_says_that_it_is_over(chromium: Chromium) -> None:
    with Rig(heartbeat_s=3.0) as rig:
        tab = chromium.open(rig.device.url, WINDOW, sharpness=0.25)
        Hands(tab, rig.robot).wait_ready()
        assert tab.js(f"{OVER}.hidden")
    tab.wait(f"!{OVER}.hidden", 10.0)
    assert "The recording is over." in tab.js(f"{OVER}.innerText")
    tab.wait("document.querySelector('#robolearn .state').textContent === 'over'")
    assert "not connected" not in tab.js("document.body.innerText")
    tab.close()
