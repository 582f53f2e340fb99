"""``robolearn hil actor --robot``: the actor on an arm, behind the safety filter over ROS 2."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.cli.hil.arguments import actor_result
from robolearn.core import Interface, RobolearnError, bind_policy, look_up
from robolearn.io.json_files import write_json

if TYPE_CHECKING:
    from policies.policy import ChunkPolicy
    from robolearn.cli.hil.arguments import ActorArguments, WorldArguments
    from robolearn.deploy import StackProcesses
    from robots.stations import Contract

IMAGES = "images."


def play_on_arm(actor: ActorArguments, base: ChunkPolicy) -> dict[str, Any]:
    """Act on the arm of ``--robot`` until the learner or the person has enough; the result of the command, which is
    left beside the outbox for `hil run`. Starts the safety node and, in simulation, the arm."""
    from hardware.ros2.environment import prepare
    from robolearn.deploy.processes import choose_domain
    from robolearn.hil.arm import act_on_arm
    from robolearn.hil.processes import ARM

    if actor.rehearse:
        from robolearn.bench.emulators.rehearsal import rehearsal

        with rehearsal(actor.robot) as robot:
            return play_on_arm(dataclasses.replace(actor, robot=robot, rehearse=False), base)
    needed = needs_of(actor, base.interface)
    contract = station_of(actor.robot, actor.task, needed)
    bind_policy(base, contract.interface, what=f"policy {actor.policy} on {contract.name}")
    prepare()
    choose_domain(actor.domain, contract.simulated)
    outbox, link = actor.make_link(base)
    with contextlib.closing(outbox):
        played, period, arm = act_on_arm(
            base, contract, outbox, link, lambda seed: _station(actor, contract, seed), people(actor, contract, needed),
            task=words_on_arm(actor, contract), limit_s=actor.seconds, priority=actor.realtime_priority,
            enclaves=actor.enclaves, homes=actor.reset == "motion",
            audit_share=actor.audit_share,
            make_done=lambda config: actor.make_done(config, base.interface),
            make_back=lambda config: actor.make_back(config, contract),
        )  # fmt: skip
        result = actor_result(actor, played, outbox, link, period) | arm
    write_json(Path(actor.out) / ARM, result)
    return result


def station_of(robot: str, task: str, needed: Interface) -> Contract:
    """The contract `robot` with the cameras that a policy sees, in the sizes that it has learned from.

    In simulation with the task's privileged vector, too.
    """
    from robots.stations import load_contract

    contract = load_contract(robot)
    if contract.simulated:
        from sim.tasks import TASKS

        contract = contract.with_objects(look_up("task of the simulated arm", task, TASKS)().observation_names)
    contract = contract.with_cameras([key.removeprefix(IMAGES) for key in needed.observation if key.startswith(IMAGES)])
    return contract.with_picture_sizes(needed.observation)


def needs_of(world: WorldArguments, base: Interface) -> Interface:
    """The interface of a policy to teach, with what --reset-policy observes beside it."""
    from policies.storage.loading import stated_by

    if world.reset != "policy":
        return base
    return dataclasses.replace(base, observation={**stated_by(world.reset_policy).observation, **base.observation})


def words_on_arm(world: WorldArguments, contract: Contract) -> str:
    """The task in words: those of --words, in simulation by default the task's own; empty where nobody gave any."""
    if world.words or not contract.simulated:
        return world.words
    from sim.tasks import TASKS

    return TASKS[world.task]().prompt


@contextlib.contextmanager
def people(actor: ActorArguments, contract: Contract, needed: Interface) -> Iterator[tuple[Any, Any]]:
    """(the person's device, the console or None), open."""
    from robolearn.hil.arm import observed

    page = actor.opened_page(observed(contract, needed), None, lambda: False, holds=False)
    with (
        actor.opened_device(contract.interface, contract.robot, simulated=contract.simulated) as device,
        page as console,
    ):
        yield device, console


@contextlib.contextmanager
def _station(actor: ActorArguments, contract: Contract, seed: int) -> Iterator[StackProcesses]:
    from robolearn.deploy.recorder import station_nodes

    # The person ends an episode, or --seconds; the simulated task's own clock is for scripts.
    module = ("robolearn.bench.emulators.node", str(10.0 + 2.0 * actor.seconds))
    logs = actor.out / "nodes"
    try:
        with station_nodes(
            contract, actor.robot, logs, priority=actor.realtime_priority, enclaves=actor.enclaves, task=actor.task,
            seed=seed % 2**31, module=module,
        ) as nodes:  # fmt: skip
            yield nodes
    except RobolearnError as error:
        error.add_note(f"what was done is in {actor.out}; logs: {logs}")
        raise
