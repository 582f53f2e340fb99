"""The recorder: teleoperation whose steps are kept.

A row is the observation at a control step, and the action that was *executed* from there. What the operator asked for
is known at once; what the safety filter made of it, when the filter says what it accepted. Where it accepted the target
as it was, the action is the operator's; elsewhere it is the one that leads from the same measured joints to what was
accepted. A row is handed over one step late for that.

The control loop puts rows into a queue, and nothing more. A thread of its own hands them to the writer, stores the
episode and waits for disks.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import ArrayLike, NDArray
from rclpy.context import Context
from rclpy.subscription import MessageInfo
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from hardware.episodes import Episodes, Phase, Verdict
from hardware.ros2 import qos, topics
from hardware.ros2.realtime import step_back
from hardware.ros2.runtime import Value
from hardware.ros2.teleop_node import Steps, TeleopNode
from hardware.teleop.device import Device
from robolearn.core import Interface, RobolearnError
from robots.stations import Contract

log = logging.getLogger(__name__)

BEHIND_S = 5.0  # of the writer, after which an episode is not worth going on with
UNTOLD_S = 0.5  # after which a target of which the safety filter has said nothing is a fault
SETTLE_S = 0.25  # after which every joint state on its way is one of the new episode
GIVE_UP = 3  # episodes in a row, when nobody is there
BLIND_S = 10.0  # between two episodes, when nobody is there


class Writer(Protocol):
    """Where rows go; `robolearn.data.writer.EpisodeWriter` is one."""

    def add(
        self,
        observation: Mapping[str, ArrayLike],
        action: ArrayLike,
        reward: float = 0.0,
        *,
        intervention: bool = False,
        stamps: Mapping[str, float] | None = None,
    ) -> None:
        """One step of the running episode; never waits."""
        ...

    def end(self, *, success: bool, terminated: bool = False, truncated: bool = False, task: str = "") -> int:
        """Store the running episode; its number."""
        ...

    def discard(self) -> None:
        """Forget the running episode."""
        ...


@dataclass
class _Row:
    observation: dict[str, NDArray]
    q: NDArray
    target: NDArray
    action: NDArray | None  # as asked for; None: hold still
    stamp: tuple[int, int]  # of the target
    stamps: dict[str, float]
    asked: float


@dataclass(frozen=True)
class Session:
    """What a recording is made of.

    Attributes:
      contract: the station.
      device: open; the node closes it.
      interface: what a row is; the station offers it.
      writer: where episodes go.
      task: in words.
      episodes: how many to record.
      first: number of the first.
      limit_s: longest episode [s].
      start_s: how long everything may take to be there [s].
      simulated: the arm is `sim_arm`, which puts everything in its place.
      judged: the simulated arm says when an episode ends, and how; nobody is there.
      watch: called ten times a second; raises when something that the recording needs is gone.
    """

    contract: Contract
    device: Device
    interface: Interface
    writer: Writer
    task: str
    episodes: int
    first: int = 0
    limit_s: float = 60.0
    start_s: float = float("inf")
    simulated: bool = False
    judged: bool = False
    watch: Callable[[Episodes], None] = lambda episodes: None


def stamp_names(interface: Interface) -> tuple[str, ...]:
    """What a recording of `interface` stamps: its sources, what the device said, and what was made of it."""
    return (*interface.observation, "device", "action")


class RecordNode(TeleopNode):
    """Records demonstrations.

    Args:
      make_session: parameters by name → what to record; called once, when the node is configured.
      defaults: more parameters than those of teleoperation.
    """

    def __init__(
        self,
        make_session: Callable[[Callable[[str], Any]], Session],
        *,
        defaults: dict[str, Value] | None = None,
        context: Context | None = None,
        overrides: dict[str, Value] | None = None,
    ) -> None:
        super().__init__(name="record", defaults=defaults, context=context, overrides=overrides)
        self._make_session = make_session
        self.store_s: list[float] = []  # what the ends of episodes took
        self.monitor: dict[str, Any] = {}  # of the simulated arm
        self._keeper: threading.Thread | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._kept: deque[OSError | RobolearnError | None] = deque()
        self._refused = False  # the writer could not store something; what to keep of it is its own business

    def open_session(self) -> tuple[Contract, Collection[str], Device, Episodes]:
        self.session = s = self._make_session(self.value)
        episodes = Episodes(s.episodes, s.first, placing=not s.simulated, give_up=GIVE_UP if s.judged else 0)
        return s.contract, tuple(s.interface.observation), s.device, episodes

    def configure(self) -> None:
        super().configure()
        self._rows: deque[_Row] = deque()  # of which it is not known yet what was executed
        self._newest: tuple[_Row, NDArray] | None = None  # the last of which it is; it gets the reward
        self._goal: NDArray | None = None  # what the filter last accepted
        self._accepted: dict[tuple[int, int], NDArray] = {}  # stamp of a target → what became of it
        self._count = 0  # of rows handed over
        self._up_by = time.monotonic() + self.session.start_s
        self._blind_since = time.monotonic()
        self._sim_episode, self._outcome = -1, None
        self.inputs.append(self.poll(JointTrajectory, topics.ACCEPTED, self._on_accepted, qos.ACCEPTED))
        if self.session.simulated:
            self.create_subscription(String, topics.SIM_EPISODE, self._on_episode, qos.latched(10))
            self.create_subscription(String, topics.SIM_MONITOR, self._on_monitor, qos.latched())
        self.every(0.1, self._look)
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    def destroy_node(self) -> None:
        if self._keeper is not None:
            self._jobs.put(None)
            self._keeper.join()  # what is being stored is stored
            self._keeper = None
        super().destroy_node()

    # --- what arrives --------------------------------------------------------------------------------------

    def _on_accepted(self, message: JointTrajectory, info: MessageInfo) -> None:
        stamp, points = message.header.stamp, list(message.points)
        if self.episodes.phase is Phase.RECORDING and points:
            self._accepted[stamp.sec, stamp.nanosec] = np.array(points[0].positions)

    def _on_episode(self, message: String) -> None:
        told = json.loads(message.data)
        if told["episode"] == self._sim_episode:
            self._outcome = told

    def _on_monitor(self, message: String) -> None:
        self.monitor = json.loads(message.data)

    def _look(self) -> None:
        try:
            self.session.watch(self.episodes)
        except RobolearnError as error:
            self.fail(error)
        if self.episodes.phase is not Phase.WAITING or not self.problem:
            self._blind_since = time.monotonic()
        elif self.session.judged and time.monotonic() - self._blind_since > BLIND_S:
            self.fail(RobolearnError(self.problem))  # nobody is there to see to it
        if self.episodes.phase is Phase.STARTING and time.monotonic() > self._up_by:
            self.fail(RobolearnError(f"not ready after {self.session.start_s:g} s: {self.status.message}"))

    # --- rows ----------------------------------------------------------------------------------------------

    def before_step(self) -> None:
        while self._kept:
            self._saved(self._kept.popleft())
        if self.episodes.phase is not Phase.RECORDING:
            return
        self._resolve()
        if self._rows and time.monotonic() - self._rows[0].asked > UNTOLD_S:
            why = f"the safety node has not said for {UNTOLD_S:g} s what became of a target"
            self.do(self.episodes.stopped(why))
        elif self._jobs.qsize() > BEHIND_S * self.contract.control_hz:
            why = f"images and rows are stored {BEHIND_S:g} s behind: smaller pictures, fewer cameras or a faster disk"
            self.do(self.episodes.stopped(why))
        elif self.session.judged and self._outcome is not None:
            self.do(self.episodes.judged(Verdict(bool(self._outcome["success"]), bool(self._outcome["truncated"]))))
        elif self.step_count >= self.session.limit_s * self.contract.control_hz:
            self.do(self.episodes.judged(Verdict(False, truncated=True)))

    def add_row(
        self, observation: dict[str, NDArray], q: NDArray, target: NDArray, action: NDArray | None, stamp: Time
    ) -> None:
        now, steady = 1e-9 * self.get_clock().now().nanoseconds, time.monotonic()
        sources = self.observer.source_stamps()
        stamps = {feature: sources[feature] for feature in self.features}
        # The device's is on the steady clock; all others are of this machine's, or the driver's, time of day.
        stamps |= {"action": now, "device": now - max(steady - self.sample.stamp, 0.0)}
        self._rows.append(_Row(observation, q, target, action, (stamp.sec, stamp.nanosec), stamps, steady))

    def _resolve(self) -> None:
        """Hand over the rows of which it is known by now what was executed, but for the newest."""
        while self._rows and self._accepted:
            row = self._rows[0]
            if row.stamp in self._accepted:
                self._goal = self._accepted.pop(row.stamp)
            elif max(self._accepted) < row.stamp:
                return
            # Else the filter was held up and has not seen this target: the arm went on to the one before, or stood.
            self._rows.popleft()
            self._hand_over(0.0)
            goal = np.full(len(row.target), np.nan) if self._goal is None else self._goal
            self._newest = (row, self._executed(row, goal))

    def _hand_over(self, reward: float) -> None:
        if self._newest is not None:
            row, action = self._newest
            self._jobs.put(lambda: self.session.writer.add(row.observation, action, reward, stamps=row.stamps))
            self._newest = None
            self._count += 1

    def _executed(self, row: _Row, accepted: NDArray) -> NDArray:
        # An opening that nobody asked for yet, or no target at all.
        missing = np.append(row.q, row.target[-1])
        accepted = np.where(np.isnan(accepted), missing, accepted)
        if row.action is not None and np.array_equal(accepted, row.target):
            return np.clip(row.action, -1.0, 1.0)
        return self.set_points.action(row.q, accepted)

    # --- episodes --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._forget()

    def store(self) -> None:
        verdict = self.episodes.verdict
        self._resolve()
        self._hand_over(float(verdict.success))
        self._rows.clear()  # what was executed is not known of these
        if not self._count:
            log.warning("an episode without steps is not stored")
            self.episodes.lost()
            return

        def end() -> None:
            began = time.monotonic()
            self.session.writer.end(
                success=verdict.success,
                terminated=not verdict.truncated,
                truncated=verdict.truncated,
                task=self.session.task,
            )
            self.store_s.append(time.monotonic() - began)
            self._kept.append(None)

        self._jobs.put(end)

    def drop(self) -> None:
        self._forget()

        def discard() -> None:
            if not self._refused:
                self.session.writer.discard()
            self._kept.append(None)

        self._jobs.put(discard)

    def _forget(self) -> None:
        self._rows.clear()
        self._accepted.clear()
        self._newest, self._goal, self._count = None, None, 0

    def _keep(self) -> None:
        step_back()
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except (OSError, RobolearnError) as error:
                self._kept.append(error)
            except Exception as error:
                log.exception("the episode was not stored")
                self._kept.append(RobolearnError(f"{type(error).__name__}: {error}"))

    def _saved(self, error: OSError | RobolearnError | None) -> None:
        if error is None:
            self.do(self.episodes.saved())
            return
        number = self.episodes.number + (not self.episodes.storing)
        self.episodes.lost()
        self._refused = True
        what = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else error
        self.fail(RobolearnError(f"episode {number} could not be stored: {what}"))

    def place(self) -> Steps:
        if not self.session.simulated:
            return
        answer = yield from self.call(topics.SIM_RESET)
        self._sim_episode, self._outcome = json.loads(answer)["episode"], None
        # No other arm is elsewhere all of a sudden: armed on joint states from before, the filter would start there.
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end:
            yield
