"""The page of a start to restore, in a real Chromium: both pictures, the slider, a phone, the dark, the token."""

from __future__ import annotations

import base64
import http.client
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import cv2
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from browser_driver import DESKTOP, PHONE, Chromium, Tab

from hardware.teleop.browser.ghost import GhostPage

pytestmark = [pytest.mark.realtime, pytest.mark.long]

RED, BLUE = (220, 30, 30), (30, 30, 220)
TEXT = "Episode 2 of at most 8, block 1: the same start as the one before."


def picture(colour: tuple[int, int, int]) -> np.ndarray:
    return np.full((120, 160, 3), colour, np.uint8)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture
def page() -> Iterator[GhostPage]:
    page = GhostPage()
    yield page
    page.close()


def colour_seen(tab: Tab, selector: str) -> np.ndarray:
    """(3,) of the middle of an element, as the browser draws it on the screen."""
    x, y = tab.box(selector)
    clip = {"x": x - 2, "y": y - 2, "width": 4, "height": 4, "scale": 1}
    data = base64.b64decode(tab.call("Page.captureScreenshot", format="png", clip=clip)["data"])
    shot = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert shot is not None
    return shot[..., ::-1].mean((0, 1))


def slide(tab: Tab, percent: int) -> None:
    tab.js(f"(() => {{ const m = document.querySelector('#mix'); m.value = {percent}; "
           "m.dispatchEvent(new Event('input')); })()")  # fmt: skip
    tab.js("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


def shows(tab: Tab, text: str, images: int) -> None:
    tab.wait(f"document.querySelector('#text').textContent === {text!r}")
    tab.wait(f"[...document.querySelectorAll('img')].filter((e) => e.naturalWidth === 160).length === {images}")


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_the_start_lies_under_what_the_cameras_see_now(
    chromium: Chromium, page: GhostPage, size: tuple[int, int], scheme: str
) -> None:
    tab = chromium.open(page.url, size, touch=size == PHONE)
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    then = {"front": picture(RED), "left/wrist": picture(RED)}
    page.show(TEXT, then, lambda: {name: picture(BLUE) for name in then})
    shows(tab, TEXT, 4)
    for percent, expected in ((0, RED), (100, BLUE), (50, np.mean([RED, BLUE], 0))):
        slide(tab, percent)
        np.testing.assert_allclose(colour_seen(tab, ".stack"), expected, atol=12)
    assert tab.js("[...document.querySelectorAll('figcaption')].map((e) => e.textContent)") == ["front", "left/wrist"]
    assert tab.js("document.documentElement.scrollWidth <= window.innerWidth"), "nothing is beside the screen"
    assert tab.js("document.querySelector('.stack').getBoundingClientRect().width") > 0.4 * min(size)
    paper = tab.js("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(16, 24, 40)" if scheme == "dark" else "rgb(255, 255, 255)")
    # A start that is placed anew: nothing of the last one is left, and now is not half-transparent.
    page.show("Episode 3: a new start", {}, lambda: {"front": picture(BLUE)})
    shows(tab, "Episode 3: a new start", 1)
    np.testing.assert_allclose(colour_seen(tab, ".stack"), BLUE, atol=12)
    assert tab.js("document.querySelector('#mix').parentElement.hidden")
    page.show("", {}, dict)
    shows(tab, "", 0)
    page.close()
    tab.wait("!document.querySelector('#robolearn-over').hidden", 10.0)
    assert "The trial is over." in tab.js("document.querySelector('#robolearn-over').innerText")
    tab.close()


def test_a_text_is_no_markup(chromium: Chromium, page: GhostPage) -> None:
    tab = chromium.open(page.url, DESKTOP)
    page.show("<b id='bold'>x</b>", {}, dict)
    tab.wait("document.querySelector('#text').textContent.includes('<b')")
    assert tab.js("document.querySelector('#bold')") is None
    tab.close()


def test_without_the_token_there_is_nothing_to_see(page: GhostPage) -> None:
    url = urlsplit(page.url)
    assert url.hostname == "127.0.0.1" and url.port
    for path, headers in (("/", {}), ("/?token=guess", {}), ("/ghost", {"Upgrade": "websocket"})):
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=10)
        connection.request("GET", path, headers=headers)
        assert connection.getresponse().status == 403
        connection.close()
