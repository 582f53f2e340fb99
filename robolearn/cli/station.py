"""What commands that put an arm to work have in common: the ROS domain, real-time priority, nodes as programs."""

from __future__ import annotations

import os
import sys
from typing import Any

from robolearn.core import BadInput
from robolearn.deploy import Program


def choose_domain(domain: int | None, simulated: bool) -> None:
    """Set ROS_DOMAIN_ID: as asked for, else as it is, else one that is likely to be free for a simulated arm.

    Raises:
      BadInput: there is no such domain.
    """
    if domain is not None and not 0 <= domain <= 232:
        raise BadInput("--domain", got=domain, expected="0 to 232")
    if domain is not None:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
    elif "ROS_DOMAIN_ID" not in os.environ:
        # Two deployments on one machine must not hear each other.
        os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100) if simulated else "0"


def may_be_realtime() -> bool:
    """Whether this process may give its children real-time priority."""
    import resource

    return os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_RTPRIO)[0] != 0


def node_program(name: str, robot: str, priority: int, module: tuple[str, ...] = (), **flags: Any) -> Program:
    """A node of ours as a program.

    Args:
      name: what errors call it; for those of `robolearn.cli.nodes` which one.
      robot: the contract.
      priority: SCHED_FIFO's, where this machine permits it.
      module: another one, with its arguments.
      flags: parameters.
    """
    flags = {"contract": robot, "realtime_priority": priority if may_be_realtime() else 0, **flags}
    words = [w for key, value in flags.items() for w in (f"--{key.replace('_', '-')}", str(value))]
    return Program(name, (sys.executable, "-m", *(module or ("robolearn.cli.nodes", name)), *words))
