"""``robolearn deploy``: a policy on the simulated arm or a real one, behind the safety filter."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.cli.command import Command, at_least, check_seed
from robolearn.cli.station import choose_domain, may_be_realtime, node_program

START_S = 120.0  # for the nodes to come up: on a busy machine their imports alone take half a minute
SENSORS_S = 10.0  # for what the policy looks at, when they are up: the driver of a real arm has long been running
SIM_SENSORS_S = 60.0  # the simulated arm is one of those that are coming up
SETTLE_S = 0.25  # after which every joint state on its way is one of the new episode
SIM_GRACE_MS = 150.0  # how late the next chunk may be on the simulated arm before it stops


@dataclass(frozen=True, kw_only=True)
class Deploy(Command):
    """Run a policy on an arm: starts the nodes, arms, counts successes, and ends everything cleanly.

    On the simulated arm the episodes run by themselves. On a real arm you are asked before it moves, you hold the
    emergency stop, and you judge each episode.
    """

    policy: Path
    """A run folder, a checkpoint folder, or lerobot:FOLDER for a policy of LeRobot's."""
    robot: str = "sim"
    """sim, fr3, ur5e, so101, or the file of your own contract."""
    task: str = "lift"
    """On the simulated arm: lift, pick_place or peg_insert."""
    episodes: int = 50
    """How many."""
    seed: int = 1000
    """Of starts and of the policy's noise."""
    seconds: float = 30.0
    """On a real arm: longest episode [s]."""
    dry_run: bool = False
    """Everything but the last step: nothing is published to the controller."""
    yes: bool = False
    """On a real arm: do not ask before the first motion."""
    realtime_priority: int = 10
    """Of the nodes (SCHED_FIFO, 1 to 99), where this machine permits it; 0: none."""
    logs: Path | None = None
    """Folder for the logs of the nodes; by default a temporary one, kept when something fails."""
    domain: int | None = None
    """ROS domain; by default ROS_DOMAIN_ID, and on the simulated arm one that is likely to be free."""

    def run(self) -> dict[str, Any]:
        from hardware.ros2.environment import prepare
        from policies.loading import check_policy
        from robolearn.core import BadInput
        from robolearn.deploy import Processes
        from robots.stations import load_contract

        at_least(1, episodes=self.episodes)
        check_seed(self.seed)
        if self.seconds <= 0:
            raise BadInput("--seconds", got=self.seconds, expected="more than 0")
        contract = load_contract(self.robot)
        simulated = contract.name == "sim"
        if simulated:
            from sim.tasks import TASKS

            if self.task not in TASKS:
                raise BadInput("task of the simulated arm", got=self.task, available=TASKS)
            contract = contract.with_objects(TASKS[self.task]().observation_names)
        elif not self.yes and not sys.stdin.isatty():
            raise BadInput("a real arm", got="no terminal to ask on", expected="a person, or --yes")
        check_policy(self.policy, contract.interface, what=f"policy {self.policy} on {contract.name}")

        prepare()
        choose_domain(self.domain, simulated)
        begun = time.perf_counter()
        logs = self.logs or Path(tempfile.mkdtemp(prefix="robolearn-deploy-"))
        nodes = Processes(self._programs(contract, simulated), logs, {"OMP_NUM_THREADS": "1"})
        failed = False
        try:
            result = self._deploy(nodes, contract, simulated, logs)
        except Exception:
            failed = True
            raise
        finally:
            if self.logs is None and not failed:  # done, or stopped by Ctrl-C
                shutil.rmtree(logs, ignore_errors=True)
        result["wall_s"] = {"total": time.perf_counter() - begun}
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from robolearn.cli.command import rate_text

        console.print(f"success     {rate_text(result['success'])}")
        latency = result["latency_ms"]
        if latency["p50"] is not None:
            console.print(f"latency     {latency['p50']:.1f} ms (p99 {latency['p99']:.1f}) from observation to command")
        if result["violations"] is not None:
            peak = result["monitor"]["peak"]
            kinds = ("velocity", "acceleration", "jerk")
            used = ", ".join(f"{100 * (peak[kind] or 0):.0f}% of the {kind} limit" for kind in kinds)
            count = result["monitor"]["commands"]
            console.print(f"monitor     {result['violations']} violations in {count:,} commands; at most {used}")
        filtered = result["filter"]
        console.print(f"filter      {filtered['clamped']} targets clamped, refusals: {filtered['refusals'] or 'none'}")

    def _programs(self, contract: Any, simulated: bool) -> list[Any]:
        def node(name: str, *module: str, **flags: object) -> Any:
            return node_program(name, self.robot, self.realtime_priority, module, **flags)

        # In the order in which they end: what asks for motion first, the arm last.
        # A simulated arm may stand still for a moment on a busy machine: nothing falls.
        grace = {"grace_ms": SIM_GRACE_MS} if simulated else {}
        # A policy of LeRobot's does not know the names of what it looks at.
        objects = {"objects": ",".join(contract.object_names)} if contract.object_names else {}
        programs = [
            node("policy", policy=self.policy, seed=self.seed, **objects),
            node("streamer", **grace),
            node("safety", dry_run=str(self.dry_run).lower()),
        ]
        if simulated:
            programs.append(node("sim_arm", "robolearn.cli.node_sim_arm", task=self.task, seed=self.seed))
        return programs

    def _deploy(self, nodes: Any, contract: Any, simulated: bool, logs: Path) -> dict[str, Any]:
        from hardware.ros2.operator import Operator
        from hardware.ros2.realtime import realtime
        from robolearn.core import RobolearnError
        from robolearn.deploy import run_session
        from robolearn.runs import Progress

        with nodes, Operator() as operator:
            if may_be_realtime():
                realtime(self.realtime_priority)  # whoever holds the dead-man's switch must be heard
            try:
                _wait_ready(operator, nodes, simulated)
                arm = _SimulatedArm(operator) if simulated else _RealArm(contract, self.yes)
                limit_s = _sim_limit_s(self.task) if simulated else self.seconds
                with Progress(f"deploying on {contract.name}", self.episodes, unit="episodes", quiet=self.json) as bar:
                    results = run_session(
                        operator, arm, self.episodes, limit_s=limit_s, alive=nodes.check,
                        progress=lambda done, good: bar(done, {"successes": good}),
                    )  # fmt: skip
                report = dict(operator.report.values) if operator.report else {}
            except RobolearnError as error:
                error.add_note(f"logs: {logs}")
                raise
            monitor = arm.monitor
        # Late: scipy.stats takes a second that the nodes have better use for.
        from robolearn.eval.intervals import Success

        codes = nodes.codes
        if bad := {name: code for name, code in codes.items() if code}:
            raise RobolearnError(f"nodes that did not end cleanly: {bad}; logs: {logs}")
        return {
            "robot": contract.name,
            "policy": str(self.policy),
            "task": self.task if simulated else None,
            "dry_run": self.dry_run,
            "success": Success.of(sum(r.success for r in results), len(results)).to_json(),
            "violations": monitor["violations"] if monitor else None,
            "monitor": monitor or None,
            "latency_ms": {p: _number(report.get(f"latency_{p}_ms")) for p in ("p50", "p99")},
            "filter": {
                "clamped": int(_number(report.get("clamped")) or 0),
                "refusals": report.get("refusals", ""),
                "commands": int(_number(report.get("commands")) or 0),
                "skipped_ticks": int(_number(report.get("skipped_ticks")) or 0),
            },
            "episode_s": [round(r.seconds, 2) for r in results],
        }


class _SimulatedArm:
    """Episodes of the simulated arm, told and judged by its node; see `robolearn.deploy.Arm`."""

    def __init__(self, operator: Any) -> None:
        from hardware.ros2 import topics

        self._operator, self._reset_service = operator, topics.SIM_RESET
        self._episode, self._ended = -1, {}
        self.monitor: dict[str, Any] = {}
        operator.subscribe_json(topics.SIM_EPISODE, self._on_episode, depth=10)
        operator.subscribe_json(topics.SIM_MONITOR, lambda summary: setattr(self, "monitor", summary))

    def begin(self) -> None:
        from robolearn.core import RobolearnError

        done, message = self._operator.call(self._reset_service)
        if not done:
            raise RobolearnError(f"the simulated arm does not begin an episode: {message}")
        self._episode = json.loads(message)["episode"]
        # No other arm is elsewhere all of a sudden: armed on joint states from before, the filter would start there.
        time.sleep(SETTLE_S)

    def over(self) -> bool:
        return self._episode in self._ended

    def judge(self) -> bool:
        from robolearn.core import RobolearnError

        if not self.over():
            raise RobolearnError(f"the simulated arm has not ended episode {self._episode}: is this machine too busy?")
        return self._ended[self._episode]

    def _on_episode(self, message: dict[str, Any]) -> None:
        self._ended[message["episode"]] = bool(message["success"])


class _RealArm:
    """Episodes of a real arm: the person beside it puts things in place and judges."""

    def __init__(self, contract: Any, yes: bool) -> None:
        self._name, self._yes, self._asked = contract.name, yes, False
        self.monitor: dict[str, Any] = {}  # nobody stands beside the controller of a real arm

    def begin(self) -> None:
        if not self._asked:
            self._asked = True
            if not self._yes:
                print(
                    f"The {self._name} is about to move by itself. Is the emergency stop in your hand and nobody in "
                    "reach of the arm? Type yes to go on: ", end="", file=sys.stderr, flush=True,
                )  # fmt: skip
                if sys.stdin.readline().strip().lower() != "yes":
                    from robolearn.core import RobolearnError

                    raise RobolearnError("not confirmed: the arm was not armed")
        elif sys.stdin.isatty():
            print("Put everything in its place, then press Enter: ", end="", file=sys.stderr, flush=True)
            sys.stdin.readline()

    def over(self) -> bool:
        # Enter ends an episode before its time.
        import select

        if sys.stdin.isatty() and select.select([sys.stdin], [], [], 0)[0]:
            sys.stdin.readline()
            return True
        return False

    def judge(self) -> bool:
        if not sys.stdin.isatty():
            return False
        print("Did it succeed? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower().startswith("y")


def _wait_ready(operator: Any, nodes: Any, simulated: bool, start_s: float = START_S) -> None:
    """Wait for the nodes to come up, and then, not as long, for what they need of the arm.

    Raises:
      NodeDied: one ended meanwhile.
      RobolearnError: not ready within the time; which node, and what it lacks.
    """
    from robolearn.core import RobolearnError

    sensors_s = SIM_SENSORS_S if simulated else SENSORS_S
    end, up = time.monotonic() + start_s, False
    while True:
        nodes.check()
        try:
            operator.wait_ready(0.25)
            return
        except RobolearnError as error:
            heard = {"safety": operator.report, "streamer": operator.streamer, "policy": operator.policy}
            silent = [name for name, what in heard.items() if not what]
            if not up and not silent:
                up, end = True, time.monotonic() + sensors_s
            if time.monotonic() < end:
                continue
            if silent:
                raise RobolearnError(f"nothing heard of {', '.join(silent)} for {start_s:g} s") from None
            if reason := operator.policy.get("reason") or operator.streamer.get("reason"):
                driver = (
                    "" if simulated else f"; does the arm's driver run, in ROS domain {os.environ['ROS_DOMAIN_ID']}?"
                )
                raise RobolearnError(f"not ready after {sensors_s:g} s: {reason}{driver}") from None
            raise error


def _sim_limit_s(task: str) -> float:
    """Long enough for an episode whose time slips on a busy machine [s]."""
    from robots import CONTROL_HZ
    from sim.tasks import TASKS

    return 10.0 + 5.0 * TASKS[task]().max_episode_steps / CONTROL_HZ


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
