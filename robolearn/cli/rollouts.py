"""`deploy --record`: a program beside the nodes of a deployment that stores its episodes as a data set.

The program is `python -m robolearn.cli.rollouts --contract sim --sim-task lift --policy runs/lift --out data/deployed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.node_parameters import RolloutsParameters, parameter_names
from hardware.recording.rollouts import DROPPED, STORED
from robolearn.core import BadInput
from robolearn.core.machine import leave
from robolearn.deploy.nodes import run_node
from robolearn.deploy.processes import beside, enclave, node_program
from robots.stations import load_any_contract

if TYPE_CHECKING:
    from robolearn.deploy import Deployment
    from robots.stations import AnyContract

FINISH_S = 60.0  # for the rows that wait to be stored


def rollout_station(contract: AnyContract, policy: str, sim_task: str) -> AnyContract:
    """`contract` with what is stored: all cameras of a real station, in simulation those that the policy sees."""
    from policies.storage.loading import needed_by
    from sim.tasks import TASKS

    needed = needed_by(policy).observation
    contract = contract.with_picture_sizes(needed)
    if not contract.simulated:
        return contract
    seen = tuple(name for name in contract.cameras if f"images.{name}" in needed)
    return contract.with_objects(TASKS[sim_task]().observation_names).with_cameras(seen)


def task_words(contract: AnyContract, words: str, sim_task: str) -> str:
    """The task in words: `words`, or those of the simulated task. Raises `BadInput`: neither."""
    from sim.tasks import TASKS

    if words.strip():
        return words
    if not contract.simulated:
        raise BadInput("--record-task", got="nothing", expected='the task in words, e.g. "put the cup on the shelf"')
    return TASKS[sim_task]().prompt


def open_writer(out: Path, contract: AnyContract, task: str) -> Any:
    """The data set at `out`, added to where it is of the same station; raises `BadInput` where it is not."""
    from robolearn.cli.node_record import make_writer
    from robolearn.data.lerobot import layout

    resume = (out / layout.INFO_PATH).exists()
    return make_writer(out, contract.interface, task, resume=resume, device=False)


@contextmanager
def recorded(out: Path, words: str, sim_task: str, deployed: Deployment) -> Iterator[dict[str, Any]]:
    """Record the episodes of the deployment `deployed`; entered when the recorder is ready, left when all is stored.
    Then what it yields is part of the result: ``recorded``, the folder, ``recorded_episodes`` of it, ``not_recorded``,
    why others are missing, and ``record_error``, why there are no more.

    Args:
      out: the data set's folder.
      words: the task in words; empty: those of the policy, or of the simulated task.
      sim_task: of the simulated arm.

    Raises:
      BadInput, RobolearnError: when entered: it cannot be recorded here.
    """
    from hardware.ros2.rollouts_node import READY

    policy, contract = deployed.policy, deployed.contract
    task = task_words(contract, words or policy.words, sim_task)
    open_writer(out, rollout_station(contract, policy.policy, sim_task), task).close()  # refused before anything starts
    flags = {"out": out.absolute(), "policy": policy.policy, "record_task": task, "sim_task": sim_task}
    secured = enclave(contract, "rollouts", deployed.enclaves)
    module, half = ("robolearn.cli.rollouts",), policy.realtime_priority // 2
    program = node_program("rollouts", policy.contract, half, module, secured, every_arming="false", **flags)
    with beside(program, READY, "--record") as recorder:
        found: dict[str, Any] = {"recorded": str(out)}
        try:
            yield found
        finally:
            if error := recorder.finish(FINISH_S):
                found["record_error"] = error
            lines = recorder.log().splitlines()
            found["not_recorded"] = [line.partition(DROPPED)[2] for line in lines if DROPPED in line]
            found["recorded_episodes"] = sum(STORED in line for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Record until a signal ends it; the exit code."""
    return run_node(_node, parameter_names(RolloutsParameters), argv)


def _node() -> Any:
    from hardware.ros2.rollouts_node import Rollouts, RolloutsNode

    def open_rollouts(p: RolloutsParameters, stack: ExitStack) -> Rollouts:
        if not p.out:
            raise BadInput("parameter out", got="nothing", expected="a folder for the data set")
        contract = rollout_station(load_any_contract(p.contract), p.policy, p.sim_task)
        task = task_words(contract, p.record_task or p.words, p.sim_task)
        return Rollouts(contract, stack.enter_context(open_writer(Path(p.out), contract, task)), task)

    return RolloutsNode(open_rollouts)


if __name__ == "__main__":
    leave(main())
