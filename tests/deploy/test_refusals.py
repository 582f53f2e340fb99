"""Arms that do not fit, over real rclpy and DDS: the nodes in this process, waited for and armed as `deploy` does, or
`deploy` itself as a program."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rclpy.qos import QoSProfile

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.node_parameters import NodeParameters
from hardware.ros2 import messages, qos
from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background
from hardware.ros2.runtime import Node
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.safety_node import SafetyNode
from hardware.ros2.streamer_node import StreamerNode
from robolearn.core import RobolearnError
from robolearn.deploy import SafetyStopped, deployment, run_session
from robolearn.deploy.deployment import wait_ready
from robolearn.deploy.session import RealArm
from robots.stations import CONTRACTS, Contract, Topic, load_contract

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))
from ros_station import SinePolicy
from running import Running
from untrained import make_constant

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 1
CONTRACT = replace(load_contract("sim").with_cameras(()), name="mine")
NODES = SimpleNamespace(check=lambda: None)  # in this process they do not die
WILLING = SimpleNamespace(confirm_motion=lambda robot: True)


class StillArm(Node):
    """An arm that publishes where it is, by a clock that is `behind` [s]. Its controller subscribes with `profile`;
    its gripper listens."""

    def __init__(self, profile: QoSProfile, behind: float = 0.0, **options: Any) -> None:
        super().__init__("still_arm", NodeParameters(), **options)
        self._behind = behind
        kind = messages.message_type(CONTRACT.command.type)
        self.heard: list[Any] = []
        self._states = self.create_publisher(messages.JointState, CONTRACT.joint_states.topic, qos.sensor())
        self.create_subscription(kind, CONTRACT.command.topic, self.heard.append, profile)
        assert CONTRACT.gripper is not None
        kind = messages.message_type(CONTRACT.gripper.type)
        self.create_subscription(kind, CONTRACT.gripper.topic, self.heard.append, qos.CONTROLLER)
        self.every(0.01, self._tick)

    def _tick(self) -> None:
        names, values = (*CONTRACT.joints, *CONTRACT.gripper_joints), (*CONTRACT.robot.home, 0.02, 0.02)
        self._states.publish(messages.joint_state(names, values, time.time() - self._behind))


class Hurried(SafetyClient):
    """Asks for a second only, where a deployment goes on for ten."""

    def arm(self, timeout_s: float = 1.0) -> None:
        super().arm(timeout_s)


@contextmanager
def station(contract: Contract, profile: QoSProfile) -> Iterator[tuple[SafetyClient, StillArm]]:
    """The nodes of a real arm of that contract, and the arm."""
    with Background(DOMAIN) as background:
        options: Any = {"contract": contract, "context": background.context}
        arm = StillArm(profile, context=background.context)
        nodes = [arm, SafetyNode(**options), StreamerNode(**options)]
        nodes.append(PolicyNode(lambda *_, **__: SinePolicy(contract.with_cameras(())), **options))
        for node in nodes:
            background.add(node)
            node.start()
        yield Hurried(background), arm
        assert background.errors == []


def test_an_arm_whose_joint_states_never_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "SENSORS_S", 1.0)
    monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
    nobody = replace(CONTRACT, joint_states=Topic("/nobody/joint_states", CONTRACT.joint_states.type))
    with station(nobody, qos.CONTROLLER) as (client, arm):
        with pytest.raises(RobolearnError, match="joint states on /nobody/joint_states: nothing arrived yet"):
            wait_ready(client, NODES, simulated=False)  # type: ignore[arg-type]
        with pytest.raises(RobolearnError, match="joint state"):
            client.arm()
        assert client.state == "disarmed" and not arm.heard


def test_an_arm_whose_controller_cannot_hear_is_never_armed() -> None:
    with station(CONTRACT, qos.latched()) as (client, arm):
        wait_ready(client, NODES, simulated=False)  # type: ignore[arg-type]
        with pytest.raises(SafetyStopped, match="/still_arm cannot receive from /robolearn/safety"):
            next(run_session(client, RealArm("mine", WILLING), 1, limit_s=5.0, alive=NODES.check))  # type: ignore[arg-type]
        states = {report.state for report in client.reports}
        assert states <= {"disarmed"} and not arm.heard, states


def test_deploy_names_the_clock_of_an_arm_that_is_behind_and_the_command_that_mends_it(tmp_path: Path) -> None:
    content = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())
    for name in ("simulated", "cameras", "objects"):
        del content[name]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    policy = make_constant(tmp_path / "policy", load_contract(str(tmp_path / "mine.yaml")).interface)
    with Background(DOMAIN) as background:
        arm = background.add(StillArm(qos.CONTROLLER, 0.5, context=background.context))
        arm.start()
        words = ("deploy", "--policy", policy, "--robot", tmp_path / "mine.yaml", "--episodes", 1, "--seconds", 2)
        code, out, err = Running(tmp_path / "logs", *words, "--yes", domain=DOMAIN).end()
        assert not arm.heard, "nothing was commanded"
    assert code == 1 and not out, err
    (said,) = [line for line in err.splitlines() if "clock" in line]
    (seconds,) = re.findall(r"stamped ([\d.]+) s ago", said)
    assert float(seconds) == pytest.approx(0.5, abs=0.1) and "sudo chronyc makestep" in said, said
    assert said == err.strip(), "one line"
