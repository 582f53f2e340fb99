"""A node of a station finds its place: the namespace of the contract that its parameter names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import rclpy.node
import yaml
from rclpy.context import Context

from hardware.node_parameters import NodeParameters
from hardware.ros2.runtime import Node
from robots.stations import CONTRACTS

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8


@pytest.mark.parametrize(("namespace", "place"), [("left", "/left/robolearn"), ("", "/robolearn")])
def test_it_is_where_its_contract_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespace: str, place: str
) -> None:
    path = tmp_path / "station.yaml"
    keys = {"namespace": namespace} if namespace else {}
    path.write_text(yaml.safe_dump({**yaml.safe_load((CONTRACTS / "sim.yaml").read_text()), **keys}))
    context = Context()
    context.init(args=["--ros-args", "-p", f"contract:={path}"], domain_id=DOMAIN + bool(namespace))
    destroy, there = rclpy.node.Node.destroy_node, []

    def counted(node: rclpy.node.Node) -> None:
        there.append(node.get_node_names().count("probe"))
        destroy(node)

    monkeypatch.setattr(rclpy.node.Node, "destroy_node", counted)
    try:
        node = Node("probe", NodeParameters(), context=context)
        assert node.get_namespace() == place
        # The one that read the parameter went after this one came: else the process had left the domain in between,
        # and Fast DDS, asked to make at once what it takes down, has crashed.
        assert there == [2]
        node.destroy_node()
    finally:
        context.try_shutdown()
