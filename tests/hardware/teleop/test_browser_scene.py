"""The task's bodies on the page, in a real Chromium: simulated arm ► ROS 2 ► teleoperation ► viser ► three.js.

What three.js draws is compared with where MuJoCo has its geoms, before and after they were moved.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import mujoco
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from browser_driver import Chromium, Tab, project
from browser_rig import Rig

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.process import Background
from hardware.ros2.sim_arm_node import SimArmNode
from hardware.ros2.teleop_node import TeleopNode
from hardware.teleop.browser import BrowserConfig
from hardware.teleop.browser.device import Browser
from hardware.teleop.browser.scene import Viewpoint
from robolearn.bench.emulators.node import make_world
from robolearn.core.scene import Scene, Shape
from robots import PANDA
from robots.stations import load_contract

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 3
WINDOW = (800, 600)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@contextmanager
def shown(task: str) -> Iterator[tuple[SimArmNode, Browser]]:
    """A simulated arm, and a browser that teleoperates it; no safety node, so nothing moves by itself."""
    contract = load_contract("sim").with_cameras(())
    with Background(DOMAIN) as ros:
        device = Browser(contract.interface, contract.robot, BrowserConfig(port=0))
        device.open()
        arm = SimArmNode(make_world, contract=contract, context=ros.context, overrides={"task": task})
        teleop = TeleopNode(lambda contract, name: device, contract=contract, context=ros.context)
        for node in (arm, teleop):
            node.start()
            ros.add(node)
        yield arm, device
        assert ros.errors == []


def truth(arm: SimArmNode) -> dict[str, tuple[str, np.ndarray]]:
    """Geom → its colour as the page has it, and (3,) where MuJoCo's own forward kinematics has it [m]."""
    physics = arm.world.physics  # type: ignore[attr-defined]
    model, data = physics.model, physics.batch.get_data(0)
    mujoco.mj_forward(model, data)
    robot = mujoco.MjModel.from_xml_path(str(PANDA.mjcf))
    links = {robot.body(i).name for i in range(1, robot.nbody)}
    found = {}
    for geom in range(model.ngeom):
        body = model.body(model.geom_bodyid[geom]).name
        if body not in links:
            colour = "".join(f"{round(255 * float(c)):02x}" for c in model.geom_rgba[geom][:3])
            found[f"{body}/{geom}"] = (colour, data.geom_xpos[geom].copy())
    return found


def missing(tab: Tab, wanted: dict[str, tuple[str, np.ndarray]]) -> str:
    """The geoms that three.js has not drawn, in their colour and at their place to a millimetre; or nothing."""
    drawn = tab.meshes()
    lost = []
    for name, (colour, place) in wanted.items():
        # viser cuts colours to whole numbers, MuJoCo rounds none.
        near = [
            at
            for hex_, at in drawn
            if all(abs(int(hex_[i : i + 2], 16) - int(colour[i : i + 2], 16)) <= 1 for i in (0, 2, 4))
        ]
        if not any(np.linalg.norm(at - place) < 1e-3 for at in near):
            lost.append(f"{name} {colour} at {place.round(3)}: {[at.round(3).tolist() for at in near]}")
    return "; ".join(lost)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def wait_drawn(tab: Tab, arm: SimArmNode, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while lost := missing(tab, truth(arm)):
        assert time.monotonic() < deadline, lost
        time.sleep(0.1)


@pytest.mark.parametrize("task", ["lift", "peg_insert"])
def test_every_body_stands_where_mujoco_has_it(chromium: Chromium, task: str) -> None:
    with shown(task) as (arm, device):
        tab = chromium.open(device.url, WINDOW, sharpness=0.25)
        wait_drawn(tab, arm, 60.0)
        before = truth(arm)

        # Something moves them: an episode, or a hand.
        physics: Any = arm.world.physics  # type: ignore[attr-defined]
        body = next(iter(physics._free))
        q, _ = physics._free[body]
        with arm.world._lock:  # type: ignore[attr-defined]
            physics.qpos[0, q : q + 3] += [0.06, -0.11, 0.0]
        deadline = time.monotonic() + 5.0
        while not missing(tab, before) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert missing(tab, before), "the page still shows where it was"
        wait_drawn(tab, arm)
        (moved,) = (name for name in before if name.startswith(f"{body}/"))
        assert np.linalg.norm(truth(arm)[moved][1] - before[moved][1]) > 0.1
        tab.close()


def red_pixels(tab: Tab, path: Path, around: tuple[float, float]) -> int:
    tab.picture(path)
    x, y = map(int, around)
    blue, green, red = np.moveaxis(cv2.imread(str(path))[y - 40 : y + 40, x - 40 : x + 40].astype(int), 2, 0)
    return int(((red > 130) & (green < 60) & (blue < 60)).sum())


def test_the_arrows_do_not_hide_what_is_between_the_fingers(chromium: Chromium, tmp_path: Path) -> None:
    with Rig(heartbeat_s=3.0) as rig:
        cube = Shape("cube/0", "box", (0.03, 0.03, 0.03), (0.8, 0.1, 0.1, 1.0))
        scene = Scene((cube,), np.array([[*rig.tcp, 1.0, 0.0, 0.0, 0.0]]))
        show = rig.device.show
        rig.device.show = lambda status: show(replace(status, scene=scene))  # type: ignore[method-assign]
        seen = []
        for role in ("control", "watch"):  # who only watches has no arrows
            tab = chromium.open(rig.device.url, WINDOW)
            tab.wait(f"document.querySelector('#robolearn')?.dataset.role === '{role}'", 60.0)
            wait_until(lambda tab=tab: any(np.linalg.norm(at - rig.tcp) < 1e-3 for _, at in tab.meshes()))
            seen.append(
                red_pixels(tab, tmp_path / f"{role}.png", project(Viewpoint.of(rig.robot, 4 / 3), rig.tcp, WINDOW))
            )
        assert seen[1] > 300 and seen[0] > 0.7 * seen[1], seen


def click_open(tab: Any, small: str) -> None:
    """Click the picture until it is large: while the page is being built it moves away under the pointer."""
    for _ in range(10):
        x, y = tab.js(f"(() => {{ const r = {small}.getBoundingClientRect(); return [r.x + 20, r.y + 20]; }})()")
        tab.path([(x, y)])
        with contextlib.suppress(TimeoutError):
            tab.wait("!document.querySelector('#robolearn-large').hidden", 3.0)
            return
    raise AssertionError("no click opens the picture")


def test_a_click_makes_the_pictures_large_and_small_again(chromium: Chromium) -> None:
    with Rig(heartbeat_s=3.0) as rig:
        pixels = np.zeros((480, 640, 3), np.uint8)
        pixels[:, :320] = (200, 30, 30)
        show = rig.device.show

        def with_pictures(status: Any) -> None:
            status.images["front"] = status.images["wrist"] = pixels
            show(status)

        rig.device.show = with_pictures  # type: ignore[method-assign]
        tab = chromium.open(rig.device.url, WINDOW, sharpness=0.25)
        small = "[...document.querySelectorAll('img')].find((e) => /^(blob|data:image.jpeg)/.test(e.src))"
        tab.wait(f"{small}?.naturalWidth > 0", 60.0)
        assert tab.js(f"{small}.naturalWidth") == 448 and tab.js(f"{small}.clientWidth") < 300
        assert tab.js("document.querySelector('#robolearn-large').hidden")
        click_open(tab, small)
        tab.wait("document.querySelector('#robolearn-large img').clientWidth > 500")
        # And each comes as it was taken, to everybody while anybody looks closely.
        tab.wait("document.querySelector('#robolearn-large img').naturalWidth === 1280")
        assert rig.device.arbiter.enlarged
        tab.key("Escape")
        tab.wait("document.querySelector('#robolearn-large').hidden")
        tab.wait(f"{small}?.naturalWidth === 448")
        click_open(tab, small)
        tab.press("#robolearn-large")
        tab.wait("document.querySelector('#robolearn-large').hidden")
        tab.close()
        rig.wait(lambda: not rig.device.arbiter.enlarged)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_page_is_as_dark_as_its_readers_machine(chromium: Chromium, scheme: str) -> None:
    with Rig(heartbeat_s=3.0) as rig:
        tab = chromium.open("about:blank", WINDOW, sharpness=0.25)
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.go(rig.device.url)
        tab.wait("!!(document.querySelector('#robolearn .status') && document.querySelector('canvas'))", 60.0)
        light = (
            "((e) => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3).every((c) => c > 200))"
            "(document.querySelector('{}'))"
        )
        for part in ("#robolearn .status", "div:has(> div > [data-dock-root])"):
            assert tab.js(light.format(part)) == (scheme == "light"), part
        assert tab.js("document.documentElement.dataset.mantineColorScheme") == scheme
