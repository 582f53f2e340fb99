"""The loop on an arm as a program: `robolearn.cli.hil.node --contract fr3 --policy runs/bc --out runs/hil`.

The actor is a node, and the learner a process that it starts and ends; safety node and arm run already, as
`launch/hil.launch.py` has it. Logs and files are those of `robolearn hil run`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

from hardware.node_parameters import HilParameters, parameter_names
from robolearn.cli.station_command import teleop_parameters, teleop_values
from robolearn.core import BadInput, RobolearnError

WAIT_S = 120.0  # for the learner to come up
LEARNERS = (
    "policy", "demos", "out", "algo", "reward", "env_steps", "done_hz", "done_frames", "done_threshold",
    "done_check",
)  # fmt: skip
"""Parameters that are flags of the learner."""


def main_hil(argv: Sequence[str] | None = None) -> int:
    """The actor's node."""
    from robolearn.deploy.nodes import run_node

    with ExitStack() as stack:
        return run_node(lambda: _hil_node(stack), parameter_names(teleop_parameters(HilParameters)), argv)


def _hil_node(stack: ExitStack) -> Any:
    from hardware.ros2.record_node import RecordNode

    made: dict[str, Any] = {}

    def make_session(parameters: HilParameters) -> Any:
        made["parts"] = parts = _open(stack, parameters)
        return parts.session

    def make_recording(*args: Any, **named: Any) -> Any:
        return made["parts"].make(*args, **named)

    return RecordNode(make_session, make=make_recording, name="hil", defaults=teleop_parameters(HilParameters)())


def learner_flags(p: HilParameters) -> list[str]:
    """Flags of `robolearn hil learner` by the node's parameters."""
    words = {name: getattr(p, name) for name in LEARNERS}
    flags = [word for name, v in words.items() if v != "" for word in (f"--{name.replace('_', '-')}", str(v))]
    return [*flags, "--pace", "realtime"]


def _open(stack: ExitStack, p: HilParameters) -> Any:
    """Start the learner and connect to it; the actor's parts, its device open."""
    import torch

    from hardware.execution.homing import goes_home
    from policies.storage.checkpoint import load_chunk_policy
    from robolearn.cli.hil.arm import needs_of, people, station_of, words_on_arm
    from robolearn.cli.hil.commands import HilActor
    from robolearn.core import bind_policy
    from robolearn.deploy.processes import StackProcesses
    from robolearn.hil.arm import ArmActor
    from robolearn.hil.processes import LOGS, SPOOL, free_address, learner_program, shared_environment
    from robolearn.io.wire.security import new_token
    from robots.stations import load_contract

    for name in ("policy", "out"):
        if not getattr(p, name):
            raise BadInput(f"parameter {name}", got="nothing", expected="a folder")
    address = free_address()
    out, token = Path(p.out), new_token()
    actor = HilActor(
        policy=Path(p.policy), out=out / SPOOL, robot=p.contract, teleop=p.device,
        task=p.task, words=p.words, seconds=p.seconds, learner=address, token=token,
        done_check=p.done_check, reset=cast("Any", p.reset), reset_policy=p.reset_policy, reset_seconds=p.reset_seconds,
        reset_reward=p.reset_reward, reset_words=p.reset_words,
        reward=p.reward, **teleop_values(p),
    )  # fmt: skip
    homes = goes_home(p.reset, load_contract(p.contract), what="parameter reset", others=("policy",))
    actor.check_world()
    torch.set_num_threads(1)
    base = load_chunk_policy(actor.policy, "cpu")
    needed = needs_of(actor, base.interface)
    contract = station_of(actor.robot, actor.task, needed)
    bind_policy(base, contract.interface, what=f"policy {actor.policy} on {contract.name}")
    learner = learner_program(learner_flags(p), address, realtime=True)
    processes = stack.enter_context(StackProcesses((learner,), out / LOGS, shared_environment(token)))
    stack.callback(processes.stop, 30.0)
    outbox, link = actor.make_link(base)
    link.task = task = words_on_arm(actor, contract)
    stack.enter_context(closing(outbox))
    stack.enter_context(closing(link))
    until = time.monotonic() + WAIT_S

    def late() -> bool:
        processes.check()
        return time.monotonic() > until

    config = link.open(late)
    if config is None:
        raise RobolearnError(f"the learner does not answer after {WAIT_S:g} s; logs: {out / LOGS}")

    def check() -> None:
        if not link.finished:
            processes.check()

    device, console = stack.enter_context(people(actor, contract, needed))
    done = actor.make_done(config, base.interface)
    if done is not None:
        stack.callback(done.close)
    if (back := actor.make_back(config, contract)) is not None:
        stack.callback(back.close)
    parts = ArmActor(
        base, contract, outbox, link, config, device, console, task, actor.seconds, check, done, homes, back
    )
    stack.callback(parts.close)
    return parts


if __name__ == "__main__":
    sys.exit(main_hil(sys.argv[1:]))
