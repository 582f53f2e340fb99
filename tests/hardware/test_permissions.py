"""The SROS2 policy against the graph: every topic and service that a running node has open is permitted to it."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rclpy.node import Node as PlainNode
from std_srvs.srv import Trigger

import hardware.ros2
from hardware.calibration import Board
from hardware.recording import Session
from hardware.ros2 import topics
from hardware.ros2.film_node import FilmNode
from hardware.ros2.motion_node import MotionNode
from hardware.ros2.permissions import permissions, policy_xml
from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background, wait_until
from hardware.ros2.record_node import RecordNode
from hardware.ros2.rollouts_node import Rollouts, RolloutsNode
from hardware.ros2.runtime import Node
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.safety_node import SafetyNode
from hardware.ros2.shot_taker import ShotTaker
from hardware.ros2.sim_arm_node import SimArmNode
from hardware.ros2.station_watch import StationWatch
from hardware.ros2.streamer_node import StreamerNode
from hardware.ros2.teleop_node import TeleopNode
from hardware.teleop.device import Sample
from robolearn.bench.emulators.node import make_world
from robolearn.cli.main import main
from robolearn.core import ActionChunk, Observation, Policy
from robots.stations import Contract, contract_names, load_contract

sys.path.insert(0, str(Path(__file__).parent))
from recording_rig import Paper

pytestmark = pytest.mark.realtime

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 7
WAIT_S = 30.0
QUESTIONS = {
    "publish": "get_publisher_names_and_types_by_node",
    "subscribe": "get_subscriber_names_and_types_by_node",
    "reply": "get_service_names_and_types_by_node",
    "request": "get_client_names_and_types_by_node",
}
POLICY = Path(hardware.ros2.__file__).with_name("sros2") / "policy.xml"


def permitted(text: str) -> dict[str, dict[str, set[str]]]:
    """Full name of a node → verb → full names: read from the XML alone, by the rules of SROS2."""
    found: dict[str, dict[str, set[str]]] = {}
    for enclave in ET.fromstring(text).iter("enclave"):
        (profile,) = enclave.iter("profile")
        ns, node = profile.attrib["ns"], profile.attrib["node"]
        assert enclave.attrib["path"] == f"{ns}/{node}"
        verbs = found.setdefault(f"{ns}/{node}", {verb: set() for verb in QUESTIONS})
        for group in profile:
            (verb,) = (name for name, value in group.attrib.items() if value == "ALLOW")
            for one in group:
                assert one.text and "*" not in one.text, "names, no patterns"
                verbs.setdefault(verb, set()).add(one.text if one.text.startswith("/") else f"{ns}/{one.text}")
    return found


def opened(observer: Any, namespace: str, node: str) -> dict[str, set[str]]:
    """Verb → full names of what a node has open, as the graph shows it to another node."""
    return {verb: {name for name, _ in getattr(observer, ask)(node, namespace)} for verb, ask in QUESTIONS.items()}


class Still:
    """A device that nobody touches."""

    name = "still"

    def open(self) -> None: ...

    def close(self) -> None: ...

    def sample(self, observation: object) -> Any:
        return Sample(None, False, (), time.monotonic(), "")

    def prepared(self) -> None: ...

    def show(self, status: object) -> None: ...


class Undrawn:
    """A film of nothing."""

    def draw(self, seen: object) -> np.ndarray:
        return np.zeros((2, 2, 3), np.uint8)

    def close(self) -> None: ...


class Blank(Policy):
    """A policy that needs all that the station has: pictures and the task's objects."""

    execute_steps = 1

    def __init__(self, contract: Contract) -> None:
        self.interface = contract.interface

    def reset(self, seed: int) -> None: ...

    def act(self, observation: Observation) -> ActionChunk:
        return np.zeros((1, 1, self.interface.action.size), np.float32)


CONTRACT = load_contract("sim")
# What our programs are, beside the nodes of `hardware.ros2`; those that only look have plain nodes.
LATER = {  # what they open when it is their turn
    "/robolearn/record": {"/robolearn/sim_arm/reset"},
    "/robolearn/calibrate": {CONTRACT.cameras["wrist"].topic},
    # of `identify`, before the motion is made; of `deploy --reset motion`; the keys of `operate`
    "/robolearn/operator": {
        CONTRACT.joint_states.topic,
        "/robolearn/go_home",
        "/robolearn/policy/success",
        "/robolearn/policy/failure",
    },
}
PROGRAMS = (
    "safety", "streamer", "policy", "sim_arm", "motion", "teleop", "record", "film", "rollouts", "operator", "doctor",
    "calibrate",
)  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, set[str]]]]:
    """Full name of each of our nodes → what it has open, all of them at work at once."""
    with ExitStack() as stack:
        ros = [stack.enter_context(Background(DOMAIN)) for _ in range(3)]

        def start(node: Any, number: int) -> None:
            node.start()
            ros[number].add(node)

        placed: dict[str, Any] = {"contract": CONTRACT, "context": ros[0].context}
        start(SimArmNode(make_world, **placed), 0)
        names = make_world(CONTRACT, "lift", 0).objects()[0]
        seen = CONTRACT.with_objects(names)
        start(
            PolicyNode(
                lambda *_, **__: Blank(seen),
                overrides={"policy": "blank", "seconds": 60.0},
                contract=seen,
                context=ros[0].context,
            ),
            0,
        )
        start(StreamerNode(**placed), 0)
        start(SafetyNode(**placed), 0)
        way = tmp_path_factory.mktemp("motion") / "way.npy"
        np.save(way, np.tile(CONTRACT.robot.home, (10, 1)))
        start(MotionNode(overrides={"way": str(way), "out": str(way.with_name("log.npz"))}, **placed), 0)
        placed["context"] = ros[1].context
        start(TeleopNode(lambda *_: Still(), **placed), 1)
        session = Session(seen, Still(), seen.interface, Paper(), "nothing", 1, simulated=True)
        start(RecordNode(lambda value: session, **placed), 1)
        film: dict[str, Any] = {"overrides": {"out": str(tmp_path_factory.mktemp("film") / "run.mp4")}}
        start(FilmNode(lambda *_: Undrawn(), lambda path, pictures, fps: list(pictures), **film, **placed), 1)
        rollouts = Rollouts(seen, Paper(), "nothing")
        start(RolloutsNode(lambda *_: rollouts, overrides={"out": "data", "policy": "blank"}, **placed), 1)
        operator = SafetyClient(ros[2])
        operator.publish_json(topics.ROLLOUT)
        operator.subscribe_json(topics.SIM_EPISODE, print, depth=10)
        operator.subscribe_json(topics.SIM_MONITOR, print)
        operator.subscribe_json(topics.MOTION_STATUS, print)
        operator.node.create_client(Trigger, topics.SIM_RESET)
        info = replace(CONTRACT.cameras["front"], info="/camera/front/info")
        StationWatch(ros[2], replace(CONTRACT, cameras={**CONTRACT.cameras, "front": info}))
        ShotTaker(ros[2], CONTRACT, "front", Board())
        observer = ros[2].add(PlainNode("observer", context=ros[2].context))

        def all_there() -> bool:
            return {f"/robolearn/{name}" for name in PROGRAMS} <= {
                f"{namespace}/{name}" for name, namespace in observer.get_node_names_and_namespaces()
            }

        wait_until(all_there, WAIT_S, "all nodes")
        found: dict[str, dict[str, set[str]]] = {}

        def settled() -> bool:
            """Endpoints are discovered one after the other: until nothing new comes."""
            nonlocal found
            before, found = found, {f"/robolearn/{name}": opened(observer, "/robolearn", name) for name in PROGRAMS}
            time.sleep(1.0)
            return found == before

        wait_until(settled, WAIT_S, "the graph to settle")
        yield found


@pytest.mark.long
def test_what_a_node_opens_is_permitted_to_it(graph: dict[str, dict[str, set[str]]]) -> None:
    info = replace(CONTRACT.cameras["front"], info="/camera/front/info")
    allowed = permitted(policy_xml(replace(CONTRACT, cameras={**CONTRACT.cameras, "front": info})))
    assert set(graph) == set(allowed), "a policy for each of our nodes, and no other"
    for node, verbs in graph.items():
        for verb, names in verbs.items():
            assert names <= allowed[node][verb], f"{node} may not {verb} {sorted(names - allowed[node][verb])}"


def test_nothing_is_permitted_that_no_node_opens(graph: dict[str, dict[str, set[str]]]) -> None:
    allowed = permitted(policy_xml(CONTRACT))
    for node, verbs in graph.items():
        for verb, names in verbs.items():
            more = allowed[node][verb] - names - {"/parameter_events"} - LATER.get(node, set())
            assert not more, f"{node} need not {verb} {sorted(more)}"


def test_only_the_safety_node_may_publish_to_the_controller(graph: dict[str, dict[str, set[str]]]) -> None:
    for name in contract_names():
        contract = load_contract(name)
        commands = {contract.command.topic, *([contract.gripper.topic] if contract.gripper else [])}
        allowed, ours = permitted(policy_xml(contract)), f"{contract.namespace}/robolearn"
        assert [node for node, verbs in allowed.items() if commands & verbs["publish"]] == [f"{ours}/safety"]
        assert commands <= allowed[f"{ours}/safety"]["publish"]
        holders = {node for node, verbs in allowed.items() if f"{ours}/deadman" in verbs["publish"]}
        assert holders == {f"{ours}/operator", f"{ours}/teleop", f"{ours}/record"}
    publishers = [node for node, verbs in graph.items() if CONTRACT.command.topic in verbs["publish"]]
    assert publishers == ["/robolearn/safety"]


def test_every_node_of_ours_has_permissions() -> None:
    """A node that somebody adds stands in the policy, too."""
    found = set()
    for module in pkgutil.iter_modules(hardware.ros2.__path__, "hardware.ros2."):
        for name, kind in vars(importlib.import_module(module.name)).items():
            if isinstance(kind, type) and issubclass(kind, Node) and kind is not Node and not inspect.isabstract(kind):
                found.add(name.removesuffix("Node").lower().replace("simarm", "sim_arm"))
    permitted_nodes = {
        node.rpartition("/")[2] for name in contract_names() for node in permissions(load_contract(name))
    }
    assert found <= permitted_nodes, found


def test_what_a_shipped_arm_needs_besides() -> None:
    fr3 = permitted(policy_xml(load_contract("fr3")))["/robolearn/gripper"]
    assert fr3["call"] == {"/franka_gripper/move", "/franka_gripper/grasp"}
    assert {"/franka_gripper/commands", "/franka_gripper/joint_states"} <= fr3["subscribe"]
    ur5e = permitted(policy_xml(load_contract("ur5e")))["/robolearn/safety"]
    assert "/io_and_status_controller/robot_program_running" in ur5e["subscribe"]


def test_a_namespace_moves_all_but_what_all_nodes_share() -> None:
    left = replace(CONTRACT, namespace="/left", command=replace(CONTRACT.command, topic="/left/commands"))
    allowed = permitted(policy_xml(left))
    assert all(node.startswith("/left/robolearn/") for node in allowed)
    safety = allowed["/left/robolearn/safety"]
    assert {"/left/commands", "/left/robolearn/safety_state", "/rosout"} <= safety["publish"]
    assert "/left/robolearn/arm" in safety["reply"] and not any(
        name.startswith("/robolearn") for name in safety["reply"]
    )


def test_the_shipped_policy_is_that_of_the_simulated_arm(tmp_path: Path) -> None:
    assert main(["permissions", "--robot", "sim", "--out", str(tmp_path / "policy.xml")]) == 0
    assert (tmp_path / "policy.xml").read_text() == POLICY.read_text(), "robolearn permissions --robot sim --out …"
