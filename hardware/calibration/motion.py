"""An excitation motion on an arm, every set-point through the safety filter.

An arm that is stepped moves in its own time (`drive`). On one that runs by itself a `PlayedMotion` is the source of
targets, beside the safety node, and keeps what was sent and measured with its stamps; `resampled` makes a log of
both:

    commanded_k = the last set-point sent until t_k = t_0 + k Δt
    measured_k  = q(t_k + Δt), on a line between two joint states
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.safety.filter import SafetyFilter
from hardware.safety.states import JointTarget, SafetyState
from robolearn.core.errors import RobolearnError
from robots.motion_log import MotionLog
from robots.stations import Contract

Array = NDArray[np.float64]
REST_S = 2.0  # before the motion
TAIL_S = 0.5  # after it: what was commanded last is still on its way
GAP_S = 0.1  # longest between two set-points, or two joint states: a motion with holes is not identified
ELSEWHERE = 0.02  # of the first target: the arm has moved since the motion was made for it [rad]


class SteppedArm(Protocol):
    """An arm whose time passes when it is asked to, such as `sim.realtime.RealtimeWorld`."""

    def command(self, q: Array | None, width: float | None = None) -> None: ...
    def advance(self, seconds: float) -> None: ...
    def joint_state(self) -> tuple[tuple[str, ...], Array, Array]: ...


class PerfectArm:
    """An arm that is at once where it is told to be: a motion is played on it before a real one moves."""

    def __init__(self, names: tuple[str, ...], q: Array) -> None:
        self._names, self._q = names, q

    def command(self, q: Array | None, width: float | None = None) -> None:
        self._q = self._q if q is None else np.array(q)

    def advance(self, seconds: float) -> None:
        pass

    def joint_state(self) -> tuple[tuple[str, ...], Array, Array]:
        return self._names, self._q, np.zeros_like(self._q)


def drive(
    arm: SteppedArm, contract: Contract, targets: Array, progress: Callable[[int], Any] = lambda done: None
) -> MotionLog:
    """Move `arm` to the first of `targets` (T, n) [rad] and along them, one a period of the contract's stream; the log
    of its motion.

    Raises:
      RobolearnError: the filter stopped the arm; the message has its reason.
    """
    period, joints, n = 1.0 / contract.stream_hz, contract.joints, len(contract.joints)
    now = 0.0
    safety = SafetyFilter(contract.robot, joints, contract.limits, period, lambda: now)
    way = way_from(arm.joint_state()[1][:n], targets, contract)
    for _ in range(round(REST_S / period)):  # the filter arms an arm at rest
        now += period
        arm.advance(period)
        safety.measured(joints, arm.joint_state()[1][:n])
        safety.deadman(True)
    safety.arm()
    commanded, measured = np.empty((len(way), n)), np.empty((len(way), n))
    for k, target in enumerate(way):
        now += period
        safety.measured(joints, arm.joint_state()[1][:n])
        safety.deadman(True)
        safety.target(JointTarget(joints, target))
        command = safety.step()
        if command is None or safety.state is not SafetyState.ARMED or safety.reason:
            raise RobolearnError(f"the safety filter stopped the motion after {k * period:.1f} s: {safety.reason}")
        arm.command(command.positions)
        arm.advance(period)
        commanded[k], measured[k] = command.positions, arm.joint_state()[1][:n]
        progress(k + 1)
    return MotionLog(contract.robot.name, period, commanded, measured)


def way_from(start: Array, targets: Array, contract: Contract) -> Array:
    """(R + T, n) from where the arm is to the first of `targets` (T, n) at a tenth of its speed, a second there, then
    the targets; a row each period of the stream."""
    period, velocity = 1.0 / contract.stream_hz, np.minimum(contract.limits.velocity, contract.robot.velocity)
    seconds = max(1.0, float(np.max(np.abs(targets[0] - start) / (0.1 * velocity))))
    share = np.clip(np.arange(0.0, seconds + 1.0, period) / seconds, 0.0, 1.0)
    return np.concatenate([start + share[:, None] * (targets[0] - start), targets])


@dataclass
class PlayedMotion:
    """A motion that begins when the arm is armed, and what is kept of it.

    Attributes:
      way: (T, n) targets [rad], one each `period` [s].
      state: waiting, moving, done or stopped; `reason` says why.
      sent, seen: (stamp [s], (n,) positions [rad]) of set-points and of joint states, while it moves.
    """

    way: Array
    period: float
    state: str = "waiting"
    reason: str = ""
    sent: list[tuple[float, Array]] = field(default_factory=list)
    seen: list[tuple[float, Array]] = field(default_factory=list)
    _arming: str = ""
    _next: int = 0
    _q: Array | None = None

    @property
    def done(self) -> int:
        """Targets that were sent, of the way."""
        return min(self._next, len(self.way))

    @property
    def ready(self) -> bool:
        """The arm may be armed: where it is has been heard."""
        return self.state == "waiting" and self._q is not None

    @property
    def over(self) -> bool:
        """It came to its end, and the arm is disarmed."""
        return self.state == "done" and not self._arming

    def safety(self, arming: str) -> None:
        """The safety node's state: which arming this is, or empty while it is not armed."""
        if arming == self._arming:
            return
        self._arming = arming
        if self.state == "moving":
            self.stop("the safety filter has stopped the arm")
        elif arming and self.state == "waiting":
            far = np.inf if self._q is None else float(np.abs(self._q - self.way[0]).max())
            if far > ELSEWHERE:
                self.stop(f"the arm is {far:.3f} rad from where the motion begins: it has moved since")
            else:
                self.state = "moving"

    def joint_state(self, stamp: float, q: Array) -> None:
        """A joint state of the arm (n,) [rad], by its own stamp [s]."""
        self._q = q
        self._keep(self.seen, stamp, q)

    def set_point(self, stamp: float, q: Array) -> None:
        """A set-point that the safety node has sent to the controller, when [s]."""
        self._keep(self.sent, stamp, q)

    def _keep(self, kept: list[tuple[float, Array]], stamp: float, q: Array) -> None:
        if self.state == "moving" and (not kept or stamp > kept[-1][0]):
            kept.append((stamp, q))

    def stop(self, reason: str) -> None:
        """End it before its time."""
        if self.state in ("waiting", "moving"):
            self.state, self.reason = "stopped", reason

    def target(self) -> Array | None:
        """(n,) the target of this period, None where there is none: the last one is held until the arm is disarmed."""
        if not self._arming or self.state not in ("moving", "done"):
            return None
        k, self._next = self._next, self._next + 1
        if self.state == "moving" and self._next >= len(self.way) + TAIL_S / self.period:
            self.state = "done"
        return self.way[min(k, len(self.way) - 1)]


def resampled(robot: str, period: float, sent: list[tuple[float, Array]], seen: list[tuple[float, Array]]) -> MotionLog:
    """A log every `period` [s] of set-points and joint states with stamps of one clock.

    Raises:
      RobolearnError: there are too few, or a gap between two of them is longer than `GAP_S`.
    """
    times = []
    for name, rows in (("set-points", sent), ("joint states", seen)):
        stamps = np.array([stamp for stamp, _ in rows])
        if len(rows) < 2:
            raise RobolearnError(f"the motion was not recorded: {len(rows)} {name}")
        gaps = np.diff(stamps)
        if (widest := float(gaps.max())) > GAP_S:
            when = float(stamps[int(gaps.argmax())] - stamps[0])
            raise RobolearnError(
                f"no {name} for {1e3 * widest:.0f} ms, {when:.1f} s after the motion began, where at most "
                f"{1e3 * GAP_S:.0f} ms are allowed: this machine, or the arm's, is too busy"
            )
        times.append(stamps)
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    if end - begin < 2 * period:
        raise RobolearnError(f"set-points and joint states overlap by {end - begin:.3f} s: a clock is off")
    grid = begin + period * np.arange(int((end - begin) / period - 1e-9))
    last = np.searchsorted(times[0], grid + 1e-9, side="right") - 1
    commanded = np.array([q for _, q in sent])[last]
    positions = np.array([q for _, q in seen])
    measured = np.stack([np.interp(grid + period, times[1], column) for column in positions.T], axis=1)
    return MotionLog(robot, period, commanded, measured)
