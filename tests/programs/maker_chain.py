"""The chain of a deployment without ROS, on a clock of its own, up to what its controller asks an arm for.

    policy ──► streamer ─┐
    person ──► session ──┴─► supervisor with its filter ──► points ──► joint_trajectory_controller, 1 kHz

Every part is the product's but the controller, which is the emulator's, and the arm, which is where the controller
asked it to be a moment ago. What the nodes add to the parts is repeated here: what waits until a process runs, which
depth a topic has, how a command is published. Processes run late from time to time, and messages take their time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))
from recording_rig import Paper, Report, Shelf

from hardware.execution.ahead import send_ahead
from hardware.execution.horizon import Horizon, Point
from hardware.execution.streamer import Streamer, StreamStop, StreamTarget
from hardware.observing.observer import Observer
from hardware.recording import Recording, Session
from hardware.recording.episodes import EpisodeLifecycle, Phase
from hardware.safety import SafetyState
from hardware.safety.states import ArmCommand
from hardware.safety.supervisor import SafetySupervisor, attempt
from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import EpisodeEvent, Sample, Status
from hardware.teleop.supervised import Supervised
from hardware.teleop.teleoperation import Teleoperation
from robolearn.bench.emulators.trajectory_controller import PERIOD_S, TrajectoryController, TrajectoryPoint
from robolearn.core import Policy
from robots.stations import load_contract

CONTRACT = load_contract("fr3")
HOME = np.array(CONTRACT.robot.home)
STREAM_S, CONTROL_S = 1.0 / CONTRACT.stream_hz, 1.0 / CONTRACT.control_hz
WALL = 1.7e9  # time of day when the clock is at 0 [s]
LATE_S, LATE_SHARE = 0.06, 0.01  # most of a tick's delay; share of such ticks
TRANSIT_S, SLOW_S, SLOW_SHARE = 0.002, 0.014, 0.01  # of a message to the controller: most; of the slow ones
STATES_S, STATES_KEPT = 0.005, 10  # joint states: one each, and so many wait for a tick
FOLLOWS = 12  # periods of the controller after which the arm is where it was asked to be
SAG_RAD, SAGS_MS = 0.001, 300  # most that it is beside that, once it was moved, and how long it takes to be so
ALIVE_S, LEASE_S, DEADLINE_S = 0.02, 0.2, 0.1  # the policy's heartbeat; liveliness and deadline of publishers
SHOWN_S = 0.1

Act = Callable[[], object]


class Process:
    """Something that is done once a `period` [s], late from time to time, until it is killed."""

    def __init__(self, period: float, act: Act, due: float) -> None:
        self.period, self.act, self.due, self.alive = period, act, due, True


class Controller(TrajectoryController):
    """It notes where it holds unasked."""

    unasked: Act = staticmethod(lambda: None)

    def hold(self, positions: np.ndarray) -> None:
        super().hold(positions)
        self.unasked()


class Chain:
    """Safety node, controller and arm.

    Attributes:
      now: the clock [s].
      asked: (7,) of each millisecond [rad].
      own: [begin, end] in milliseconds of each time in which the controller holds where the arm is measured, unasked.
      refused: messages that the controller did not take, and why.
      report: the newest of the safety node; `reports` counts them.
      armings: so often is the arm still to be armed; a latch is reset before.
    """

    def __init__(self, rng: np.random.Generator, tolerance: float = 0.0) -> None:
        self.rng, self.now = rng, 1.0
        self.supervisor = SafetySupervisor(CONTRACT, self.clock, self.wall)
        self.filter = self.supervisor.filter
        self.supervisor.streamers_alive(1, "target")
        self.horizon = Horizon(STREAM_S, CONTRACT.horizon_s)
        self.asked: list[np.ndarray] = [HOME.copy()]
        self.own: list[list[int]] = []
        self.refused: list[str] = []
        self.controller = Controller(CONTRACT.joints, HOME, tolerance=tolerance)
        self.controller.unasked = self._holds
        self.held_back = 0  # milliseconds for which the arm stays where it is
        self.armings, self.begun, self.reports = 0, -np.inf, 0
        self.report = Report(SafetyState.DISARMED, "", "")
        self.heard: list[Callable[..., object]] = []  # by whom joint states are
        self.accepted: Callable[[int, np.ndarray], object] = lambda stamp_ns, positions: None  # what was, and by whom
        self._sagged = 0.0
        self._sag = rng.uniform(-SAG_RAD, SAG_RAD, len(HOME))
        self._arm, self._inbox, self._states = HOME.copy(), deque[Act](), deque[Act](maxlen=STATES_KEPT)
        self._target: Act | None = None  # the newest: the topic's depth is 1
        self._messages: deque[tuple[float, float, list[TrajectoryPoint]]] = deque()
        self._later: list[tuple[float, Act]] = []
        self._published, self._report_at = ("", ""), -np.inf
        self.processes: list[Process] = []
        self.safety = self.every(STREAM_S, self._tick)
        self.driver = self.every(STATES_S, self._measure)

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return WALL + self.now

    def every(self, period: float, act: Act) -> Process:
        self.processes.append(Process(period, act, self.now + self.rng.uniform(0.0, period)))
        return self.processes[-1]

    def at(self, seconds: float, act: Act) -> None:
        """Once, by the clock."""
        self._later.append((seconds, act))

    def tell(self, act: Act) -> None:
        """A message or a request to the safety node, which waits for its next tick."""
        self._inbox.append(act)

    def targets(self, act: Act) -> None:
        """A message on the topic of targets."""
        self._target = act

    def killed_publisher(self) -> None:
        """The middleware notices that the publisher of targets is gone."""
        self.at(self.now + DEADLINE_S, lambda: self.tell(self.supervisor.deadline_missed))
        self.at(self.now + LEASE_S, lambda: self.tell(lambda: self.supervisor.streamers_alive(0, "target")))

    def cancel(self) -> None:
        """The controller's goal is cancelled by another client."""
        self.controller.hold(self._arm)

    def _holds(self) -> None:
        if not self.own or self.own[-1][1] <= len(self.asked):
            self.own.append([len(self.asked), sys.maxsize])

    def arms(self) -> str:
        """The service: why the arm was not armed, or nothing."""
        if reason := self.supervisor.refusal("target"):
            return reason
        self.horizon.begin()
        done, why = attempt(self.supervisor.arm, "armed")
        return "" if done else why

    def run(self, until: Callable[[], object], limit_s: float) -> bool:
        """Until that is true, at most so long."""
        end = self.now + limit_s
        while self.now < end:
            if until():
                return True
            self._millisecond()
        return False

    @property
    def at_rest(self) -> bool:
        """What is asked for stays."""
        return not self._messages and len(self.asked) > 50 and np.ptp(self.asked[-50:], axis=0).max() < 1e-9

    def _millisecond(self) -> None:
        for due in [one for one in self._later if one[0] <= self.now]:
            self._later.remove(due)
            due[1]()
        for one in self.processes:
            if one.alive and self.now >= one.due:
                one.act()
                one.due = one.period * (int(self.now / one.period) + 1)  # what was missed is skipped
                one.due += self.rng.uniform(0.0, LATE_S) * (self.rng.random() < LATE_SHARE)
        while self._messages and self._messages[0][0] <= self.now:
            _, begin, points = self._messages.popleft()
            if why := self.controller.accept(CONTRACT.joints, points, begin, self.now):
                self.refused.append(why)
            elif self.own:
                self.own[-1][1] = min(self.own[-1][1], len(self.asked))
        before, self.held_back = self._arm, max(self.held_back - 1, 0)
        if not self.held_back:
            sags = min(max((self.now - self.begun) * 1000 / SAGS_MS, 0.0), 1.0) if np.isfinite(self.begun) else 0.0
            self._sagged = max(self._sagged, sags)
            self._arm = self.asked[max(len(self.asked) - FOLLOWS, 0)] + self._sagged * self._sag
        self.asked.append(np.array(self.controller.sample(self.now, self._arm, (self._arm - before) / PERIOD_S)))
        self.now += PERIOD_S

    def _measure(self) -> None:
        names, stamp = (*CONTRACT.gripper_joints, *CONTRACT.joints), self.wall()
        values = np.concatenate([np.full(len(CONTRACT.gripper_joints), 0.02), self._arm])
        self._states.append(lambda: self.supervisor.joint_state(names, values, stamp))
        for hear in self.heard:
            hear(names, values, stamp)

    # --- the safety node -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.supervisor.due():
            return
        self._take_all()
        command = self.supervisor.step()
        if command is not None:
            self._publish(command)
            self.filter.sent()
            if accepted := self.supervisor.newly_accepted():
                self.accepted(accepted[0], np.array(accepted[1]))
        seen = (self.filter.state, self.filter.reason)
        if seen != self._published or self.now - self._report_at >= 0.1:
            self._published, self._report_at = seen, self.now
            armed = self.filter.state is SafetyState.ARMED
            self.report = Report(*seen, str(self.supervisor.arming) if armed else "")
            self.reports += 1

    def _take_all(self) -> None:
        waiting = [*self._states, *self._inbox, *([self._target] if self._target else ())]
        self._states.clear()
        self._inbox.clear()
        self._target = None
        for act in waiting:
            act()

    def _publish(self, command: ArmCommand) -> None:
        send_ahead(self.horizon, self.filter, command, self.wall, self._message)

    def _message(self, due: list[Point]) -> Act:
        slow = self.rng.random() < SLOW_SHARE
        arrives = self.now + self.rng.uniform(0.0003, SLOW_S if slow else TRANSIT_S)
        arrives = max(arrives, self._messages[-1][0] if self._messages else 0.0)
        points = [TrajectoryPoint(p.at - due[0].at, p.positions, p.velocities) for p in due]
        return lambda: self._messages.append((arrives, due[0].at - WALL, points))


def wandering(rng: np.random.Generator, wild: bool) -> Callable[[int], np.ndarray]:
    """Number of a control step → (7,) its action: a slow wave in each direction, some of which turn about at once."""
    size, rate = rng.uniform(0.1, 1.0 if wild else 0.6, 6), rng.uniform(0.2, 1.2, 6)
    phase, grip = rng.uniform(0.0, 2 * np.pi, 6), rng.uniform(0.2, 0.5)
    signs = np.cumprod(np.where(rng.random((400, 6)) < (0.2 if wild else 0.03), -1.0, 1.0), axis=0)
    noise = rng.normal(0.0, 0.05, (400, 6))

    def action(k: int) -> np.ndarray:
        wave = signs[k % 400] * size * np.sin(2 * np.pi * rate * k * CONTROL_S + phase) + noise[k % 400]
        return np.append(np.clip(wave, -1.0, 1.0), np.sign(np.sin(2 * np.pi * grip * k * CONTROL_S)))

    return action


class PolicySide:
    """A policy's process, a streamer, and the operator's, which holds the dead-man's switch and arms.

    Args:
      action: see `wandering`.
      steps, execute: actions of a chunk, and after how many of them the next one is asked for.
      late_s: number of a chunk → how long it is under way [s]; None: it never comes.
    """

    def __init__(
        self, chain: Chain, action: Callable[[int], np.ndarray], *, steps: int = 8, execute: int = 4,
        late_s: Callable[[int], float | None] = lambda n: 0.02,
    ) -> None:  # fmt: skip
        self.chain, self._action, self._steps, self._execute, self._late_s = chain, action, steps, execute, late_s
        self.streamer = Streamer(CONTRACT, self._send, clock=chain.clock, wall=chain.wall)
        self._inbox: deque[Act] = deque()
        self._stamp, self._due, self._chunks, self.held = 0.0, np.inf, 0, True
        chain.heard.append(self._on_joints)
        self.policy = chain.every(ALIVE_S, self._decide)
        self.process = chain.every(STREAM_S, self._tick)
        self.operator = chain.every(0.05, self._operate)

    def _on_joints(self, names: tuple[str, ...], values: np.ndarray, stamp: float) -> None:
        self._stamp = stamp
        self._inbox.append(lambda: self.streamer.joint_state(names, values, stamp))

    def _decide(self) -> None:
        self._inbox.append(self.streamer.heartbeat)
        now = self.chain.now
        if not self.chain.report.arming:
            self._due = now
        elif now >= self._due and self._stamp:
            self._due += self._execute * CONTROL_S
            begin, stamp = round((now - self.chain.begun) / CONTROL_S), round(1e9 * self._stamp)
            chunk = np.stack([self._action(begin + k) for k in range(self._steps)])
            times = np.arange(self._steps, dtype=np.float64) * CONTROL_S
            names, late = self.streamer.stream.names, self._late_s(self._chunks)
            self._chunks += 1
            if late is not None:
                arrived = lambda: self._inbox.append(lambda: self.streamer.chunk(stamp, names, chunk, times))  # noqa: E731
                self.chain.at(now + late, arrived)

    def kill_policy(self) -> None:
        self.policy.alive = False
        self.chain.at(self.chain.now + LEASE_S, lambda: self._inbox.append(lambda: self._gone()))

    def _gone(self) -> None:
        self.streamer.policies_alive(0, "action_chunk")

    def kill_streamer(self) -> None:
        self.process.alive = False
        self.chain.killed_publisher()

    def _tick(self) -> None:
        waiting, self._inbox = self._inbox, deque()
        for act in waiting:
            act()
        self.streamer.safety(self.chain.report.arming)
        self.streamer.tick()

    def _send(self, what: StreamTarget | StreamStop) -> None:
        s = self.chain.supervisor
        if isinstance(what, StreamStop):
            self.chain.targets(lambda: s.stop_request(what.reason))
        else:
            names, at = self.streamer.names, what
            self.chain.targets(lambda: s.target(names, at.positions, at.stamp_ns, at.after_s))

    def _operate(self) -> None:
        """A heartbeat; as long as the arm is to be armed, it is reset and armed where it may be."""
        chain, held = self.chain, self.held
        chain.tell(lambda: chain.supervisor.deadman(held, "operator"))
        if chain.armings and held and chain.report.state in (SafetyState.DISARMED, SafetyState.LATCHED):
            chain.tell(self._arm)

    def _arm(self) -> None:
        chain = self.chain
        if chain.filter.state is SafetyState.LATCHED:
            attempt(chain.filter.reset, "reset")
        if chain.armings and not chain.arms():
            chain.armings, chain.begun = chain.armings - 1, chain.now


class Person:
    """A device in a hand that jerks: a `Device`.

    Args:
      action: see `wandering`.
      engaged: time since the arm was armed first [s] → the dead-man's switch, or clutch, is held.
      until_s: then they have enough [s].
    """

    name = "person"

    def __init__(
        self, clock: Callable[[], float], action: Callable[[int], np.ndarray], engaged: Callable[[float], bool],
        until_s: float = np.inf,
    ) -> None:  # fmt: skip
        self._clock, self._action, self._engaged, self._until_s = clock, action, engaged, until_s
        self.begun: float | None = None  # the arm was armed for the first time
        self.wants = Phase.READY
        self.phase: Callable[[], Phase] = lambda: Phase.STARTING
        self._pressed, self._seen = -np.inf, ""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def prepared(self) -> None:
        self.begun = self._clock() if self.begun is None else self.begun

    def show(self, status: Status) -> None:
        self._seen = status.message

    def sample(self, observation: Mapping[str, Any] | None) -> Sample:
        now = self._clock()
        since = 0.0 if self.begun is None else now - self.begun
        held = self._engaged(since)
        events: tuple[EpisodeEvent, ...] = (EpisodeEvent.QUIT,) if since > self._until_s else ()
        waits = self.phase() is Phase.WAITING or (self.phase() is Phase.READY and self.wants is Phase.RECORDING)
        if waits and not events and now - self._pressed > 0.3 and self._seen:
            self._pressed, events = now, (EpisodeEvent.START,)
        return Sample(self._action(int(since / CONTROL_S)).astype(np.float32), held, events, now, released=not held)


class Gated(Policy):
    """A policy in the thread of its inference, which ends when the chain's clock says so."""

    execute_steps = 4

    def __init__(self, action: Callable[[int], np.ndarray], steps: int = 8) -> None:
        self.interface = CONTRACT.interface
        self._action, self._steps, self._next = action, steps, 0
        self.gate = threading.Event()
        self.gate.set()  # it is warmed up while no time passes

    def act(self, observation: Mapping[str, Any]) -> np.ndarray:
        self.gate.wait()
        begin, self._next = self._next, self._next + self.execute_steps
        return np.stack([self._action(begin + k) for k in range(self._steps)])[None].astype(np.float32)


class _Call:
    """A service of the safety node, answered in its next tick."""

    def __init__(self, chain: Chain, name: str, act: Callable[[], tuple[bool, str]]) -> None:
        self.name, self._chain, self._act = name, chain, act
        self._answer: tuple[bool, str] | None = None

    def ready(self) -> bool:
        return True

    def send(self) -> None:
        self._chain.tell(self._done)

    def _done(self) -> None:
        self._answer = self._act()

    def answer(self) -> tuple[bool, str] | None:
        return self._answer

    def cancel(self) -> None: ...


class PersonSide:
    """A session of teleoperation, or of a recording in which a policy and a person move the arm in turn: the process of
    `robolearn operate` and `record --policy`, and its `ArmLink`.

    Args:
      person: the device.
      policy: moves the arm while the person does not; `late_s`: number of a chunk → how long it takes [s].
    """

    def __init__(
        self, chain: Chain, person: Person, policy: Gated | None = None, late_s: Callable[[int], float] = lambda n: 0.02
    ) -> None:
        self.chain, self._late_s, self._policy, self._asked_at, self._chunks = chain, late_s, policy, np.inf, 0
        self._inbox: deque[Act] = deque()
        self._reports, self._shelf = -1, Shelf()
        self.observer = Observer(CONTRACT, ("proprio",), chain.clock)
        self._player = None
        if policy is None:
            episodes = EpisodeLifecycle(0, recording=False)
            self.session = Teleoperation(person, episodes, self, self.observer, chain.clock)
        else:
            self._player = ChunkPlayer(policy, clock=chain.clock)
            policy.gate.clear()
            device = Supervised(person, self._player, CONTRACT.interface, chain.clock)
            session = Session(CONTRACT, device, CONTRACT.interface, Paper(), "wander", 99)
            self.session = Recording(
                session, self, self.observer, self._shelf, sim_reset=self.reset, clock=chain.clock, wall=chain.wall
            )
            person.wants = Phase.RECORDING
            chain.accepted = self.session.accepted
        person.phase = lambda: self.session.episodes.phase
        self.device = self.session.device
        chain.heard.append(self._on_joints)
        self.process = chain.every(STREAM_S, self._tick)
        self.screen = chain.every(SHOWN_S, self._show)

    def close(self) -> None:
        """End the thread of the policy."""
        if self._policy is not None:
            self._policy.gate.set()
        self.device.close()

    def kill(self) -> None:
        self.process.alive = self.screen.alive = False
        self.chain.killed_publisher()
        lost = lambda: self.chain.tell(lambda: self.chain.supervisor.operators_alive(0))  # noqa: E731
        self.chain.at(self.chain.now + LEASE_S, lost)

    def _on_joints(self, names: tuple[str, ...], values: np.ndarray, stamp: float) -> None:
        self._inbox.append(lambda: self.observer.joints.update(names, values, stamp))

    def _tick(self) -> None:
        waiting, self._inbox = self._inbox, deque()
        for act in waiting:
            act()
        if self.chain.reports != self._reports:
            self._reports = self.chain.reports
            self.session.safety(self.chain.report)
        self._infer()
        self.session.tick()
        self._shelf.tick()
        if isinstance(self.session, Recording):
            self.session.look()

    def _infer(self) -> None:
        """Let the inference end that has taken its time."""
        if self._player is None or self._policy is None:
            return
        if self._player.predictor.busy and self._asked_at == np.inf:
            self._asked_at, self._chunks = self.chain.now + self._late_s(self._chunks), self._chunks + 1
        if self.chain.now >= self._asked_at:
            self._policy.gate.set()
            while self._player.predictor.busy:
                time.sleep(1e-5)
            self._policy.gate.clear()
            self._asked_at = np.inf

    def _show(self) -> None:
        self.device.show(self.session.status)
        self.session.shown = self.session.status.message

    # --- the link ------------------------------------------------------------------------------------------------

    def connected(self) -> bool:
        return True

    def send_target(self, positions: np.ndarray, stamp_ns: int) -> None:
        names, after_s = self.session.set_points.names, self.chain.wall() - 1e-9 * stamp_ns
        self.chain.targets(lambda: self.chain.supervisor.target(names, positions, stamp_ns, after_s))

    def send_deadman(self, held: bool) -> None:
        self.chain.tell(lambda: self.chain.supervisor.deadman(held, "person"))

    def observed_ns(self) -> int:
        return round(1e9 * self.observer.joints.stamp)

    def arm(self) -> _Call:
        def act() -> tuple[bool, str]:
            why = self.chain.arms()
            self.chain.begun = self.chain.begun if why else self.chain.now
            return not why, why or "armed"

        return _Call(self.chain, "arm", act)

    def disarm(self) -> _Call:
        return _Call(self.chain, "disarm", lambda: attempt(self.chain.filter.disarm, "braking"))

    def reset(self) -> _Call:
        return _Call(self.chain, "reset", lambda: attempt(self.chain.filter.reset, "reset"))
