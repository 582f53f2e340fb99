"""``robolearn hil certs``: certificates, so that actor and learner may be on two machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.runs.command import Command


@dataclass(frozen=True, kw_only=True)
class HilCerts(Command):
    """Make an authority, certificates for a learner and its actors, and a token.

    Copy ca.pem, actor.pem, actor.key and token to the actors' machines; ca.key stays here.
    """

    out: Path
    """The new folder."""
    hosts: tuple[str, ...] = ()
    """Names and addresses by which actors reach the learner, beside localhost and this machine's name."""

    def run(self) -> dict[str, Any]:
        from robolearn.hil.wire.certificates import DAYS, make_certificates

        paths = make_certificates(self.out, self.hosts)
        return {"certs": str(self.out), "files": sorted(path.name for path in paths), "days": DAYS}
