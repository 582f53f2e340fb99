"""A recording: teleoperation whose steps are kept.

A row is the observation at a control step, and the action that was *executed* from there. What the operator asked for
is there at once; what the safety filter made of it, when the filter publishes what it accepted. Where it accepted the
target as it was, the action is the operator's; elsewhere it is the one that leads from the same measured joints to
what was accepted. A row is handed over one step late for that.

The control loop hands rows to a `Storage`, and nothing more: that has a thread of its own for disks. A loop that makes
its steps more slowly than the contract says would be stored as one that was in time: its episode is dropped, and one
that was a little slow is named.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.execution.homing import Homecoming
from hardware.observing.observer import Observer
from hardware.recording.episodes import EpisodeCommand, EpisodeLifecycle, OperatorVerdict, Phase
from hardware.recording.rollouts import reached
from hardware.recording.session import BEHIND_S, Outcome, Session, Storage
from hardware.teleop.arm_link import ArmLink, Call, Steps
from hardware.teleop.device import EpisodeEvent, Sample
from hardware.teleop.reset_policy import NOT_BACK
from hardware.teleop.teleoperation import Teleoperation
from robolearn.core import RobolearnError
from robolearn.core.types import RATE_NOTED, RATE_REFUSED, rate_fault

log = logging.getLogger(__name__)

UNANSWERED_S = 0.5  # after which a target that the safety filter has not answered is a fault
SETTLE_S = 0.25  # after which every joint state on its way is one of the new episode
GIVE_UP = 3  # episodes in a row, without an operator
RETURNS = "a policy brings things back; the success key says that they are"
BLIND_S = 10.0  # between two episodes, without an operator


@dataclass
class _Row:
    observation: dict[str, NDArray]
    q: NDArray
    target: NDArray
    action: NDArray | None  # as asked for; None: hold still
    stamp_ns: int  # of the target
    stamps: dict[str, float]
    asked: float
    intervention: bool


class Recording(Teleoperation):
    """Records demonstrations.

    Args:
      session: what to record.
      link, observer, clock: see `Teleoperation`.
      storage: where jobs of the writer are done.
      sim_reset: calls the simulated arm's service that begins its next episode.
      wall: time of day [s], of the stamps of rows.

    Attributes:
      store_s: what the ends of episodes took.
      rates: control steps a second of each episode that was stored.
    """

    def __init__(
        self,
        session: Session,
        link: ArmLink,
        observer: Observer,
        storage: Storage,
        *,
        sim_reset: Callable[[], Call],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        give_up = GIVE_UP if session.judged else 0
        placing = not session.simulated or session.back is not None
        episodes = EpisodeLifecycle(session.episodes, session.first, placing=placing, give_up=give_up)
        super().__init__(session.device, episodes, link, observer, clock)
        self.session = session
        self.store_s: list[float] = []
        self.rates: list[float] = []
        self._storage, self._sim_reset, self.wall = storage, sim_reset, wall
        self._rows: deque[_Row] = deque()  # whose executed action is not there yet
        self._newest: tuple[_Row, NDArray] | None = None  # the last of which it is; it gets the reward
        self._goal: NDArray | None = None  # what the filter last accepted
        self._accepted: dict[int, NDArray] = {}  # stamp of a target → what became of it
        self._reported = (math.nan, 0.0)  # the device's newest report: by the steady clock, and time of day [s]
        self._count = 0  # of rows handed over
        self._refused = False  # the writer could not store something; what to keep of it is its own business
        self._up_by, self._blind_since, self._sim_episode = clock() + session.start_s, clock(), -1
        self._outcome: dict[str, Any] | None = None
        self.homecoming = Homecoming(self.contract) if session.homes or session.back is not None else None
        self._returns = False  # `session.back` is at work, or has just ended
        self._before = self.episodes.phase  # in the last tick

    # --- between episodes --------------------------------------------------------------------------------------

    def tick(self) -> None:
        if self.homecoming is not None:
            self._lead(self.homecoming)
        super().tick()

    def _lead(self, home: Homecoming) -> None:
        """Bring things back and the arm home where nobody is recorded and no hand moves the arm."""
        before, self._before = self._before, self.episodes.phase
        back, q = self.session.back, self.observer.joints.q
        if self.episodes.phase is not Phase.READY or q is None:
            if back is not None and (back.going or back.back):  # a stop: from here on it is for a person to begin
                back.end(False, back.reason or NOT_BACK)
            return
        if before is not Phase.READY:
            self._returns = back is not None and before is Phase.RECORDING
            if back is not None and self._returns:
                back.begin()
                self.episodes.message = RETURNS
            else:
                self._go_home(home, q)
        elif back is not None and self._returns:
            if not back.going:
                self._returns = False
                self._go_home(home, q, f"{back.reason}; ")
        elif home.going:
            if self._moved_by_hand(self.sample):
                home.cancel("you move the arm")
            elif self._asked is not None and (target := home.target(q)) is not None:
                self._asked = (q, target, self._unique(self.link.observed_ns()))
            if not home.going:
                self._at_home(home.reason)

    def _go_home(self, home: Homecoming, q: NDArray, said: str = "") -> None:
        home.begin(q)
        self.episodes.message = f"{said}the arm goes home; move it to stop that"

    def _at_home(self, reason: str) -> None:
        """The way home has ended; `reason`: before its end."""
        back = self.session.back
        if back is not None and back.back and not reason:
            back.back = False  # it counts once
            self.device.prepared()  # the arm is elsewhere than after the episode before
            self.do(self.episodes.handle(EpisodeEvent.START))
            return
        words = [back.reason] if back is not None and back.reason else []
        words.append(reason or "the arm is home")
        self.episodes.message = f"{'; '.join(words)}. Put everything in its place, then press Start to record"

    def _moved_by_hand(self, sample: Sample) -> bool:
        action = None if sample.automatic else sample.action
        return action is not None and not self.set_points.at_rest(np.asarray(action, dtype=np.float64))

    def _ask(self, sample: Sample) -> None:
        home, back = self.homecoming, self.session.back
        if back is not None and back.going and self.episodes.phase is Phase.READY:
            super()._ask(back.sample(self._observed, sample))
        elif home is None or not home.going or self._asked is None or self._moved_by_hand(sample):
            super()._ask(sample)

    def do(self, commands: list[EpisodeCommand]) -> None:
        if EpisodeCommand.BEGIN in commands and (why := self._leading()):
            commands = self.episodes.put_off(why)
            self._before = Phase.READY  # it goes on
        super().do(commands)

    def _leading(self) -> str:
        """Why no episode can begin: somebody leads the arm between two of them; empty where nobody does."""
        if self.session.back is not None and self.session.back.going:
            return RETURNS
        return "the arm is on its way home" if self.homecoming is not None and self.homecoming.going else ""

    # --- what arrives ----------------------------------------------------------------------------------------

    def accepted(self, stamp_ns: int, positions: NDArray) -> None:
        """The safety filter accepted this for the target of that stamp."""
        if self.episodes.phase is Phase.RECORDING:
            self._accepted[stamp_ns] = positions

    def sim_episode(self, outcome: dict[str, Any]) -> None:
        """The simulated arm's episode has ended."""
        if outcome["episode"] == self._sim_episode:
            self._outcome = outcome

    def look(self) -> None:
        """Check that everything that a recording needs is still there; called ten times a second."""
        try:
            self.session.watch(self.episodes)
        except RobolearnError as error:
            self.fail(error)
        now = self.clock()
        if self.episodes.phase is not Phase.WAITING or not self.problem:
            self._blind_since = now
        elif self.session.judged and now - self._blind_since > BLIND_S:
            self.fail(RobolearnError(self.problem))  # no operator is there to see to it
        if self.episodes.phase is Phase.STARTING and now > self._up_by:
            self.fail(RobolearnError(f"not ready after {self.session.start_s:g} s: {self.status.message}"))

    # --- rows ----------------------------------------------------------------------------------------------

    def before_step(self) -> None:
        while self._storage.outcomes:
            self._saved(self._storage.outcomes.popleft())
        if self.episodes.phase is not Phase.RECORDING:
            return
        self._resolve()
        if self._rows and self.clock() - self._rows[0].asked > UNANSWERED_S:
            self.do(self.episodes.stopped(f"no answer of the safety node to a target for {UNANSWERED_S:g} s"))
        elif self._storage.pending() > BEHIND_S * self.contract.control_hz:
            why = f"images and rows are stored {BEHIND_S:g} s behind: smaller pictures, fewer cameras or a faster disk"
            self.do(self.episodes.stopped(why))
        elif slow := self._rate_fault(RATE_REFUSED):
            self.do(self.episodes.stopped(f"{slow}: fewer or smaller cameras, or a faster computer"))
        elif self.session.judged and self._outcome is not None:
            verdict = OperatorVerdict(bool(self._outcome["success"]), bool(self._outcome["truncated"]))
            self.do(self.episodes.judged(verdict))
        elif self.step_count >= self.session.limit_s * self.contract.control_hz:
            self.do(self.episodes.judged(OperatorVerdict(False, truncated=True)))

    def _rate_fault(self, tolerance: float) -> str:
        """The fault of the running episode's rate, or nothing."""
        return rate_fault(self.step_count, self.clock() - self._begun, self.contract.control_hz, tolerance)

    def add_row(
        self, observation: dict[str, NDArray], q: NDArray, target: NDArray, action: NDArray | None, stamp_ns: int
    ) -> None:
        now, steady = self.wall(), self.clock()
        sources = self.observer.source_stamps()
        stamps = {feature: sources[feature] for feature in self.features}
        # The device's is on the steady clock; all others are of this machine's, or the driver's, time of day. A report
        # has one stamp, because the two clocks are not read at the same moment.
        if self._reported[0] != self.sample.stamp:
            self._reported = self.sample.stamp, now - max(steady - self.sample.stamp, 0.0)
        stamps |= {"action": now, "device": self._reported[1]}
        self._rows.append(_Row(observation, q, target, action, stamp_ns, stamps, steady, self.sample.intervention))

    def _resolve(self) -> None:
        """Hand over the rows whose executed action is there by now, but for the newest."""
        while self._rows and self._accepted:
            row = self._rows[0]
            if row.stamp_ns in self._accepted:
                self._goal = self._accepted.pop(row.stamp_ns)
            elif max(self._accepted) < row.stamp_ns:
                return
            # Else the filter was held up and has not seen this target: the arm went on to the one before, or stood.
            self._rows.popleft()
            self._hand_over(0.0)
            goal = np.full(len(row.target), np.nan) if self._goal is None else self._goal
            self._newest = (row, self._executed(row, goal))

    def _hand_over(self, reward: float) -> None:
        if self._newest is not None:
            row, action = self._newest
            add = partial(self.session.writer.add, intervention=row.intervention, stamps=row.stamps)
            self._storage.put(partial(add, row.observation, action, reward))
            self._newest = None
            self._count += 1

    def _executed(self, row: _Row, accepted: NDArray) -> NDArray:
        accepted = reached(row.q, row.target, accepted)
        if (
            row.action is not None
            and np.array_equal(accepted, row.target)
            # A target that slid along the border is not what the action says.
            and np.array_equal(row.target, self.set_points.wanted(row.q, row.action))
        ):
            return np.clip(row.action, -1.0, 1.0)
        return self.set_points.action(row.q, accepted)

    # --- episodes --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._rows.clear()
        self._accepted.clear()
        self._newest, self._goal, self._count = None, None, 0

    def store(self) -> None:
        verdict = self.episodes.verdict
        self._resolve()
        self._hand_over(float(verdict.success))
        final = self._rows[0].observation if self._rows else self._observed  # after the last executed action
        self._rows.clear()  # the executed actions of these are missing
        if not self._count:
            log.warning("an episode without steps is not stored")
            self.episodes.lost()
            return

        if slow := self._rate_fault(RATE_NOTED):
            log.warning("episode %d: %s", self.episodes.number, slow)
        self.rates.append(self.step_count / max(self.clock() - self._begun, 1e-9))

        def end() -> None:
            began = time.monotonic()
            ended = {"terminated": not verdict.truncated, "truncated": verdict.truncated}
            self.session.writer.end(success=verdict.success, task=self.session.task, final=final, **ended)
            self.store_s.append(time.monotonic() - began)

        self._storage.put(end, ends=True)

    def drop(self) -> None:
        self.begin()
        self._storage.put(lambda: None if self._refused else self.session.writer.discard(), ends=True)

    def _saved(self, error: Outcome) -> None:
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
        answer = yield from self.call(self._sim_reset())
        self._sim_episode, self._outcome = json.loads(answer)["episode"], None
        # No other arm is elsewhere all of a sudden: armed on joint states from before, the filter would start there.
        yield from self.pause(SETTLE_S)
