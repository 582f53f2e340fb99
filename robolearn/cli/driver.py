"""``robolearn driver``: an arm of bus servos that has no ROS driver of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robolearn.cli.choices import Station
from robolearn.core import BadInput
from robolearn.runs.command import Command

LIMP = "moves by hand"
HOLDS = "holds where it is, and follows the safety filter"


@dataclass(frozen=True, kw_only=True)
class Driver(Command):
    """Drive an arm of Feetech servos: publishes its joint states and follows set-points, until Ctrl-C.

    For a contract with the key `servos`. Leave it running, and deploy, record or teleoperate in a second terminal. The
    servos get torque where they stand, and keep it when this ends: an arm without torque falls; --release takes it.
    """

    robot: Station = "so101"
    """The robot contract, by name or as a file of your own."""
    port: str = ""
    """Serial port, in place of the contract's."""
    limp: bool = False
    """No torque: the arm is moved by hand, and measured (robolearn calibrate, robolearn doctor)."""
    release: bool = False
    """No torque at the end: hold the arm."""
    realtime_priority: int = 10
    """Of the node (SCHED_FIFO, 1 to 99), where this machine permits it; 0: none."""
    domain: int | None = None
    """ROS domain; by default ROS_DOMAIN_ID, or 0."""

    def run(self) -> dict[str, Any]:
        from rich.console import Console

        from hardware.ros2.environment import prepare
        from robolearn.deploy.programs import check_domain, may_be_realtime
        from robots.stations import load_contract

        check_domain(self.domain)
        contract = load_contract(self.robot)
        if contract.servos is None:
            raise BadInput(
                f"contract {contract.name}: it names no servos, and this drives nothing else",
                hint="Start the arm's own ROS driver, or name port and calibration under servos there",
            )
        if self.domain is not None:
            os.environ["ROS_DOMAIN_ID"] = str(self.domain)
        prepare()
        from hardware.ros2.process import host
        from hardware.ros2.servos_node import ServosNode
        from hardware.servos.lerobot_bus import lerobot_bus

        values = {
            "port": self.port,
            "limp": self.limp,
            "release": self.release,
            "realtime_priority": self.realtime_priority if may_be_realtime() else 0,
        }
        made: list[ServosNode] = []

        def make() -> ServosNode:
            made.append(ServosNode(lerobot_bus, contract=contract, overrides=values))
            return made[0]

        what = LIMP if self.limp else HOLDS
        Console(stderr=True, highlight=False).print(f"{contract.name} {what}; Ctrl-C ends", markup=False)
        began = time.perf_counter()
        host(make, sys.argv[:1])
        driver = made[0].driver
        assert driver is not None  # or `host` would have raised
        return {
            "robot": contract.name,
            "read": driver.read,
            "lost": driver.lost,
            "set_points": driver.written,
            "refused": driver.refused,
            "torque": not (self.limp or self.release),
            "wall_s": {"total": time.perf_counter() - began},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        left = "keeps its torque" if result["torque"] else "has no torque"
        console.print(
            f"{result['read']:,} times read, {result['lost']:,} lost; {result['set_points']:,} set-points followed, "
            f"{result['refused']:,} refused; the arm {left}"
        )
