"""Cost of a command of the safety filter while every joint of one arm, or of two, is in motion.

Each joint swings about home, at a rate of its own. Nothing is judged, and nothing refuses: this is the time that a
running station spends on each command.
"""

from __future__ import annotations

import math
import time

import numpy as np

from hardware.safety.filter import SafetyFilter
from hardware.safety.measured import REST_S
from hardware.safety.states import joint_target
from robots.limits import Limits
from robots.pair import AnyRobot

SWING = 0.1  # [rad]
RATES = (1.0, 3.0)  # [rad/s]
WARM = 100  # commands that do not count


def cost_in_motion(robot: AnyRobot, limits: Limits, period: float, commands: int, seed: int) -> dict[str, float]:
    """Processor time of `target` and `step` together, ``p50`` and ``p99`` [µs], and ``commands``: how many were sent,
    fewer than asked for where the filter stops the arm."""
    now, home = 0.0, np.array(robot.home)
    guard = SafetyFilter(robot, robot.joints, limits, period, lambda: now)
    q, rng = home, np.random.default_rng(seed)
    rate, openings = rng.uniform(*RATES, len(home)), [0.0] * len(robot.slices)

    def feed() -> None:
        guard.deadman(True)
        guard.measured(robot.joints, q)

    for _ in range(math.ceil(REST_S / period) + 2):
        now += period
        feed()
    guard.arm()
    taken: list[float] = []
    for k in range(WARM + commands):
        now += period
        feed()
        goal = home + SWING * np.sin(rate * k * period)
        target = joint_target(robot.slices, robot.joints, goal, openings)
        began = time.thread_time_ns()
        guard.target(target)
        command = guard.step()
        taken.append(1e-3 * (time.thread_time_ns() - began))
        if command is None:
            break
        q = command.positions
    p50, p99 = np.percentile(taken[WARM:] or taken, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "commands": len(taken[WARM:])}
