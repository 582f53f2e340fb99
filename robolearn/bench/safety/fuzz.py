"""Everything that may arrive at a safety filter, in random order, on a fake clock, with an arm that follows.

Behaviour comes in spells: for some steps targets walk, leap, swing, push over the limits; then they are not numbers,
late, truncated, misnamed; or the joint states, the dead-man or the process itself fail. Whenever the filter has
latched, the operator resets it and arms again. The arm is a first-order lag: it takes half of what is left to the
last command in a period, and keeps that command for ever.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from hardware.safety.filter import SafetyFilter
from hardware.safety.measured import REST_S
from hardware.safety.states import ArmCommand, JointTarget, PoseTarget, SafetyRefused, SafetyState
from robolearn.core.se3 import matrix_to_quat
from robots.limits import Limits
from robots.spec import RobotSpec

# Spells and how often each is chosen; the first eight move the arm.
MOVING = {"walk": 8, "leap": 8, "swing": 6, "jitter": 4, "push": 6, "hold": 2, "pose": 3, "cross": 5}
FAULTS = {
    "nan": 1, "names": 1, "order": 1, "truncated": 1, "garbage": 1, "far": 1, "stale": 1, "gripper_nan": 1,
    "bad_pose": 1, "state_nan": 1, "state_missing": 1, "state_frozen": 1, "state_stale": 1, "state_jump": 1,
    "deadman_off": 1, "deadman_stale": 1, "gap": 1, "clock_back": 1, "estop": 1, "stop": 1, "disarm": 1, "reset": 1,
    "arm_again": 1, "reordered": 1, "slow": 1,
}  # fmt: skip


class Fuzz:
    """A filter in a hostile world; `step` sends one fuzzed target and takes one step.

    Args:
      robot: the arm.
      limits: of the filter.
      period: of the filter [s].
      seed: of everything random.
      faults: share of the spells that are faults.

    Attributes:
      filter: the filter under test.
      now: the time [s]; the filter's clock runs with it, except where a fault turns it back.
      measured: (n,) where the arm truly is [rad].
      moved: whether someone moved the arm by hand before it was armed again.
      filter_ns, wall_ns: what the last `target` and `step` cost together: processor time of this thread, and wall
        time [ns].
      spells: how often each spell was cast.
      latched, armed: how often the filter latched, and was armed.
    """

    def __init__(self, robot: RobotSpec, limits: Limits, period: float, seed: int, faults: float = 0.3) -> None:
        self.now = 0.0
        self._skew = 0.0
        self.filter = SafetyFilter(robot, robot.joints, limits, period, lambda: self.now + self._skew)
        self.measured = np.array(robot.home)
        self.moved = False
        self.filter_ns = self.wall_ns = 0
        self._robot, self._limits, self._period = robot, limits, period
        self._n = limits.n
        self._random, self._faults = random.Random(seed), faults
        self.spells: Counter[str] = Counter()
        self.latched = self.armed = 0
        self._goal: list[float] = self.measured.tolist()
        self._around = list(self._goal)
        self._command = self.measured.copy()
        self._phase, self._rate, self._size = 0.0, 0.0, 0.0
        self._frozen: np.ndarray | None = None
        self._spell, self._left = "hold", 1

    def step(self) -> ArmCommand | None:
        """Time goes on by about one period, and something arrives."""
        self.moved = False
        if self._left == 0:
            self._choose()
        self._left -= 1
        self.now += self._period * (self._random.uniform(1.0, 8.0) if self._spell == "slow" else 1.0)
        self._sense()
        target = self._target()
        before = self.filter.state
        began, began_wall = time.thread_time_ns(), time.perf_counter_ns()
        if target is not None:
            self.filter.target(target)
        command = self.filter.step()
        self.wall_ns = time.perf_counter_ns() - began_wall
        self.filter_ns = time.thread_time_ns() - began
        state = self.filter.state
        self.latched += state is SafetyState.LATCHED and before is not SafetyState.LATCHED
        if command is not None:
            self._command = command.positions
        self.measured += 0.5 * (self._command - self.measured)
        if state is SafetyState.LATCHED or state is SafetyState.DISARMED:
            self._operate()
        return command

    def _operate(self) -> None:
        """The operator resets and arms again as soon as the filter permits it, or a little before."""
        if self._random.random() < 0.1:
            return
        self.now += self._period * self._random.choice((1, 1, 40))
        if self._random.random() < 0.1:
            self.measured = self._elsewhere()
            self._command = self.measured.copy()
            self.moved = True
        for _ in range(math.ceil(REST_S / self._period) + 2 if self._random.random() < 0.9 else 1):
            self.now += self._period
            self.measured += 0.5 * (self._command - self.measured)
            self.filter.measured(self._robot.joints, self.measured)
        self.filter.deadman(True)
        try:
            self.filter.reset()
            self.filter.arm()
            self.armed += 1
        except SafetyRefused:
            return
        self._goal = self.measured.tolist()
        self._spell, self._left = "hold", 1

    def _elsewhere(self) -> np.ndarray:
        """Home, or up to 1 rad from it, inside the limits."""
        home, box = np.array(self._robot.home), self._limits.workspace
        low, high = self._limits.lower + 0.01, self._limits.upper - 0.01
        size = self._random.choice((0.0, 0.3, 1.0))
        for _ in range(5):
            q = np.clip(home + [self._random.uniform(-size, size) for _ in range(self._n)], low, high)
            tcp = self._robot.chain.forward(q[None])[0][0]
            if box is None or (np.all(box[0] < tcp) and np.all(tcp < box[1])):
                return q
        return np.clip(home, low, high)

    def _choose(self) -> None:
        r = self._random
        table = FAULTS if r.random() < self._faults else MOVING
        self._spell = r.choices(list(table), list(table.values()))[0]
        self.spells[self._spell] += 1
        self._left = r.randint(1, 150) if table is MOVING else r.randint(1, 60)
        self._around = self.measured.tolist()
        self._phase, self._rate = 0.0, 10.0 ** r.uniform(-0.5, math.log10(0.5 / self._period))
        self._size = self._limits.max_jump * r.random()
        self._frozen = self.measured.copy()
        match self._spell:
            case "gap":
                self.now += r.uniform(0.2, 3.0)
            case "clock_back":
                self._skew -= r.uniform(0.0, 10.0)
            case "estop":
                self.filter.estop()
            case "stop":
                self.filter.stop("the chunk ran out")
            case "disarm":
                self.filter.disarm()
            case "reset":
                self._try(self.filter.reset)
            case "arm_again":
                self._try(self.filter.arm)

    @staticmethod
    def _try(action: Callable[[], None]) -> None:
        try:
            action()
        except SafetyRefused:
            return

    def _sense(self) -> None:
        """Joint states and dead-man's heartbeats, or what is wrong with them."""
        r, names = self._random, self._robot.joints
        if self._spell == "deadman_off":
            self.filter.deadman(False)
        elif self._spell != "deadman_stale":
            self.filter.deadman(True)
        match self._spell:
            case "state_nan":
                bad = self.measured.copy()
                bad[r.randrange(self._n)] = r.choice((math.nan, math.inf))
                self.filter.measured(names, bad)
            case "state_missing":
                self.filter.measured(names[1:], self.measured[1:])
            case "state_frozen":
                self.filter.measured(names, self._frozen if self._frozen is not None else self.measured)
            case "state_jump":
                self.filter.measured(names, self.measured + r.gauss(0.0, 0.5))
            case "state_stale":
                return
            case "reordered":
                self.filter.measured((*names[::-1], "gripper"), np.append(self.measured[::-1], 0.02))
            case _:
                self.filter.measured(names, self.measured)

    def _target(self) -> JointTarget | PoseTarget | None:
        r, n, names = self._random, self._n, self._robot.joints
        size, goal = self._size, self._goal
        gripper: float | None = r.uniform(-0.1, 0.2)
        match self._spell:
            case "walk":
                goal = [g + r.gauss(0.0, 0.02) for g in goal]
            case "leap":
                if r.random() < 0.1:
                    goal = [q + r.uniform(-size, size) for q in self._around]
            case "swing":
                self._phase += 2.0 * math.pi * self._rate * self._period
                goal = [q + size * math.sin(self._phase + i) for i, q in enumerate(self._around)]
            case "jitter":
                goal = [q + r.choice((-size, size)) for q in self.measured.tolist()]
            case "push":
                sign = 1.0 if self._rate > 3.0 else -1.0
                goal = [q + sign * (1 if (i % 2) == (self._left > 75) else -1) * 0.9 * self._limits.max_jump
                        for i, q in enumerate(self.measured.tolist())]  # fmt: skip
            case "cross":  # one joint all the way: into the limits, the borders, the arm itself
                i = int(self._rate * 7) % n
                goal = self.measured.tolist()
                goal[i] += 0.9 * self._limits.max_jump * (1.0 if self._size * 100 % 2 < 1 else -1.0)
            case "pose" | "bad_pose":
                return self._pose_target()
            case "far":
                goal = [r.uniform(-10.0, 10.0) * 10.0 ** r.randint(0, 300) for _ in range(n)]
            case "nan":
                goal = list(goal)
                goal[r.randrange(n)] = r.choice((math.nan, math.inf, -math.inf))
                return JointTarget(names, np.array(goal), gripper)
            case "names":
                return JointTarget((*names[:-1], "elbow"), np.array(goal), gripper)
            case "order":
                return JointTarget(tuple(r.sample(names, n)), np.array(goal), gripper)
            case "truncated":
                k = r.randrange(n)
                return JointTarget(names if r.random() < 0.5 else names[:k], np.array(goal[:k]), gripper)
            case "garbage":
                return r.choice((JointTarget(names, np.zeros((n, 2))), object(), JointTarget(names, "arm")))  # type: ignore
            case "gripper_nan":
                gripper = math.nan
            case "stale":
                return None
        # What a target may be far from is where the arm is: a walk that ran away comes back.
        if self._spell in ("walk", "leap") and max(map(abs, np.subtract(goal, self.measured))) > self._limits.max_jump:
            goal = self.measured.tolist()
        self._goal = goal
        return JointTarget(names, np.array(goal), gripper)

    def _pose_target(self) -> PoseTarget:
        r = self._random
        pos, rot = self._robot.chain.forward(self.measured[None])
        quat = matrix_to_quat(rot[0])
        if self._spell == "bad_pose":
            quat = quat * r.choice((1.5, math.nan, 0.0, 1.0))
            return PoseTarget(pos[0] + r.choice((0.0, 2.0)), quat)
        return PoseTarget(pos[0] + np.array([r.gauss(0.0, 0.02) for _ in range(3)]), quat, 0.03)
