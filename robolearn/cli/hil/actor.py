"""``robolearn hil actor``: the half that acts."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.cli.command import world_options
from robolearn.cli.hil.playing import Playing
from robolearn.core import BadInput

log = logging.getLogger(__name__)

CONSOLE = "console"
QUIT = "quit"  # this file says that the person has ended it all
SWITCH_S = 1e-3  # the control loop gets the interpreter back from the threads of the link so soon


@dataclass(frozen=True, kw_only=True)
class HilActor(Playing):
    """Act in a world or on an arm, step by step, for a learner, and let an operator take over. Asks nothing on standard
    input unless your device is there; what it did is on its disk before it is sent, and goes on from there after a
    kill."""

    policy: Path
    """A run folder or a checkpoint folder: the one that the learner has."""
    out: Path
    """The folder of the spool."""
    name: str = "actor"
    """Unlike that of the learner's other actors."""
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
        from robolearn.io.atomic import write_text
        from sim.registry import make_env

        self.check_playing()
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
            with stopping() as stop, opened(link), self._people(env, stop) as (person, hand):
                lesson = link.open(stop)
                if lesson is None:
                    raise KeyboardInterrupt
                if hand is not None and lesson.pace != "realtime":
                    raise BadInput("learner", got=f"--pace {lesson.pace}", expected="realtime beside a person")
                sets = TwoSets(lambda: make_off_policy(base, lesson))
                link.start(sets)
                actor = Actor(
                    env, sets, link, spool, lesson, self.name, tuple(base.interface.observation),
                    self._operators(env) if hand is None else lambda _: hand, person,
                )  # fmt: skip
                sys.setswitchinterval(SWITCH_S)
                played = actor.run(stop)
                period = link.measure()
                if stop():
                    raise KeyboardInterrupt
        finally:
            spool.close()
            env.close()
        if played.quit:
            write_text(self.out / QUIT, "\n")
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
    def _people(self, env: Any, stop: Callable[[], bool]) -> Iterator[tuple[Any, Any]]:
        """(who is shown each step and asked, the person with a device), each or None."""
        from robolearn.cli.hil.hands import opened_device
        from robolearn.hil.hand import Hand
        from robots import ROBOTS

        with self._console(env, stop) as page:
            if not self.teleop:
                yield page, None
                return
            robot = ROBOTS.get(env.interface.embodiment)
            if robot is None:
                raise BadInput("--teleop", got=f"a world with {env.interface.embodiment}", available=ROBOTS)
            with opened_device(self.teleop, self.device_options(), env.interface, robot, self.out) as device:
                scene = None if self.screen else getattr(env, "scene", None)
                hand = Hand(device, env.interface, robot, scene=scene, ending=stop, console=page)
                yield hand, hand

    @contextlib.contextmanager
    def _console(self, env: Any, stop: Callable[[], bool]) -> Iterator[Any]:
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
