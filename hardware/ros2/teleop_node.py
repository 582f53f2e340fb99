"""The teleoperation node: a device in the place of policy and streamer.

At the control rate it asks the device for an action, and turns it into joint set-points by the control that policies
use; in between it repeats them, as the streamer does. The dead-man's switch is the device's: let go or gone, the arm
brakes and latches. The arm is armed only after START, and a latch reset only by a START of somebody who was shown it.

Nothing here waits: services answer later, and the device shows the state of things in a thread of its own.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from numpy.typing import NDArray
from rclpy.context import Context
from rclpy.subscription import MessageInfo
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from hardware.episodes import Do, Episodes, Phase
from hardware.latency import Latencies
from hardware.observer import NotObserved, Observer
from hardware.ros2 import messages, qos, topics
from hardware.ros2.messages import SafetyReport
from hardware.ros2.observation_inputs import ObservationInputs
from hardware.ros2.realtime import step_back
from hardware.ros2.runtime import Node, Value
from hardware.setpoints import SetPoints
from hardware.teleop.device import RECORDING, WAITING, Device, EpisodeEvent, Sample, Status
from robolearn.core import RobolearnError
from robots.stations import Contract, load_contract

log = logging.getLogger(__name__)

Steps = Iterator[None]
"""Work that takes time: each step is made when the node's heart beats."""

DEADMAN_S = 0.05  # between heartbeats
SHOW_S = 0.1  # between two looks of the operator at the state of things
SILENCE_S = 1.0  # of the safety node, which speaks ten times a second
ANSWER_S = 5.0  # for a service to answer
REST_S = 5.0  # for the arm to brake
ARMING_S = 5.0  # in which a refusal that passes by itself (a joint state late) is asked again
ENGAGE_S = 10.0  # for the operator to hold the dead-man's switch, after START


class Refused(RobolearnError):
    """The arm cannot be prepared; the message says why."""


class TeleopNode(Node):
    """An operator moves the arm.

    Args:
      make_device: contract and the parameter `device` → the device, open; the node closes it.
      contract: the station, in place of the parameter `contract`.
    """

    stop_limit_s = 10.0

    def __init__(
        self,
        make_device: Callable[[Contract, str], Device] | None = None,
        *,
        name: str = "teleop",
        defaults: dict[str, Value] | None = None,
        contract: Contract | None = None,
        context: Context | None = None,
        overrides: dict[str, Value] | None = None,
    ) -> None:
        super().__init__(
            name,
            {"contract": "sim", "device": "gamepad", **(defaults or {})},
            context=context,
            overrides=overrides,
        )
        self._make_device, self._given = make_device, contract
        self.interrupted = False
        self.device: Device | None = None
        self._screen: threading.Thread | None = None

    def open_session(self) -> tuple[Contract, Collection[str], Device, Episodes]:
        """The station, the features to observe, the device, open, and the episodes to lead it through."""
        assert self._make_device is not None
        contract = self._given or load_contract(self.value("contract"))
        device = self._make_device(contract, self.value("device"))
        return contract, ("proprio",), device, Episodes(0, recording=False)

    # --- lifecycle -----------------------------------------------------------------------------------------

    def configure(self) -> None:
        contract, features, self.device, self.episodes = self.open_session()
        self.contract, self.features = contract, tuple(features)
        self.set_points = SetPoints(contract)
        self.observer = Observer(contract, self.features)
        self._period = 1.0 / contract.control_hz
        self._due = 0.0  # of the next control step
        self.step_count = 0
        self._begun = 0.0  # the episode
        self.report: SafetyReport | None = None
        self._heard = 0.0  # of the safety node
        self._arming = ""  # which arming this session has asked for
        self._shown = self._seen = ""  # what the operator was told last, and when START was pressed
        self.sample = Sample(None, False, (), 0.0)
        self._rests = False  # the hand, in the last control step
        self._last_ns = 0  # stamp of the newest target [ns]
        self._asked: tuple[NDArray, NDArray, Time] | None = None  # q, target and stamp of the present control step
        self._work: list[Steps] = []
        self._preparing: Steps | None = None
        self.problem = "nothing heard yet"  # with what is observed
        self._told_deadman: tuple[bool, float] = (False, 0.0)
        self.late_steps = 0
        self._input_latency = Latencies()

        self._target_publisher = self.create_publisher(JointTrajectory, topics.TARGET, qos.TARGET)
        self._deadman_publisher = self.create_publisher(Bool, topics.DEADMAN, qos.DEADMAN)
        self._calls = {n: self.create_client(Trigger, n) for n in (topics.ARM, topics.DISARM, topics.RESET)}
        self._wake = threading.Event()  # of the screen
        self._observation_inputs = ObservationInputs(self, contract, self.observer, self.features)
        self.inputs = [
            self.poll(DiagnosticArray, topics.SAFETY_STATE, self._on_safety, qos.latched()),
            *self._observation_inputs.inputs,
        ]
        sys.setswitchinterval(0.001)  # a thread that shows or encodes must not hold up the arm for 5 ms
        self.status = self._make_status({})
        self._ended = False
        self._screen = threading.Thread(target=self._show, name="screen", daemon=True)
        self._screen.start()
        self.beat(1.0 / contract.stream_hz, self._tick)

    def begin_stop(self, reason: str) -> None:
        self.interrupted = not self.done
        if hasattr(self, "episodes"):
            self.do(self.episodes.end(reason))

    def stopped(self) -> bool:
        if not hasattr(self, "episodes"):
            return True
        state = self.report.state if self.report else "disarmed"
        at_rest = state in ("disarmed", "latched") or time.monotonic() - self._heard > SILENCE_S
        return at_rest and not self._work and not self.episodes.saving

    def destroy_node(self) -> None:
        if self._screen is not None:
            self._ended = True
            self._wake.set()
            self._screen.join(2.0)
            self._screen = None
        if self.device is not None:
            self.device.close()
            self.device = None
        super().destroy_node()

    def on_fault(self, error: Exception) -> bool:
        """The device, or what records, failed: nothing is asked of the arm any more."""
        self.fail(error if isinstance(error, RobolearnError) else RobolearnError(f"{type(error).__name__}: {error}"))
        return True

    def fail(self, error: RobolearnError) -> None:
        """End the session because of `error`, the first of which is kept."""
        self.error = self.error or error
        if hasattr(self, "episodes"):
            self.do(self.episodes.end(str(error)))
        self.done = True

    # --- what arrives --------------------------------------------------------------------------------------

    def _on_safety(self, message: DiagnosticArray, info: MessageInfo) -> None:
        report = messages.read_safety_report(message)
        if report is not None:
            self.report, self._heard = report, time.monotonic()

    # --- time ----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        try:
            self._beat()
        except (RobolearnError, OSError) as error:  # others are told with their traces
            self.on_fault(error)

    def _beat(self) -> None:
        for take in self.inputs:
            take()
        now = time.monotonic()
        self._watch(now)
        self._go_on()
        if now >= self._due:
            # In step again after one that was late, but never two at once.
            late = now - self._due > self._period and self._due > 0
            self.late_steps += late and self.episodes.phase is Phase.RECORDING
            self._due = now + self._period if late or not self._due else self._due + self._period
            self._control_step(now)
        if self.episodes.armed and self._asked is not None:
            _, target, stamp = self._asked
            self._target_publisher.publish(messages.target(self.set_points.names, target, stamp))
        self._beat_deadman(now)

    def _watch(self, now: float) -> None:
        """Whether what was there is still there."""
        if self.episodes.phase is Phase.STARTING:
            ready = all(client.service_is_ready() for client in self._calls.values())
            if self.report and ready and self._deadman_publisher.get_subscription_count() and not self.problem:
                self.do(self.episodes.up())
        elif self.episodes.armed:
            report = self.report
            assert report is not None
            if now - self._heard > SILENCE_S:
                self.do(self.episodes.stopped("the safety node is silent"))
            elif report.arming != self._arming:
                why = report.reason or f"the safety filter is {report.state}"
                self.do(self.episodes.stopped(f"the safety filter stopped the arm: {why}"))

    def _control_step(self, now: float) -> None:
        observation = self._observe()
        self.before_step()
        assert self.device is not None
        self.sample = sample = self.device.sample(observation)
        for event in sample.events:
            if event in (EpisodeEvent.START, EpisodeEvent.REDO) and self.episodes.phase is not Phase.PREPARING:
                self._seen = self._shown
            self.do(self.episodes.tell(event))
        if self.problem and self.episodes.phase is Phase.RECORDING:
            self.do(self.episodes.stopped(self.problem))
        if self.episodes.armed:
            self._ask(observation, sample, now)
        else:
            self._asked = None
        before, self.status = self.status.state, self._make_status(observation or {})
        if self.status.state != before:
            self._wake.set()

    def _observe(self) -> dict[str, NDArray] | None:
        """Feature → (…) of the one arm; None, and `_problem`, where there is none to be believed."""
        try:
            observation = self.observer.observation()
        except NotObserved as error:
            self.problem = str(error)
            return None
        self.problem = ""
        return {key: value[0] for key, value in observation.items()}

    def _ask(self, observation: dict[str, NDArray] | None, sample: Sample, now: float) -> None:
        """Set-points for this control step."""
        q = self.observer.joints.q
        assert q is not None
        if sample.action is not None and not self.problem:
            action = np.asarray(sample.action, dtype=np.float64)
            target = self.set_points.target(q, action)
            rested, self._rests = self._rests, self.set_points.at_rest(action)
            if rested and self._rests and self._asked is not None:
                # A hand at rest holds the arm where it came to rest: asked anew from where it is measured, it would
                # sink a little with every step, for no controller holds an arm's weight without giving way.
                target, action = np.append(self._asked[1][:-1], target[-1]), None
            self._input_latency.add(max(now - sample.stamp, 0.0))
        else:
            # Hold still: where the arm was told to go last, or where it stands.
            target = np.append(q, self.observer.joints.width) if self._asked is None else self._asked[1]
            action, self._rests = None, False
        self._asked = (q, target, stamp := self._unique(self._observation_inputs.stamp))
        if observation is not None and self.episodes.phase is Phase.RECORDING:
            self.add_row(observation, q, target, action, stamp)
            self.step_count += 1

    def _unique(self, stamp: Time) -> Time:
        """A nanosecond later where joint states are slower than control steps: stamps tell targets apart."""
        ns = stamp.sec * 1_000_000_000 + stamp.nanosec
        self._last_ns = ns = ns if ns > self._last_ns or ns < self._last_ns - 1_000_000_000 else self._last_ns + 1
        return Time(sec=ns // 1_000_000_000, nanosec=ns % 1_000_000_000)

    def _beat_deadman(self, now: float) -> None:
        engaged = bool(self.sample.engaged)
        last, at = self._told_deadman
        if engaged != last or now - at >= DEADMAN_S:
            self._told_deadman = (engaged, now)
            self._deadman_publisher.publish(Bool(data=engaged))

    # --- what a recording adds -------------------------------------------------------------------------------

    def before_step(self) -> None:
        """A control step is about to be made; what came of the last one is known."""

    def add_row(
        self, observation: dict[str, NDArray], q: NDArray, target: NDArray, action: NDArray | None, stamp: Time
    ) -> None:
        """One step of the running episode; `action` is None where nothing was asked for."""

    def begin(self) -> None:
        """An episode begins with the next control step."""

    def store(self) -> None:
        """Store the running episode with the verdict of `episodes`, and say `episodes.saved` when it is."""

    def drop(self) -> None:
        """Forget the running episode, and say `episodes.saved`."""

    def place(self) -> Steps:
        """Put everything in its place; the arm is at rest."""
        yield from ()

    # --- what is to be done ----------------------------------------------------------------------------------

    def do(self, dos: list[Do]) -> None:
        """Do, or begin to do."""
        for what in dos:
            if what is Do.PREPARE:
                self._preparing = self._prepare()
            elif what is Do.BEGIN:
                self.step_count, self._begun = 0, time.monotonic()
                self.begin()
            elif what is Do.STORE:
                self.store()
            elif what is Do.DROP:
                self.drop()
            elif what is Do.DISARM:
                self._preparing, self._arming = None, ""
                self._work.append(self._disarm())
            elif what is Do.END:
                if self.episodes.gave_up:
                    self.error = self.error or RobolearnError(self.episodes.gave_up)
                self.done = True
        if dos:
            log.log(logging.WARNING if Do.DROP in dos else logging.INFO, "%s", self.episodes.message)

    def _go_on(self) -> None:
        """One step of everything that takes time."""
        self._work = [work for work in self._work if not _finished(work)]
        preparing = self._preparing
        if preparing is None:
            return
        try:
            if _finished(preparing) and self._preparing is preparing:
                self._preparing = None
                assert self.device is not None
                self.device.prepared()  # here, and not on its screen: the first row is made before that is drawn
                self.do(self.episodes.prepared())
        except Refused as error:
            self._preparing = None
            self.do(self.episodes.refused(str(error)))

    def _prepare(self) -> Steps:
        yield from self._until(lambda: self._state in ("disarmed", "latched"), REST_S, "the arm does not come to rest")
        if self._state == "latched":
            if self._reason not in self._seen:
                raise Refused(self._reason)  # START was meant for an arm that was merely at rest
            yield from self.call(topics.RESET)
            yield from self._until(lambda: self._state == "disarmed", ANSWER_S, "the safety filter stays latched")
        yield from self.place()
        yield from self._until(lambda: not self.problem, ANSWER_S, lambda: self.problem)
        if not self.sample.engaged:
            self.episodes.message = "hold the dead-man's switch" + (f": {n}" if (n := self.sample.note) else "")
            held = self.sample.note or "the dead-man's switch is not held"
            yield from self._until(lambda: self.sample.engaged, ENGAGE_S, held)
        end = time.monotonic() + ARMING_S
        while True:
            try:
                yield from self.call(topics.ARM)
                break
            except Refused as error:
                if time.monotonic() > end or "latched" in str(error):
                    raise
            yield from _pause(0.1)
        yield from self._until(lambda: self.report and self.report.arming, ANSWER_S, "the arm was not armed")
        assert self.report is not None
        self._arming = self.report.arming

    def _disarm(self) -> Steps:
        try:
            yield from self.call(topics.DISARM)
        except Refused as error:  # its heartbeat ends, and with it the motion
            log.warning("%s", error)

    def call(self, service: str) -> Generator[None, None, str]:
        """Call a Trigger service; its message.

        Raises:
          Refused: it is not there, does not answer in time, or says no.
        """
        client = self._calls.get(service)
        if client is None:
            client = self._calls[service] = self.create_client(Trigger, service)
        yield from self._until(client.service_is_ready, ANSWER_S, f"{service} is not there")
        future = client.call_async(Trigger.Request())
        try:
            yield from self._until(future.done, ANSWER_S, f"{service} does not answer")
        except Refused:
            client.remove_pending_request(future)
            raise
        answer = future.result()
        assert answer is not None
        if not answer.success:
            raise Refused(answer.message)
        return answer.message

    def _until(self, condition: Callable[[], Any], limit_s: float, otherwise: str | Callable[[], str]) -> Steps:
        end = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end:
                raise Refused(otherwise if isinstance(otherwise, str) else otherwise())
            yield

    @property
    def _state(self) -> str:
        return self.report.state if self.report else ""

    @property
    def _reason(self) -> str:
        return self.report.reason if self.report else ""

    # --- what the operator sees --------------------------------------------------------------------------------

    def _make_status(self, observation: dict[str, NDArray]) -> Status:
        e, q = self.episodes, self.observer.joints.q
        message = e.message
        if e.phase is Phase.STARTING:
            message = "waiting for the safety node" if not self.report else self.problem or "waiting for services"
        elif e.phase in (Phase.WAITING, Phase.READY, Phase.RECORDING):
            if e.phase is Phase.WAITING and self._state == "latched" and self._reason not in message:
                message = f"the safety filter is latched: {self._reason}. START resets it"
            if why := self.problem or self.sample.note:
                message = why if e.phase is Phase.RECORDING else f"{message} ({why})"
        recording = e.phase is Phase.RECORDING
        return Status(
            state=self._state_shown(),
            message=message,
            episode=max(min(e.number, e.first + e.wanted - 1), 0),
            episodes=e.first + e.wanted,
            step=self.step_count if recording else 0,
            seconds=time.monotonic() - self._begun if recording else 0.0,
            joints=None if q is None else q.copy(),
            images={key.removeprefix("images."): v for key, v in observation.items() if key.startswith("images.")},
        )

    def _state_shown(self) -> str:
        phase = self.episodes.phase
        if phase in (Phase.WAITING, Phase.READY):  # START is waited for, whether or not the arm follows meanwhile
            return "storing" if self.episodes.saving else WAITING
        return RECORDING if phase is Phase.RECORDING else phase.value

    def _show(self) -> None:
        step_back()
        while not self._ended:
            assert self.device is not None
            status = self.status
            try:
                self.device.show(status)
            except Exception:
                log.exception("the device shows nothing any more")
                return
            self._shown = status.message
            # A change at once: a script begins when it is told that it is recorded.
            self._wake.wait(SHOW_S)
            self._wake.clear()


def _finished(work: Steps) -> bool:
    """Make one step; whether it was the last."""
    try:
        next(work)
    except StopIteration:
        return True
    return False


def _pause(seconds: float) -> Steps:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
