"""A browser device and an arm that goes where it is told, in a thread at the control rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hardware.teleop import EpisodeEvent, Sample, Status
from hardware.teleop.browser import BrowserConfig
from hardware.teleop.browser.device import Browser
from robolearn.core import Interface
from robots import CONTROL_HZ, ROBOTS, make_control
from robots.spec import proprio, proprio_spec

SPEED = 0.5  # share of the way to its set-point that the arm goes in a step


def interface_of(robot_name: str, kind: str = "tcp_delta") -> Interface:
    robot = ROBOTS[robot_name]
    return Interface(
        {"proprio": proprio_spec(robot)}, make_control(kind, robot).spec, CONTROL_HZ, robot_name, action_kind=kind
    )


class Rig:
    """Samples the device and follows it, until `close`."""

    def __init__(self, robot_name: str = "panda", **options: Any) -> None:
        self.robot = ROBOTS[robot_name]
        self.control = make_control("tcp_delta", self.robot)
        self.device = Browser(interface_of(robot_name), self.robot, BrowserConfig(port=0, **options))
        self.device.open()
        self.q = np.array([self.robot.home])
        self.width = np.array([self.robot.gripper.max_width])
        self.state, self.episode = "waiting", 0
        self.events: list[EpisodeEvent] = []
        self.samples: list[tuple[float, Sample]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=10)
        self.device.close()

    @property
    def tcp(self) -> np.ndarray:
        return self.robot.chain.forward(self.q)[0][0]

    @property
    def engaged(self) -> bool:
        return self.samples[-1][1].engaged

    def wait(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    def at_rest(self) -> bool:
        actions = [sample.action for _, sample in self.samples[-5:]]
        return all(a is not None and np.abs(a[:6]).max() < 1e-3 for a in actions)

    def let_go_within(self, seconds: float, since: float) -> bool:
        """Whether no sample that was asked for later than this had the dead-man on; waits for some."""
        self.wait(lambda: self.samples[-1][0] > since + seconds + 0.3)
        return not any(sample.engaged for asked, sample in self.samples if asked > since + seconds)

    def _run(self) -> None:
        image = np.zeros((48, 64, 3), np.uint8)
        while not self._end.wait(1.0 / CONTROL_HZ):
            tcp = self.robot.chain.forward(self.q)
            before = time.monotonic()  # the device answers at this moment or later, however busy the machine is
            sample = self.device.sample({"proprio": proprio(self.q, self.width, *tcp)[0]})
            self.samples.append((before, sample))
            for event in sample.events:
                self.events.append(event)
                self.state = "recording" if event in (EpisodeEvent.START, EpisodeEvent.REDO) else "waiting"
                self.episode += event in (EpisodeEvent.SUCCESS, EpisodeEvent.FAILURE)
            if sample.action is not None:
                goal, width = self.control.targets(self.q, None, sample.action[None])
                self.q, self.width = self.q + SPEED * (goal - self.q), width
            self.device.show(Status(self.state, "", self.episode, 5, 0, 0.0, self.q[0], images={"front": image}))
