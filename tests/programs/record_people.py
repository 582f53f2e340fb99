"""People who record on the simulated arm: by gamepad, keyboard or browser. As a program, one whole recording:

    python tests/programs/record_people.py gamepad --episodes 5 --out data/gamepad
    python tests/programs/record_people.py keyboard --episodes 5 --out data/keyboard
    python tests/programs/record_people.py browser --episodes 5 --out data/browser

They see what a person sees, where the arm and the cube are and whether it is lifted, and have nothing but sticks,
buttons, keys and a mouse. The gamepad is SDL's virtual one, the keyboard's terminal a pseudo-terminal, the browser a
real Chromium. More flags go to `robolearn record`;
what it prints is printed, and its exit code returned. `all --out FOLDER` is the acceptance of recording: five episodes
by a script with two cameras, by the gamepad, the keyboard and the browser, and some steps of training on each.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pty
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.node_parameters import NodeParameters
from hardware.observing.observer import NotObserved, Observer
from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background
from hardware.ros2.runtime import Node
from hardware.teleop.gamepad import CONFIG
from hardware.teleop.mapping import curve
from robolearn.core import Observation
from robots.stations import load_contract
from sim.experts import make_expert
from sim.tasks import TASKS

ROOT = Path(__file__).resolve().parents[2]
TELEOP = ROOT / "tests" / "hardware" / "teleop"
PROGRAM = "import sys; from robolearn.cli.main import main; sys.exit(main())"
PATIENCE_S = 120.0
LIFTED = 0.10  # height of the cube at which a person is content [m]
TRY_S = 20.0  # for one episode
LOOK_S = 10.0  # without a sight of the arm


def load(name: str) -> Any:
    """A module of the tests of devices."""
    spec = importlib.util.spec_from_file_location(name, TELEOP / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Eyes(Node):
    """What a person sees of the arm and its task."""

    def __init__(self, **options: Any) -> None:
        super().__init__("eyes", NodeParameters(), **options)
        self.contract = load_contract("sim").with_cameras(()).with_objects(TASKS["lift"]().observation_names)
        self.observer = Observer(self.contract, ("proprio", "objects"))
        self.armed = False
        c = self.contract
        assert c.objects is not None
        self.create_subscription(messages.JointState, c.joint_states.topic, self._on_joints, qos.sensor())
        self.create_subscription(messages.JointState, c.objects.topic, self._on_objects, qos.sensor())
        self.create_subscription(messages.DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())

    @property
    def cube(self) -> np.ndarray:
        """(3,) where it is [m]."""
        return self._cube(self.seen)

    @property
    def tcp(self) -> np.ndarray:
        """(3,) in the base frame [m]."""
        return self.seen["proprio"][0, 8:11].astype(np.float64)

    @property
    def seen(self) -> Observation:
        """As `look`, waited for: TimeoutError where the arm stays away, as it does once its recording is over."""
        end = time.monotonic() + LOOK_S
        while (seen := self.look()) is None:
            if time.monotonic() > end:
                raise TimeoutError("the arm cannot be seen")
            time.sleep(0.02)
        return seen

    @property
    def solved(self) -> bool:
        """The cube is seen well above the table."""
        seen = self.look()
        return seen is not None and bool(self._cube(seen)[2] > LIFTED)

    def _cube(self, seen: Observation) -> np.ndarray:
        names = self.contract.object_names
        return np.array([seen["objects"][0, names.index(f"cube_{axis}")] for axis in "xyz"], np.float64)

    def look(self) -> Observation | None:
        """Arm and cube, of one world; None while nothing can be seen."""
        try:
            return self.observer.observation()
        except NotObserved:
            return None

    def _on_joints(self, message: Any) -> None:
        self.observer.joints.update(*messages.named(message), messages.seconds(message.header.stamp))

    def _on_objects(self, message: Any) -> None:
        self.observer.objects(*messages.named(message), messages.seconds(message.header.stamp))

    def _on_safety(self, message: Any) -> None:
        report = messages.read_safety_report(message)
        if report is not None:
            self.armed = report.state == "armed"


def wait(condition: Callable[[], Any], limit_s: float = PATIENCE_S, pause_s: float = 0.02) -> bool:
    end = time.monotonic() + limit_s
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(pause_s)
    return bool(found)


# --- a gamepad -------------------------------------------------------------------------------------------------------


class GamepadPerson(threading.Thread):
    """Holds LB, presses Start, steers to the cube, grips, lifts, presses A."""

    def __init__(self, pad: Any, eyes: Eyes, over: threading.Event) -> None:
        super().__init__(name="person", daemon=True)
        self.pad, self.eyes, self.over = pad, eyes, over
        self.expert = make_expert("lift", eyes.contract.interface, 1, "expert", 0)
        self.tremble = 1.0

    def run(self) -> None:
        self.pad.press("left_shoulder")
        while not self.over.is_set():
            self.pad.tap("start")
            if not wait(lambda: self.eyes.armed or self.over.is_set(), 3.0):
                continue
            opened = True
            self.expert.reset(np.ones(1, bool))
            end = time.monotonic() + TRY_S
            while self.eyes.armed and not self.eyes.solved and time.monotonic() < end and not self.over.is_set():
                opened = self.steer(opened)
                time.sleep(0.05)
            self.rest()
            self.pad.tap("a" if self.eyes.solved else "b")
            wait(lambda: not self.eyes.armed or self.over.is_set(), 5.0)

    def steer(self, opened: bool) -> bool:
        """One look, and the sticks; whether the gripper is open then."""
        seen = self.eyes.look()
        if seen is None:
            return opened
        action = self.expert.command(seen)[0].astype(np.float64)
        q = np.asarray(seen["proprio"][0, :7], np.float64)
        rot = self.eyes.contract.robot.chain.forward(q[None])[1][0]
        move, turn = rot @ action[:3], rot @ action[3:6]
        self.tremble = 0.995 if self.tremble == 1.0 else 1.0  # a pad that never changes is taken for one that is gone
        for motion, share in zip(("x", "y", "z", "yaw"), (*move, turn[2]), strict=True):
            axis = CONFIG.axes[motion]
            pushed = self.tremble * deflection(abs(share / axis.scale))
            self.pad.axis(axis.name, np.sign(share) * np.sign(axis.scale) * pushed)
        if (action[6] > 0) != opened:
            self.pad.tap("right_shoulder")
            opened = not opened
        return opened

    def rest(self) -> None:
        for motion in ("x", "y", "z", "yaw"):
            self.pad.axis(CONFIG.axes[motion].name, 0.0)


def deflection(share: float) -> float:
    """How far a stick has to go for a share of full speed: the inverse of `curve`."""
    grid = np.linspace(CONFIG.dead_zone, 1.0, 200)
    return float(np.interp(min(share, 1.0), [curve(a, CONFIG.dead_zone, CONFIG.expo) for a in grid], grid))


def by_gamepad(flags: Sequence[str]) -> int:
    """`robolearn record` in this process, for the pad is in this process."""
    from robolearn.cli.main import main

    over = threading.Event()
    with load("virtual_gamepad").VirtualGamepad() as pad, Background() as background:
        eyes = background.add(Eyes(context=background.context))
        person = GamepadPerson(pad, eyes, over)
        person.start()
        try:
            return main(["record", "--teleop", "gamepad", *flags])
        finally:
            over.set()
            person.join(10.0)


# --- a keyboard ------------------------------------------------------------------------------------------------------


class KeyboardPerson:
    """Presses Enter, goes to the cube key by key, closes the gripper, goes up, presses 1.

    Args:
      terminal: the end of the pseudo-terminal that a person types at.
    """

    def __init__(self, terminal: int, eyes: Eyes, going: Callable[[], bool]) -> None:
        self.terminal, self.eyes, self.going = terminal, eyes, going

    def record(self) -> None:
        while self.going():
            self.type("\r")
            if not wait(lambda: self.eyes.armed or not self.going(), 3.0) or not self.going():
                continue
            solved = any(self.lift() for _ in range(3))  # a cube that is gripped askew slips
            self.type("1" if solved else "-")
            wait(lambda: not self.eyes.armed, 5.0)
            if solved:
                self.type(" ")  # open again

    def lift(self) -> bool:
        """One try, from above; the gripper is open again when it failed."""
        for height in (0.06, 0.0):
            self.go_to(self.eyes.cube + np.array([0.0, 0.0, height]))
        self.type(" ")
        time.sleep(0.7)
        self.go_to(self.eyes.cube + np.array([0.0, 0.0, 0.15]), 4.0)
        solved = wait(lambda: self.eyes.solved or not self.eyes.armed, 2.0) and self.eyes.solved
        if not solved:
            self.type(" ")
            time.sleep(0.7)
        return bool(solved)

    def go_to(self, goal: np.ndarray, patience_s: float = TRY_S) -> None:
        """The axis that is furthest off first, as long as a finger would stay on its key."""
        end = time.monotonic() + patience_s
        while self.eyes.armed and time.monotonic() < end:
            away = goal - self.eyes.tcp
            axis = int(np.abs(away).argmax())
            if abs(away[axis]) < 0.006:
                return
            self.type(("ws", "ad", "rf")[axis][int(away[axis] < 0)])
            time.sleep(0.03)  # a held key repeats thirty times a second

    def type(self, key: str) -> None:
        os.write(self.terminal, key.encode())


def by_keyboard(flags: Sequence[str]) -> int:
    """`robolearn record` as a process whose terminal is a pseudo-terminal; what it shows there is printed."""
    person, program = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, "record", "--teleop", "keyboard", *flags]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=env, stdin=program, stderr=program, start_new_session=True)
    os.close(program)

    def show() -> None:
        with suppress(OSError):  # the terminal's other end is closed
            while shown := os.read(person, 4096):
                sys.stderr.buffer.write(shown)

    threading.Thread(target=show, daemon=True).start()
    try:
        with Background() as background:
            eyes = background.add(Eyes(context=background.context))
            if wait(lambda: eyes.look() is not None or process.poll() is not None):
                try:
                    KeyboardPerson(person, eyes, lambda: process.poll() is None).record()
                except TimeoutError:
                    if process.poll() is None:  # else the arm is gone because the recording is over
                        raise
        return process.wait(60)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
        os.close(person)


# --- a browser -------------------------------------------------------------------------------------------------------


class BrowserPerson:
    """Switches the dead-man on, presses Start, drags the target to the cube, closes the gripper, drags it up."""

    def __init__(self, hands: Any, eyes: Eyes, going: Callable[[], bool]) -> None:
        self.hands, self.eyes, self.going = hands, eyes, going

    def record(self) -> None:
        while self.going():
            if not wait(lambda: not self.going() or self.hands.state == "waiting") or not self.going():
                return
            self.hands.hold()
            if "Open gripper" in self.hands.tab.js("document.body.innerText"):
                self.hands.button("Open gripper")  # as it was when the last episode ended
            self.hands.button("Start")
            if not wait(lambda: self.eyes.armed, 10.0):
                continue
            try:
                self.lift()
            except TimeoutError:
                if self.eyes.armed:
                    raise
            solved = wait(lambda: self.eyes.solved or not self.eyes.armed, 3.0) and self.eyes.solved
            if self.eyes.armed:  # else the safety filter stopped the arm: once more
                self.hands.button("Success" if solved else "Failure")
            wait(lambda: not self.eyes.armed, 10.0)

    def lift(self) -> None:
        for height in (0.08, 0.0):
            self.drag_to(self.eyes.cube + np.array([0.0, 0.0, height]))
        self.hands.button("Close gripper")
        time.sleep(0.7)
        self.drag_to(self.eyes.cube + np.array([0.0, 0.0, 0.15]), patience_s=3.0)

    def drag_to(self, goal: np.ndarray, patience_s: float = 6.0) -> None:
        """Drag the target there, and wait until the tcp has followed."""
        for _ in range(4):  # a hand misses
            target, rotation = self.hands.target()
            away = rotation.T @ (goal - target)
            for axis, distance in zip("xyz", away, strict=True):
                if abs(distance) > 0.005 and self.eyes.armed:
                    self.hands.drag(axis, float(distance))
                    time.sleep(0.3)  # the page is told where the target is ten times a second
            if np.abs(away).max() <= 0.005 or not self.eyes.armed:
                break
        wait(lambda: np.linalg.norm(self.eyes.tcp - goal) < 0.008 or not self.eyes.armed, patience_s)


def pass_on(lines: Iterable[str], addresses: queue.Queue[str]) -> None:
    """Print `lines`, and put the address of the page that they name into `addresses`."""
    for line in lines:
        sys.stderr.write(line)
        if found := re.match(r"Open (http\S+)", line.strip()):
            addresses.put(found[1])


def by_browser(flags: Sequence[str]) -> int:
    """`robolearn record` as a process, and Chromium."""
    driver = load("browser_driver")
    port = 8100 + os.getpid() % 500
    command = [sys.executable, "-c", PROGRAM, "record", "--teleop", "browser", "--port", str(port), *flags]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
    said = queue.Queue[str]()
    threading.Thread(target=pass_on, args=(process.stderr, said), daemon=True).start()
    with suppress(OSError):  # a page that is not heard for 0.3 s has let go: that must not happen for other work here
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    try:
        with driver.Chromium() as chromium, Background() as background:
            eyes = background.add(Eyes(context=background.context))
            tab = chromium.open(said.get(timeout=PATIENCE_S), sharpness=0.25)
            hands = driver.Hands(tab, eyes.contract.robot)
            try:
                hands.wait_ready(PATIENCE_S)
                BrowserPerson(hands, eyes, lambda: process.poll() is None).record()
            except (TimeoutError, RuntimeError):
                if process.poll() is None:  # else the page is gone because the recording is over
                    raise
        return process.wait(60)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)


def everybody(flags: Sequence[str]) -> int:
    """Five episodes by each, and a policy trained on them; the number of those that failed."""
    where = argparse.ArgumentParser()
    where.add_argument("--out", type=Path, required=True)
    where.add_argument("--episodes", type=int, default=5)
    where.add_argument("--steps", type=int, default=40)
    to = where.parse_args(flags)
    env, failed = {**os.environ, "PYTHONPATH": str(ROOT)}, 0
    me, program = [sys.executable, __file__], [sys.executable, "-c", PROGRAM]
    for name, command in {
        "scripted": [*program, "record", "--teleop", "scripted", "--cameras", "front", "wrist"],
        "gamepad": [*me, "gamepad"],
        "keyboard": [*me, "keyboard"],
        "browser": [*me, "browser"],
    }.items():
        data, run = to.out / name, to.out / f"{name}-policy"
        for line in (
            [*command, "--episodes", str(to.episodes), "--out", str(data), "--json"],
            [*program, "train", "--data", str(data), "--out", str(run), "--steps", str(to.steps), "--json"],
        ):
            done = subprocess.run(line, env=env, stdout=subprocess.PIPE, text=True)
            print(f"{name}: exit code {done.returncode}: {done.stdout.strip()}", flush=True)
            failed += done.returncode != 0
    return failed


PEOPLE = {"gamepad": by_gamepad, "keyboard": by_keyboard, "browser": by_browser, "all": everybody}

if __name__ == "__main__":
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    sys.exit(PEOPLE[sys.argv[1]](sys.argv[2:]))
