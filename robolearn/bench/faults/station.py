"""The station that faults are tried on: its nodes as processes, an operator, and a witness on the topics."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node as PlainNode
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from hardware.observing.monitor import LimitMonitor
from hardware.observing.timing import SafetySilent
from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.senders import sent_at
from hardware.safety.states import SafetyState
from robolearn.bench.faults.planner import Planner
from robolearn.bench.faults.sine_policy import POLICY_FAULT
from robolearn.core import RobolearnError
from robolearn.deploy.deployment import wait_ready
from robolearn.deploy.processes import Program, StackProcesses, node_program
from robots.stations import Contract, load_contract

START_S = 120.0
FALLS = 0.03  # [m/s] a tcp that goes down
STANDS_RAD = 1e-5  # a command that differs by less is the same
MOVING_RAD = 0.01  # a joint that was commanded so far moves


class FaultStation:
    """Policy and streamer, or a planner in their place, safety node and simulated arm, and who looks at them. A context
    manager.

    Args:
      contract: file of the simulated arm's contract.
      logs: folder for the nodes' logs.
      priority: of the nodes, where this machine permits it.
      arm: module of the simulated arm.
      rest_s: for how long the arm rests before it is armed [s]: what is learned of its sensors is learned then.
      poses: true for a planner that sends poses of the tcp.

    Attributes:
      background: where nodes of a fault are added.
      onlooker, stranger: of another program; a client of the safety node, and a node.
      operator: holds the dead-man's switch.
      planner: sends the poses, where there are any.
      stops: (time [s], reason) of each report of the safety node that the arm brakes or is latched.
      falling: (time [s], speed [m/s]) of the tcp downwards, as the arm is measured.
      commands: (time of sending [s], positions (n,) [rad]) of what went to the controller.
    """

    def __init__(
        self, contract: Path, logs: Path, priority: int, arm: str = "robolearn.bench.emulators.node",
        rest_s: float = 0.3, poses: bool = False,
    ) -> None:  # fmt: skip
        self._rest_s = rest_s
        self.contract: Contract = load_contract(contract)
        self.nodes = StackProcesses(_programs(str(contract), priority, arm, poses), logs, {"OMP_NUM_THREADS": "1"})
        self.background, self._others = Background(), Background()
        self.operator = SafetyClient(self.background)
        self.commands: list[tuple[float, np.ndarray]] = []
        self.stops: list[tuple[float, str]] = []
        self.falling: list[tuple[float, float]] = []
        self.monitor = LimitMonitor.of(self.contract.robot, 1.0 / self.contract.stream_hz)
        # Another program, there from the beginning: to start one in here would hold the dead-man's heartbeat up.
        self.onlooker = SafetyClient(self._others, name="onlooker")
        self.stranger = self._others.add(
            PlainNode("stranger", namespace=topics.NAMESPACE, context=self._others.context)
        )
        node = self.node = self.background.add(
            PlainNode("witness", namespace=topics.NAMESPACE, context=self.background.context)
        )
        command = self.contract.command
        kind = messages.message_type(command.type)
        node.create_subscription(kind, command.topic, self._on_command, qos.stream(lease_s=None, depth=200))
        node.create_subscription(JointState, self.contract.joint_states.topic, self._on_state, qos.sensor(10))
        node.create_subscription(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched())
        self.planner: Planner | None = None
        if poses:
            self._planning = Background()
            self.planner = Planner(self._planning, self.contract, self.operator)
        self._faults = node.create_client(SetParameters, "/robolearn/sim_arm/set_parameters")
        self._policy_fault = node.create_publisher(String, POLICY_FAULT, qos.latched())

    def __enter__(self) -> FaultStation:
        self.nodes.__enter__()
        return self

    def __exit__(self, *_: Any) -> None:
        self.background.close()
        self._others.close()
        if self.planner is not None:
            self._planning.close()
        self.nodes.stop()

    def signal(self, name: str, number: int) -> float:
        """Send a signal to a node; when."""
        at = time.monotonic()
        self.nodes.signal(name, number)
        return at

    def fault(self, what: str) -> float:
        """Switch a fault of the simulated arm on, or off with an empty name; when."""
        wait_until(self._faults.service_is_ready, START_S, "the parameters of the simulated arm")
        request = SetParameters.Request(parameters=[Parameter("fault", value=what).to_parameter_msg()])
        at = time.monotonic()
        future = self._faults.call_async(request)
        wait_until(future.done, 10, "an answer of the simulated arm")
        return at

    def policy_fault(self, how: str) -> float:
        """Inject a fault into the policy, see `inject_fault`; when [s]."""
        at = time.monotonic()
        self._policy_fault.publish(messages.text(how))
        return at

    def calm(self) -> None:
        """Disarmed, nothing broken, everything running, the arm where an episode begins."""
        self.policy_fault("")
        ended = self.nodes.codes
        for name in ended:
            self.nodes.restart(name)
            # What its predecessor sent does not count.
            if name in ("policy", "streamer"):
                setattr(self.operator, name, {})
            elif name == "safety":
                self.operator.report = None
        if "sim_arm" not in ended:  # a new one has no fault
            self.fault("")
        if self.planner is None:
            wait_ready(self.operator, self.nodes, simulated=True, start_s=START_S)
        else:
            self.operator.wait_ready(START_S, policy=False)
        if self.operator.state in ("armed", "braking"):
            self.operator.estop()
            self.operator.wait_for("latched")
        if self.operator.state == "latched":
            self.operator.hold()
            self.operator.reset()
        self.operator.call(topics.SIM_RESET)
        time.sleep(self._rest_s)

    def move(self) -> None:
        """Armed and in motion for a while; a machine that is too busy for a moment stops the arm, and then again."""
        end, begun, armed = time.monotonic() + 60.0, time.monotonic(), 0.0
        while not (self.travel(begun) > MOVING_RAD and time.monotonic() - armed > 1.0):
            if time.monotonic() > end:
                raise RobolearnError(f"no motion: {self.operator.state}, {self.operator.reason}")
            self.nodes.check()
            if self.operator.state == "latched":
                self.operator.reset()
            if self.operator.state == "disarmed":
                self.operator.arm(20)
                begun = armed = time.monotonic()
            time.sleep(0.02)
        self.commands.clear()
        self.stops.clear()
        self.falling.clear()
        self.monitor.new_motion()
        wait_until(lambda: len(self.commands) > 20 and self.travel(0.0) > MOVING_RAD, 10, "commands")

    def travel(self, since: float) -> float:
        """Largest travel of a joint that was commanded since then [rad]."""
        found = [q for at, q in list(self.commands) if at > since]
        return float(np.ptp(found, axis=0).max()) if found else 0.0

    def violations(self) -> int:
        """Violations that the limit monitor has counted up to now."""
        return self.monitor.summary()["violations"]

    def stood(self) -> float:
        """When the commands came to a stand: the last that differs from the one before it was sent [s]."""
        found = list(self.commands)
        return max(at for (_, p), (at, q) in pairwise(found) if np.abs(p - q).max() > STANDS_RAD)

    def touched(self, seconds: float) -> float:
        """Wait until the tcp, which goes down, is held up; when it last was half as fast as it had been."""

        def held_up() -> float | None:
            found = list(self.falling)
            fastest = max((speed for _, speed in found), default=0.0)
            if fastest < FALLS or found[-1][1] > 0.2 * fastest:
                return None
            return next(at for at, speed in reversed(found) if speed > 0.5 * fastest)

        return wait_until(held_up, seconds, "the tcp to meet the table")

    def watch(self, seconds: float) -> float | None:
        """Let time pass; when the safety node was said to be silent, if it was."""
        end, silent = time.monotonic() + seconds, None
        while time.monotonic() < end:
            try:
                self.operator.check_heard()
            except SafetySilent:
                silent = silent or time.monotonic()
            time.sleep(0.005)
        return silent

    def _on_command(self, message: Any, info: Any) -> None:
        at, q = sent_at(info), np.array(message.data)
        self.commands.append((at, q))
        self.monitor.command(q, at)

    def _on_state(self, message: JointState, info: Any) -> None:
        names, n = list(message.name), len(self.contract.joints)
        if len(message.velocity) != len(names) or not set(self.contract.joints) <= set(names):
            return
        order = [names.index(joint) for joint in self.contract.joints]
        q, v = np.array(message.position)[order], np.array(message.velocity)[order]
        self.falling.append((sent_at(info), -float(self.contract.robot.chain.jacobian(q[None])[0, 2, :n] @ v)))

    def _on_safety(self, message: DiagnosticArray) -> None:
        report = messages.read_safety_report(message)
        if report is not None and report.state in (SafetyState.BRAKING, SafetyState.LATCHED):
            self.stops.append((time.monotonic(), report.reason))


def _programs(robot: str, priority: int, arm: str, poses: bool) -> list[Program]:
    policy = ("robolearn.bench.faults.sine_policy",)
    driven = [node_program("policy", robot, priority, policy), node_program("streamer", robot, priority)]
    return [
        *([] if poses else driven),
        node_program("safety", robot, priority, targets="poses" if poses else "joints"),
        node_program("sim_arm", robot, priority, (arm,), task="lift", seed=0),
    ]
