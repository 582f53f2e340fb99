"""A motion on a station's arm from beginning to end, for `robolearn identify`.

Nodes are started and awaited; the motion passes the safety filter on a perfect arm first, then on this one; nodes are
ended, and the log is read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hardware.calibration.motion import Array, PerfectArm, drive
from hardware.execution.played_motion import way_from
from hardware.safety.states import SafetyState
from robolearn.core import RobolearnError
from robolearn.deploy.deployment import SENSORS_S, SIM_SENSORS_S, START_S, Simulation
from robolearn.deploy.processes import (
    StackProcesses,
    arm_programs,
    choose_domain,
    enclave,
    log_folder,
    may_be_realtime,
    node_program,
)
from robolearn.deploy.session import DYING_S, ArmOperator, raise_death
from robots.motion_log import MotionLog, load_log
from robots.stations import Contract

TRIES = 20  # motions that are drawn until one passes the filter
POLL_S = 0.05
WRITTEN_S = 30.0  # for the log
SERVES_S = 25.0  # a motion that was stopped later than that is identified from, the way to its beginning included


@dataclass(frozen=True, kw_only=True)
class Station:
    """A station as a command names it: the contract, as read and as named, its nodes, and the simulated arm or None."""

    contract: Contract
    robot: str
    realtime_priority: int
    enclaves: bool
    seed: int
    simulation: Simulation | None = None


def free_motion(contract: Contract, start: Array, draw: Callable[[int], Array]) -> Array:
    """(T, n) a way from `start` (n,) [rad] that the safety filter lets pass as it is: targets of ``draw(0)``,
    ``draw(1)``, …

    Raises:
      RobolearnError: none of `TRIES` does; the filter's last reason.
    """
    said = ""
    for attempt in range(TRIES):
        targets = draw(attempt)
        try:
            with _unsaid():  # nothing is armed yet
                drive(PerfectArm(contract.joints, start), contract, targets)
        except RobolearnError as error:
            said = str(error)
            continue
        return way_from(start, targets, contract)
    raise RobolearnError(f"of {TRIES} motions from this posture none passes the station's safety filter: {said}")


@contextmanager
def _unsaid() -> Iterator[None]:
    """Without the lines of the safety filter's states."""
    states = logging.getLogger("hardware.safety.states")
    before, states.disabled = states.disabled, True
    try:
        yield
    finally:
        states.disabled = before


def record_motion(
    station: Station,
    draw: Callable[[int], Array],
    operator: ArmOperator,
    *,
    domain: int | None,
    logs: Path | None,
    progress: Callable[[int, int], Any] = lambda done, of: None,
) -> Moved:
    """Move the arm of `station` along a motion, see `free_motion`, and return its log. The nodes have ended then.

    Args:
      operator: the person beside a real arm, asked before it moves; a simulated one needs none.
      domain: ROS domain, as `choose_domain` takes it.
      logs: folder for the nodes' logs; by default a temporary one, kept when something fails.
      progress: called with the targets that were sent, and their number.

    Raises:
      BadInput: no such domain, or no ROS 2 here.
      RobolearnError: a node died or did not get ready, no motion passes the filter, the operator refused, or the filter
        stopped the arm before much of it was moved.
    """
    from hardware.ros2.environment import prepare

    prepare()
    choose_domain(domain, station.contract.simulated)
    with log_folder("identify", logs) as folder:
        return _record(station, draw, operator, folder.path, progress)


def _record(
    station: Station, draw: Callable[[int], Array], operator: ArmOperator, folder: Path,
    progress: Callable[[int, int], Any],
) -> Moved:  # fmt: skip
    from hardware.ros2 import topics
    from hardware.ros2.runtime import in_realtime
    from hardware.ros2.safety_client import SafetyClient

    contract, simulation = station.contract, station.simulation
    folder.mkdir(parents=True, exist_ok=True)
    module, dynamics = (simulation.module, simulation.dynamics) if simulation else ((), "none")
    task = simulation.task if simulation else ""
    arm = arm_programs(
        contract, station.robot, station.realtime_priority, station.enclaves, task, station.seed, module,
        dynamics=dynamics,
    )  # fmt: skip
    way, out = folder / "way.npy", folder / "motion.npz"
    motion = node_program(
        "motion", station.robot, station.realtime_priority,
        secured=enclave(contract, "motion", station.enclaves), way=way, out=out,
    )  # fmt: skip
    ours = enclave(contract, "operator", station.enclaves)
    with StackProcesses(arm, folder, {"OMP_NUM_THREADS": "1"}) as nodes, SafetyClient(
        station=contract.namespace, args=ours
    ) as client:  # fmt: skip
        start = _posture(contract, client, nodes)
        np.save(way, free_motion(contract, start, draw))
        if simulation is None and not operator.confirm_motion(contract.name):
            raise RobolearnError("not confirmed: the arm was not armed")
        with StackProcesses([motion], folder, {"OMP_NUM_THREADS": "1"}) as player:
            watch = _Watch(client, (nodes, player), progress)
            client.subscribe_json(topics.MOTION_STATUS, watch.status.update)
            watch.wait(lambda: watch.status.get("ready"), START_S, "the motion node")
            with in_realtime(station.realtime_priority if may_be_realtime() else 0):  # the dead-man must be in time
                client.arm()
                try:
                    length = watch.status["of"] / contract.stream_hz
                    watch.wait(lambda: watch.status["state"] == "done", 10.0 + 3.0 * length, "the end of the motion")
                except BaseException as error:
                    with suppress(RobolearnError):  # what ended it is the cause
                        client.disarm()
                    if isinstance(error, RobolearnError):  # perhaps the consequence of a death
                        raise_death(watch.alive, DYING_S)
                    if not isinstance(error, MotionStopped) or not watch.kept(contract.stream_hz):
                        raise
                    return Moved(load_log(out, contract.robot), str(error))
                client.disarm()
            watch.wait(lambda: watch.status["written"], WRITTEN_S, "the log of the motion")
    return Moved(load_log(out, contract.robot))


class MotionStopped(RobolearnError):
    """The safety filter stopped the motion, or the motion node did."""


@dataclass(frozen=True)
class Moved:
    """A motion that was made: its log, and why it was stopped before its end, or nothing."""

    log: MotionLog
    stopped: str = ""


@dataclass
class _Watch:
    """Waits for the motion node, whose newest `status` it has, while all nodes live and the arm is not stopped."""

    client: Any
    nodes: tuple[StackProcesses, ...]
    progress: Callable[[int, int], Any]
    status: dict[str, Any] = field(default_factory=dict)

    def alive(self) -> None:
        """Raise `NodeDied` if a node has ended."""
        for nodes in self.nodes:
            nodes.check()

    def wait(self, until: Callable[[], Any], seconds: float, what: str) -> None:
        """Wait until a condition holds.

        Raises:
          MotionStopped: the motion was stopped, the reason.
          RobolearnError: it does not within `seconds`, the safety node hangs, its log is lost, or a node died.
        """
        end = time.monotonic() + seconds
        while not until():
            self.alive()
            self.client.check_heard()
            if self.status.get("state") == "stopped":
                stopped = self.client.state in (SafetyState.BRAKING, SafetyState.LATCHED)
                reason = f": {self.client.reason}" if stopped else ""
                raise MotionStopped(f"{self.status['reason']}{reason}")
            if lost := self.status.get("lost"):
                raise RobolearnError(lost)
            if time.monotonic() > end:
                raise RobolearnError(f"waited {seconds:g} s for {what}")
            if self.status:
                self.progress(self.status["done"], self.status["of"])
            time.sleep(POLL_S)

    def kept(self, stream_hz: float) -> bool:
        """True where so much was moved before a stop that it serves, and its log is written."""
        if self.status["done"] / stream_hz < SERVES_S:
            return False
        end = time.monotonic() + WRITTEN_S
        while not self.status["written"] and not self.status["lost"] and time.monotonic() < end:
            self.alive()
            time.sleep(POLL_S)
        return bool(self.status["written"])


def _posture(contract: Contract, client: Any, nodes: StackProcesses) -> Array:
    """(n,) where the arm is [rad], as its joint states say, when the safety node is there."""
    from sensor_msgs.msg import JointState

    from hardware.ros2 import messages, qos

    found: list[Array] = []
    heard = threading.Event()

    def on_joints(message: JointState) -> None:
        if set(contract.joints) <= set(message.name):
            found[:] = [messages.pick(message, contract.joints)]
            heard.set()

    topic = contract.joint_states.topic
    subscription = client.node.create_subscription(JointState, topic, on_joints, qos.sensor())
    try:
        end = time.monotonic() + START_S
        while True:
            nodes.check()
            try:
                client.wait_ready(POLL_S, policy=False)
                break
            except RobolearnError:
                if time.monotonic() > end:
                    raise
        end = time.monotonic() + (SENSORS_S if not contract.simulated else SIM_SENSORS_S)
        while not heard.wait(POLL_S):
            nodes.check()
            if time.monotonic() > end:
                raise RobolearnError(f"no joint states on {topic}: does the arm's driver run, in this ROS domain?")
        return found[0]
    finally:
        client.node.destroy_subscription(subscription)
