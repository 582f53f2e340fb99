"""An excitation motion on an arm, every set-point through the safety filter, in the arm's own time."""

from __future__ import annotations

from collections.abc import Callable
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


class SteppedArm(Protocol):
    """An arm whose time passes when it is asked to, such as `sim.realtime.RealtimeWorld`."""

    def command(self, q: Array | None, width: float | None = None) -> None: ...
    def advance(self, seconds: float) -> None: ...
    def joint_state(self) -> tuple[tuple[str, ...], Array, Array]: ...


def drive(
    arm: SteppedArm, contract: Contract, targets: Array, progress: Callable[[int], Any] = lambda done: None
) -> MotionLog:
    """Move `arm` along `targets` (T, n) [rad], one a period of the contract's stream; the log of its motion.

    Raises:
      RobolearnError: the filter stopped the arm; the message has its reason.
    """
    period, joints, n = 1.0 / contract.stream_hz, contract.joints, len(contract.joints)
    now = 0.0
    safety = SafetyFilter(contract.robot, joints, contract.limits, period, lambda: now)
    start = arm.joint_state()[1][:n]
    rest = round(REST_S / period)
    to_first = _ramp(start, targets[0], contract, period)
    way = np.concatenate([to_first, targets])
    for _ in range(rest):  # the filter arms an arm at rest
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


def _ramp(start: Array, end: Array, contract: Contract, period: float) -> Array:
    """(R, n) from where the arm is to `end`, at a tenth of its speed, and a second there."""
    seconds = max(1.0, float(np.max(np.abs(end - start) / (0.1 * np.array(contract.robot.velocity)))))
    share = np.clip(np.arange(0.0, seconds + 1.0, period) / seconds, 0.0, 1.0)
    return start + share[:, None] * (end - start)
