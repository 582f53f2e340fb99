"""`SafetyFilter`: targets of any quality in, set-points that the arm can follow out.

A target passes finite → names and length → jump from the measured state → joint box, and a step passes freshness →
jerk-limited motion → stopping inside the joint box → workspace, self-collision, singularity where it would stop →
check of the output. What each stage does when it refuses:

  finite, names, jump, reach (a pose out of the arm's reach)       brake and latch at once
  joint box                                                       the target is clamped to the box, less 1 mrad
  freshness of targets, joint states and dead-man; dead-man released; arm not following; stop      brake and latch
  a motion from which the arm could not stop inside the joint box  brake and latch
  workspace, obstacle       brake to rest at the border and stay armed; a target inside moves the arm again
  self-collision, singularity                                      brake and latch
  output, or any exception                                        brake and latch
  contact                   go back to where the arm is measured, and latch
  stall: no command has left for 3.5 periods (0.6 horizons)        start from rest, where the arm stands by now
  gap: the process did not run for 0.25 s      latch at once. The arm has long stopped at the last command; braking
                                               from the velocity that it had then would set it moving again.

Every set-point that is taken is one that the arm can stop from within all of these, so braking needs no checks but
those of its own output. Looked at is the way on which the arm would stop.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardware.execution.horizon import Knots
from hardware.safety import checks
from hardware.safety.arms import Arms
from hardware.safety.checks import Array, Refused
from hardware.safety.configuration import check_parts, inner_box, warm_up
from hardware.safety.geometry import Geometry
from hardware.safety.measured import first_set_point
from hardware.safety.motion import Motion, State
from hardware.safety.output import Output, Sending
from hardware.safety.states import ArmCommand, SafetyRefused, SafetyState, StateMachine, Target
from robots.limits import Limits
from robots.pair import AnyRobot


class SafetyFilter:
    """The last stage before the controller. Not thread-safe: one thread calls it.

    Args:
      robot: the arm, or two of them: then all that is n long has the joints of both, one after the other.
      joints: n names, base to tip, as targets and joint states use them.
      limits: no looser than the robot's own.
      period: time between two steps [s]; a step moves the set-point by exactly one period, or starts it from rest where
        it comes too late.
      clock: steady time [s].
      ahead: set-points are sent ahead of the arm, see `CommandTopic.horizon_s`: who sends them calls `left_to_rest`.

    Raises:
      BadInput: the parts do not fit together, see `check_parts`.
    """

    def __init__(
        self,
        robot: AnyRobot,
        joints: tuple[str, ...],
        limits: Limits,
        period: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        ahead: bool = False,
    ) -> None:
        check_parts(robot, tuple(joints), limits, period)
        self.robot, self.joints, self.limits, self.period = robot, tuple(joints), limits, period
        self._clock = clock
        self._arms = Arms(robot, self.joints, limits, period)
        self._sending = Sending(period, clock, ahead=ahead)
        self._machine = StateMachine()
        self.motion = Motion(limits, period)
        chains, names = [part.chain for part in robot.parts], [part.name for part in robot.parts]
        self.geometry = Geometry(chains, robot.pieces, limits, np.array(robot.home), names)
        self._output = Output(limits, period)
        self._box, self._ends = inner_box(limits), (limits.lower.copy(), limits.upper.copy())
        self._refusals: Counter[str] = Counter()
        self._clamped = 0
        self._deadman_at = self._target_at = -math.inf
        self._deadman = False
        self._goal: list[float] | None = None
        self._begins = False  # the next command is the first of a motion: where the arm stands
        self._back: list[float] | None = None  # where the arm met something, to which it goes back
        self._until = -math.inf  # when the arm has come to rest by itself [s]
        self._border = ""  # why the arm waits at the border of the workspace
        self._step_s = 0.0
        self._stands = home = checks.clamped(list(robot.home), *self._box)  # the command before the newest
        self._pose = warm_up(home, limits, self.motion, self.geometry, self._output, self._arms)

    @property
    def state(self) -> SafetyState:
        """DISARMED, ARMED, BRAKING or LATCHED."""
        return self._machine.state

    @property
    def reason(self) -> str:
        """Reason why the filter brakes, is latched, or waits at the border of the workspace; empty when all is well."""
        return self._machine.reason or self._border

    @property
    def accepted(self) -> list[float] | None:
        """n joint positions [rad] and the opening of each gripper [m] that the arm goes to; None unless armed and with
        a target. The newest target inside the limits; while the arm waits at the border of the workspace, where it
        stands."""
        if self.state is not SafetyState.ARMED or self._goal is None:
            return None
        return [*(self.motion.q if self._border else self._goal), *self._arms.openings]

    def arm(self, *openings: float | None) -> None:
        """DISARMED → ARMED: hold still until the first target comes: the arm where it is measured, each gripper at its
        opening [m], where that is known. Raises `SafetyRefused`: latched or braking; dead-man not held; no fresh
        joint state; not measured at rest for a while; outside the limits."""
        if self.state is SafetyState.ARMED:
            return
        try:
            start = self._may_arm(self._clock())
        except Refused as refused:
            self._refusals[refused.stage] += 1
            raise SafetyRefused(f"not armed: {refused.reason}") from None
        self._machine.arm()
        self._start_from(start)
        self.geometry.begin(np.array(start))
        self._goal = None
        self._arms.begin(openings)
        self._border = ""
        self._target_at = -math.inf
        self._sending.left()

    def disarm(self) -> None:
        """A planned stop: brake, then DISARMED."""
        self._machine.disarm()

    def estop(self, reason: str = "e-stop pressed") -> None:
        """Brake and latch, from every state."""
        self._refusals["e-stop"] += 1
        self._back = None
        if self._machine.faulted:
            self._machine.add(reason)
        elif self.state is SafetyState.DISARMED:
            self._machine.latch(reason)
        else:
            self._machine.fault(reason)

    def reset(self) -> None:
        """LATCHED → DISARMED. Raises `SafetyRefused`: ARMED or still BRAKING."""
        self._machine.reset()

    def stop(self, reason: str, stage: str = "stop") -> None:
        """Brake and latch, or latch at once after a gap. Nothing to do unless armed."""
        if self.state is not SafetyState.ARMED:
            return
        try:
            ran = self._ran(self._sending.gap())
        except Exception:  # a clock that fails is refused by the next step
            ran = True
        if ran:
            self._refuse(Refused(stage, reason))

    def contact(self, reason: str) -> None:
        """The arm meets something: stop, go back to where it is measured now, and latch. Nothing to do unless armed. A
        set-point that is only braked stops beyond, and a stiff arm goes on pressing with all it has."""
        self.stop(reason, "contact")
        if self.state is SafetyState.BRAKING and (positions := self._arms.positions) is not None:
            self._back = checks.clamped(positions, *self._box)

    def deadman(self, held: bool) -> None:
        """The heartbeat of the dead-man's switch arrived."""
        self._deadman = bool(held)
        self._deadman_at = self._clock()
        if not held and self.state is SafetyState.ARMED:
            self._refuse(Refused("dead-man", "the dead-man's switch was released"))

    def measured(self, names: Sequence[str], positions: ArrayLike) -> None:
        """A joint state arrived: any order, other joints among them allowed. One that cannot be used (a joint missing,
        not finite) is refused, which brakes and latches when armed."""
        try:
            self._arms.take(names, positions, self._clock(), armed=self.state is SafetyState.ARMED)
        except Exception as error:
            self._refuse(error)

    def target(self, target: Target) -> None:
        """A target arrived. Nothing happens unless armed; one that is refused brakes and latches."""
        if self.state is not SafetyState.ARMED:
            return
        try:
            goal, openings = self._arms.goal(target, self.motion.q)
            measured = self._arms.positions
            assert measured is not None  # or it would not be armed
            self._arms.near("jump", "target", goal, measured)
            inside = checks.clamped(goal, *self._box)
            self._clamped += inside != goal
            self._target_at = self._clock()
            self._goal = inside
            self._arms.open(openings)
        except Exception as error:
            self._refuse(error)

    def step(self) -> ArmCommand | None:
        """Move the set-point by one period. Returns what to send to the controller; None when DISARMED or LATCHED."""
        begun = time.perf_counter()
        command = self._step() if self.state in (SafetyState.ARMED, SafetyState.BRAKING) else None
        if command is not None:
            self._sending.left()
            command = self._checked(command)
        self._step_s = time.perf_counter() - begun
        return command

    def checked(self, command: ArmCommand) -> ArmCommand | None:
        """The command of `step`, if it may leave now; else one to stay at rest. Called right before publishing."""
        self._sending.leaves()
        return self._checked(command)

    def _checked(self, command: ArmCommand) -> ArmCommand | None:
        gap = self._sending.gap_before()
        if not self._sending.stalled(gap) or np.array_equal(command.positions, self._stands):
            return command
        self._sending.stalls += 1
        self._start_from(self._stands)
        if not self._ran(gap):
            return None
        self.geometry.at(q := np.array(self._stands))
        return self._arms.command(q, np.zeros_like(q), self.geometry.pose(q))

    def knots_to_rest(self) -> Knots:
        """The way on which the arm comes to rest from the newest command if it is braked."""
        return self.motion.knots_to_rest()

    def left_to_rest(self, q: ArrayLike, seconds: float) -> None:
        """Commands come so late that the controller brakes by itself, to `q` (n,) [rad] within `seconds` [s]: the next
        motion begins there, and then."""
        self._sending.stalls += 1
        self._start_from(np.asarray(q, dtype=np.float64).tolist())
        self.geometry.at(np.asarray(q, dtype=np.float64))
        self._until = self._clock() + seconds + self.period

    def sent(self) -> None:
        """The command of the last step was published: called right after."""
        self._sending.left()

    def status(self) -> dict[str, Any]:
        """State, reason, ages [s] (None: nothing arrived), refusals by stage, counts, and time of a step [s]."""
        now = self._clock()
        age = lambda at: None if math.isinf(at) else now - at  # noqa: E731
        return {
            "state": self.state.value,
            "reason": self.reason,
            "joint_state_age_s": age(self._arms.at),
            "target_age_s": age(self._target_at),
            "deadman_age_s": age(self._deadman_at),
            "deadman_held": self._deadman,
            "refusals": dict(self._refusals),
            "clamped": self._clamped,
            "stalls": self._sending.stalls,
            "step_s": self._step_s,
        }

    def _step(self) -> ArmCommand | None:
        now = math.nan
        try:
            now = self._clock()
            if not self._ran(self._sending.gap()):
                return None
        except Exception as error:
            self._refuse(error)
        if self.state is SafetyState.ARMED:
            try:
                self._check_fresh(now)
                return self._follow(now)
            except Exception as error:
                self._refuse(error)
        return self._brake()

    def _ran(self, gap: float) -> bool:
        """True if the process ran since the last command left, `gap` [s] ago: latched if not, at rest after a stall."""
        try:
            checks.running(gap)
        except Refused as refused:
            if refused.stage != "gap":
                raise
            self._refusals[refused.stage] += 1
            self._machine.latch(refused.reason)
            self.motion.place(self.motion.q)
            return False
        if self._sending.stalled(gap) and not self.motion.at_rest:
            self._sending.stalls += 1
            self._start_from(self.motion.q)
        return True

    def _start_from(self, q: list[float]) -> None:
        """The next command is `q` (n,) [rad], and a motion from rest begins there."""
        self.motion.place(q)
        self._output.begin(np.array(q))
        self._begins = True

    def _check_fresh(self, now: float) -> None:
        measured = self._arms.fresh(now)
        checks.fresh("dead-man", "the dead-man's heartbeat", now - self._deadman_at, self.limits.deadman_timeout_s)
        if self._goal is not None:
            checks.fresh("freshness", "the target", now - self._target_at, self.limits.command_timeout_s)
        self._arms.near("following", "set-point", self.motion.q, measured)

    def _follow(self, now: float) -> ArmCommand:
        """One period towards the goal, if the arm could stop from there."""
        motion = self.motion
        if self._waits(now) or self._goal is None or (self._border and self._at_boundary()):
            state = motion.braked()
        else:
            if self._border:
                self._border = ""
                self.geometry.leave()
            state = motion.toward(self._goal)
            way = motion.way_to_rest(state)
            checks.stops_inside(self.joints, way.least, way.greatest, *self._ends)
            try:
                excess = self.geometry.check(
                    way.postures, way.seconds, lambda: motion.set_points_to_rest(state, way.seconds)
                )
                self.geometry.keep(excess)
            except Refused as refused:
                if refused.stage not in checks.BORDERS:
                    raise
                self._refusals[refused.stage] += 1
                self._border = f"{refused.reason}; waiting at the border for a target inside"
                state = motion.braked()
        self._output.check(positions := np.array(state[0]))
        self._arms.step()
        return self._take(state, positions)

    def _waits(self, now: float) -> bool:
        """True for the first command of a motion, and as long as the arm comes to rest by itself."""
        waits, self._begins = self._begins, now < self._until
        return waits

    def _at_boundary(self) -> bool:
        """True while the filter waits: until the arm is at rest, and then for a goal inside the workspace."""
        assert self._goal is not None
        return not self.motion.at_rest or self.geometry.outside(np.array(self._goal))[0] > 0.0

    def _brake(self) -> ArmCommand | None:
        """One period of braking, whatever happens."""
        waits = False
        try:
            waits = self._waits(self._clock())
            state = self.motion.braked() if waits or self._back is None else self.motion.toward(self._back)
            self._output.check(positions := np.array(state[0]))
        except Exception as error:
            self._refuse(error)
            state = self.motion.braked_by_formula()
            positions = np.array(state[0])
            if not all(math.isfinite(q) for q in state[0]):
                self._machine.latch(f"no way to brake: {error}")
                return None
        command = self._take(state, positions)
        if self.motion.at_rest and not waits:
            self._machine.stopped()
        return command

    def _take(self, state: State, positions: Array) -> ArmCommand:
        self._stands = self.motion.q
        self.motion.take(state)
        self._output.keep(positions)
        self.geometry.at(positions)
        try:
            self._pose = self.geometry.pose(positions)
        except Exception as error:  # joint commands do without it
            self._refuse(error)
        return self._arms.command(positions, np.array(state[1]), self._pose)

    def _may_arm(self, now: float) -> list[float]:
        """First set-point (n,) [rad]; raises `Refused` when anything forbids arming."""
        if self.state is SafetyState.LATCHED or self.state is SafetyState.BRAKING:
            self._machine.arm()  # raises with the reason
        if not self._deadman:
            raise Refused("dead-man", "the dead-man's switch is not held")
        checks.fresh("dead-man", "the dead-man's heartbeat", now - self._deadman_at, self.limits.deadman_timeout_s)
        measured = self._arms.at_rest(now)
        lower, upper = self.limits.lower.tolist(), self.limits.upper.tolist()
        return first_set_point(self.joints, measured, lower, upper, self.geometry)

    def _refuse(self, error: Exception) -> None:
        refused = error if isinstance(error, Refused) else checks.unexpected(error)
        self._refusals[refused.stage] += 1
        self._back = None
        self._machine.fault(f"{refused.stage}: {refused.reason}")
