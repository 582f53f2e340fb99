"""``robolearn hil actor``: the half that acts."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robolearn.cli.command import Command, world_options
from robolearn.core import BadInput

log = logging.getLogger(__name__)

CONSOLE = "console"
Operators = Literal["none", "scripted"]
SWITCH_S = 1e-3  # the control loop gets the interpreter back from the threads of the link so soon


@dataclass(frozen=True, kw_only=True)
class HilActor(Command):
    """Act in a world, step by step, for a learner, and let an operator take over. Asks nothing; what it did is on its
    disk before it is sent, and goes on from there after a kill."""

    policy: Path
    """A run folder or a checkpoint folder: the one that the learner has."""
    task: str = "peg_insert_tight"
    """A task of ours, robosuite:<Name> or gym:<module>:<Id-v0>."""
    operator: Operators = "none"
    """Who watches and takes over: nobody, or a script (tasks of ours)."""
    out: Path
    """The folder of the spool."""
    name: str = "actor"
    """Unlike that of the learner's other actors."""
    console: int | None = None
    """Show a page at this port of loopback: the scene, the curves, take over, labels, stop. 0 takes a free port. The
    address, with its token, is written into the file <out>/console."""
    learner: str = "127.0.0.1:7350"
    """HOST:PORT."""
    token: str = ""
    """The learner's; by default that of --certs, or ROBOLEARN_HIL_TOKEN."""
    certs: Path | None = None
    """A folder of `robolearn hil certs`; required beyond loopback."""
    device: str = "cpu"
    """Where the policy computes: auto, cpu, cuda or cuda:<i>."""

    def run(self) -> dict[str, Any]:
        import torch

        from policies.checkpoint import load_chunk_policy
        from robolearn.cli.hil.learner import policy_hash
        from robolearn.cli.hil.stopping import stopping
        from robolearn.core import bind_policy
        from robolearn.core.device import resolve_device
        from robolearn.data.replay import RecordSchema
        from robolearn.hil.actor import Actor
        from robolearn.hil.algorithms import make_off_policy
        from robolearn.hil.link import Link, opened
        from robolearn.hil.spool import Spool
        from robolearn.hil.weights import TwoSets
        from robolearn.hil.wire.client import Client
        from robolearn.hil.wire.messages import interface_hash
        from robolearn.hil.wire.security import Address, Certificates, check_door, find_token
        from sim.registry import make_env

        certificates = Certificates(self.certs) if self.certs else None
        address, token = Address.parse(self.learner, "--learner"), find_token(self.token, certificates)
        if token is None:
            raise BadInput("--token", got="none", expected="the learner's", hint="It lies in <out>/token of its run")
        check_door(address, certificates)
        torch.set_num_threads(1)
        base = load_chunk_policy(self.policy, resolve_device(self.device))
        schema = RecordSchema(base.interface)
        env = make_env(self.task, 1, threads=1, **world_options(self.task, [base]))
        spool = Spool(self.out, self.name, schema)
        try:
            bind_policy(base, env.interface, what=f"policy {self.policy} in {self.task}")
            link = Link(
                lambda limit: Client(address, token, certificates, limit), spool, self.name,
                interface_hash(base.interface), policy_hash(base), schema.limit,
            )  # fmt: skip
            with stopping() as stop, opened(link), self._person(env, stop) as person:
                lesson = link.open(stop)
                if lesson is None:
                    raise KeyboardInterrupt
                sets = TwoSets(lambda: make_off_policy(base, lesson))
                link.start(sets)
                actor = Actor(
                    env, sets, link, spool, lesson, self.name, tuple(base.interface.observation), self._operators(env),
                    person,
                )  # fmt: skip
                sys.setswitchinterval(SWITCH_S)
                played = actor.run(stop)
                period = link.measure()
                if stop():
                    raise KeyboardInterrupt
        finally:
            spool.close()
            env.close()
        return {
            "actor": self.name,
            "episodes": played.episodes,
            "env_steps": played.steps,
            "interventions": played.interventions,
            "records": len(spool),
            "acknowledged": link.acknowledged,
            "connections": link.connections,
            "period_ms": {"p50": period.p50, "p99": period.p99} if period.count else None,
        }

    @contextlib.contextmanager
    def _person(self, env: Any, stop: Callable[[], bool]) -> Iterator[Any]:
        """The person at the page, or None."""
        if self.console is None:
            yield None
            return
        from robolearn.hil.console.at_actor import PersonAtConsole
        from robolearn.hil.console.web_console import WebConsole
        from robots import ROBOTS

        robot = ROBOTS.get(env.interface.embodiment)
        if robot is None:
            raise BadInput("--console", got=f"a world with {env.interface.embodiment}", available=ROBOTS)
        with WebConsole(robot, port=self.console) as console:
            from robolearn.cli.hil.learner import write_own

            write_own(self.out / CONSOLE, console.url + "\n")
            log.info("the console is at the address in %s", self.out / CONSOLE)
            try:
                yield PersonAtConsole(console, env.interface, robot.joints, getattr(env, "scene", None), stop)
            finally:
                (self.out / CONSOLE).unlink(missing_ok=True)

    def _operators(self, env: Any) -> Callable[[int], Any] | None:
        if self.operator == "none":
            return None
        from sim.experts import make_operator

        make_operator(self.task, env.interface, 1, 0)  # a task without a script is refused now
        return lambda seed: make_operator(self.task, env.interface, 1, seed)
