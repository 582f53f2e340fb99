"""Jerk-limited motion of the set-point, and where it comes to rest when braked.

Ruckig (Berscheid and Kröger, RSS 2021) gives the time-optimal way to a goal within velocity, acceleration and jerk,
each joint by itself, as `robots/control.py` moves set-points in the simulator. Of each plan one period is taken.

Braking is the same without a position: a, then v, to zero as fast as jerk and acceleration allow. With the sign
chosen such that w = v + a|a|/(2j) ≥ 0 (the velocity that would be left if a went to zero now),

    a_p = min(√(j v + a²/2), a_max)                      peak deceleration
    t₁ = (a + a_p)/j,   t₂ = (w + … − a_p²/j)/a_p,   t₃ = a_p/j      jerk −j, 0, +j

That closed form looks ahead (a set-point is only taken if the arm can stop from it), and brakes when Ruckig fails.

The opening of the gripper: inside its range, and no faster than it may go.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import ruckig

from hardware.execution.horizon import Knots
from hardware.safety.checks import Array, Refused
from robots.compiled import compiled
from robots.limits import Limits

# Of the limits, for the plans: what rounding adds to differences of the output stays below the limits themselves.
SHARE = 0.999
_REST_V, _REST_A = 1e-7, 1e-5  # below, a joint is at rest up to rounding [rad/s], [rad/s²]
_APART_S = 2e-5  # of two knots
SAMPLES = 6  # postures that are looked at on the way to rest, before the last one
State = tuple[list[float], list[float], list[float]]
"""n positions [rad], velocities [rad/s], accelerations [rad/s²]."""


class WayToRest(NamedTuple):
    """Braking motion of the arm. The next call overwrites the arrays."""

    postures: Array  # (SAMPLES + 1, n) evenly spaced in time, the last one at rest [rad]
    least: Array  # (n,) least position of each joint on the way [rad]
    greatest: Array  # (n,)
    seconds: float  # from first to last


class Motion:
    """The set-point of n joints and its derivatives `q`, `v`, `a`: n positions [rad], velocities [rad/s], accelerations
    [rad/s²]."""

    def __init__(self, limits: Limits, period: float) -> None:
        n = limits.n
        self._period = period
        self._a_max, self._j_max = SHARE * limits.acceleration, SHARE * limits.jerk
        self._otg, self._plan = ruckig.Ruckig(n), ruckig.Trajectory(n)
        self._travel, self._halt = ruckig.InputParameter(n), ruckig.InputParameter(n)
        for plan in (self._travel, self._halt):
            plan.synchronization = ruckig.Synchronization.No
            plan.max_velocity = (SHARE * limits.velocity).tolist()
            plan.max_acceleration = self._a_max.tolist()
            plan.max_jerk = self._j_max.tolist()
            plan.target_velocity = plan.target_acceleration = [0.0] * n
        self._halt.control_interface = ruckig.ControlInterface.Velocity
        self._state, self._out = np.empty((3, n)), np.empty((3, n))
        self._pack = struct.Struct(f"{3 * n}d").pack_into
        self._way, self._least, self._greatest = np.empty((SAMPLES + 1, n)), np.empty(n), np.empty(n)
        self.q: list[float] = [0.0] * n
        self.v: list[float] = [0.0] * n
        self.a: list[float] = [0.0] * n

    def place(self, q: list[float]) -> None:
        """At rest at `q`."""
        self.q, self.v, self.a = list(q), [0.0] * len(q), [0.0] * len(q)

    def take(self, state: State) -> None:
        """Move the set-point to a state."""
        self.q, self.v, self.a = state

    @property
    def at_rest(self) -> bool:
        """True if nothing moves, up to rounding."""
        return all(abs(v) < _REST_V for v in self.v) and all(abs(a) < _REST_A for a in self.a)

    def toward(self, goal: list[float]) -> State:
        """The state one period from now on the way to `goal` [rad]."""
        self._travel.target_position = goal
        return self._one_period(self._travel)

    def braked(self) -> State:
        """The state one period from now when braking."""
        return self._one_period(self._halt)

    def braked_by_formula(self) -> State:
        """The same without Ruckig."""
        self._fill((self.q, self.v, self.a))
        _brake_for(self._state, self._a_max, self._j_max, self._period, self._out)
        q, v, a = self._out.tolist()
        return q, v, a

    def way_to_rest(self, state: State) -> WayToRest:
        """Motion by which the arm would come to rest when braked from `state`."""
        self._fill(state)
        seconds = _way_to_rest(self._state, self._a_max, self._j_max, self._way, self._least, self._greatest)
        return WayToRest(self._way, self._least, self._greatest, seconds)

    def knots_to_rest(self) -> Knots:
        """Where the jerk changes on the way on which the set-point comes to rest when braked; of none at rest."""
        self._fill((self.q, self.v, self.a))
        return Knots(*_knots(self._state, self._a_max, self._j_max))

    def set_points_to_rest(self, state: State, seconds: float) -> Array:
        """(m, n) `state` and the set-points [rad] that follow within `seconds` when braked, one period apart."""
        self._fill(state)
        return _set_points(self._state, self._a_max, self._j_max, self._period, seconds)

    def _fill(self, state: State) -> None:
        q, v, a = state
        self._pack(self._state.data, 0, *q, *v, *a)  # half the time that three assignments of lists take

    def _one_period(self, plan: ruckig.InputParameter) -> State:
        plan.current_position, plan.current_velocity, plan.current_acceleration = self.q, self.v, self.a
        result = self._otg.calculate(plan, self._plan)
        if result not in (ruckig.Result.Working, ruckig.Result.Finished):
            raise Refused("motion", f"no jerk-limited motion found ({result})")
        q, v, a = self._plan.at_time(self._period)
        return q, v, a


@compiled()
def _phases(v, a, a_max, j):
    """Sign of the jerk in the first phase, and t₁, t₂, t₃ [s]."""
    sign = -1.0 if v + 0.5 * a * abs(a) / j >= 0.0 else 1.0
    v, a = -sign * v, -sign * a
    peak = max(min(np.sqrt(max(j * v + 0.5 * a * a, 0.0)), a_max), -a)
    t1 = max((a + peak) / j, 0.0)
    t2 = max((v + (0.5 * a * a - peak * peak) / j) / peak, 0.0) if peak > 0.0 else 0.0
    return sign, t1, t2, peak / j


@compiled(inline="always")
def _move(q, v, a, j, t):
    return q + t * (v + t * (0.5 * a + t * j / 6.0)), v + t * (a + 0.5 * t * j), a + t * j


@compiled()
def _brake(q, v, a, a_max, j, t):
    """q, v, a after braking for t."""
    sign, t1, t2, t3 = _phases(v, a, a_max, j)
    return _braked(q, v, a, j, sign, t1, t2, t3, t)


@compiled()
def _braked(q, v, a, j, sign, t1, t2, t3, t):
    """q, v, a after these phases have lasted for t."""
    for phase in range(3):
        part = t1 if phase == 0 else (t2 if phase == 1 else t3)
        jerk = sign * j if phase == 0 else (0.0 if phase == 1 else -sign * j)
        q, v, a = _move(q, v, a, jerk, min(part, t))
        t -= part
        if t <= 0.0:
            return q, v, a
    return q, 0.0, 0.0


@compiled()
def _brake_for(state, a_max, j_max, t, out):
    for i in range(state.shape[1]):
        out[0, i], out[1, i], out[2, i] = _brake(state[0, i], state[1, i], state[2, i], a_max[i], j_max[i], t)


@compiled()
def _way_to_rest(state, a_max, j_max, way, least, greatest):
    n, last = state.shape[1], way.shape[0] - 1
    longest, phases = 0.0, np.empty((n, 4))
    for i in range(n):
        q, v, a, j = state[0, i], state[1, i], state[2, i], j_max[i]
        sign, t1, t2, t3 = _phases(v, a, a_max[i], j)
        phases[i, 0], phases[i, 1], phases[i, 2], phases[i, 3] = sign, t1, t2, t3
        longest = max(longest, t1 + t2 + t3)
        way[last, i], _, _ = _braked(q, v, a, j, sign, t1, t2, t3, np.inf)
        least[i], greatest[i] = min(q, way[last, i]), max(q, way[last, i])
        if v * sign > 0.0:
            # It moves the other way first, until the acceleration that it has turns it round.
            root = np.sqrt(max(a * a - 2.0 * sign * j * v, 0.0))
            turn, _, _ = _move(q, v, a, sign * j, (abs(a) - root) / j)
            least[i], greatest[i] = min(least[i], turn), max(greatest[i], turn)
    for k in range(last):
        for i in range(n):
            sign, t1, t2, t3 = phases[i, 0], phases[i, 1], phases[i, 2], phases[i, 3]
            way[k, i], _, _ = _braked(
                state[0, i], state[1, i], state[2, i], j_max[i], sign, t1, t2, t3, longest * k / last
            )
    return longest


@compiled()
def _set_points(state, a_max, j_max, period, seconds):
    way = np.empty((int(np.ceil(seconds / period)) + 1, state.shape[1]))
    for k in range(way.shape[0]):
        for i in range(way.shape[1]):
            way[k, i], _, _ = _brake(state[0, i], state[1, i], state[2, i], a_max[i], j_max[i], period * k)
    return way


@compiled()
def _knots(state, a_max, j_max):
    n = state.shape[1]
    ends = np.zeros(3 * n)
    for i in range(n):
        if abs(state[1, i]) < _REST_V and abs(state[2, i]) < _REST_A:
            continue
        _, t1, t2, t3 = _phases(state[1, i], state[2, i], a_max[i], j_max[i])
        ends[3 * i], ends[3 * i + 1], ends[3 * i + 2] = t1, t1 + t2, t1 + t2 + t3
    ends.sort()
    times, m = np.empty(3 * n), 0
    for k in range(3 * n):
        if ends[k] < _APART_S or (k + 1 < 3 * n and ends[k + 1] - ends[k] < _APART_S):
            continue  # of two that fall together, the later one
        times[m] = ends[k]
        m += 1
    q, v = np.empty((m, n)), np.empty((m, n))
    for k in range(m):
        for i in range(n):
            q[k, i], v[k, i], _ = _brake(state[0, i], state[1, i], state[2, i], a_max[i], j_max[i], times[k])
    if m > 0:
        v[m - 1] = 0.0
    return times[:m].copy(), q, v


class Opening:
    """Commanded opening of the gripper, inside the limits of the station, one `period` [s] after the other.

    Attributes:
      goal, width: where it goes [m], None before the first target; what is commanded now [m], or None.
    """

    def __init__(self, limits: Limits, period: float) -> None:
        self._most, self._step = limits.gripper_max, limits.gripper_speed * period
        self.begin()

    def begin(self, width: float | None = None) -> None:
        """The gripper stands at `width` [m], which is commanded until a target comes. None: where it stands is not
        known, and the first target is commanded at once."""
        self.goal: float | None = None
        self.width = None if width is None else min(max(width, 0.0), self._most)

    def toward(self, width: float) -> None:
        """From now on to `width` [m], as far as the gripper opens."""
        self.goal = min(max(width, 0.0), self._most)

    def step(self) -> None:
        """One period on."""
        if self.goal is not None:
            self.width = self.goal if self.width is None else self._nearer(self.width, self.goal)

    def _nearer(self, width: float, goal: float) -> float:
        return width + min(max(goal - width, -self._step), self._step)
