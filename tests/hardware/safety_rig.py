"""A safety filter on a fake clock, with an arm that is where it was commanded to."""

from __future__ import annotations

from typing import Any

import numpy as np

from hardware.safety import ArmCommand, JointTarget, Limits, PoseTarget, SafetyFilter, SafetyState
from robots import PANDA, RobotSpec

HOME = np.array(PANDA.home)
PERIOD = 0.005
BASE = np.eye(7)[0]  # the first joint, by 1 rad


class Rig:
    """Attributes: `now` [s], `filter`, `measured` (n,) [rad], `sent` commands, `follows`: the arm obeys."""

    def __init__(self, limits: Limits | None = None, robot: RobotSpec = PANDA, period: float = PERIOD) -> None:
        self.robot, self.limits, self.period = robot, limits or Limits.of(robot), period
        self.now = 100.0
        self.filter = SafetyFilter(robot, robot.joints, self.limits, period, lambda: self.now)
        self.measured = np.array(robot.home)
        self.sent: list[np.ndarray] = []
        self.follows = True

    def feed(self, held: bool = True) -> None:
        self.filter.deadman(held)
        self.filter.measured(self.robot.joints, self.measured)

    def arm(self, at: Any = None) -> Rig:
        if at is not None:
            self.measured = np.array(at, dtype=float)
        self.stand()
        self.filter.arm()
        return self

    def stand(self, seconds: float = 0.2) -> None:
        """The arm is measured where it is for so long."""
        for _ in range(round(seconds / self.period) + 2):
            self.now += self.period
            self.feed()

    def goal(self, positions: Any, gripper: float | None = None) -> JointTarget:
        return JointTarget(self.robot.joints, np.asarray(positions, dtype=float), gripper)

    def tick(self, target: JointTarget | PoseTarget | None = None, feed: bool = True) -> ArmCommand | None:
        """A period goes by: heartbeats, perhaps a target, a step."""
        self.now += self.period
        if feed:
            self.feed()
        if target is not None:
            self.filter.target(target)
        command = self.filter.step()
        if command is not None:
            self.sent.append(command.positions)
            if self.follows:
                self.measured = command.positions.copy()
        return command

    def run(self, target: JointTarget | PoseTarget | None, steps: int, feed: bool = True) -> ArmCommand | None:
        command = None
        for _ in range(steps):
            command = self.tick(target, feed)
        return command

    def moving(self) -> Rig:
        """Armed and in full motion of joint 1."""
        self.arm()
        for _ in range(40):
            self.tick(self.goal(self.measured + 0.3 * BASE))
        assert self.filter.state is SafetyState.ARMED
        return self

    def settle(self, most: int = 400) -> int:
        """Steps until nothing is sent any more."""
        for k in range(most):
            if self.tick() is None:
                return k
        raise AssertionError(f"still sending after {most} steps: {self.filter.status()}")

    def worst(self) -> np.ndarray:
        """(4,) largest share of the position range's half, velocity, acceleration, jerk limits in what was sent."""
        q = np.array(self.sent)
        middle, half = 0.5 * (self.limits.lower + self.limits.upper), 0.5 * (self.limits.upper - self.limits.lower)
        shares = [np.abs((q - middle) / half).max()]
        for k, name in enumerate(("velocity", "acceleration", "jerk"), start=1):
            d = np.diff(q, n=k, axis=0) / self.period**k
            shares.append(np.abs(d / getattr(self.limits, name)).max() if len(d) else 0.0)
        return np.array(shares)
