"""An excitation motion on an arm, every set-point through the safety filter.

An arm that is stepped moves in its own time (`drive`). On one that runs by itself a `PlayedMotion` is the source of
targets, beside the safety node, and keeps what was sent and measured with its stamps; `resampled` makes a log of both:

    commanded_k = the last set-point sent until t_k = t_0 + k Δt
    measured_k  = q(t_k + Δt), on a line between two joint states
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.execution.played_motion import way_from
from hardware.safety.filter import SafetyFilter
from hardware.safety.states import SafetyState, joint_target
from robolearn.core.errors import RobolearnError
from robots.motion_log import MotionLog
from robots.stations import AnyContract

Array = NDArray[np.float64]
REST_S = 2.0  # before the motion
GAP_S = 0.1  # longest between two set-points, or two joint states: a motion with holes is not identified


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
    arm: SteppedArm, contract: AnyContract, targets: Array, progress: Callable[[int], Any] = lambda done: None
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
        safety.target(joint_target(contract.robot.slices, joints, target))
        command = safety.step()
        if command is None or safety.state is not SafetyState.ARMED or safety.reason:
            raise RobolearnError(f"the safety filter stopped the motion after {k * period:.1f} s: {safety.reason}")
        arm.command(command.positions)
        arm.advance(period)
        commanded[k], measured[k] = command.positions, arm.joint_state()[1][:n]
        progress(k + 1)
    return MotionLog(contract.robot.name, period, commanded, measured)


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
