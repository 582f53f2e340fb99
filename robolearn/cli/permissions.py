"""``robolearn permissions``: a policy of SROS2, with which DDS lets each of our nodes do its own work only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robolearn.cli.choices import Station
from robolearn.runs.command import Command


@dataclass(frozen=True, kw_only=True)
class Permissions(Command):
    """Write the SROS2 policy of a station: who may publish, hear, ask and answer what.

    ``ros2 security generate_artifacts -k KEYSTORE -p FILE`` makes keys of it, one enclave a node.
    """

    robot: Station
    """The robot contract, by name or as a file of your own."""
    out: Path
    """The policy, an XML file."""
    targets: Literal["joints", "poses"] = "joints"
    """What the safety node takes (its parameter of this name); poses come from a node ``planner`` of your own."""

    def run(self) -> dict[str, Any]:
        """``{"out", "enclaves": [path, …]}``."""
        from robolearn.io.atomic import write_text
        from robots.stations import load_contract

        contract = load_contract(self.robot)
        from hardware.ros2 import topics
        from hardware.ros2.permissions import permissions, policy_xml

        poses = self.targets == "poses"
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.out, policy_xml(contract, poses=poses))
        nodes = topics.namespace_of_nodes(contract.namespace)
        return {"out": str(self.out), "enclaves": [f"{nodes}/{node}" for node in permissions(contract, poses=poses)]}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"{result['out']}: {', '.join(result['enclaves'])}")
