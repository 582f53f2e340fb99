"""A policy on an arm from beginning to end: nodes started and awaited, episodes run, nodes ended, the result."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from hardware.node_parameters import SIMULATED, PolicyParameters
from robolearn.core import RobolearnError
from robolearn.core.machine import resolve_device
from robolearn.deploy.launched import LaunchedNodes, launch_program
from robolearn.deploy.processes import (
    Program,
    StackProcesses,
    arm_programs,
    choose_domain,
    enclave,
    log_folder,
    may_be_realtime,
    node_program,
)
from robolearn.deploy.reward_verdicts import RewardVerdicts
from robolearn.deploy.session import (
    Arm,
    ArmOperator,
    EpisodeResult,
    RealArm,
    SafetyStopped,
    SimulatedArm,
    go_home,
    no_homing,
    run_session,
)
from robolearn.io.json_files import write_json
from robolearn.runs import Progress
from robots.stations import AnyContract

log = logging.getLogger(__name__)

START_S = 120.0  # for the nodes to come up: on a busy machine their imports alone take half a minute
SENSORS_S = 10.0  # for what the policy observes, when they are up: the driver of a real arm has long been running
SIM_SENSORS_S = 60.0  # the simulated arm is one of those that are coming up
WATCHED_S = 20.0  # for who only looks on: their first sight may be late, and the arm does not depend on them
POLL_S = 0.25
Recorder = Callable[["Deployment"], AbstractContextManager[dict[str, Any]]]
INTERRUPTED = "stopped by Ctrl-C"
RESULT = "result.json"  # beside the logs that are kept


@dataclass(frozen=True)
class Simulation:
    """The simulated arm, which is started with the other nodes.

    Attributes:
      task: its task.
      module: the module to run as its node, and arguments.
      limit_s: longest episode [s], with room for a busy machine.
      dynamics: a level or file of `robots.dynamics`.
    """

    task: str
    module: tuple[str, ...]
    limit_s: float
    prompt: str = ""
    dynamics: str = "none"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A deployment: policy, station, episodes.

    Attributes:
      policy: parameters of the policy node; its contract and priority are those of all nodes, its seed is that of the
        simulated arm, too.
      contract: the station, read, with the components of the task's privileged vector in simulation.
      episodes: number of them.
      limit_s: longest episode of a real arm [s].
      homes: the arm goes to its home posture by itself before each episode.
      dry_run: nothing is published to the controller.
      simulation: the simulated arm, or None for a real one.
      enclaves: every node runs in its enclave of `robolearn permissions`.
      launch: the launch file by which `ros2 launch` starts the nodes; None: they are processes of this program.
    """

    policy: PolicyParameters
    contract: AnyContract
    episodes: int
    limit_s: float
    homes: bool = False
    dry_run: bool = False
    simulation: Simulation | None = None
    enclaves: bool = False
    launch: Path | None = None


def deploy(
    deployment: Deployment,
    operator: ArmOperator,
    *,
    domain: int | None,
    logs: Path | None,
    quiet: bool,
    watched: Callable[[], bool] = lambda: True,
    recorder: Recorder | None = None,
) -> dict[str, Any]:
    """Run a deployment; the nodes have ended when this returns, however it does.

    Args:
      operator: the person beside a real arm; a simulated one needs none.
      domain: ROS domain; by default ROS_DOMAIN_ID, and in simulation one that is likely to be free.
      logs: folder for the nodes' logs; by default a temporary one, kept when something fails.
      quiet: show no progress.
      watched: whether those who look on see the arm; the first episode waits for that, `WATCHED_S` at most.
      recorder: records the checked deployment inside its context, and adds to the result what became of that.

    Returns:
      The result of ``robolearn deploy``; its keys are an interface for scripts. What ends a deployment when an episode
      was judged already (a stop, a node that died, Ctrl-C) is its ``ended``, else null; ``stopped``: the safety filter
      did it. Where logs are kept, the result is beside them.

    Raises:
      BadInput: no such domain or device, the policy does not fit the arm, or there is no ROS 2 here.
      RobolearnError: before the first episode was judged, a node died or did not get ready, the safety filter refused
        to arm, or the operator refused.
    """
    from hardware.ros2.environment import prepare

    deployment = checked(deployment)
    prepare()
    choose_domain(domain, deployment.simulation is not None)
    begun = time.perf_counter()
    stack = programs(deployment)
    kind = StackProcesses if deployment.launch is None else LaunchedNodes
    with log_folder("deploy", logs) as folder:
        nodes = kind(stack, folder.path, {"OMP_NUM_THREADS": "1"})
        with nullcontext({}) if recorder is None else recorder(deployment) as recorded:
            result = _run(deployment, operator, nodes, quiet, watched)
        folder.kept = folder.kept or result["ended"] is not None
    result |= recorded
    result |= {"logs": str(folder.path) if folder.kept else None, "wall_s": {"total": time.perf_counter() - begun}}
    if folder.kept:
        try:
            write_json(folder.path / RESULT, result)
        except OSError as error:  # a full disk takes nothing away from what the caller is given
            log.error("%s could not be written: %s", folder.path / RESULT, error)
    return result


def checked(deployment: Deployment) -> Deployment:
    """`deployment` with the words that its policy is told; nothing is started or asked for. Raises `BadInput`: there is
    no such device, or the policy does not fit the arm, its words or its goals, or its guide the arm."""
    from policies.storage.loading import check_goals_given, check_policy, check_words, needed_by, open_foreign

    policy = deployment.policy
    if policy.device != "auto":  # torch takes a second to import; the policy node needs it anyway
        resolve_device(policy.device)
    what = f"policy {policy.policy} on {deployment.contract.name}"
    # Nodes do the same by themselves: a station's pictures are resized to what the policy has learned from.
    opened = open_foreign(policy.policy)  # once: its weights are read for that
    needed = needed_by(policy.policy, opened=opened)
    contract = deployment.contract.with_picture_sizes(needed.observation)
    check_policy(policy.policy, contract.interface, what=what, simulated=contract.simulated, opened=opened)
    usual = "" if deployment.simulation is None else deployment.simulation.prompt
    words = check_words(policy.policy, policy.words, usual, what=what, opened=opened)
    check_goals_given(policy.policy, bool(policy.goals), what=what, opened=opened)
    if policy.guide:
        from policies.wrappers.value_guided import load_guide

        load_guide(policy.guide, beside={"goals": policy.goals})
        guide = f"--guide {policy.guide} on {contract.name}"
        check_policy(policy.guide, contract.interface, what=guide, simulated=contract.simulated)
    return replace(deployment, policy=replace(policy, words=words))


def programs(deployment: Deployment) -> list[Program]:
    """The nodes of a deployment, in the order in which they end: what asks for motion first, the arm last."""
    policy, contract, simulation = deployment.policy, deployment.contract, deployment.simulation
    robot, priority = policy.contract, policy.realtime_priority
    # Policies of LeRobot store no names of the components of their observation.
    asked = replace(policy, objects=",".join(contract.object_names), by_key=False)  # the session ends episodes
    own = [one for one in fields(asked) if one.name not in ("contract", "realtime_priority")]
    flags = {one.name: v for one in own if (v := getattr(asked, one.name)) != one.default or one.name == "device"}
    secured = partial(enclave, contract, wanted=deployment.enclaves)
    arm = Simulation("", (), 0.0) if simulation is None else simulation
    station = arm_programs(
        contract,
        robot,
        priority,
        deployment.enclaves,
        arm.task,
        policy.seed,
        arm.module,
        deployment.dry_run,
        arm.dynamics,
    )
    if (file := deployment.launch) is not None:
        if robot in SIMULATED:
            flags |= {"task": arm.task, "seed": policy.seed, "dynamics": arm.dynamics}
        flags |= {"dry_run": True} if deployment.dry_run else {}
        # A launch file starts no emulator of a driver, nor the simulated arm of a station of one's own.
        beside = [one for one in station if one.name == "sim_arm" and robot not in SIMULATED]
        return [launch_program(file, contract, robot, priority, **flags), *beside]
    return [
        node_program("policy", robot, priority, secured=secured("policy"), **flags),
        node_program("streamer", robot, priority, secured=secured("streamer")),
        *station,
    ]


def _run(
    deployment: Deployment,
    operator: ArmOperator,
    nodes: StackProcesses,
    quiet: bool,
    watched: Callable[[], bool],
) -> dict[str, Any]:
    from hardware.ros2 import topics
    from hardware.ros2.runtime import realtime
    from hardware.ros2.safety_client import SafetyClient

    contract, simulation = deployment.contract, deployment.simulation
    ours = enclave(contract, "operator", deployment.enclaves)
    results: list[EpisodeResult] = []
    report: dict[str, Any] = {}
    arm: RealArm | SimulatedArm | None = None
    verdicts: RewardVerdicts | None = None
    ended, stopped = "", False
    try:
        with nodes, SafetyClient(station=contract.namespace, args=ours) as client:
            if may_be_realtime():
                realtime(deployment.policy.realtime_priority)  # the dead-man's heartbeat must be on time
            wait_ready(client, nodes, simulated=simulation is not None)
            end = time.monotonic() + WATCHED_S
            while not watched() and time.monotonic() < end:
                nodes.check()
                time.sleep(POLL_S)
            home = partial(go_home, client, nodes.check) if deployment.homes else no_homing
            arm = RealArm(contract.name, operator, home) if simulation is None else SimulatedArm(client, home)
            judged: Arm = arm
            if deployment.policy.reward:
                judged = verdicts = RewardVerdicts(arm, client, nodes.check)
            limit_s = deployment.limit_s if simulation is None else simulation.limit_s
            say = client.publish_json(topics.ROLLOUT)
            begins = partial(say, {"outcome": ""})
            try:
                with Progress(
                    f"deploying on {contract.name}", deployment.episodes, unit="episodes", quiet=quiet
                ) as bar:
                    for result in run_session(
                        client, judged, deployment.episodes, limit_s=limit_s, alive=nodes.check, begins=begins
                    ):
                        results.append(result)
                        say({"outcome": result.outcome, "seconds": result.seconds})
                        bar(len(results), {"successes": sum(r.success for r in results)})
            finally:
                report = dict(client.report.values) if client.report else {}
        if bad := {name: code for name, code in nodes.codes.items() if code}:
            raise RobolearnError(f"nodes that did not end cleanly: {bad}")
    except (RobolearnError, KeyboardInterrupt) as error:
        if not results:
            raise
        ended = INTERRUPTED if isinstance(error, KeyboardInterrupt) else str(error)
        stopped = isinstance(error, SafetyStopped)
    result = _result(deployment, results, report, arm.monitor if arm is not None else {}, ended)
    if verdicts is not None:  # an episode that was stopped has none
        result["called_done"] = [*verdicts.given, *[None] * (len(results) - len(verdicts.given))]
    return {**result, "stopped": stopped}


def wait_ready(client: Any, nodes: StackProcesses, *, simulated: bool, start_s: float = START_S) -> None:
    """Wait for the nodes to come up, and then, not as long, for what they need of the arm; `client` is the safety
    node's. Raises `NodeDied`: one ended meanwhile; `RobolearnError`: not ready within the time; which node, and what it
    lacks."""
    sensors_s = SIM_SENSORS_S if simulated else SENSORS_S
    end, up = time.monotonic() + start_s, False
    while True:
        nodes.check()
        try:
            client.wait_ready(POLL_S)
            if warned := client.policy.get("unfamiliar"):
                log.warning("%s", warned)
            return
        except RobolearnError as error:
            heard = {"safety": client.report, "streamer": client.streamer, "policy": client.policy}
            silent = [name for name, what in heard.items() if not what]
            if not up and not silent:
                up, end = True, time.monotonic() + sensors_s
            if time.monotonic() < end:
                continue
            if silent:
                raise RobolearnError(f"nothing heard of {', '.join(silent)} for {start_s:g} s") from None
            if reason := client.policy.get("reason") or client.streamer.get("reason"):
                domain = os.environ["ROS_DOMAIN_ID"]
                driver = "" if simulated else f"; does the arm's driver run, in ROS domain {domain}?"
                raise RobolearnError(f"not ready after {sensors_s:g} s: {reason}{driver}") from None
            raise error


def _result(
    deployment: Deployment,
    results: list[EpisodeResult],
    report: Mapping[str, Any],
    monitor: Mapping[str, Any],
    ended: str,
) -> dict[str, Any]:
    # Late: scipy.stats takes a second that the nodes have better use for.
    from robolearn.eval.intervals import Success

    return {
        "robot": deployment.contract.name,
        "arm": deployment.contract.interface.embodiment,
        "station_version": deployment.contract.version or None,
        "policy": deployment.policy.policy,
        "task": None if deployment.simulation is None else deployment.simulation.task,
        "dry_run": deployment.dry_run,
        "asked": deployment.episodes,
        "ended": ended or None,
        "success": Success.of(sum(r.success for r in results), len(results)).to_json(),
        "violations": monitor["violations"] if monitor else None,
        "monitor": monitor or None,
        "latency_ms": {p: number(report.get(f"latency_{p}_ms")) for p in ("p50", "p99")},
        "filter": {
            "clamped": int(number(report.get("clamped")) or 0),
            "refusals": counts(report.get("refusals", "")),
            "commands": int(number(report.get("commands")) or 0),
            "skipped_ticks": int(number(report.get("skipped_ticks")) or 0),
        },
        "seed": deployment.policy.seed,
        "succeeded": [r.success for r in results],
        "timed_out": [r.timed_out for r in results],
        "episode_s": [round(r.seconds, 2) for r in results],
    }


def counts(text: str) -> dict[str, int]:
    """A table of counts of the safety node's report, in which it is JSON; none where there is none."""
    try:
        return {str(name): int(count) for name, count in json.loads(text or "{}").items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def number(text: Any) -> float | None:
    """A value of the safety node's report, which are texts; None where it is no number."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
