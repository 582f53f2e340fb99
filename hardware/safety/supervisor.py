"""The safety filter and the checks around it, without ROS: senders of targets, and validity of joint states.

`SafetySupervisor` receives the messages of the safety node as plain values, and returns a set-point once a period. All
its time comes from one clock, so that its logic runs in tests on a clock of their own.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.observing.clocks import FUTURE_S, MEND, WINDOW_S, SenderClock
from hardware.observing.timing import Latencies
from hardware.safety.filter import SafetyFilter
from hardware.safety.inputs import ArmInputs
from hardware.safety.senders import Operators, Publishers
from hardware.safety.states import ArmCommand, PoseTarget, SafetyRefused, SafetyState, Target, joint_target
from robots.stations import AnyContract

EARLY_S = 0.1  # after arming, a stop is still the one that ended the last arming; one that is meant is repeated
LATE = 0.8  # of the command timeout: how old a target is when its missed deadline counts
MOVING = (SafetyState.ARMED, SafetyState.BRAKING)


class SafetySupervisor:
    """The safety filter of one arm or of two, with its inputs judged. Not thread-safe: one thread calls it.

    Args:
      contract: the station.
      clock: steady time [s].
      wall: the clock of observation stamps [s].
      describe: the name of a publisher, for reasons.
      same: whether the caller of a service and a publisher, or two publishers, are of one program.

    Attributes:
      filter: the safety filter.
      arming: number of the present or last arming, from 1.
      latency: between the observation behind a target and its first command.
      commands: how many were returned by `tick`.
      skipped: ticks that came too soon after a late one.
    """

    def __init__(
        self,
        contract: AnyContract,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        describe: Callable[[Hashable], str] = str,
        same: Callable[[Hashable, Hashable], bool] = operator.eq,
    ) -> None:
        self.contract = contract
        self.period = 1.0 / contract.stream_hz
        self.filter = SafetyFilter(
            contract.robot, contract.joints, contract.limits, self.period, clock, ahead=contract.horizon_s > 0
        )
        self.arming = self.commands = self.skipped = 0
        self.latency = Latencies()
        self._clock, self._wall = clock, wall
        self._same, self._describe = same, describe
        self._operators = Operators(contract.limits.deadman_timeout_s, clock, describe, same)
        self._armed_at = self._ticked = self._target_at = 0.0
        self.streamers = 0  # alive
        self._streaming = False  # targets have come since the arm was armed
        self._stamp_ns = 0  # of the newest target
        self._target_clock = SenderClock(contract.limits.command_timeout_s, clock, wall)
        self._answered = True  # a command has been sent since the newest stamp
        self._accepted: tuple[float, ...] = ()  # stamp and positions as last returned by `newly_accepted`
        self._set_point: NDArray[np.float64] | None = None
        parts = zip(contract.arms.items(), contract.robot.parts, contract.robot.slices, strict=True)
        self._arms = {name: (ArmInputs(arm, clock, wall, describe), part, at) for (name, arm), part, at in parts}
        self._openings = Publishers("openings of the gripper", clock, describe)
        self._opener: Hashable = None  # publisher of the newest opening since arming
        self._planner: Hashable = None  # of the newest pose

    @property
    def state(self) -> SafetyState:
        """The filter's state."""
        return self.filter.state

    @property
    def moving(self) -> bool:
        """True while set-points are sent: armed or braking."""
        return self.filter.state in MOVING

    # --- what arrives ----------------------------------------------------------------------------------------

    def joint_state(
        self, names: Sequence[str], positions: ArrayLike, stamp: float, publisher: Hashable = None, arm: str = ""
    ) -> None:
        """A joint state of `arm`, see `ArmInputs.joint_state`; one that stops it stops the other, too."""
        inputs, part, at = self._arms[arm]
        armed, names = self.state is SafetyState.ARMED, tuple(names)
        set_point = None if self._set_point is None else self._set_point[at]
        problem, measures = inputs.joint_state(names, positions, stamp, publisher, armed=armed, set_point=set_point)
        if problem is not None:
            self.filter.stop(problem)
        if measures:
            # By the names of the filter: of two arms the joints may be called the same.
            self.filter.measured([part.named(name) for name in names], positions)

    def contact(
        self,
        names: Sequence[str],
        values: ArrayLike,
        stamp: float,
        publisher: Hashable = None,
        positions: ArrayLike = (),
        arm: str = "",
    ) -> None:
        """Contact values of `arm`, by name; more than the contract permits stops it, and a second publisher."""
        armed = self.state is SafetyState.ARMED
        problem = self._arms[arm][0].contact(names, values, stamp, publisher, positions, armed=armed)
        if problem is not None:
            self.filter.stop(problem)
        self._check_contact()

    def _check_contact(self) -> None:
        """Stop the arms where one meets something, or where that would not be known."""
        for inputs, _, _ in self._arms.values():
            if self.state is not SafetyState.ARMED:
                return
            problem, push = inputs.feels()
            if problem:
                self.filter.stop(problem)
            elif push:
                self.filter.contact(push)

    def target(self, names: Sequence[str], positions: Any, stamp_ns: int, after_s: float = 0.0) -> bool:
        """One set-point per joint, and perhaps the grippers' openings last, from the observation stamped `stamp_ns` and
        sent `after_s` later, both by the sender's clock. True where it is the first of its observation."""
        self._target_clock.update(1e-9 * stamp_ns + after_s)
        # One that waited while this machine stood still proves nothing.
        going = self._clock() - self._target_at <= WINDOW_S
        if going and (problem := self._target_clock.problem()):
            self.malformed_target(f"targets: {problem}")
        names, grippers = tuple(names), self.contract.grippers
        openings: list[float] = []
        if names[-len(grippers) :] == grippers and len(positions) == len(names):
            openings = [float(value) for value in positions[-len(grippers) :]]
            names, positions = names[: -len(grippers)], positions[: -len(grippers)]
        return self._take(joint_target(self.contract.robot.slices, names, positions, openings), stamp_ns)

    def pose_target(self, target: PoseTarget, frame: str, stamp_ns: int, publisher: Hashable = None) -> None:
        """A pose of the tcp in `frame`, which has to be the arm's base: nothing is transformed here."""
        base, self._planner = self.contract.frames.base, publisher
        if problem := self._foreign_opening():
            self.malformed_target(problem)
        elif frame != base:
            self.malformed_target(f"a target pose in frame {frame!r}; expected {base!r}")
        elif not -FUTURE_S <= (age := self._wall() - 1e-9 * stamp_ns) <= self.contract.limits.command_timeout_s:
            when = f"{age:.2f} s ago" if age > 0 else f"{-age:.2f} s in the future"
            self.malformed_target(f"a target pose stamped {when}: it is late, or its sender's clock is off; {MEND}")
        else:
            self._take(target, stamp_ns)

    def opening(self, publisher: Hashable = None) -> bool:
        """True if an opening of the gripper from `publisher`, beside poses, is to be taken: of the program that sends
        the poses. From arming on its first publisher counts; another one stops the arm."""
        believed = self._openings.heard(publisher)
        if self.state is not SafetyState.ARMED:
            return True
        self._opener = publisher
        if believed:
            self._openings.bind()
        problem = self._foreign_opening() if believed else self._openings.against(publisher)
        if problem:
            self.filter.stop(problem)
        return not problem

    def _foreign_opening(self) -> str:
        """Reason to stop where openings come from another program than the poses; empty where that is not known yet,
        or not reported by the middleware."""
        opener, planner = self._opener, self._planner
        if opener is None or planner is None or self._same(opener, planner):
            return ""
        names = self._describe(opener), self._describe(planner)
        return f"openings of the gripper come from {names[0]}, and the poses from {names[1]}: expected one program"

    def openings_there(self, publishers: Collection[Hashable]) -> str:
        """Reason why openings are not certain: two of these `publishers` of them; empty otherwise. Armed, it stops."""
        problem = self._openings.several(publishers)
        if problem:
            self.filter.stop(problem)
        return problem

    def _take(self, target: Target, stamp_ns: int) -> bool:
        if self.state is not SafetyState.ARMED:
            return False
        self._target_at, self._streaming = self._clock(), True
        self.filter.target(target)
        new = stamp_ns != self._stamp_ns
        if new:
            self._stamp_ns, self._answered = stamp_ns, False
        return new

    def stop_request(self, reason: str) -> None:
        """The streamer requests a stop."""
        if self.state is not SafetyState.ARMED:
            return
        self._target_at = self._clock()
        if self._streaming or self._clock() - self._armed_at >= EARLY_S:
            self.filter.stop(reason or "the streamer requests a stop and gives no reason")

    def malformed_target(self, reason: str) -> None:
        """A target that is none."""
        if self.state is SafetyState.ARMED:
            self._target_at, self._streaming = self._clock(), True
            self.filter.stop(reason)

    def deadman(self, held: bool, publisher: Hashable = None) -> None:
        """A heartbeat of a dead-man's switch: while armed that of the one by which the arm was armed counts. A second
        one that is held stops the arm; one that is not held belongs to an onlooker."""
        operators = self._operators
        operators.beat(publisher, held)
        if self.state is not SafetyState.ARMED:
            self.filter.deadman(operators.held)
        elif operators.counts(publisher):
            self.filter.deadman(held)
        elif held:
            self.filter.stop(operators.problem() or "the dead-man's switch is held by another than before")

    def condition(self, name: str, value: float, arm: str = "") -> None:
        """The robot's controller reports a value of the condition `name` of the contract of `arm`."""
        self._arms[arm][0].condition(name, value)
        self._check_conditions()

    def _check_conditions(self) -> None:
        for inputs, _, _ in self._arms.values():
            if self.state is SafetyState.ARMED and (problem := inputs.conditions()):
                self.filter.stop(problem)

    def operators_alive(self, count: int) -> None:
        """So many publishers of the dead-man's switch are alive."""
        if count == 0:
            self.filter.stop("the operator's dead-man switch is gone (liveliness lost)")

    def streamers_alive(self, count: int, topic: str) -> None:
        """So many publishers of targets on `topic` are alive."""
        self.streamers = count
        if count == 0 and self._streaming:
            self.filter.stop("the streamer is gone (liveliness lost)")
        elif count > 1:
            self.filter.stop(f"{count} publishers of {topic} at once")

    def deadline_missed(self) -> None:
        """The middleware has seen no target for too long."""
        # The event may have waited behind a target; what counts is how old that one is now.
        if self._streaming and self._clock() - self._target_at > LATE * self.contract.limits.command_timeout_s:
            self.filter.stop("targets are late (deadline missed)")

    # --- services --------------------------------------------------------------------------------------------

    def refusal(self, topic: str, *publishers: Collection[Hashable]) -> str:
        """Reason why arming is refused, beside the filter's checks; empty when there is none. `topic` is that of
        targets, `publishers` are those of the joint states of each arm that there are, heard or not."""
        # By their leases: one that was killed stays in the graph for 20 s.
        if self.streamers != 1:
            return f"{self.streamers or 'no'} publishers of {topic}; expected one streamer"
        if problem := self._operators.problem():
            return problem
        for (inputs, _, _), there in zip(self._arms.values(), publishers or repeat(()), strict=False):
            if problem := inputs.refusal(there):
                return problem
        return self._openings.problem()

    def unauthorised(self, caller: Hashable) -> str:
        """Reason why `caller` may neither arm nor reset; empty when it may."""
        return self._operators.unauthorised(caller)

    def arm(self) -> None:
        """DISARMED → ARMED. Raises `SafetyRefused`: see `SafetyFilter.arm`."""
        self._streaming, self._answered, self._set_point, self._opener = False, True, None, None
        arms = [inputs for inputs, _, _ in self._arms.values()]
        for one in arms:
            one.begin()
        self.arming += 1
        self._armed_at = self._clock()
        self.filter.arm(*(one.opening for one in arms))
        for one in arms:
            one.bind()
        self._openings.bind()
        self._operators.bind()

    # --- what goes out ---------------------------------------------------------------------------------------

    def due(self) -> bool:
        """True if it is time for `step`; False for a tick that follows a late one too soon."""
        now = self._clock()
        if now - self._ticked < 0.5 * self.period:
            self.skipped += 1  # a late tick is followed by one in time: two set-points at once would be a jump
            return False
        self._ticked = now
        return True

    def step(self) -> ArmCommand | None:
        """The set-point of this period; None when nothing is to be sent."""
        self._check_contact()
        self._check_conditions()
        command = self.filter.step()
        if command is not None:
            self.commands += 1
            self._set_point = command.positions
            if not self._answered:
                self.latency.add(self._wall() - 1e-9 * self._stamp_ns)
                self._answered = True
        return command

    def newly_accepted(self) -> tuple[int, list[float]] | None:
        """Stamp [ns] of the newest target and what was made of it, see `SafetyFilter.accepted`, whenever that changes:
        recordings store it."""
        accepted = self.filter.accepted
        if accepted is None or (self._stamp_ns, *accepted) == self._accepted:
            return None
        self._accepted = (self._stamp_ns, *accepted)
        return self._stamp_ns, accepted

    def values(self) -> dict[str, Any]:
        """The values of the safety report beside state and reason."""
        status = self.filter.status()
        del status["state"], status["reason"]
        latency = self.latency.summary_ms()
        return {
            "arming": self.arming,
            **status,
            "latency_p50_ms": latency.get("p50", ""),
            "latency_p99_ms": latency.get("p99", ""),
            "latency_count": len(self.latency),
            "commands": self.commands,
            "skipped_ticks": self.skipped,
        }


def attempt(act: Callable[[], None], done: str) -> tuple[bool, str]:
    """True if `act` was done, and the sentence for the operator: `done`, or the reason why not."""
    try:
        act()
    except SafetyRefused as error:
        return False, str(error)
    return True, done
