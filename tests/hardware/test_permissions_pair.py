"""The SROS2 policy of a station with two arms against the graph: what its nodes open is permitted, and no more."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rclpy.node import Node as PlainNode
from std_srvs.srv import Trigger

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import topics
from hardware.ros2.film_node import FilmNode
from hardware.ros2.permissions import policy_xml
from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.safety_node import SafetyNode
from hardware.ros2.sim_arm_node import SimArmNode
from hardware.ros2.station_watch import StationWatch
from hardware.ros2.streamer_node import StreamerNode
from robolearn.bench.emulators.node import make_world
from robolearn.cli.main import main
from robots.stations import load_pair, pair_names
from sim.tasks import TASKS

sys.path.insert(0, str(Path(__file__).parent))
from test_permissions import Blank, Undrawn, opened, permitted

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 6
WAIT_S = 60.0
PROGRAMS = ("safety", "streamer", "policy", "sim_arm", "film", "operator", "doctor")
PAIR = load_pair("panda_pair")
# What they open when it is their turn: of `identify`, `deploy --reset motion` and `--record`, by keys of `operate`.
LATER = {"/robolearn/operator": {*(arm.joint_states.topic for arm in PAIR.arms.values()), "/robolearn/go_home",
                                 "/robolearn/motion_status", "/robolearn/policy/success",
                                 "/robolearn/policy/failure", "/robolearn/rollout"}}  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, set[str]]]]:
    """Full name of each node of two arms → what it has open."""
    seen = PAIR.with_objects(TASKS["lift_two"]().observation_names)
    with ExitStack() as stack:
        ros = [stack.enter_context(Background(DOMAIN)) for _ in range(2)]
        placed: dict[str, Any] = {"contract": PAIR, "context": ros[0].context}
        policy: Any = {"contract": seen, "context": ros[0].context, "overrides": {"policy": "blank", "seconds": 60.0}}
        film: Any = {"out": str(tmp_path_factory.mktemp("film") / "run.mp4")}
        for node in (
            SimArmNode(make_world, overrides={"task": "lift_two"}, **placed),
            PolicyNode(lambda *_, **__: Blank(seen), **policy),  # type: ignore[arg-type]
            StreamerNode(**placed),
            SafetyNode(**placed),
            FilmNode(lambda *_: Undrawn(), lambda path, pictures, fps: list(pictures), overrides=film, **placed),
        ):
            node.start()
            ros[0].add(node)
        operator = SafetyClient(ros[1])
        operator.subscribe_json(topics.SIM_EPISODE, print, depth=10)
        operator.subscribe_json(topics.SIM_MONITOR, print)
        operator.node.create_client(Trigger, topics.SIM_RESET)
        StationWatch(ros[1], PAIR)
        observer = ros[1].add(PlainNode("observer", context=ros[1].context))
        found: dict[str, dict[str, set[str]]] = {}

        def settled() -> bool:
            """Endpoints are discovered one after the other: until nothing new comes."""
            nonlocal found
            there = {name for name, _ in observer.get_node_names_and_namespaces()}
            if not set(PROGRAMS) <= there:
                return False
            before, found = found, {f"/robolearn/{name}": opened(observer, "/robolearn", name) for name in PROGRAMS}
            time.sleep(1.0)
            return found == before

        wait_until(settled, WAIT_S, "the graph to settle")
        yield found


@pytest.mark.long
@pytest.mark.realtime
def test_what_a_node_of_two_arms_opens_is_permitted_to_it_and_no_more(graph: dict[str, dict[str, set[str]]]) -> None:
    allowed = permitted(policy_xml(PAIR))
    for node, verbs in graph.items():
        for verb, names in verbs.items():
            assert names <= allowed[node][verb], f"{node} may not {verb} {sorted(names - allowed[node][verb])}"
            more = allowed[node][verb] - names - {"/parameter_events"} - LATER.get(node, set())
            assert not more, f"{node} need not {verb} {sorted(more)}"
    for arm in PAIR.arms.values():
        publishers = [node for node, verbs in graph.items() if arm.command.topic in verbs["publish"]]
        assert publishers == ["/robolearn/safety"]


@pytest.mark.parametrize("name", pair_names())
def test_only_the_safety_node_may_publish_to_either_controller(name: str) -> None:
    pair = load_pair(name)
    allowed = permitted(policy_xml(pair))
    for arm in pair.arms.values():
        for topic in (arm.command, arm.gripper):
            if topic is not None:
                assert [n for n, verbs in allowed.items() if topic.topic in verbs["publish"]] == ["/robolearn/safety"]
        assert arm.joint_states.topic in allowed["/robolearn/safety"]["subscribe"]


def test_what_stands_beside_each_arm_has_permissions_too(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    so101 = permitted(policy_xml(load_pair("so101_pair")))
    for arm in ("left", "right"):
        driver = so101[f"/{arm}/robolearn/servos"]
        assert (
            f"/{arm}/joint_states" in driver["publish"] and f"/{arm}/forward_controller/commands" in driver["subscribe"]
        )
    gripper = permitted(policy_xml(load_pair("fr3_pair")))["/robolearn/gripper"]
    assert gripper["call"] == {f"/{a}/franka_gripper/{b}" for a in ("left", "right") for b in ("move", "grasp")}
    assert {"/right/franka/joint_states", "/right/franka_gripper/joint_states"} <= gripper["subscribe"]
    out = tmp_path / "policy.xml"
    assert main(["permissions", "--robot", "fr3_pair", "--out", str(out)]) == 0
    assert out.read_text() == policy_xml(load_pair("fr3_pair"))
    assert main(["permissions", "--robot", "fr3_pair", "--targets", "poses", "--out", str(out)]) == 2
    assert "--targets: got poses for two arms, fr3_pair, expected joints" in capsys.readouterr().err
