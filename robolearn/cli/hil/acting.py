"""What acting for a learner takes, in a world or on an arm: the line to it, and what is told of what was played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.cli.hil.playing import Playing
from robolearn.cli.hil.shown import actor_lines, print_lines
from robolearn.core import BadInput

ARM = "arm.json"  # what became of the arm
QUIT = "quit"  # this file says that the person has ended it all


@dataclass(frozen=True, kw_only=True)
class Acting(Playing):
    """Which policy acts, for which learner."""

    policy: Path
    """A run folder or a checkpoint folder: the one that the learner has."""
    out: Path
    """The folder of the outbox."""
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

    def reach(self, base: Any) -> tuple[Any, Any]:
        """(outbox, line to the learner, not yet open) of an actor of the policy `base`; the outbox is to be closed."""
        from robolearn.cli.hil.learner import policy_hash
        from robolearn.data.replay import RecordSchema
        from robolearn.hil.link import Link
        from robolearn.hil.outbox import Outbox
        from robolearn.hil.wire.client import Client
        from robolearn.hil.wire.messages import interface_hash
        from robolearn.hil.wire.security import Address, Certificates, check_encryption, find_token

        certificates = Certificates(self.certs) if self.certs else None
        address, token = Address.parse(self.learner, "--learner"), find_token(self.token, certificates)
        if token is None:
            raise BadInput("--token", got="none", expected="the learner's", hint="It lies in <out>/token of its run")
        check_encryption(address, certificates)
        schema = RecordSchema(base.interface)
        outbox = Outbox(self.out, self.name, schema)
        link = Link(
            lambda limit: Client(address, token, certificates, limit), outbox, self.name,
            interface_hash(base.interface), policy_hash(base),
        )  # fmt: skip
        return outbox, link

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        print_lines(actor_lines(self, result), console)

    def result(self, played: Any, outbox: Any, link: Any, period: Any) -> dict[str, Any]:
        """What was played, for ``--json``."""
        from robolearn.io.atomic import write_text

        if played.quit:
            write_text(self.out / QUIT, "\n")
        return {
            "actor": self.name,
            "episodes": played.episodes,
            "env_steps": played.steps,
            "interventions": played.interventions,
            "records": len(outbox),
            "acknowledged": link.acknowledged,
            "connections": link.connections,
            "finished": not played.quit,
            "period_ms": {"p50": period.p50, "p99": period.p99} if period.count else None,
        }
