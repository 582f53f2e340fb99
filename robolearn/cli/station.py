"""Commands beside a station: ``driver`` for bus servos, ``operate`` for running nodes, ``permissions`` for SROS2, and
``station``, which keeps contract, calibration and dynamics in one folder, with versions.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from robolearn.cli.choices import AnyStation, Domain, Station
from robolearn.cli.console import make_console
from robolearn.core import BadInput
from robolearn.io.atomic import write_text
from robolearn.runs.command import Command

LIMP = "moves by hand"
HOLDS = "holds where it is, and follows the safety filter"


@dataclass(frozen=True, kw_only=True)
class Driver(Command):
    """Drive an arm of Feetech servos: publishes its joint states and follows set-points, until Ctrl-C.

    For a contract with the key `servos`. Leave it running, and deploy, record or teleoperate in a second terminal. The
    servos get torque where they stand, and keep it when this ends: an arm without torque falls; --release takes it.
    """

    robot: AnyStation = "so101"
    """The robot contract, by name or as a file of your own; of two arms with --arm."""
    arm: str = ""
    """Which of two arms: left or right, as the contract calls them."""
    port: str = ""
    """Serial port, in place of the contract's."""
    limp: bool = False
    """No torque: the arm is moved by hand, and measured (robolearn calibrate, robolearn doctor)."""
    release: bool = False
    """No torque at the end: hold the arm."""
    realtime_priority: int = 10
    """Of the node (SCHED_FIFO, 1 to 99), where this machine permits it; 0: none."""
    domain: Domain = None

    def run(self) -> dict[str, Any]:
        from hardware.ros2.environment import prepare
        from robolearn.deploy.processes import check_domain, may_be_realtime
        from robots.stations import load_any_contract

        check_domain(self.domain)
        station = load_any_contract(self.robot)
        if self.arm not in station.arms:
            available = [name for name in station.arms if name] or ("none: there is one arm",)
            raise BadInput(f"--arm of {station.name}", got=self.arm or "nothing", available=available)
        contract = station.arms[self.arm]
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
            made[0].when_open = say
            return made[0]

        def say() -> None:
            what, which = LIMP if self.limp else HOLDS, " ".join(filter(None, (station.name, self.arm)))
            make_console(stderr=True).print(f"{which} {what}; Ctrl-C ends", markup=False)

        began = time.perf_counter()
        host(make, sys.argv[:1])
        driver = made[0].driver
        assert driver is not None  # or `host` would have raised
        return {
            "robot": station.name,
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


HELP = "A arm · D disarm · 1 success · - failure · Space stop at once · R reset after a stop · Q disarm and quit"


@dataclass(frozen=True, kw_only=True)
class Operate(Command):
    """Arm, disarm, stop and reset an arm whose nodes run already, judge its episode, and see what the safety filter
    says.

    For ``ros2 launch robolearn deploy.launch.py`` and the like, in a second terminal beside the hardware emergency
    stop. It is no substitute for that: a key of a terminal is software. The success and the failure key end the
    episode of such a launch, and with it everything that it has started.
    """

    robot: AnyStation = ""
    """The robot contract, if it has a namespace: with two arms in one domain, which one."""
    domain: Domain = None
    wait: float = 20.0
    """For the safety node to appear [s]."""

    def run(self) -> dict[str, Any]:
        from hardware.teleop.terminal import Keys
        from robolearn.deploy.operate import operate_station
        from robolearn.deploy.processes import check_domain
        from robots.stations import load_any_contract

        check_domain(self.domain)
        station = load_any_contract(self.robot).namespace if self.robot else ""
        if not Keys.available():
            raise BadInput("robolearn operate", got="no terminal", expected="one to press keys on")
        console = make_console(stderr=True)
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


@dataclass(frozen=True, kw_only=True)
class PermissionsCommand(Command):
    """Write the SROS2 policy of a station: the topics and services that each node may use.

    ``ros2 security generate_artifacts -k KEYSTORE -p FILE`` makes keys of it, one enclave a node.
    """

    robot: AnyStation
    """The robot contract, of one arm or of two, by name or as a file of your own."""
    out: Path
    """The policy, an XML file."""
    targets: Literal["joints", "poses"] = "joints"
    """Targets of the safety node (its parameter of this name); poses come from a node ``planner`` of your own."""

    def run(self) -> dict[str, Any]:
        """``{"out", "enclaves": [path, …]}``."""
        from robots.stations import load_any_contract

        contract, poses = load_any_contract(self.robot), self.targets == "poses"
        if poses and len(contract.arms) > 1:
            raise BadInput("--targets", got=f"poses for two arms, {contract.name}", expected="joints")
        from hardware.ros2.permissions import permissions, policy_xml

        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.out, policy_xml(contract, poses=poses))
        return {"out": str(self.out), "enclaves": list(permissions(contract, poses=poses))}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"{result['out']}: {', '.join(result['enclaves'])}")


@dataclass(frozen=True, kw_only=True)
class StationFolder(Command):
    """Make the folder of a station, keep its files as the next version, or list its versions.

    The folder serves as --robot and, once `identify --write` has been there, as --dynamics. `calibrate --write` and
    `identify --write` keep a version each time; after an edit by hand, --note does.

    Example: robolearn station lab --contract ur5e --note "as shipped"
    """

    folder: tyro.conf.Positional[Path]
    """The station's folder."""
    contract: Station = ""
    """Make the folder, with a copy of this contract."""
    note: str = ""
    """Keep the files as the next version, with these words."""

    def run(self) -> dict[str, Any]:
        """``{"folder", "robot", "version", "versions": [{"number", "made", "note", "files"}], "changed": [file]}``."""
        from robots.own import STATION
        from robots.stations import load_contract
        from robots.stations.folder import changes, keep, version_of, versions

        if self.contract:
            source = Path(load_contract(self.contract).path)
            if (self.folder / STATION).exists():
                raise BadInput(f"station {self.folder}", got=f"a {STATION}", expected="a new folder")
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, self.folder / STATION)
        elif not self.folder.is_dir():
            raise BadInput("station", got=f"no folder {self.folder}", expected="one", hint="--contract NAME makes it")
        robot = load_contract(self.folder).robot.name  # a contract that cannot be read is no version
        if self.note or self.contract:
            keep(self.folder, self.note or f"a copy of {self.contract}")
        past = versions(self.folder)
        return {
            "folder": str(self.folder),
            "robot": robot,
            "version": version_of(self.folder / STATION) or None,
            "versions": [asdict(one) for one in past],
            "changed": changes(self.folder, past[-1]) if past else [],
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        before: dict[str, str] = {}
        for one in result["versions"]:
            files = [name for name in {**before, **one["files"]} if before.get(name) != one["files"].get(name)]
            console.print(f"{one['number']:>3}  {one['made']}  {', '.join(files)}: {one['note']}", markup=False)
            before = one["files"]
        if result["changed"]:
            console.print(f"changed since: {', '.join(result['changed'])}; --note WORDS keeps it as the next version")
        if not result["versions"]:
            console.print("no version yet; --note WORDS keeps the first")
