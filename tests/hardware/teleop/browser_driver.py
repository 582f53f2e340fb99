"""A real Chromium without a window, driven over its DevTools protocol: mouse, touch, keys, pictures.

`Chromium` starts the browser, `Tab` is one page in it, `Hands` does on our page what an operator does. `.ci/browser`
installs Chromium where there is none.
"""

from __future__ import annotations

import base64
import json
import math
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardware.teleop.browser.scene import Viewpoint
from robolearn.core.se3 import quat_to_matrix
from robots import RobotSpec

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESKTOP, PHONE = (1280, 800), (390, 844)
SWITCH = "#robolearn button.switch"
AXES = {"x": 0, "y": 1, "z": 2}


def find_chromium() -> str:
    """Its path: ``CHROMIUM``, or what lies in PATH."""
    for name in filter(None, (os.environ.get("CHROMIUM"), *PROGRAMS)):
        if path := shutil.which(name):
            return path
    raise RuntimeError(f"no Chromium among {', '.join(PROGRAMS)}: run .ci/browser")


# three.js hands every scene that it makes to its developer tools, where there are any.
WATCH_THREE = """
  window.__THREE_DEVTOOLS__ = new EventTarget();
  window.scenes = [];
  __THREE_DEVTOOLS__.addEventListener("observe", ({ detail }) => { if (detail.isScene) scenes.push(detail); });
"""

# At most ten pictures a second: SwiftShader draws them on the cores that the programs under test need, and a
# page that waits for it is silent meanwhile: the arm stops.
FEW_PICTURES = """
  const draw = window.requestAnimationFrame.bind(window);
  let due = 0;
  window.requestAnimationFrame = (picture) => {
    const now = performance.now();
    due = now < due ? due : now + 100;
    return setTimeout(() => draw(picture), due - now);
  };
  window.cancelAnimationFrame = clearTimeout;
"""


class Chromium:
    """The browser, in a profile of its own that is thrown away. Use it with `with`.

    We talk over pipes, not over a port: when this process dies, however it dies, Chromium ends too.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="robolearn-chromium-", ignore_cleanup_errors=True)
        flags = (
            "--headless=new",
            "--no-sandbox",  # build machines run as root
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--disable-background-timer-throttling",
            "--disable-renderer-backgrounding",
            "--disable-backgrounding-occluded-windows",
            "--use-angle=swiftshader",
            "--enable-unsafe-swiftshader",
            "--ignore-certificate-errors",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._folder.name}",
        )
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self._process = subprocess.Popen(
            # Chromium reads from 3 and writes to 4.
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "-", find_chromium(), *flags, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._count = 0
        self.call("Browser.getVersion")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, session: str = "", **arguments: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, to the browser or to a tab's session, and its answer."""
        self._count += 1
        word = {"id": self._count, "method": method, "params": arguments} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(word).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            word = self._read(deadline, method)
            if word.get("id") == self._count:
                if "error" in word:
                    raise RuntimeError(f"{method}: {word['error']}")
                return word["result"]

    def open(
        self,
        url: str,
        size: tuple[int, int] = DESKTOP,
        *,
        touch: bool = False,
        sharpness: float = 1.0,
        few_pictures: bool = False,
    ) -> Tab:
        """A new tab at `url`.

        Args:
          url: an address.
          size: width and height of its viewport [px].
          touch: a phone: fingers in place of a mouse.
          sharpness: pixels drawn per pixel; less than 1 spares a machine that draws in software.
          few_pictures: see `FEW_PICTURES`.
        """
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, target, session, size, touch, sharpness)
        tab.call("Page.enable")
        tab.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH_THREE + FEW_PICTURES * few_pictures)
        tab.go(url)
        return tab

    def stop(self) -> None:
        """Let the whole browser stand still, as a phone that left the network: nothing comes, nothing is closed."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the browser."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=30)
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def _read(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._in, 1 << 16) if ready else b""
            if not piece:
                raise TimeoutError(f"{method}: no answer from Chromium ({self._process.poll()})")
            self._buffer += piece
        word, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(word)


class Tab:
    """One page."""

    def __init__(
        self, browser: Chromium, target: str, session: str, size: tuple[int, int], touch: bool, sharpness: float
    ) -> None:
        self._browser, self._target, self._session = browser, target, session
        self.size = size
        self.touch = touch
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=sharpness,
            mobile=touch,
        )
        if touch:
            self.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """One command of the DevTools protocol to this tab, and its answer."""
        return self._browser.call(method, self._session, **arguments)

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def wait(self, expression: str, timeout_s: float = 30.0) -> Any:
        """Wait until an expression in the page is true; its value."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.js(expression)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expression}\nthe page shows: {self.js('document.body.innerText')[:600]}")
            time.sleep(0.03)
        return value

    def box(self, selector: str, text: str = "") -> tuple[float, float]:
        """Middle of the element that a selector finds and that shows `text`, scrolled into view [px]."""
        find = f"""(() => {{
          const all = [...document.querySelectorAll({json.dumps(selector)})];
          const one = all.find((e) => (!{json.dumps(text)} || e.textContent.trim() === {json.dumps(text)})
            && e.getClientRects().length);
          if (!one) return null;
          one.scrollIntoView({{block: "nearest"}});
          const r = one.getBoundingClientRect();
          return [r.x + r.width / 2, r.y + r.height / 2];
        }})()"""
        x, y = self.wait(find)
        return x, y

    def press(self, selector: str, text: str = "") -> None:
        """Click or tap an element."""
        self.path([self.box(selector, text)])

    def path(self, points: Sequence[tuple[float, float]], pause_s: float = 0.02) -> None:
        """Button or finger down at the first point, along the others, up at the last."""
        if self.touch:
            self._fingers("touchStart", points[0])
        else:
            self._mouse("mouseMoved", points[0], 0)
            self._mouse("mousePressed", points[0], 1)
        for point in points[1:]:
            time.sleep(pause_s)
            self._fingers("touchMove", point) if self.touch else self._mouse("mouseMoved", point, 1)
        if self.touch:
            self._fingers("touchEnd", None)
        else:
            self._mouse("mouseReleased", points[-1], 0)

    def key(self, key: str) -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: Path) -> None:
        """Save what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def meshes(self) -> list[tuple[str, np.ndarray]]:
        """What the 3-D view draws, by three.js itself: colour as hex, (3,) middle of its bounding box [m], z up."""
        found = self.js("""(() => {
          const out = [];
          for (const scene of scenes) scene.traverse((o) => {
            if (!o.isMesh || !o.material?.color || !o.geometry) return;
            for (let p = o; p; p = p.parent) if (!p.visible) return;
            o.updateWorldMatrix(true, false);
            o.geometry.computeBoundingBox();
            const b = o.geometry.boundingBox;
            const v = b.min.clone().add(b.max).multiplyScalar(0.5).applyMatrix4(o.matrixWorld);
            out.push([o.material.color.getHexString(), v.x, v.y, v.z]);
          });
          return out;
        })()""")
        # The page turns its world so that z is up; three.js has y there.
        return [(colour, np.array([-z, -x, y])) for colour, x, y, z in found]

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)

    def _mouse(self, kind: str, point: tuple[float, float], buttons: int) -> None:
        button = "none" if kind == "mouseMoved" and not buttons else "left"
        clicks = 0 if kind == "mouseMoved" else 1
        x, y = point
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=clicks)

    def _fingers(self, kind: str, point: tuple[float, float] | None) -> None:
        points = [] if point is None else [{"x": point[0], "y": point[1]}]
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)


class Hands:
    """What an operator does on our page.

    Args:
      tab: the page, just opened.
      robot: the arm that it shows.
    """

    def __init__(self, tab: Tab, robot: RobotSpec) -> None:
        self.tab = tab
        self.view = Viewpoint.of(robot, tab.size[0] / tab.size[1])

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Until the page has control and knows where the arm is."""
        self.tab.wait("document.querySelector('#robolearn')?.dataset.role === 'control'", timeout_s)
        self.tab.wait("document.querySelector('#robolearn').dataset.target")
        self.tab.wait("document.querySelector('canvas')?.getBoundingClientRect().width > 0")

    @property
    def engaged(self) -> bool:
        """Whether the switch is on and the server says so."""
        return bool(self.tab.js("document.querySelector('#robolearn')?.dataset.engaged === 'true'"))

    @property
    def state(self) -> str:
        """The recording's, as the page shows it."""
        return str(self.tab.js("document.querySelector('#robolearn')?.dataset.state ?? ''"))

    @property
    def message(self) -> str:
        """The page's newest."""
        return str(self.tab.js("document.querySelector('#robolearn .message')?.textContent ?? ''"))

    def hold(self) -> None:
        """Switch the dead-man on; nothing where it is on already."""
        for _ in range(5):
            if not self.engaged:
                self.tab.press(SWITCH)
            try:
                self.tab.wait("document.querySelector('#robolearn').dataset.engaged === 'true'", 5.0)
                return
            except TimeoutError:  # a machine so busy that the page lost it again
                continue
        raise TimeoutError("the dead-man does not stay on")

    def claim(self) -> None:
        """Take control over from another page."""
        self.tab.press(SWITCH, "Take control")
        self.wait_ready()

    def release(self) -> None:
        """Switch the dead-man off."""
        self.tab.press(SWITCH)
        self.tab.wait("document.querySelector('#robolearn').dataset.engaged === 'false'")

    def button(self, label: str) -> None:
        """Press a button once it is there: ``"Start"``, ``"Success"``, ``"Close gripper"`` …"""
        self.tab.press("#robolearn button", label)

    def quit(self) -> None:
        """End the recording; the page asks back once."""
        self.button("Quit")
        self.button("Sure?")

    def target(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the target is: (3,) [m] and (3, 3)."""
        values = [float(v) for v in self.tab.js("document.querySelector('#robolearn').dataset.target").split()]
        return np.array(values[:3]), quat_to_matrix(np.array(values[3:]))

    def drag(self, axis: str, distance: float, steps: int = 5) -> None:
        """Take the arrow of an axis of the target (``"x"``, ``"y"``, ``"z"`` of the tcp) and pull it so far [m]."""
        position, rotation = self.target()
        direction = rotation[:, AXES[axis]]
        grasp = position + 0.9 * self.view.gizmo * direction  # the arrow's head; the arcs cross its shaft
        way = [grasp + share * distance * direction for share in np.linspace(0.0, 1.0, steps)]
        points = [project(self.view, point, self.tab.size) for point in way]
        if not all(0 <= x < self.tab.size[0] and 0 <= y < self.tab.size[1] for x, y in points):
            raise RuntimeError(f"the arrow of {axis} is outside the window: {points[0]} to {points[-1]}")
        self.tab.path(points)

    def move(self, axis: str, distance: float) -> None:
        """`drag` until the target is there, as an operator does who sees that it has not moved yet."""
        start, rotation = self.target()
        gone = 0.0
        for _ in range(4):
            self.hold()
            self.drag(axis, distance - gone)
            deadline, before = time.monotonic() + 5.0, gone - 1.0
            # The page is told where the target is ten times a second, and later on a busy machine.
            while time.monotonic() < deadline and (gone != before or gone == 0.0):
                time.sleep(0.3)
                before, gone = gone, float((self.target()[0] - start) @ rotation[:, AXES[axis]])
            if abs(distance - gone) < max(0.005, 0.2 * abs(distance)):
                return
        raise TimeoutError(f"the target went {gone:.3f} m of {distance} m along {axis}")

    def drag_by(self, offset: Sequence[float]) -> None:
        """`drag` along one axis of the tcp after the other; `offset` (3,) in the base frame [m]."""
        _, rotation = self.target()
        for axis, distance in zip("xyz", rotation.T @ np.asarray(offset, dtype=np.float64), strict=True):
            if not math.isclose(distance, 0.0, abs_tol=1e-4):
                self.drag(axis, float(distance))


def project(view: Viewpoint, point: np.ndarray, window: tuple[int, int]) -> tuple[float, float]:
    """Pixel of a point (3,) [m] in a window of (width, height) [px]."""
    eye = np.array(view.position)
    forward = np.array(view.look_at) - eye
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    ray = np.asarray(point) - eye
    # x = w/2 + f r·p / d·p,  y = h/2 − f u·p / d·p,  f = h / (2 tan(fov/2))
    f = 0.5 * window[1] / np.tan(0.5 * view.fov) / (forward @ ray)
    return 0.5 * window[0] + f * (right @ ray), 0.5 * window[1] - f * (np.cross(right, forward) @ ray)
