"""``robolearn hil actor --robot``: the actor on an arm, behind the safety filter over ROS 2."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.cli.hil.arguments import OWN_DELAY, actor_result
from robolearn.core import BadInput, Interface, RobolearnError, bind_policy
from robolearn.rewards.choice import TASK

if TYPE_CHECKING:
    from hardware.recording import Session
    from policies.policy import ChunkPolicy
    from robolearn.cli.hil.arguments import ActorArguments
    from robolearn.hil.actor import Periods
    from robolearn.hil.arm_recording import HilRecording, OutboxWriter
    from robots.stations import Contract

START_S = 120.0  # for everything to come up
IMAGES = "images."


def play_on_arm(actor: ActorArguments, base: ChunkPolicy) -> dict[str, Any]:
    """Act on the arm of ``--robot`` until the learner or the person has enough; the result of the command. Starts the
    safety node and, in simulation, the arm."""
    from hardware.ros2.environment import prepare
    from robolearn.deploy.processes import choose_domain
    from robolearn.hil.link import opened
    from robolearn.hil.processes import stopping

    if actor.rehearse:
        from robolearn.bench.emulators.rehearsal import rehearsal

        with rehearsal(actor.robot) as robot:
            return play_on_arm(dataclasses.replace(actor, robot=robot, rehearse=False), base)
    contract = station_of(actor.robot, actor.task, base.interface)
    bind_policy(base, contract.interface, what=f"policy {actor.policy} on {contract.name}")
    prepare()
    choose_domain(actor.domain, contract.simulated)
    outbox, link = actor.make_link(base)
    try:
        with stopping() as stop, opened(link):
            config = link.open(stop)
            if config is None:
                raise KeyboardInterrupt
            return _run(actor, base, contract, outbox, link, config)
    finally:
        outbox.close()


def station_of(robot: str, task: str, needed: Interface) -> Contract:
    """The contract `robot` with the cameras that a policy sees, in the sizes that it has learned from.

    In simulation with the task's privileged vector, too.
    """
    from robots.stations import load_contract

    contract = load_contract(robot)
    if contract.simulated:
        from sim.tasks import TASKS

        if task not in TASKS:
            raise BadInput("task of the simulated arm", got=task, available=TASKS)
        contract = contract.with_objects(TASKS[task]().observation_names)
    contract = contract.with_cameras([key.removeprefix(IMAGES) for key in needed.observation if key.startswith(IMAGES)])
    return contract.with_picture_sizes(needed.observation)


def _run(
    actor: ActorArguments, base: ChunkPolicy, contract: Contract, outbox: Any, link: Any, config: Any
) -> dict[str, Any]:
    from hardware.ros2.environment import make_room_for_pictures
    from hardware.ros2.process import host
    from hardware.ros2.record_node import RecordNode
    from robolearn.cli.record import unhurried_logs
    from robolearn.deploy.processes import enclave, may_be_realtime
    from robolearn.hil.actor import ActorResult

    make_room_for_pictures()
    node: RecordNode | None = None
    with contextlib.ExitStack() as stack:
        check = stack.enter_context(_nodes(actor, contract, config.seed * 1_000_003 + len(outbox)))
        parts = open_arm_actor(actor, base, contract, outbox, link, config, stack, check)

        def make_node() -> RecordNode:
            nonlocal node
            priority = actor.realtime_priority if may_be_realtime() else 0
            overrides: dict[str, Any] = {"realtime_priority": priority}
            node = RecordNode(
                lambda _: parts.session, make=parts.make, name="hil", contract=contract, overrides=overrides
            )
            return node

        stack.enter_context(unhurried_logs())
        if host(make_node, [sys.argv[0], *enclave(contract, "record", actor.enclaves)]):
            raise RobolearnError("the actor failed; its log says why")
    link.drain(1.0)
    assert node is not None
    if node.interrupted:
        raise KeyboardInterrupt
    writer = parts.writer
    played = ActorResult(writer.episodes, writer.steps, writer.interventions, quit=not link.finished)
    result = actor_result(actor, played, outbox, link, parts.periods.measured())
    return _keep(actor, result | _arm_result(contract, node))


@dataclass(frozen=True)
class ArmActor:
    """Parts of an actor's recording node: session, constructor of its recording, writer, and measured periods."""

    session: Session
    make: Callable[..., HilRecording]
    writer: OutboxWriter
    periods: Periods


def open_arm_actor(
    actor: ActorArguments,
    base: ChunkPolicy,
    contract: Contract,
    outbox: Any,
    link: Any,
    config: Any,
    stack: contextlib.ExitStack,
    check: Callable[[], None] = lambda: None,
) -> ArmActor:
    """Open the person's device and the console, and load the policy that the learner's weights go into.

    Args:
      link: open, and not started.
      stack: closes it all.
      check: called ten times a second; raises where something that the arm needs has died.
    """
    from hardware.recording import Session
    from hardware.teleop.chunk_player import ChunkPlayer
    from hardware.teleop.supervised import Supervised
    from robolearn.hil.actor import Periods
    from robolearn.hil.agent import DoubleBufferedPolicy
    from robolearn.hil.arm_recording import ENDLESS, HilRecording, LearnedPolicy, OutboxWriter
    from robolearn.hil.devices import opened_page

    if config.pace != "realtime":
        raise BadInput("learner", got=f"--pace {config.pace}", expected="realtime beside an arm")
    if delay := getattr(config.settings, "delay_steps", 0):
        raise BadInput("learner", got=f"--delay-steps {delay}", expected=f"0: {OWN_DELAY}")
    interface, periods = _observed(contract, base), Periods()
    buffered = DoubleBufferedPolicy(lambda: config.settings.build(base, seed=config.seed))
    link.measure = periods.measured
    link.start(buffered)
    device = stack.enter_context(actor.opened_device(contract.interface, contract.robot))
    console = stack.enter_context(opened_page(actor.console, actor.out, interface, None, lambda: False, holds=False))
    policy = LearnedPolicy(buffered, base.interface, base.execute_steps)
    player = ChunkPlayer(policy, config.seed, simulated=contract.simulated)
    supervised = Supervised(device, player, contract.interface)
    stack.callback(supervised.close)
    writer = OutboxWriter(outbox, tuple(base.interface.observation), link)
    session = Session(
        contract, supervised, interface, writer, actor.task, ENDLESS, limit_s=actor.seconds, start_s=START_S,
        simulated=contract.simulated, watch=lambda _: check(),
    )  # fmt: skip
    by_task = contract.simulated and config.reward == TASK
    make = partial(
        HilRecording,
        link=link,
        buffered=buffered,
        hold=supervised.hold,
        periods=periods,
        console=console,
        by_task=by_task,
    )
    return ArmActor(session, make, writer, periods)


def _observed(contract: Contract, base: ChunkPolicy) -> Interface:
    """Observed features of the station: those of the policy, and the arm's state, which the person's device needs."""
    offered = contract.interface
    wanted = {*base.interface.observation, "proprio"}
    return dataclasses.replace(
        offered, observation={key: spec for key, spec in offered.observation.items() if key in wanted}
    )


@contextlib.contextmanager
def _nodes(actor: ActorArguments, contract: Contract, seed: int) -> Iterator[Any]:
    """The safety node and the arm as processes; yields what raises where one of them has died."""
    from robolearn.deploy import StackProcesses
    from robolearn.deploy.processes import arm_programs

    # The person ends an episode, or --seconds; the simulated task's own clock is for scripts.
    module = ("robolearn.bench.emulators.node", contract.driver or "sim", str(10.0 + 2.0 * actor.seconds))
    programs = arm_programs(
        contract, actor.robot, actor.realtime_priority, actor.enclaves, actor.task, seed % 2**31, module
    )
    logs = actor.out / "nodes"
    nodes = StackProcesses(programs, logs, {"OMP_NUM_THREADS": "1"})
    try:
        with nodes:
            yield nodes.check
    except RobolearnError as error:
        error.add_note(f"what was done is in {actor.out}; logs: {logs}")
        raise
    if bad := {name: code for name, code in nodes.codes.items() if code}:
        raise RobolearnError(f"nodes that did not end cleanly: {bad}; logs: {logs}")


def _arm_result(contract: Contract, node: Any) -> dict[str, Any]:
    from robolearn.deploy.deployment import number

    report = node.report.values if node.report else {}
    return {
        "robot": contract.name,
        "stops": node.recording.episodes.dropped,
        "latency_ms": {p: number(report.get(f"latency_{p}_ms")) for p in ("p50", "p99")},
        "late_steps": node.recording.late_steps,
        "violations": node.monitor.get("violations"),
        "monitor": node.monitor or None,
    }


def _keep(actor: ActorArguments, result: dict[str, Any]) -> dict[str, Any]:
    """Leave the result beside the outbox, where `hil run` finds it."""
    from robolearn.hil.processes import ARM
    from robolearn.io.json_files import write_json

    write_json(Path(actor.out) / ARM, result)
    return result
