"""Teleoperation without ROS: a device in the place of policy and streamer, on an injected clock.

At the control rate the device is asked for an action, which becomes joint set-points by the control that policies use;
in between they are repeated, as the streamer does. The dead-man's switch is the device's: let go or gone, the arm
brakes and latches. The arm is armed only after START, and a latch reset only by a START of an operator who was shown
it.

Nothing here waits: what takes time is a generator (`hardware.teleop.arm_link`) that makes one step per tick.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator

import numpy as np
from numpy.typing import NDArray

from hardware.execution.setpoints import SetPoints
from hardware.observing.observer import NotObserved, Observer
from hardware.observing.timing import Latencies, Silence
from hardware.recording.episodes import EpisodeCommand, EpisodeLifecycle, Phase
from hardware.safety.states import AT_REST, SafetyState
from hardware.teleop.arm_link import ArmLink, ArmRefused, Call, Report, Steps
from hardware.teleop.device import RECORDING, WAITING, Clock, Device, EpisodeEvent, Sample, Status
from robolearn.core import RobolearnError

log = logging.getLogger(__name__)

DEADMAN_S = 0.05  # between heartbeats
ANSWER_S = 5.0  # for a service to answer
REST_S = 5.0  # for the arm to brake
ARMING_S = 5.0  # in which a refusal that passes by itself (a joint state late) is asked again
ENGAGE_S = 10.0  # for the operator to hold the dead-man's switch, after START


class Teleoperation:
    """An operator moves the arm. One thread calls it, but for `shown`.

    Args:
      device: open.
      episodes: to lead it through.
      link: to the safety node.
      observer: of the station's features; fed by whoever receives messages.

    Attributes:
      report: the newest of the safety node, or None.
      sample: of the device in the last control step.
      status: what the operator is shown.
      shown: the message of the status that the operator was shown last.
      on_change: called when the shown state changes.
      step_count: of the running episode.
      late_steps: control steps of episodes that came more than a period late.
      done: nothing is left to do; `error`: why, where something went wrong.
    """

    def __init__(
        self, device: Device, episodes: EpisodeLifecycle, link: ArmLink, observer: Observer,
        clock: Clock = time.monotonic,
    ) -> None:  # fmt: skip
        self.contract, self.features, self.clock = observer.contract, observer.features, clock
        self.device, self.episodes, self.link, self.observer = device, episodes, link, observer
        self.set_points = SetPoints(self.contract)
        self.report: Report | None = None
        self.sample = Sample(None, False, (), 0.0)
        self.problem = "nothing heard yet"  # with what is observed
        self.step_count = self.late_steps = 0
        self.done = False
        self.error: RobolearnError | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.shown = self._seen = ""  # _seen: what was shown when START was pressed
        self._period = 1.0 / self.contract.control_hz
        self._due = self._begun = 0.0  # the next control step, the episode
        self._silence, self._silent = Silence(clock), ""  # of the safety node, and in words
        self._arming = ""  # which arming this session has asked for
        self._rests = False  # the hand, in the last control step
        self._last_ns = 0  # stamp of the newest target
        self._asked: tuple[NDArray, NDArray, int] | None = None  # q, target and stamp of the present control step
        self._observed: dict[str, NDArray] | None = None  # in the present control step
        self._awaited: Callable[[], NDArray | None] | None = None  # its action, see `Sample.later`
        self._work: list[Steps] = []
        self._preparing: Steps | None = None
        self._sent_deadman: tuple[bool, float] = (False, 0.0)
        self._input_latency = Latencies()
        self.status = self._make_status({})

    # --- what arrives ----------------------------------------------------------------------------------------

    def safety(self, report: Report) -> None:
        """The safety node has reported."""
        self.report = report
        self._silence.heard()

    def fail(self, error: RobolearnError) -> None:
        """End the session because of `error`, the first of which is kept."""
        self.error = self.error or error
        self.do(self.episodes.end(str(error)))
        self.done = True

    def at_rest(self) -> bool:
        """True if the arm stands, by the last reports, and nothing is left to store."""
        state = self.report.state if self.report else SafetyState.DISARMED
        still = state in AT_REST or bool(self._silence.look())
        return still and not self._work and not self.episodes.saving

    # --- time ------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due now; called at the streaming rate, after everything that arrived was handed in.

        Raises:
          RobolearnError, OSError: the device, or what records, failed.
        """
        now = self.clock()
        self._watch()
        self._go_on()
        if now >= self._due:
            # In step again after one that was late, but never two at once.
            late = now - self._due > self._period and self._due > 0
            self.late_steps += late and self.episodes.phase is Phase.RECORDING
            self._due = now + self._period if late or not self._due else self._due + self._period
            self._control_step(now)
        elif self.episodes.armed and self._awaited and (action := self._awaited()) is not None:
            self._keep(self._aim(action))
        if self.episodes.armed and self._asked is not None:
            self.link.send_target(*self._asked[1:])
        self._send_deadman(now)

    def _watch(self) -> None:
        """Check that safety filter and observations are still there; the recording stops where they are not."""
        silent, self._silent = self._silent, self._silence.look()
        if self._silent and not silent and not (self.done and self._state in AT_REST):
            log.error("%s", self._silent)
        if self.episodes.phase is Phase.STARTING:
            if self.report and self.link.connected() and not self.problem:
                self.do(self.episodes.up())
        elif self.episodes.armed:
            report = self.report
            assert report is not None
            if self._silent:
                self.do(self.episodes.stopped(self._silent))
            elif report.arming != self._arming:
                why = self.sample.stopped or report.reason or f"the safety filter is {report.state}"
                self.do(self.episodes.stopped(f"the safety filter stopped the arm: {why}"))

    def _control_step(self, now: float) -> None:
        if self._awaited is not None:
            self._keep(None)  # it has not come: the arm held still
        observation = self._observed = self._observe()
        self.before_step()
        self.sample = sample = self.device.sample(observation)
        for event in sample.events:
            if event in (EpisodeEvent.START, EpisodeEvent.REDO) and self.episodes.phase is not Phase.PREPARING:
                self._seen = self.shown
            self.do(self.episodes.handle(event))
        if self.problem and self.episodes.phase is Phase.RECORDING:
            self.do(self.episodes.stopped(self.problem))
        if self.episodes.armed:
            self._ask(sample)
        else:
            self._asked = None
        before, self.status = self.status.state, self._make_status(observation or {})
        if self.status.state != before:
            self.on_change()

    def _observe(self) -> dict[str, NDArray] | None:
        """Feature → (…) of the one arm; None, and `problem`, where none is valid."""
        try:
            observation = self.observer.observation()
        except NotObserved as error:
            self.problem = str(error)
            return None
        self.problem = ""
        return {key: value[0] for key, value in observation.items()}

    def _ask(self, sample: Sample) -> None:
        """Set-points for this control step; a policy's may come in the course of it."""
        counts = not self.problem and (not sample.automatic or self.episodes.phase is Phase.RECORDING)
        action, later = (sample.action, sample.later) if counts else (None, None)
        if later is not None:
            action = later()
        made = self._aim(action)
        if action is None and later is not None:
            self._awaited = later
        else:
            self._keep(made)

    def _aim(self, asked: NDArray | None) -> NDArray | None:
        """Set-points of the action `asked` (Da,), or of none; the action that they are of."""
        q, action = self.observer.joints.q, None
        assert q is not None
        if asked is not None:
            action = np.asarray(asked, dtype=np.float64)
            target = self.set_points.target(q, action)
            rested, self._rests = self._rests, not self.sample.automatic and self.set_points.at_rest(action)
            if rested and self._rests and self._asked is not None:
                # A hand at rest holds the arm where it came to rest: asked anew from where it is measured, it would
                # sink a little with every step, for no controller holds an arm's weight without giving way.
                target, action = np.concatenate([self._asked[1][: len(q)], target[len(q) :]]), None
            self._input_latency.add(max(self.clock() - self.sample.stamp, 0.0))
        else:
            # Hold still: at the last target, or where the arm stands.
            target = np.append(q, self.observer.joints.widths) if self._asked is None else self._asked[1]
            self._rests = False
        self._asked = (q, target, self._unique(self.link.observed_ns()))
        return action

    def _keep(self, action: NDArray | None) -> None:
        """The row of this control step."""
        self._awaited = None
        if self._observed is not None and self._asked is not None and self.episodes.phase is Phase.RECORDING:
            q, target, stamp = self._asked
            self.add_row(self._observed, q, target, action, stamp)
            self.step_count += 1

    def _unique(self, ns: int) -> int:
        """A nanosecond later where joint states are slower than control steps: a target is identified by its stamp."""
        self._last_ns = ns if ns > self._last_ns or ns < self._last_ns - 1_000_000_000 else self._last_ns + 1
        return self._last_ns

    def _send_deadman(self, now: float) -> None:
        engaged, (last, at) = bool(self.sample.engaged), self._sent_deadman
        if engaged != last or now - at >= DEADMAN_S:
            self._sent_deadman = (engaged, now)
            self.link.send_deadman(engaged)

    # --- what a recording adds -------------------------------------------------------------------------------

    def before_step(self) -> None:
        """A control step is about to be made; the outcome of the last one is there."""

    def add_row(
        self, observation: dict[str, NDArray], q: NDArray, target: NDArray, action: NDArray | None, stamp_ns: int
    ) -> None:
        """One step of the running episode; `action` is None where nothing was asked for."""

    def begin(self) -> None:
        """An episode begins with the next control step."""

    def store(self) -> None:
        """Store the running episode with the verdict of `episodes`, then call `episodes.saved`."""

    def drop(self) -> None:
        """Drop the running episode, then call `episodes.saved`."""

    def place(self) -> Steps:
        """Put everything in its place; the arm is at rest."""
        yield from ()

    # --- what is to be done ----------------------------------------------------------------------------------

    def do(self, commands: list[EpisodeCommand]) -> None:
        """Execute, or begin to execute."""
        for what in commands:
            if what is EpisodeCommand.PREPARE:
                self._preparing = self._prepare()
            elif what is EpisodeCommand.BEGIN:
                self.step_count, self._begun = 0, self.clock()
                self.begin()
            elif what is EpisodeCommand.STORE:
                self.store()
            elif what is EpisodeCommand.DROP:
                self.drop()
            elif what is EpisodeCommand.DISARM:
                idle = not (self._preparing or self._arming) and self._state in (None, *AT_REST)
                self._preparing, self._arming = None, ""
                if not idle:  # a safety node that ends together with this one answers nobody
                    self._work.append(self._disarm())
            elif what is EpisodeCommand.END:
                if self.episodes.gave_up:
                    self.error = self.error or RobolearnError(self.episodes.gave_up)
                self.done = True
        if commands:
            log.log(logging.WARNING if EpisodeCommand.DROP in commands else logging.INFO, "%s", self.episodes.message)

    def _go_on(self) -> None:
        """One step of everything that takes time."""
        self._work = [work for work in self._work if next(work, work) is not work]
        preparing = self._preparing
        if preparing is None:
            return
        if self._silent:
            self._preparing = None
            self.do(self.episodes.refused(self._silent))
            return
        try:
            if next(preparing, preparing) is preparing and self._preparing is preparing:
                self._preparing = None
                self.device.prepared()  # here, and not on its screen: the first row is made before that is drawn
                self.do(self.episodes.prepared())
        except ArmRefused as error:
            self._preparing = None
            self.do(self.episodes.refused(str(error)))

    def _prepare(self) -> Steps:
        yield from self._until(lambda: self._state in AT_REST, REST_S, "the arm does not come to rest")
        if self._state is SafetyState.LATCHED:
            if self._reason not in self._seen:
                raise ArmRefused(self._reason)  # START was meant for an arm that was merely at rest
            yield from self.call(self.link.reset())
            disarmed = SafetyState.DISARMED
            yield from self._until(lambda: self._state is disarmed, ANSWER_S, "the safety filter stays latched")
        yield from self.place()
        yield from self._until(lambda: not self.problem, ANSWER_S, lambda: self.problem)
        if not self.sample.engaged:
            self.episodes.message = "hold the dead-man's switch" + (f": {n}" if (n := self.sample.note) else "")
            held = self.sample.note or "the dead-man's switch is not held"
            yield from self._until(lambda: self.sample.engaged, ENGAGE_S, held)
        end = self.clock() + ARMING_S
        while True:
            try:
                yield from self.call(self.link.arm())
                break
            except ArmRefused as error:
                if self.clock() > end or "latched" in str(error):
                    raise
            yield from self.pause(0.1)
        yield from self._until(lambda: self.report and self.report.arming, ANSWER_S, "the arm was not armed")
        assert self.report is not None
        self._arming = self.report.arming

    def _disarm(self) -> Steps:
        call, moving = self.link.disarm(), self._state not in AT_REST
        try:
            for _ in self.call(call):
                if self._silent or (moving and self._state in AT_REST):  # by itself, as it does where it is ended
                    call.cancel()
                    return
                yield
        except ArmRefused as error:  # its heartbeat ends, and with it the motion
            log.warning("%s", error)

    def _until(self, condition: Callable[[], object], limit_s: float, otherwise: str | Callable[[], str]) -> Steps:
        """Wait for `condition`; raises `ArmRefused` with `otherwise` where it does not hold within `limit_s`."""
        end = self.clock() + limit_s
        while not condition():
            if self.clock() > end:
                raise ArmRefused(otherwise if isinstance(otherwise, str) else otherwise())
            yield

    def pause(self, seconds: float) -> Steps:
        """Let time pass."""
        end = self.clock() + seconds
        while self.clock() < end:
            yield

    def call(self, made: Call) -> Generator[None, None, str]:
        """Call a service and wait for its answer, at most `ANSWER_S`; its message.

        Raises:
          ArmRefused: it is not there, does not answer in time, or refuses.
        """
        yield from self._until(made.ready, ANSWER_S, f"{made.name} is not there")
        made.send()
        try:
            yield from self._until(lambda: made.answer() is not None, ANSWER_S, f"{made.name} does not answer")
        except ArmRefused:
            made.cancel()
            raise
        done, message = made.answer() or (False, "")
        if not done:
            raise ArmRefused(message)
        return message

    @property
    def _state(self) -> SafetyState | None:
        return self.report.state if self.report else None

    @property
    def _reason(self) -> str:
        return self.report.reason if self.report else ""

    # --- what the operator sees --------------------------------------------------------------------------------

    def _make_status(self, observation: dict[str, NDArray]) -> Status:
        e, q, message = self.episodes, self.observer.joints.q, self.episodes.message
        if e.phase is Phase.STARTING:
            message = "waiting for the safety node" if not self.report else self.problem or "waiting for services"
        elif e.phase in (Phase.WAITING, Phase.READY, Phase.RECORDING):
            if e.phase is Phase.WAITING and self._state is SafetyState.LATCHED and self._reason not in message:
                message = f"the safety filter is latched: {self._reason}. Press Start to reset it"
            if why := self._silent or self.problem or self.sample.note:
                message = why if e.phase is Phase.RECORDING else f"{message} ({why})"
        recording = e.phase is Phase.RECORDING
        waits = e.phase in (Phase.WAITING, Phase.READY)  # for START, whether or not the arm follows meanwhile
        return Status(
            state=("storing" if e.saving else WAITING) if waits else RECORDING if recording else e.phase.value,
            message=message,
            episode=max(min(e.number, e.first + e.wanted - 1), 0),
            episodes=e.first + e.wanted,
            step=self.step_count if recording else 0,
            seconds=self.clock() - self._begun if recording else 0.0,
            joints=None if q is None else q.copy(),
            opening=self.observer.joints.openings[0],
            images={key.removeprefix("images."): v for key, v in observation.items() if key.startswith("images.")},
        )
