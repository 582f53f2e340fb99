"""The programs behind a person's device: safety node, gripper, and the simulated arm or a driver emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robolearn.deploy import Program
    from robots.stations import Contract


def arm_programs(
    contract: Contract,
    robot: str,
    priority: int,
    enclaves: bool,
    task: str,
    seed: int,
    module: tuple[str, ...] = ("robolearn.bench.emulators.node",),
) -> list[Program]:
    """The nodes of a station, in the order in which they end: the arm last.

    Args:
      robot: the contract's name or file.
      priority: of SCHED_FIFO, where this machine permits it.
      enclaves: whether each is put into its enclave.
      task, seed: of the simulated arm.
      module: what simulates it, with its first arguments.
    """
    from robolearn.deploy.programs import enclave, gripper_program, node_program

    def secured(node: str) -> tuple[str, ...]:
        return enclave(contract, node, enclaves)

    programs = [node_program("safety", robot, priority, secured=secured("safety"))]
    programs += gripper_program(contract, robot, secured("gripper"))
    if contract.simulated:
        arm: dict[str, Any] = {"task": task, "seed": seed}
        programs.append(node_program("sim_arm", robot, priority, module, secured("sim_arm"), **arm))
    return programs
