"""`robolearn deploy --rehearse`, thin: one episode of a policy that nobody trained, and what others see of it.

With trained policies, on both stations and with faults: `make test-rehearsal`.
"""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rclpy.node import Node

sys.path.insert(0, str(Path(__file__).parent))
from running import Running
from untrained import make_policy

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.background import Background, wait_until
from hardware.ros2.permissions import policy_xml
from hardware.safety import SafetyFilter
from robolearn.cli.rehearsal import rehearsal
from robolearn.core import BadInput
from robots.stations import load_contract
from sim.tasks import TASKS

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 14


def test_what_can_be_rehearsed() -> None:
    with rehearsal("fr3") as robot:
        contract = load_contract(robot)
        real = load_contract("fr3")
        assert contract.simulated and contract.name == "fr3-rehearsal" and contract.objects is not None
        assert (contract.command, contract.joint_states) == (real.command, real.joint_states)
        assert contract.horizon_s == real.horizon_s and not real.simulated
    assert not Path(robot).exists()
    for name, got in (("sim", "simulated: true"), ("so101", "no driver")):
        with pytest.raises(BadInput, match=f"--rehearse: contract {name}: got {got}, expected a real station"):
            rehearsal(name).__enter__()


@pytest.mark.realtime
def test_an_episode_on_the_double_of_ur_robot_driver_each_node_in_its_enclave(tmp_path: Path) -> None:
    with rehearsal("ur5e") as robot:
        contract = load_contract(robot).with_objects(TASKS["lift"]().observation_names)
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)  # its machine code
    policy = make_policy(tmp_path / "policy", contract.interface)
    words = ("deploy", "--rehearse", "--robot", "ur5e", "--policy", policy, "--episodes", 1, "--seconds", 1.5)
    running = Running(tmp_path / "logs", *words, "--enclaves", domain=DOMAIN)
    seen: dict[str, str] = {}
    wanted = {path.rpartition("/")[2]: path for path in enclaves(policy_xml(contract))}
    nodes = ("operator", "policy", "streamer", "safety", "sim_arm")
    try:
        with Background(DOMAIN) as ros:
            node = ros.add(Node("observer", context=ros.context))

            def all_there() -> bool:
                seen.update({name: where for name, _, where in node.get_node_names_and_namespaces_with_enclaves()})
                return all(seen.get(name) for name in nodes)

            wait_until(lambda: all_there() or running.process.poll() is not None, 120.0, "the nodes")
    except Exception:
        running.close()
        raise
    code, out, err = running.end()
    assert code == 0, err + running.log()
    assert {name: seen.get(name) for name in nodes} == {name: wanted[name] for name in nodes}
    result = json.loads(out.splitlines()[-1])
    assert result["violations"] == 0 and result["monitor"]["commands"] > 200, result["monitor"]
    assert result["success"]["episodes"] == 1 and result["episode_s"][0] > 1.4


def enclaves(policy: str) -> list[str]:
    """Their paths, from the XML alone."""
    return [one.attrib["path"] for one in ET.fromstring(policy).iter("enclave")]
