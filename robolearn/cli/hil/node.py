"""The loop on an arm as a program: `robolearn.cli.hil.node --contract fr3 --policy runs/bc --out runs/hil`.

The actor is a node, and the learner a process that it starts and ends; safety node and arm run already, as
`launch/hil.launch.py` has it. Logs and files are those of `robolearn hil run`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hardware.execution.homing import goes_home
from hardware.node_parameters import HilParameters, parameter_names
from robolearn.cli.hil.commands import HilActor
from robolearn.cli.station_command import teleop_parameters
from robolearn.cli.view import TeleopView
from robolearn.core import BadInput, RobolearnError, bind_policy, check_choice
from robolearn.deploy.processes import StackProcesses
from robolearn.hil.processes import LOGS, SPOOL, free_address, learner_program, shared_environment
from robolearn.hil.settings import CurriculumConfig, LearnerRun
from robolearn.io.wire.security import new_token
from robots.stations import load_contract

WAIT_S = 120.0  # for the learner to come up
OTHERWISE = {"device"}  # here what the operator holds, at learner and actor where they compute


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


def learner_flags(p: HilParameters, words: str = "") -> list[str]:
    """Flags of `robolearn hil learner`: those parameters of the node that it has, too, and the `words` of its
    policy."""
    values = _shared(p, {*parameter_names(LearnerRun), *parameter_names(CurriculumConfig), "algo"}) | {"words": words}
    flags = [word for name, v in values.items() if v != "" for word in (f"--{name.replace('_', '-')}", str(v))]
    return [*flags, "--pace", "realtime"]


def actor_of(p: HilParameters, address: str, token: str) -> HilActor:
    """The actor of the learner at `address`: those parameters of the node that it has, too."""
    given = {"policy": Path(p.policy), "out": Path(p.out) / SPOOL, "robot": p.contract, "teleop": p.device}
    return HilActor(**{**_shared(p, set(parameter_names(HilActor))), **given, "learner": address, "token": token})


def _shared(p: HilParameters, theirs: set[str]) -> dict[str, Any]:
    return {name: getattr(p, name) for name in parameter_names(type(p)) if name in theirs - OTHERWISE}


def _open(stack: ExitStack, p: HilParameters) -> Any:
    """Start the learner and connect to it; the actor's parts, its device open."""
    import torch

    from policies.storage.loading import load_base, words_of
    from robolearn.cli.hil.arm import needs_of, people, station_of, words_on_arm
    from robolearn.data import Dataset
    from robolearn.hil.arm import ArmActor
    from robolearn.hil.task_words import task_words

    for name in ("policy", "out"):
        if not getattr(p, name):
            raise BadInput(f"parameter {name}", got="nothing", expected="a folder")
    check_choice("parameter view", p.view, TeleopView)
    address = free_address()
    out, token = Path(p.out), new_token()
    actor = actor_of(p, address, token)
    homes = goes_home(p.reset, load_contract(p.contract), what="parameter reset", others=("policy",))
    actor.check_world()
    torch.set_num_threads(1)
    demos = Dataset.open(p.demos) if p.demos else None
    words = partial(task_words, p.words, demos, lambda: words_on_arm(actor, load_contract(p.contract)))
    base = load_base(actor.policy, "cpu", sampled=True, words=words)  # the learner judges it
    actor = replace(actor, words=words_of(base) or actor.words)
    needed = needs_of(actor, base.interface)
    contract = station_of(actor.robot, actor.task, needed)
    bind_policy(base, contract.interface, what=f"policy {actor.policy} on {contract.name}")
    learner = learner_program(learner_flags(p, words_of(base)), address, realtime=True)
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
        base, contract, outbox, link, config, device, console, task, actor.seconds, check, done, homes, back,
        actor.audit_share,
    )  # fmt: skip
    stack.callback(parts.close)
    return parts


if __name__ == "__main__":
    sys.exit(main_hil(sys.argv[1:]))
