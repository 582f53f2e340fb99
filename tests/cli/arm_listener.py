"""What passes between the nodes of the simulated arm, for tests that share nothing with them."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware" / "teleop"))
sys.path.insert(0, str(Path(__file__).parent))
from browser_driver import SWITCH, Hands
from teaching import until

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.node_parameters import NodeParameters
from hardware.ros2 import messages, qos, topics
from hardware.ros2.runtime import Node
from robots.stations import CONTRACTS, load_contract

CONTRACT = load_contract("sim").with_cameras(())


class Listener(Node):
    """What passes between the nodes; times are those of sending, by the clock of the day [s]."""

    def __init__(self, **options: Any) -> None:
        super().__init__("listener", NodeParameters(), **options)
        self.accepted: list[tuple[int, float, np.ndarray]] = []  # stamp [ns], time, joints
        self.commands: list[tuple[float, np.ndarray]] = []
        self.state = ""
        deep = qos.stream(lease_s=None, depth=100)
        self.create_subscription(messages.JointTrajectory, topics.ACCEPTED, self._on_accepted, qos.ACCEPTED)
        self.create_subscription(messages.Float64MultiArray, CONTRACT.command.topic, self._on_command, deep)
        self.create_subscription(messages.DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())

    def _on_accepted(self, message: Any, info: Any) -> None:
        if message.points:
            sent, q = 1e-9 * info["source_timestamp"], np.array(message.points[0].positions)
            self.accepted.append((messages.nanoseconds(message.header.stamp), sent, q))

    def _on_command(self, message: Any, info: Any) -> None:
        self.commands.append((1e-9 * info["source_timestamp"], np.array(message.data)))

    def _on_safety(self, message: Any, info: Any) -> None:
        report = messages.read_safety_report(message)
        self.state = "" if report is None else str(report.state)

    def moved(self, since: float) -> float:
        """How far a joint was commanded since that time of day [rad]."""
        found = np.array([q[:7] for at, q in self.commands if at >= since])
        return float(np.ptp(found, axis=0).max()) if len(found) else 0.0


def light_station(folder: Path) -> Path:
    """`sim` at half its stream rate: two cores have to do for its nodes beside a recorder, or a browser that draws in
    software."""
    contract = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())
    contract["stream_hz"] = CONTRACT.stream_hz / 2
    path = folder / "sim.yaml"
    path.write_text(yaml.safe_dump(contract))
    return path


def intervene(hands: Hands, listener: Listener, policy_s: float = 1.0) -> float:
    """Let the policy move, take over, lift the target, let go, call it a success; the time of day of the click that
    took over [s].

    A machine that stands still for a moment lets the safety filter stop the arm: then once more.
    """
    hands.tab.js(
        f"document.querySelector({json.dumps(SWITCH)})"
        ".addEventListener('click', () => { window.clicked = Date.now(); }, true)"
    )
    for _ in range(8):
        until(lambda: hands.state == "waiting", "START is waited for", 120.0)
        hands.button("Start")
        with suppress(AssertionError):
            until(lambda: listener.state == "armed" and hands.state == "recording", "the policy moves", 15.0)
            if clicked := _taken_over(hands, listener, policy_s):
                return clicked
    raise AssertionError("the safety filter stops the arm again and again")


def _taken_over(hands: Hands, listener: Listener, policy_s: float) -> float:
    """One try of `intervene`; 0 where the arm was stopped."""
    tab = hands.tab
    time.sleep(policy_s)
    tab.press(SWITCH)
    try:
        tab.wait("document.querySelector('#robolearn').dataset.engaged === 'true'", 3.0)
    except TimeoutError:
        if listener.state == "armed":
            raise
        return 0.0
    clicked = 1e-3 * tab.js("window.clicked")
    time.sleep(0.4)
    hands.drag("z", -0.08)
    time.sleep(1.0)
    if listener.state != "armed" or not hands.engaged:
        return 0.0
    tab.press(SWITCH)
    time.sleep(1.2 * policy_s)
    if listener.state != "armed" or hands.state != "recording":
        return 0.0
    hands.button("Success")
    until(lambda: hands.state != "recording", "the episode's end", 20.0)
    return 0.0 if "dropped" in hands.message else clicked
