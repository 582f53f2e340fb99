"""Two simulated arms in one ROS domain, each with its nodes in a namespace: neither hears, moves or stops the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rclpy
import yaml
from rclpy.context import Context

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import topics
from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.safety_node import SafetyNode
from hardware.ros2.streamer_node import StreamerNode
from hardware.safety.states import SafetyState
from robolearn.core import BadInput, RobolearnError
from robots.stations import CONTRACTS, Contract, load_contract

sys.path.insert(0, str(Path(__file__).parent))
from hosted import running
from ros_station import Arm, SinePolicy

pytestmark = pytest.mark.realtime

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 7
WAIT_S = 30.0
TRIES = 4


def contract_file(folder: Path, **keys: Any) -> Path:
    # Half the usual rate: both arms and all of their nodes share one process here.
    data = {**yaml.safe_load((CONTRACTS / "sim.yaml").read_text()), "stream_hz": 100, **keys}
    path = folder / f"{keys.get('namespace', 'none')}.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@dataclass
class Side:
    """One arm with all of its nodes."""

    contract: Contract
    arm: Arm
    operator: SafetyClient


def make_side(stack: ExitStack, file: Path) -> Side:
    contract, placed = load_contract(file), {"contract": str(file)}
    swing = SinePolicy(contract.with_cameras(()))
    arm = running(stack, lambda context: Arm(contract, context=context), DOMAIN)
    running(stack, lambda context: PolicyNode(lambda *_, **__: swing, context=context, overrides=placed), DOMAIN)
    running(stack, lambda context: StreamerNode(context=context, overrides=placed), DOMAIN)
    running(stack, lambda context: SafetyNode(context=context, overrides=placed), DOMAIN)
    operator = SafetyClient(stack.enter_context(Background(DOMAIN)), station=contract.namespace)
    return Side(contract, arm, operator)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[list[Side]]:
    with ExitStack() as stack:
        made = [make_side(stack, contract_file(tmp_path, namespace=name)) for name in ("left", "right")]
        for side in made:
            side.operator.wait_ready(WAIT_S)
        yield made


def moving(*sides: Side) -> None:
    """Arm what is not armed and wait until all move at once. A machine that stands still for a moment stops an arm."""
    for _ in range(TRIES):
        for side in sides:
            side.operator.hold()
            if side.operator.state == SafetyState.LATCHED:
                side.operator.reset()
            if side.operator.state != SafetyState.ARMED:
                side.operator.arm(WAIT_S)
        begun = [len(side.arm.commands) for side in sides]
        try:
            wait_until(lambda b=begun: all(s.arm.moved(n) > 0.02 for s, n in zip(sides, b, strict=True)), 8.0, "motion")
            return
        except RobolearnError:
            continue
    raise AssertionError([[f"{r.state}: {r.reason}" for r in side.operator.reports] for side in sides])


@pytest.mark.long
def test_two_arms_share_a_domain_and_do_not_disturb_each_other(sides: list[Side]) -> None:
    left, right = sides
    assert left.contract.command.topic == "/left/forward_position_controller/commands"
    own = ("joint_states", "forward_position_controller/commands", f"robolearn/{topics.TARGET}")

    def names() -> set[str]:
        return {name for name, _ in left.operator.node.get_topic_names_and_types()}

    wait_until(lambda: {f"/{side}/{name}" for side in ("left", "right") for name in own} <= names(), WAIT_S, "both")
    assert not {f"/{name}" for name in own} & names()
    still = np.array(right.arm.q)
    moving(left)
    assert right.operator.state == SafetyState.DISARMED and not right.arm.commands
    np.testing.assert_array_equal(right.arm.q, still)
    # Both at once, each with a dead-man's switch of its own: for one arm, two would be one too many.
    moving(left, right)
    # One stops, the other goes on.
    left.operator.estop()
    left.operator.wait_for(SafetyState.LATCHED, WAIT_S)
    begun = len(left.arm.commands)
    moving(right)
    reasons = [report.reason for report in right.operator.reports]
    assert not any("e-stop" in reason or "emergency" in reason for reason in reasons), reasons
    assert left.operator.state == SafetyState.LATCHED and left.arm.moved(begun) < 0.02
    assert left.arm.monitor.summary()["violations"] == right.arm.monitor.summary()["violations"] == 0
    right.operator.release()
    right.operator.wait_for(SafetyState.LATCHED, WAIT_S)


def test_names_follow_the_node_or_the_contract_but_not_two_of_them(tmp_path: Path) -> None:
    sim, left = contract_file(tmp_path), contract_file(tmp_path, namespace="left")
    contexts: list[Context] = []

    def node(robot: Path, *words: str) -> StreamerNode:
        context = Context()
        rclpy.init(args=["--ros-args", "-p", f"contract:={robot}", *words], context=context, domain_id=DOMAIN)
        contexts.append(context)
        return StreamerNode(context=context)

    try:
        plain, placed, moved = node(sim), node(left), node(sim, "-r", "__ns:=/right/robolearn")
        torn = node(left, "-r", "__ns:=/right/robolearn")
        assert [n.get_namespace() for n in (plain, placed, moved)] == [
            "/robolearn",
            "/left/robolearn",
            "/right/robolearn",
        ]
        topics_of = [n.station().joint_states.topic for n in (plain, placed, moved)]
        assert topics_of == ["/joint_states", "/left/joint_states", "/right/joint_states"]
        with pytest.raises(BadInput, match="got /right/robolearn, expected /left/robolearn"):
            torn.station()
    finally:
        for context in contexts:
            context.shutdown()
