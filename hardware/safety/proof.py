"""Whether the filter's geometry is right: random postures, and an arm driven at itself, judged by MuJoCo."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.safety.collision import Collision
from hardware.safety.filter import SafetyFilter
from hardware.safety.judge import CLEAR, CollisionJudge
from hardware.safety.rest import REST_S
from hardware.safety.types import JointTarget, SafetyRefused
from robots.limits import Limits
from robots.spec import RobotSpec

Array = NDArray[np.float64]


def judge_postures(
    robot: RobotSpec, limits: Limits, postures: int, seed: int, show: Callable[[int], None] = lambda done: None
) -> dict[str, Any]:
    """Random postures inside the joint limits: does the filter's geometry refuse what overlaps, and only what is near?

    Returns:
      ``postures``; ``overlapping`` by MuJoCo; ``let_through`` of those, and how deep the worst one overlaps,
      ``depth_mm``; ``refused`` of all; ``refused_clear`` of those, all of whose distances are more than `CLEAR`;
      ``refused_far`` because of two bodies that MuJoCo finds farther apart than `CLEAR`.
    """
    judge = CollisionJudge(robot, limits)
    collision = Collision(robot.chain, robot.pieces, limits, np.array(robot.home))
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(("overlapping", "let_through", "refused", "refused_clear", "refused_far"), 0)
    deepest = 0.0
    for k in range(postures):
        q = rng.uniform(limits.lower, limits.upper)
        depth = judge.depth(q)
        pairs = [pair for pair in collision.look(q[None]) if pair.excess > 0.0]
        counts["overlapping"] += depth > 0.0
        if pairs:
            found = judge.look(q)
            counts["refused"] += 1
            counts["refused_clear"] += found.own >= 0.0 and min(found.free, found.around) > CLEAR
            counts["refused_far"] += any(judge.between(q, *pair.names) > CLEAR for pair in pairs)
        elif depth > 0.0:
            counts["let_through"] += 1
            deepest = max(deepest, depth)
        if (k + 1) % 1000 == 0:
            show(k + 1)
    return {"postures": postures, **counts, "depth_mm": 1e3 * deepest}


class Attack:
    """An armed filter, and a driver who wants the arm in itself or in an obstacle. The arm is where it is commanded to.

    Args:
      robot, limits: of the filter.
      period: of the filter [s].
      seed: of everything random.

    Attributes:
      overlaps: commands at which something overlaps.
      commands: all of them.
      tries: how often the driver chose a goal that overlaps.
    """

    def __init__(self, robot: RobotSpec, limits: Limits, period: float, seed: int) -> None:
        self.now = 0.0
        self.filter = SafetyFilter(robot, robot.joints, limits, period, lambda: self.now)
        self.overlaps = self.commands = self.tries = self.stopped = 0
        self._robot, self._limits, self._period = robot, limits, period
        self._judge = CollisionJudge(robot, limits)
        self._rng = np.random.default_rng(seed)
        self._q = np.array(robot.home)

    def run(self, tries: int) -> None:
        """So many goals, from home and from wherever the one before ended."""
        for k in range(tries):
            if k % 3 == 0:
                self._q = np.array(self._robot.home)
            self.tries += 1
            self._drive(self._bad_goal(), self._rng.uniform(0.05, 1.0) * self._limits.max_jump)

    def _bad_goal(self) -> Array:
        """A posture that overlaps, near where the arm is if there is one."""
        for size in (0.8, 1.5, 3.0, 6.3, 6.3, 6.3):
            for _ in range(60):
                low = np.maximum(self._limits.lower, self._q - size)
                high = np.minimum(self._limits.upper, self._q + size)
                q = self._rng.uniform(low, high)
                if self._judge.depth(q) > 0.005:
                    return q
        return self._rng.uniform(self._limits.lower, self._limits.upper)

    def _drive(self, goal: Array, step: float) -> None:
        """Towards the goal by the shortest way, until the arm stands or is stopped; perhaps an e-stop on the way."""
        for _ in range(math.ceil(REST_S / self._period) + 2):
            self.now += self._period
            self._feed()
        try:
            self.filter.reset()
            self.filter.arm()
        except SafetyRefused:
            self._q = np.array(self._robot.home)
            return
        stop_at = self._rng.integers(20, 400) if self._rng.random() < 0.3 else -1
        still = 0
        for k in range(4000):
            self.now += self._period
            self._feed()
            if k == stop_at:
                self.filter.estop()
            away = goal - self._q
            self.filter.target(JointTarget(self._robot.joints, self._q + np.clip(away, -step, step)))
            command = self.filter.step()
            if command is None:
                self.stopped += 1
                return
            still = still + 1 if np.array_equal(command.positions, self._q) else 0
            self._q = command.positions.copy()
            self.commands += 1
            self.overlaps += self._judge.depth(self._q) > 0.0
            if still > 20:
                self.stopped += self.filter.reason != ""
                self.filter.disarm()
                self.now += self._period
                self.filter.step()
                return

    def _feed(self) -> None:
        self.filter.deadman(True)
        self.filter.measured(self._robot.joints, self._q)
