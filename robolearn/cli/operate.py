"""``robolearn operate``: the operator's terminal for nodes that `ros2 launch` has started."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robolearn.cli.choices import Station
from robolearn.runs.command import Command

HELP = "A arm · D disarm · Space stop at once · R reset after a stop · Q disarm and quit"


@dataclass(frozen=True, kw_only=True)
class Operate(Command):
    """Arm, disarm, stop and reset an arm whose nodes run already, and see what the safety filter says.

    For ``ros2 launch robolearn deploy.launch.py`` and the like, in a second terminal beside the hardware emergency
    stop. It is no substitute for that: a key of a terminal is software.
    """

    robot: Station = ""
    """The robot contract, if it has a namespace: with two arms in one domain, which one."""
    domain: int | None = None
    """ROS domain; by default ROS_DOMAIN_ID, or 0."""
    wait: float = 20.0
    """For the safety node to appear [s]."""

    def run(self) -> dict[str, Any]:
        from rich.console import Console

        from hardware.teleop.terminal import Keys
        from robolearn.core import BadInput
        from robolearn.deploy.operate import operate_station
        from robolearn.deploy.programs import check_domain
        from robots.stations import load_contract

        check_domain(self.domain)
        station = load_contract(self.robot).namespace if self.robot else ""
        if not Keys.available():
            raise BadInput("robolearn operate", got="no terminal", expected="one to press keys on")
        console = Console(stderr=True, highlight=False)
        shown = ""

        def say(line: str) -> None:
            nonlocal shown
            if line != shown:
                shown = line
                console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False)

        def ready() -> None:
            console.print(HELP)

        return operate_station(Keys(), say, ready, domain=self.domain, wait_s=self.wait, station=station)

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"armed {result['armed']} times, stopped {result['stopped']} times; left {result['state']}")
