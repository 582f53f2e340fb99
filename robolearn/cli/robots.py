"""``robolearn robots``: an arm of one's own, as a folder beside the checkout."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.core import BadInput, RobolearnError
from robolearn.core.switches import Within
from robolearn.runs.command import PLAIN, Command, print_table

if TYPE_CHECKING:
    from robots.making.check import RuleFinding
    from robots.spec import RobotSpec

AT_REST_S = 0.4  # of joint states before the filter is armed
LEAST_SUCCESS = 0.8  # of the scripted expert in `lift`


@dataclass(frozen=True, kw_only=True)
class ListRobots(Command):
    """List the arms, ours and those of one's own, pairs of arms, and the contracts of stations that know them.

    Example: robolearn robots. See also robolearn robots new and check, and robolearn station.
    """

    def run(self) -> dict[str, Any]:
        """``{"robots": [{"name", "joints", "gripper_m", "stations", "own", "package", "model"}, …], "pairs": [{"name",
        "joints", "arms": {name: {"robot", "position", "yaw"}}, "stations"}, …], "unread": {contract: why}}``; `package`
        brings the arm as a plug-in, empty for none."""
        from robolearn.core.plugins import package_of
        from robots import PAIRS, ROBOTS
        from robots.own import own_folders
        from robots.stations import contract_names, load_contract, load_pair, pair_names

        stations, unread = defaultdict[str, list[str]](list), dict[str, str]()
        for name in contract_names():
            try:
                stations[load_contract(name).robot.name].append(name)
            except BadInput as error:
                unread[name] = str(error)
        own = own_folders()
        return {
            "robots": [
                {
                    "name": name,
                    "joints": len(robot.joints),
                    "gripper_m": robot.gripper.max_width if robot.gripper else None,
                    "stations": stations.get(name, []),
                    "own": name in own,
                    "package": package_of("robots", name),
                    "model": str(robot.mjcf),
                }
                for name, robot in ROBOTS.items()
            ],
            "pairs": [
                {
                    "name": name,
                    "joints": len(pair.joints),
                    "arms": {part.name: {"robot": part.robot.name, **asdict(part.base)} for part in pair.parts},
                    "stations": [station for station in pair_names() if load_pair(station).robot.name == name],
                }
                for name, pair in PAIRS.items()
            ],
            "unread": unread,
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        rows = [(r["name"], str(r["joints"]), f"{1e3 * r['gripper_m']:.0f} mm" if r["gripper_m"] else "–",
                 ", ".join(r["stations"]) or "–",
                 r["package"] or ("one's own" if r["own"] else "ships with robolearn"))
                for r in result["robots"]]  # fmt: skip
        print_table(console, ("arm", "joints", "gripper opens", "contracts", "from"), rows, **PLAIN)
        rows = [(p["name"], str(p["joints"]), _stand(p["arms"]), ", ".join(p["stations"]) or "–")
                for p in result["pairs"]]  # fmt: skip
        print_table(console, ("two arms", "joints", "bases (x, y, z in m)", "contracts"), rows, **PLAIN)
        for name, why in result["unread"].items():
            console.print(f"contract {name} cannot be read: {why}", markup=False)
        console.print("\nrobolearn robots new NAME --urdf FILE makes another; a contract is --robot on a station")


def _stand(arms: Mapping[str, Any]) -> str:
    """The arms of a pair and where they stand, in words."""
    places = (", ".join(f"{number:g}" for number in arm["position"]) for arm in arms.values())
    return "; ".join(f"{name} {arm['robot']} at {at}" for (name, arm), at in zip(arms.items(), places, strict=True))


@dataclass(frozen=True, kw_only=True)
class NewRobot(Command):
    """Make a robot folder of a URDF or MJCF: model with gripper, servos and wrist camera, facts, contract.

    ROBOLEARN_ROBOTS names the folder that robot folders lie in; from then on every --robot knows them.

    Example: robolearn robots new kinova3 --mjcf kinova3/robot.xml --velocity 1.39 1.39 1.39 1.39 1.22 1.22 1.22
    """

    name: tyro.conf.Positional[str]
    """Of the arm and its folder."""
    urdf: Path | None = None
    """The arm's URDF (without xacro)."""
    mjcf: Path | None = None
    """Or its MJCF."""
    out: Path | None = None
    """Folder in which the robot folder is made; by default ROBOLEARN_ROBOTS, or robots.own."""
    joints: tuple[str, ...] = ()
    """The arm's joints, base to tip; by default the longest chain of hinges in the model."""
    tip: str = ""
    """The body to mount the gripper on, its z axis away from the arm; by default the last one."""
    velocity: tuple[float, ...] = ()
    """Limits of the joints [rad/s], one for each or one for all; by default the URDF's."""
    effort: tuple[float, ...] = ()
    """Limits of the joints [Nm]; by default the model's."""
    acceleration: tuple[float, ...] = ()
    """Limits of the joints [rad/s²]."""
    tcp_site: str = ""
    """A site or body of the model between its own two sliding fingers, which are kept: z away from the arm, y along
    their slide. By default a gripper of ours is mounted on --tip."""
    width: float = 0.085
    """Opening of the gripper of ours [m]."""
    home_tcp: tuple[float, float, float] = (0.5, 0.0, 0.28)
    """Place of the tcp at home, looking down [m]; the embedded tasks are laid out around it."""

    def run(self) -> dict[str, Any]:
        from robots.making.folder import RobotRequest, make_robot
        from robots.own import VARIABLE

        source = self.urdf or self.mjcf
        if source is None or (self.urdf and self.mjcf):
            raise BadInput("robots new", got="both" if source else "no model", expected="either --urdf or --mjcf")
        top = self.out or Path(os.environ.get(VARIABLE) or "robots.own")
        wanted = RobotRequest(source, self.name, self.joints, self.tip, self.velocity, self.effort, self.acceleration,
                              self.tcp_site, self.width, self.home_tcp)  # fmt: skip
        made = make_robot(wanted, top / self.name)
        known = Path(os.environ.get(VARIABLE) or ".").absolute() == top.absolute() and VARIABLE in os.environ
        return {"robot": self.name, "folder": str(made.folder), "joints": list(made.joints),
                "assumed": list(made.assumed), "left_out": list(made.left_out),
                "export": "" if known else f"export {VARIABLE}={top.absolute()}"}  # fmt: skip

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"robot       {result['folder']}: {len(result['joints'])} joints, {', '.join(result['joints'])}")
        for line in result["left_out"]:
            console.print(f"left out    {line}")
        for line in result["assumed"]:
            console.print(f"assumed     {line}")
        console.print(
            "What is assumed stands in robot.yaml: look it up or measure it, change it, and take the line out."
        )
        console.print("A real arm does not move while guesses of station.yaml are among them.")
        if result["export"]:
            console.print(f"next        {result['export']}")
        console.print(f"next        robolearn robots check {result['robot']}")


@dataclass(frozen=True, kw_only=True)
class CheckRobot(Command):
    """Check a robot folder rule by rule: against MuJoCo, by its contract and the safety filter, and by the scripted
    expert in `lift`. Ends with exit code 1 where a rule is broken."""

    name: tyro.conf.Positional[str]
    """The arm, or its folder."""
    episodes: Annotated[int, Within(0)] = 20
    """Episodes of the scripted expert."""

    def run(self) -> dict[str, Any]:
        from robolearn.core.plugins import package_of
        from robots import ROBOTS
        from robots.making.check import RuleFinding, check_model
        from robots.own import own_folders, read_robot

        folder = own_folders().get(self.name) or Path(self.name)
        if not folder.is_dir():
            available = (*own_folders(), "<folder>")
            raise BadInput("robot", got=self.name, expected="a robot folder", available=available)
        robot, facts = read_robot(folder)
        found = check_model(robot)
        listed = ROBOTS.get(robot.name)
        known = listed is not None and listed.mjcf.absolute() == robot.mjcf.absolute()
        rule = "a package names the folder that it lies in" if known and package_of("robots", robot.name) else (
            "ROBOLEARN_ROBOTS names the folder that it lies in")  # fmt: skip
        found.append(RuleFinding(rule, known, "yes" if known else
                                 f"export ROBOLEARN_ROBOTS={folder.absolute().parent}"))  # fmt: skip
        if known:
            found.append(_contract_holds(robot))
            if self.episodes:
                found.append(_expert_lifts(robot.name, self.episodes))
        return {"robot": robot.name, "folder": str(folder), "rules": [asdict(one) for one in found],
                "assumed": list(facts.assumed)}  # fmt: skip

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return int(not all(one["ok"] for one in result["rules"]))

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        for one in result["rules"]:
            mark = "[green]✓[/green]" if one["ok"] else "[red]✗[/red]"
            text = one["rule"] if one["ok"] and one["found"] == "yes" else f"{one['rule']}: {one['found']}"
            console.print(f"{mark} {text}")
        for line in result["assumed"]:
            console.print(f"[yellow]–[/yellow] nobody has stated {line}")


@dataclass(frozen=True, kw_only=True)
class RobotTopics(Command):
    """Find the topics of an arm's driver on the live graph, by the names of its joints, and put them into its contract.

    Nothing is published. Ends with exit code 1 where a topic that the contract needs is not there.

    Example: robolearn robots topics kinova3 --write
    """

    name: tyro.conf.Positional[str]
    """The arm, of `robolearn robots new`."""
    seconds: float = 4.0
    """Time for everybody to be found, heard and to answer [s]."""
    prefix: str = ""
    """Before the names of the model's joints, where the graph has several arms."""
    write: bool = False
    """Put what was found into its station.yaml; the rest of the file stays as it is."""

    def run(self) -> dict[str, Any]:
        """``{"robot", "contract", "joints", "joint_states", "command", "gripper", "cameras", "missing", "written"}``;
        the topics are null where none was found."""
        from hardware.ros2.environment import prepare
        from hardware.station.driver_topics import find_driver
        from robots.own import STATION, own_folders, read_robot
        from robots.stations import load_contract
        from robots.stations.editing import write_into

        own = own_folders()
        if self.name not in own:
            raise BadInput("robot", got=self.name, expected="one of your own", available=own)
        prepare()
        from hardware.ros2.live_graph import read_graph

        robot, path = read_robot(own[self.name])[0], own[self.name] / STATION
        fingers = load_contract(path).gripper_joints
        found = find_driver(read_graph(self.seconds), robot.joints, fingers, self.prefix)
        if self.write:
            write_into(path, found.values())
        return {"robot": self.name, "contract": str(path), "written": self.write, **asdict(found)}

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return int(bool(result["missing"]))

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"joints      {', '.join(result['joints'])}")
        console.print(f"measured    {result['joint_states'] or 'not found'}")
        for key in ("command", "gripper"):
            one = result[key]
            console.print(
                f"{key:<11} {one['topic']} ({one['type']}), by {one['node']}" if one else f"{key:<11} not found"
            )
        console.print(f"pictures    {', '.join(result['cameras']) or 'none'}")
        for line in result["missing"]:
            console.print(f"[yellow]–[/yellow] not found: {line}")
        console.print(f"written     {result['contract']}" if result["written"] else "next        the same with --write")


def _contract_holds(robot: RobotSpec) -> RuleFinding:
    """The finding about the contract: it is of this arm, and the safety filter arms it at home and around."""
    import numpy as np

    from hardware.safety import SafetyFilter
    from robots.making.check import RuleFinding, postures_around
    from robots.stations import load_contract

    rule = "its contract can be read, and the safety filter arms it at home and in its workspace around"
    try:
        contract = load_contract(robot.name)
        if contract.robot.name != robot.name:
            return RuleFinding(rule, False, f"it is of {contract.robot.name}")
        q, tcp = postures_around(robot)
        if (box := contract.limits.workspace) is not None:
            q = q[((tcp >= box[0]) & (tcp <= box[1])).all(axis=1)]
        for posture in (np.array(robot.home), *q):
            now, period = 0.0, 1.0 / contract.stream_hz
            guard = SafetyFilter(contract.robot, contract.joints, contract.limits, period, clock=lambda: now)  # noqa: B023
            while now < AT_REST_S:
                now += period
                guard.deadman(True)
                guard.measured(contract.joints, posture)
            guard.arm()
    except RobolearnError as error:
        return RuleFinding(rule, False, str(error))
    return RuleFinding(rule, True, "yes")


def _expert_lifts(name: str, episodes: int) -> RuleFinding:
    """The finding of the scripted expert in `lift`."""
    import numpy as np

    from robolearn.rollout import Engine, Episodes, TeleoperatorAgent, spread
    from robots.making.check import RuleFinding
    from sim.experts import make_expert
    from sim.registry import WorldConfig

    worlds = min(10, episodes)
    with closing(WorldConfig("lift", robot=name).build(worlds)) as env:
        expert = make_expert("lift", env.interface, worlds, "expert", 0)
        engine = Engine(env)
        engine.reset(0)
        expert.reset(np.ones(worlds, dtype=bool))
        turns = engine.turns(TeleoperatorAgent(expert), Episodes(spread(episodes, worlds)))
        solved = sum(int((turn.solved & turn.worlds & turn.ended).sum()) for turn in turns)
    found = f"{solved} of {episodes} episodes"
    return RuleFinding("the scripted expert lifts the cube", solved >= LEAST_SUCCESS * episodes, found)
