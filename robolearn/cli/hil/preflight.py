"""The checks that an actor makes late in its start, made by ``hil run`` before anything is started or written."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from robolearn.cli.hil.arguments import WorldArguments
from robolearn.core import BadInput, Interface, check_compatible


def check_policy_fits(world: WorldArguments, policy: Path) -> None:
    """Raise `BadInput` unless `policy` is one to begin with, for the task's world or for the arm of --robot.

    Of the policy its ``config.json`` is read alone, not the weights.
    """
    from policies.settings import POLICIES
    from policies.storage.config_file import CONFIG, policy_folder, read_config
    from policies.storage.loading import check_policy, stated_by

    kind = read_config(policy_folder(policy) / CONFIG)["kind"]
    if kind not in POLICIES:
        raise BadInput(f"policy {policy}: kind", got=kind, available=POLICIES)
    needed = stated_by(policy)
    offered, where, simulated = _on_arm(world, needed) if world.robot else _in_world(world.task, needed)
    what = f"policy {policy} {where}"
    check_policy(policy, offered, what=what, simulated=simulated)
    check_compatible(needed, offered, what=what)  # words and goals, too: none are given here


def check_terminal(teleop: str) -> None:
    """Raise `BadInput` where the device `teleop` is the keyboard and there is no terminal to read."""
    if teleop != "keyboard":
        return
    from hardware.teleop.terminal import Keys

    keys = Keys()
    keys.open()  # as the actor will
    keys.close()


def _in_world(task: str, needed: Interface) -> tuple[Interface, str, bool]:
    from sim.registry import WorldConfig

    env = WorldConfig(task, threads=1).matching(needed).build(1)
    try:
        return env.interface, f"in {task}", True
    finally:
        env.close()


def _on_arm(world: WorldArguments, needed: Interface) -> tuple[Interface, str, bool]:
    from robolearn.bench.emulators.rehearsal import rehearsal
    from robolearn.cli.hil.arm import station_of

    with rehearsal(world.robot) if world.rehearse else nullcontext(world.robot) as robot:
        contract = station_of(robot, world.task, needed)
    return contract.interface, f"on {contract.name}", contract.simulated
