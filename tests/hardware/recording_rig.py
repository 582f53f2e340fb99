"""A recording and the safety supervisor on a fake clock: a hand, an arm with a camera, and a writer of a test's own.

device ──► recording ──targets, dead-man──► supervisor ──► arm ──joint states, pictures──► both. Nothing here waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from hardware.observing.monitor import LimitMonitor
from hardware.observing.observer import Observer
from hardware.recording import Recording, Session
from hardware.recording.episodes import EpisodeLifecycle, Phase
from hardware.recording.session import Job, Outcome, attempt
from hardware.safety.states import SafetyState
from hardware.safety.supervisor import SafetySupervisor
from hardware.safety.supervisor import attempt as try_
from hardware.teleop.device import EpisodeEvent, Sample, Status
from hardware.teleop.teleoperation import Teleoperation
from robots.stations import IMAGE, AnyContract, Camera, Contract, load_contract

SIM = load_contract("sim")
HOME = np.array(SIM.robot.home)
TCP = SIM.robot.chain.forward(HOME[None])[0][0]
WALL = 1.7e9  # the time of day when the fake clock is at 0 [s]


def walled() -> Contract:
    """5 cm of room in front of the tcp, 0.1 rad for the last joint, and one camera."""
    limits = SIM.limits.tightened(
        upper=[*SIM.limits.upper[:-1].tolist(), float(HOME[-1] + 0.1)],
        workspace=[(TCP - 0.5).tolist(), (TCP + np.array([0.05, 0.5, 0.5])).tolist()],
    )
    cameras = {"front": Camera("/camera/front/image_raw", IMAGE, 0.3, (16, 16))}
    return replace(SIM, name="wall", limits=limits, cameras=cameras)


CONTRACT = walled()
PERIOD = 1.0 / CONTRACT.stream_hz


class Hand:
    """A device in the hand of a test."""

    name = "hand"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.action: np.ndarray | None = None
        self.engaged, self.note = True, ""
        self.events: deque[EpisodeEvent] = deque()
        self.shown: list[Status] = []
        self.fault: Exception | None = None
        self.closed = False
        self.preparations: list[int] = []  # threads that told of one
        self.thread = 0  # that asks
        self.clock = clock

    def open(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def sample(self, observation: Mapping[str, Any] | None) -> Sample:
        self.thread = threading.get_ident()
        if self.fault is not None:
            raise self.fault
        events = (self.events.popleft(),) if self.events else ()
        return Sample(self.action, self.engaged, events, self.clock(), self.note)

    def prepared(self) -> None:
        self.preparations.append(threading.get_ident())

    def show(self, status: Status) -> None:
        self.shown.append(status)


class Paper:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[dict, np.ndarray, float, dict]] = []
        self.episodes: list[tuple[dict, list]] = []
        self.interventions: list[bool] = []  # of all rows
        self.finals: list[dict | None] = []
        self.discarded = 0
        self.on_add: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None

    def add(self, observation, action, reward=0.0, *, intervention=False, stamps=None) -> None:
        self.on_add()
        self.rows.append((observation, np.asarray(action), reward, stamps))
        self.interventions.append(intervention)

    def end(self, *, success, terminated=False, truncated=False, task="", final=None) -> int:
        self.on_end()
        self.finals.append(final)
        facts = {"success": success, "terminated": terminated, "truncated": truncated, "task": task}
        self.episodes.append((facts, self.rows))
        self.rows = []
        return len(self.episodes) - 1

    def discard(self) -> None:
        self.discarded += 1
        self.rows = []


class Shelf:
    """A storage that does one job per tick, or none while it is `held`."""

    def __init__(self) -> None:
        self.outcomes: deque[Outcome] = deque()
        self.held = False
        self._jobs: deque[tuple[Job, bool]] = deque()

    def put(self, job: Job, *, ends: bool = False) -> None:
        self._jobs.append((job, ends))

    def pending(self) -> int:
        return len(self._jobs)

    def tick(self) -> None:
        if self._jobs and not self.held:
            self.outcomes.extend(attempt(*self._jobs.popleft()))


@dataclass
class Report:
    state: SafetyState
    reason: str
    arming: str


class Answer:
    """A service that answers at once."""

    def __init__(self, name: str, act: Callable[[], tuple[bool, str]]) -> None:
        self.name, self._act = name, act
        self._answer: tuple[bool, str] | None = None

    def ready(self) -> bool:
        return True

    def send(self) -> None:
        self._answer = self._act()

    def answer(self) -> tuple[bool, str] | None:
        return self._answer

    def cancel(self) -> None: ...


class RecordingRig:
    """Attributes: `now` [s], `q` of the arm, `commands` as (time, positions), `films` and `changes` of the camera,
    `sag` of the controller [rad], `sees`: the operator looks at the screen, `speaks`: the safety node reports."""

    def __init__(
        self,
        *,
        recording: bool = True,
        wrap: Callable[[Hand], Any] = lambda hand: hand,
        make: Callable[..., Recording] = Recording,
        paper: Any = None,
        contract: AnyContract = CONTRACT,
        **options: Any,
    ) -> None:
        self.contract = contract
        self.now = 10.0
        self.hand, self.paper, self.shelf = Hand(lambda: self.now), paper or Paper(), Shelf()
        self.q, self.width, self.sag = np.array(contract.robot.home), 0.04, 0.0
        self.films = self.changes = self.sees = self.speaks = True
        self.commands: list[tuple[float, np.ndarray]] = []
        self._ticks = self._pictures = 0
        clock, wall = (lambda: self.now), (lambda: WALL + self.now)
        self.supervisor = SafetySupervisor(contract, clock, wall)
        self.supervisor.streamers_alive(1, "target")
        self.monitor = LimitMonitor.of(contract.robot, PERIOD)
        self.observer = Observer(contract, tuple(contract.interface.observation), clock)
        if recording:
            session = Session(
                contract, wrap(self.hand), contract.interface, self.paper, "wave", **{"episodes": 5, **options}
            )
            self.logic: Teleoperation = make(
                session, self, self.observer, self.shelf, sim_reset=self._never, clock=clock, wall=wall
            )
        else:
            episodes = EpisodeLifecycle(0, recording=False)
            self.logic = Teleoperation(self.hand, episodes, self, self.observer, clock)

    # --- the link ----------------------------------------------------------------------------------------------

    def connected(self) -> bool:
        return True

    def send_target(self, positions: np.ndarray, stamp_ns: int) -> None:
        after_s = WALL + self.now - 1e-9 * stamp_ns
        names = (*self.contract.joints, *self.contract.grippers)
        self.supervisor.target(names, positions, stamp_ns, after_s)

    def send_deadman(self, held: bool) -> None:
        self.supervisor.deadman(held)

    def observed_ns(self) -> int:
        return round(1e9 * self.observer.joints.stamp)

    def arm(self) -> Answer:
        def act() -> tuple[bool, str]:
            if reason := self.supervisor.refusal("target"):
                return False, f"not armed: {reason}"
            return try_(self.supervisor.arm, "armed")

        return Answer("arm", act)

    def disarm(self) -> Answer:
        return Answer("disarm", lambda: try_(self.supervisor.filter.disarm, "braking"))

    def reset(self) -> Answer:
        return Answer("reset", lambda: try_(self.supervisor.filter.reset, "reset"))

    def _never(self) -> Answer:
        raise AssertionError("a real arm has no such service")

    # --- time --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> SafetyState:
        return self.supervisor.state

    @property
    def phase(self) -> Phase:
        return self.logic.episodes.phase

    def tick(self) -> None:
        self.now += PERIOD
        self._ticks += 1
        self._measure()
        if self._ticks % 20 == 0 and isinstance(self.logic, Recording):
            self.logic.look()
        try:
            self.logic.tick()
        except Exception as error:  # as the node does
            self.logic.fail(error)  # type: ignore[arg-type]
        self.shelf.tick()
        if self.supervisor.due() and (command := self.supervisor.step()) is not None:
            self.monitor.command(command.positions, self.now)
            self.commands.append((self.now, command.positions))
            self.q = command.positions.copy()
            accepted = self.supervisor.newly_accepted()
            if accepted and isinstance(self.logic, Recording):
                self.logic.accepted(accepted[0], np.array(accepted[1]))
        if self.speaks:
            armed = self.state is SafetyState.ARMED
            reason = self.supervisor.filter.reason
            self.logic.safety(Report(self.state, reason, str(self.supervisor.arming) if armed else ""))
        if self._ticks % 20 == 10 and self.sees:
            self.hand.show(self.logic.status)
            self.logic.shown = self.logic.status.message

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD)):
            self.tick()

    def until(self, condition: Callable[[], object], limit_s: float = 20.0) -> None:
        end = self.now + limit_s
        while not condition():
            if self.now > end:
                pytest.fail(f"{limit_s:g} s went by: {self.logic.status}, {self.supervisor.filter.status()}")
            self.tick()

    def _measure(self) -> None:
        for (name, arm), at in zip(self.contract.arms.items(), self.contract.robot.slices, strict=True):
            names = (*arm.gripper_joints, *arm.joints[::-1])  # nobody may rely on the order
            fingers = arm.gripper_joint_positions(self.width)
            values = np.array([*fingers, *(self.q[at] - self.sag)[::-1]])
            self.supervisor.joint_state(names, values, WALL + self.now, arm=name)
            self.observer.joints.update(names, values, WALL + self.now, arm=name)
        if self.films and self.contract.cameras and self._ticks % 10 == 0:
            self._pictures += self.changes
            shade = 100 + self._pictures % 100
            picture = np.full((16, 16, 3), shade, np.uint8)
            self.observer.image("front", self._pictures, lambda: picture, WALL + self.now)

    # --- what an operator does -----------------------------------------------------------------------------------

    def press(self, *events: EpisodeEvent) -> None:
        self.hand.events.extend(events)

    def follow(self, wanted: Phase = Phase.READY) -> None:
        """START until the arm follows, or is recorded, as somebody does who reads the screen."""
        pressed = -1.0

        def there() -> bool:
            nonlocal pressed
            if self.phase is wanted:
                return True
            told = self.phase is Phase.READY or (
                self.phase is Phase.WAITING and "ress Start" in self.logic.status.message
            )
            if told and not self.hand.events and self.now - pressed > 0.3:
                self.press(EpisodeEvent.START)
                pressed = self.now
            return False

        self.until(there)

    def record(self) -> None:
        self.follow(Phase.RECORDING)

    def steps(self, count: int) -> None:
        first = self.logic.step_count
        self.until(lambda: self.logic.step_count >= first + count)

    def settled(self) -> None:
        self.until(lambda: not self.logic.episodes.saving)

    def moved(self, begun: int) -> float:
        """How far a joint went since command number `begun` [rad]."""
        found = np.array([q for _, q in self.commands[begun:]])
        return float(np.ptp(found, axis=0).max()) if len(found) else 0.0
