"""How nodes are started: in which ROS domain, with which priority, by which command line."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from robolearn.core import BadInput
from robolearn.deploy.processes import Program
from robots.stations import Contract

log = logging.getLogger(__name__)

LAST_DOMAIN = 232  # of DDS: each domain has UDP ports of its own


def choose_domain(domain: int | None, simulated: bool) -> None:
    """Set ROS_DOMAIN_ID: as asked for, else as it is, else one that is likely to be free for a simulated arm.

    Raises:
      BadInput: there is no such domain.
    """
    check_domain(domain)
    if domain is not None:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
    elif "ROS_DOMAIN_ID" not in os.environ:
        # Two deployments on one machine must not hear each other.
        os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100) if simulated else "0"


def check_domain(domain: int | None) -> None:
    """Raise `BadInput` unless ROS has the domain; None: none is asked for."""
    if domain is not None and not 0 <= domain <= LAST_DOMAIN:
        raise BadInput("--domain", got=domain, expected=f"0 to {LAST_DOMAIN}")


def may_be_realtime() -> bool:
    """Whether this process may give its children real-time priority."""
    import resource

    return os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_RTPRIO)[0] != 0


def warn_of_enclaves(wanted: bool) -> None:
    """Log that enclaves keep nobody out where DDS Security is off."""
    if wanted and (os.environ.get("ROS_SECURITY_ENABLE") != "true" or not os.environ.get("ROS_SECURITY_KEYSTORE")):
        log.warning(
            "--enclaves: nothing is secured: ROS_SECURITY_ENABLE=true and ROS_SECURITY_KEYSTORE are not both set"
        )


def enclave(contract: Contract, node: str, wanted: bool) -> tuple[str, ...]:
    """ROS arguments that put a node into its enclave of `robolearn permissions`; none unless that is `wanted`."""
    from hardware.ros2.topics import namespace_of_nodes

    return ("--ros-args", "--enclave", f"{namespace_of_nodes(contract.namespace)}/{node}") if wanted else ()


def gripper_program(contract: Contract, robot: str, secured: tuple[str, ...] = ()) -> list[Program]:
    """The node that passes openings on, where the gripper of `contract` knows only actions."""
    if contract.gripper is None or contract.gripper.action is None:
        return []
    from hardware.ros2.gripper_node import has_actions

    # Nobody waits for it: it may not take a core from the filter.
    return [node_program("gripper", robot, 0, secured=secured)] if has_actions(contract) else []


def node_program(
    name: str, robot: str, priority: int, module: tuple[str, ...] = (), secured: tuple[str, ...] = (), **flags: Any
) -> Program:
    """A node as a program.

    Args:
      name: for errors; one of those in `robolearn.deploy.nodes`, unless `module` is given.
      robot: the contract.
      priority: of SCHED_FIFO, where this machine permits it.
      module: another module to run, with its arguments.
      secured: see `enclave`.
      flags: parameters of the node.
    """
    flags = {"contract": robot, "realtime_priority": priority if may_be_realtime() else 0, **flags}
    words = [w for key, value in flags.items() for w in (f"--{key.replace('_', '-')}", str(value))]
    # -P: with -m alone a file of the current folder that is called hardware.py would be imported in place of ours.
    return Program(name, (sys.executable, "-P", "-m", *(module or ("robolearn.deploy.nodes", name)), *words, *secured))
