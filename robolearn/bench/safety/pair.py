"""Verification of the filter of two arms: an armed filter whose targets drive the arms into each other.

The judge is MuJoCo on the compiled model of both: `mj_geomDistance` of every geom of one arm and every geom of the
other, grippers closed and open. It shares nothing with the filter's geometry. Each arm with itself is judged on its own
model (`CollisionReference`).
"""

from __future__ import annotations

import time
from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.safety.states import JointTarget, PairTarget, PoseTarget
from robolearn.bench.safety.collisions import CollisionReference, DrivenFilter
from robolearn.core.se3 import matrix_to_quat
from robots.limits import Limits
from robots.pair import PairSpec

Array = NDArray[np.float64]

REACH = 0.05  # [m] what is farther apart is not measured
WAYS = ("overlap", "hands", "leaps")
DRIVE = 400  # ticks of one try
STEP = 0.03  # [m] how far a hand's target is ahead of it, towards the other hand


class PairJudge:
    """Distances between two arms, and in each, at postures of both."""

    def __init__(self, pair: PairSpec, limits: Limits) -> None:
        self._model = model = pair.model_spec().compile()
        self._data = mujoco.MjData(model)
        self._joints = [int(model.joint(name).qposadr[0]) for name in pair.joints]
        self._fingers = [int(model.joint(name).qposadr[0]) for name in pair.fingers]
        self._ranges = np.array([model.joint(name).range for name in pair.fingers]).reshape(-1, 2)
        sides = [model.body(int(body)).name.partition("_")[0] for body in model.geom_bodyid]
        first, second = (np.flatnonzero([side == part.name for side in sides]) for part in pair.parts)
        fixed = model.body_weldid[model.geom_bodyid] == 0
        self._pairs = [(int(a), int(b)) for a in first for b in second if not (fixed[a] and fixed[b])]
        self._own = [CollisionReference(part.robot, own) for part, own in zip(pair.parts, limits.each, strict=True)]
        self._slices = pair.slices

    def between(self, q: ArrayLike) -> float:
        """Smallest distance of the two arms at `q` (n,) [rad], at most `REACH` [m]; negative: overlap."""
        nearest = REACH
        for opening in self._ranges.T:
            self._data.qpos[self._joints], self._data.qpos[self._fingers] = q, opening
            mujoco.mj_kinematics(self._model, self._data)
            for a, b in self._pairs:
                away = np.linalg.norm(self._data.geom_xpos[a] - self._data.geom_xpos[b])
                if away - self._model.geom_rbound[a] - self._model.geom_rbound[b] < nearest:
                    nearest = min(nearest, mujoco.mj_geomDistance(self._model, self._data, a, b, REACH, None))
        return nearest

    def alone(self, q: Array) -> float:
        """Depth of the deepest overlap of an arm with itself or an obstacle of its own at `q` (n,) [m]."""
        return max(one.depth(q[at]) for one, at in zip(self._own, self._slices, strict=True))


class PairAttack(DrivenFilter):
    """An armed filter of two arms, and a driver who wants them in each other; see `DrivenFilter`.

    Attributes:
      ticks: commands that were sent.
      contacts: those at which the arms overlap by the judge.
      overlaps: those at which an arm overlaps itself.
      nearest: the smallest distance between the arms [m].
      stopped: tries that the filter ended.
      reasons: its reasons.
      cost_us: processor time of each `target` and `step` together [µs].
    """

    def __init__(self, pair: PairSpec, limits: Limits, period: float, seed: int) -> None:
        super().__init__(pair, limits, period, seed)
        self.judge = PairJudge(pair, limits)
        self.ticks = self.contacts = self.overlaps = self.stopped = 0
        self.nearest = REACH
        self.reasons: set[str] = set()
        self.cost_us: list[float] = []
        self._pair = pair

    def run(self, ticks: int) -> None:
        """Tries of all kinds in turn, from home and from wherever the one before ended, until so many commands."""
        k = 0
        while self.ticks < ticks:
            if k % 3 == 0:
                self._q = self._home.copy()
            self._drive(WAYS[k % len(WAYS)], ticks)
            k += 1

    def summary(self) -> dict[str, Any]:
        """The findings, for a result."""
        p50, p99 = np.percentile(self.cost_us, [50, 99])
        return {
            "ticks": self.ticks, "contacts": self.contacts, "overlaps": self.overlaps,
            "nearest_mm": 1e3 * self.nearest, "stopped": self.stopped,
            "filter_us": {"p50": float(p50), "p99": float(p99)},
        }  # fmt: skip

    def _drive(self, way: str, most: int) -> None:
        """One try: until the filter stops, the arms stand, or `DRIVE` ticks are over."""
        if not self.armed():
            return
        goal, share = self._bad_goal() if way == "overlap" else self._q, self._rng.uniform(0.1, 1.0)
        for k in range(DRIVE):
            self.pass_period()
            if way == "leaps" and k % 40 == 0:
                goal = self._rng.uniform(self._limits.lower, self._limits.upper)
            target = self._hands() if way == "hands" else self._toward(goal, share)
            began = time.thread_time_ns()
            self.filter.target(target)
            command = self.filter.step()
            self.cost_us.append(1e-3 * (time.thread_time_ns() - began))
            if command is None or self.ticks >= most:
                break
            self._q = command.positions.copy()
            self.ticks += 1
            gap = self.judge.between(self._q)
            self.nearest = min(self.nearest, gap)
            self.contacts += gap < 0.0
            self.overlaps += self.judge.alone(self._q) > 0.0
        if self.filter.reason:
            self.stopped += 1
            self.reasons.add(self.filter.reason)
        self.filter.estop()
        for _ in range(DRIVE):
            self.now += self._period
            if self.filter.step() is None:
                break

    def _toward(self, goal: Array, share: float) -> PairTarget:
        """Joint targets as far on the way to `goal` (n,) as a share of what may be asked for at once."""
        each = []
        for part, at, own in zip(self._pair.parts, self._pair.slices, self._limits.each, strict=True):
            step = share * own.max_jump
            names = tuple(part.named(name) for name in part.robot.joints)
            each.append(JointTarget(names, self._q[at] + np.clip(goal[at] - self._q[at], -step, step), 0.0))
        return PairTarget(tuple(each))

    def _hands(self) -> PairTarget:
        """Each hand a little nearer to the other one."""
        pos, rot = (one[0] for one in self._pair.forward(self._q[None]))
        each = []
        for k, part in enumerate(self._pair.parts):
            away = pos[1 - k] - pos[k]
            there = pos[k] + STEP * away / max(float(np.linalg.norm(away)), 1e-9)
            base, turned = np.array(part.base.position), part.base.rotation
            each.append(PoseTarget(turned.T @ (there - base), matrix_to_quat(turned.T @ rot[k])))
        return PairTarget(tuple(each))

    def _bad_goal(self) -> Array:
        """A posture in which the arms overlap, if a hundred tries find one."""
        q = self._q
        for _ in range(100):
            q = self._rng.uniform(self._limits.lower, self._limits.upper)
            if self.judge.between(q) < -0.005:
                break
        return q
