"""The console in a real Chromium: every button, what latches, the curves' numbers, and a wrong token."""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "hardware" / "teleop"))
from browser_driver import PHONE, Chromium, Tab

from hardware.teleop.browser import Place
from robolearn.core.scene import Scene, Shape
from robolearn.hil.console import WebConsole
from robolearn.hil.console.logic import CALM_S
from robolearn.hil.operator_console import HilMetrics, HilStatus, InControl, OperatorCommand
from robots import PANDA

pytestmark = [pytest.mark.realtime, pytest.mark.long]

WINDOW = (1000, 1400)
BANNER = "document.querySelector('[data-robolearn-hil]')"
PLACES = "[...document.querySelectorAll('button')].filter((e) => e.textContent).map((e) => e.getBoundingClientRect().y)"
NOTICE = ".mantine-Notification-root"
CUBE = Shape("cube/0", "box", (0.02, 0.02, 0.02), (0.85, 0.22, 0.18, 1.0))
IMAGE = np.full((240, 320, 3), 90, np.uint8)


def status(**changes: Any) -> HilStatus:
    scene = Scene((CUBE,), np.array([[0.5, 0.1, 0.02, 1.0, 0.0, 0.0, 0.0]]))
    base = HilStatus(
        InControl.POLICY, episode=3, seconds=4.2, robot_minutes=6.5, joints=np.array(PANDA.home), opening=0.04,
        images={"front": IMAGE}, scene=scene,
    )  # fmt: skip
    return replace(base, **changes)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture
def console() -> Iterator[WebConsole]:
    with WebConsole(PANDA, place=Place(port=0)) as made:
        yield made


def opened(chromium: Chromium, console: WebConsole) -> Tab:
    tab = chromium.open(console.url, WINDOW, sharpness=0.25)
    tab.wait(f"!!{BANNER}", 60.0)
    return tab


def until(condition: Callable[[], Any], what: str, limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def hears(console: WebConsole, *wanted: OperatorCommand) -> None:
    heard: list[OperatorCommand] = []
    until(lambda: heard.extend(console.poll()) or heard, f"{wanted}")
    assert tuple(heard) == wanted


def enabled(tab: Tab) -> set[str]:
    labels = [
        "STOP (space)",
        "Take over",
        "Hand back",
        "Success",
        "Failure",
        "Return to start",
        "Release the stop",
    ]
    found = tab.js("[...document.querySelectorAll('button')].filter((e) => !e.disabled).map((e) => e.textContent)")
    return set(labels) & set(found)


def settled(tab: Tab) -> Any:
    """Where the buttons are once the page has been laid out: fonts and pictures come late on a busy machine."""
    found = [tab.js(PLACES)]

    def still() -> bool:
        time.sleep(0.3)
        found.append(tab.js(PLACES))
        return found[-1] == found[-2]

    until(still, "the page is laid out")
    return found[-1]


def test_each_button_and_what_latches(chromium: Chromium, console: WebConsole) -> None:
    console.show(status(message="grip <b>gently</b>"))
    tab = opened(chromium, console)
    tab.wait(f"{BANNER}.innerText.includes('The policy moves the arm')")
    assert tab.js(f"{BANNER}.innerText").count("grip <b>gently</b>") == 1, "words are words"
    assert "Let it try" in tab.js(f"{BANNER}.innerText") and "robot 6.5 min" in tab.js(f"{BANNER}.innerText")
    tab.wait("[...document.querySelectorAll('button')].some((e) => e.textContent === 'STOP (space)')")
    able = {"STOP (space)", "Take over", "Success", "Failure", "Return to start"}
    until(lambda: enabled(tab) == able, "the policy moves the arm")

    # No button moves under the mouse when the words above it change.
    places = settled(tab)
    console.show(status(in_control=InControl.NOBODY, asks_help=True, message="x " * 30))
    tab.wait(f"{BANNER}.dataset.inControl === 'nobody'")
    assert tab.js(PLACES) == places
    console.show(status())
    tab.wait(f"{BANNER}.dataset.inControl === 'policy'")
    tab.press("button", "Take over")
    hears(console, OperatorCommand.TAKE_OVER)
    tab.wait("[...document.querySelectorAll('button')].some((e) => e.textContent === 'Taking over …' && e.disabled)")
    console.show(status(in_control=InControl.PERSON, in_control_s=20.0))
    tab.wait(f"{BANNER}.dataset.inControl === 'person' && {BANNER}.innerText.includes('Hand back now')")
    until(lambda: "Hand back" in enabled(tab), "hand back")
    assert "Take over" not in enabled(tab)
    tab.press("button", "Hand back")
    hears(console, OperatorCommand.HAND_BACK)
    console.show(status())
    tab.wait(f"{BANNER}.dataset.inControl === 'policy'")

    endings = {
        "Success": OperatorCommand.SUCCESS,
        "Failure": OperatorCommand.FAILURE,
        "Return to start": OperatorCommand.RETURN,
    }
    for episode, (label, command) in enumerate(endings.items(), start=4):
        console.show(status(episode=episode))
        until(lambda: set(endings) <= enabled(tab), "a new episode can be judged")
        tab.press("button", label)
        hears(console, command)
        tab.wait(f"[...document.querySelectorAll('button')].some((e) => e.textContent === '{label} ✓' && e.disabled)")
        assert not set(endings) & enabled(tab)

    # The scene is there, the pictures are large at a click.
    until(lambda: any(np.allclose(at, (0.5, 0.1, 0.02), atol=1e-3) for _, at in tab.meshes()), "the cube")
    tab.press("img[src^='blob:'], img[src^='data:image/jpeg']")
    tab.wait("document.querySelector('#robolearn-large img').naturalWidth === 320")

    # A second page shows the stop of the first, and haste does not release it.
    other = opened(chromium, console)
    for _ in range(3):
        tab.press("#robolearn-stop")
    for page in (tab, other):
        page.wait("document.querySelector('#robolearn-stop').textContent === 'STOPPED'")
        page.wait(f"{BANNER}.dataset.stopped === 'true' && {BANNER}.innerText.includes('STOPPED')")
        until(lambda page=page: enabled(page) == {"Release the stop"}, "nothing but the release")
    assert console.poll() == console.poll() == (OperatorCommand.STOP,)
    console.show(status(in_control=InControl.PERSON, episode=9))
    time.sleep(CALM_S)
    assert tab.js(f"{BANNER}.dataset.stopped") == "true" and console.poll() == (OperatorCommand.STOP,)
    other.press("button", "Release the stop")
    other.press("button", "Sure? Release the stop")
    until(lambda: console.poll() == (OperatorCommand.RELEASE,), "the release")
    tab.wait(f"{BANNER}.dataset.stopped === 'false'")

    tab.key(" ")
    hears(console, OperatorCommand.STOP)
    tab.wait("document.querySelector('#robolearn-stop').textContent === 'STOPPED'")
    console.close()
    tab.wait("document.querySelector('#robolearn-stop').textContent === 'not connected'")
    tab.press("#robolearn-stop")
    tab.wait("document.querySelector('#robolearn-stop').textContent.includes('not heard')")
    tab.close()
    other.close()


def test_the_curves_have_the_numbers(chromium: Chromium, console: WebConsole) -> None:
    tab = opened(chromium, console)
    given = {
        "Success without help": (lambda k: 10.0 * k, "success"),
        "Steps by the person": (lambda k: 80.0 - 7.0 * k, "intervention_rate"),
        "Cycle time": (lambda k: 9.0 - 0.5 * k, "cycle_s"),
        "Q": (lambda k: -1.0 + 0.25 * k, "q"),
        "UTD": (lambda k: 4.0 + 0.125 * k, "utd"),
        "Latency p99": (lambda k: 20.0 + 3.0 * k, "latency_ms"),
    }
    shares = ("success", "intervention_rate")
    for k in range(9):
        values = {name: value(k) * (0.01 if name in shares else 1.0) for value, name in given.values()}
        console.show(status(metrics=HilMetrics(0.5 * k, **values)))
        until(lambda k=k: f"UTD: {4.0 + 0.125 * k:.3g}" in tab.js("document.body.innerText"), f"point {k}")
    # uPlot itself says which point lies under the mouse: the first, one in the middle, the last.
    plots = tab.js("""[...document.querySelectorAll('.u-over')].map((over) => {
      const root = over.closest('.uplot');
      return root.querySelector('.u-title')?.textContent ?? root.parentElement.textContent;
    })""")
    assert len(plots) == len(given)
    for number, (title, (value, _)) in enumerate(given.items()):
        assert plots[number].startswith(title + ":"), plots
        for k in (0, 4, 8):
            until(
                lambda k=k, number=number, value=value: np.allclose(
                    under_mouse(tab, number, k / 8), (0.5 * k, value(k)), atol=0.01
                ),
                f"{title}, point {k}",
            )
    tab.close()


def under_mouse(tab: Tab, number: int, share: float) -> list[float]:
    """What a plot's legend says when the mouse is at this share of its width."""
    x, y = tab.js(f"""(() => {{
      const over = document.querySelectorAll('.u-over')[{number}];
      over.scrollIntoView({{block: 'center'}});
      const r = over.getBoundingClientRect();
      return [r.x + 2 + (r.width - 4) * {share}, r.y + r.height / 2 + 4 * Math.random()];
    }})()""")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    return tab.js(f"""[...document.querySelectorAll('.u-over')[{number}].closest('.uplot')
      .querySelectorAll('.u-value')].map((e) => parseFloat(e.textContent.replace('−', '-').replace(',', '')) || 0)""")


def test_a_phone_in_the_dark_shows_the_cube_below_the_gripper(
    chromium: Chromium, console: WebConsole, tmp_path: Path
) -> None:
    console.show(status())
    tab = chromium.open("about:blank", PHONE, touch=True, sharpness=1.0)
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    tab.go(console.url)
    tab.wait(f"!!{BANNER}", 60.0)
    place = f"{BANNER}.getBoundingClientRect().y"
    tab.wait(f"{place} < {0.55 * PHONE[1]}")  # the panel has come up

    def seen() -> bool:
        top = tab.js(place)
        tab.picture(tmp_path / "phone.png")
        picture = cv2.imread(str(tmp_path / "phone.png")).astype(int)  # (H, W, BGR)
        scene = picture[int(picture.shape[0] * 0.1) : int(picture.shape[0] * (top - 60) / PHONE[1])]
        red = (scene[..., 2] > 90) & (scene[..., 2] > 3 * scene[..., :2].max(-1))
        return red.sum() > 100 and np.median(picture[:, 3], axis=0).max() < 60  # the left border is dark

    until(seen, "the red cube above the panel, on a dark page")
    tab.close()


@pytest.mark.parametrize("window", [WINDOW, PHONE])
def test_a_notice_lies_on_no_button(chromium: Chromium, console: WebConsole, window: tuple[int, int]) -> None:
    console.show(status())
    tab = chromium.open(console.url, window, sharpness=0.25)
    for part in ("#robolearn-stop", NOTICE):  # viser's own says that the browser draws without a GPU
        tab.wait(f"!!document.querySelector('{part}')", 60.0)
    settled(tab)
    box = "(e => (r => [r.left, r.top, r.right, r.bottom])(e.getBoundingClientRect()))"
    left, top, right, bottom = tab.js(f"{box}(document.querySelector('{NOTICE}'))")
    others = tab.js(f"[...document.querySelectorAll('button')].filter((e) => !e.closest('{NOTICE}')).map({box})")
    assert len(others) > 5 and right > left and bottom > top
    assert [b for b in others if b[0] < right and left < b[2] and b[1] < bottom and top < b[3]] == []


def test_a_wrong_token_gets_nothing(chromium: Chromium, console: WebConsole) -> None:
    place, _, token = console.url.partition("/?token=")
    host = place.removeprefix("http://")
    for path in ("/", f"/?token={token[:-1]}x", "/index.html"):
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 403 and b"viser" not in answer.read()
    tab = chromium.open(f"{place}/?token=wrong", WINDOW, sharpness=0.25)
    tab.wait("document.body?.innerText.includes('token')")
    assert not tab.js(f"!!{BANNER}")
    refused = "new Promise((r) => { const s = new WebSocket(location.origin.replace('http', 'ws')); s.onclose = () => r(true); s.onopen = () => r(false); })"  # noqa: E501
    assert tab.js(refused) is True
    tab.go(console.url)
    tab.wait(f"!!{BANNER}", 60.0)
    assert "token" not in tab.js("location.href") and tab.js("document.cookie") == ""
    tab.close()
