"""A recording beside a station: its nodes as processes, the recorder as a node of this process."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import queue
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.recording import Recording
from robolearn.core import RobolearnError
from robolearn.deploy.deployment import number
from robolearn.deploy.processes import StackProcesses, arm_programs, enclave, may_be_realtime
from robots.stations import AnyContract

if TYPE_CHECKING:
    from hardware.recording import Recording, Session
    from hardware.ros2.record_node import RecordNode

START_S = 120.0  # for everything to come up: on a busy machine the imports of the nodes alone take half a minute


@contextlib.contextmanager
def station_nodes(
    contract: AnyContract, robot: str, logs: Path, *, priority: int, enclaves: bool, **simulated: Any
) -> Iterator[StackProcesses]:
    """Within, the nodes of the station run: safety node, gripper, the arm where it is simulated.

    Args:
      simulated: of the simulated arm: `task`, `seed` and `module`, see `arm_programs`.

    Raises:
      RobolearnError: one of them did not end cleanly.
    """
    nodes = StackProcesses(
        arm_programs(contract, robot, priority, enclaves, **simulated), logs, {"OMP_NUM_THREADS": "1"}
    )
    with nodes:
        yield nodes
    if bad := {name: code for name, code in nodes.codes.items() if code}:
        raise RobolearnError(f"nodes that did not end cleanly: {bad}")


def run_recorder(
    session: Session,
    *,
    priority: int,
    enclaves: bool,
    name: str = "record",
    make: Callable[..., Recording] | None = None,
) -> RecordNode:
    """The node `name`, after `session` was recorded; `make` makes the recording, a `Recording` by default. Raises
    `RobolearnError`: it failed."""
    from hardware.ros2.environment import make_room_for_pictures
    from hardware.ros2.process import host
    from hardware.ros2.record_node import RecordNode

    made: list[RecordNode] = []
    overrides: dict[str, Any] = {"realtime_priority": priority if may_be_realtime() else 0}

    def make_node() -> RecordNode:
        own = make or Recording
        made.append(RecordNode(lambda _: session, make=own, name=name, contract=session.contract, overrides=overrides))
        return made[0]

    make_room_for_pictures()
    with _unhurried_logs():
        if host(make_node, [sys.argv[0], *enclave(session.contract, "record", enclaves)]):
            raise RobolearnError(f"the node {name} failed; its log says why")
    return made[0]


def arm_result(node: RecordNode) -> dict[str, Any]:
    """Part of a command's result: the arm of a recording."""
    report = node.report.values if node.report else {}
    return {
        "latency_ms": {p: number(report.get(f"latency_{p}_ms")) for p in ("p50", "p99")},
        "late_steps": node.recording.late_steps if node.recording is not None else 0,
        "violations": node.monitor.get("violations"),
        "monitor": node.monitor or None,
    }


@contextlib.contextmanager
def _unhurried_logs() -> Iterator[None]:
    """Write log lines in a thread of their own: a terminal that stands still must not stop the arm."""
    root, lines = logging.getLogger(), queue.SimpleQueue()
    handlers = list(root.handlers)
    listener = logging.handlers.QueueListener(lines, *handlers)
    root.handlers = [logging.handlers.QueueHandler(lines)]
    listener.start()
    try:
        yield
    finally:
        listener.stop()
        root.handlers = handlers
