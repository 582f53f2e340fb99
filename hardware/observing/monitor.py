"""An independent witness of the commands to an arm and of their distance from its limits.

It stands beside the controller, behind everything that is meant to keep commands within limits, and shares no
arithmetic with it. Commands are taken as what they are to a position controller, set-points one period Δt apart:

    v_k = (q_k − q_{k−1}) / Δt,   a_k = (v_k − v_{k−1}) / Δt,   j_k = (a_k − a_{k−1}) / Δt

For a motion whose derivatives stay within v_max, a_max and j_max these are averages of them (over one, two, three
periods), hence within the limits as well: no motion that keeps the limits is ever counted. Δt is the nominal
period, whatever the times, because a late command must not look slow; commands that come faster than one
a period would in truth move the arm faster, and are counted on their own.

When commands stop the arm comes to stand at the last one. So after a gap a motion starts from rest: there, with q_{k−1}
and all differences before it zero, or where the arm is measured. To go on at the velocity from before would ask the
arm for a step, and is counted by the same limits; what is farther away than a period's travel is a ``jump``. A gap is
one in *sending*: whoever feeds the monitor hands in when a command was sent, because one that was only read late did
not move the arm late.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core.errors import BadInput
from robots import RobotSpec

Array = NDArray[np.float64]

KINDS = ("non_finite", "length", "position", "velocity", "acceleration", "jerk", "rate", "jump")
_DERIVATIVES = KINDS[3:6]
_REST = [0.0, 0.0, 0.0, 0.0]  # shares of the limits of the differences
# Third differences of doubles of 3 rad at 1 kHz carry rounding of 1e-6 rad/s³, and trajectory generators hold their
# own limits to about 1e-8 of them. Both are far below this share, and this share is far below what an arm can feel.
TOLERANCE = 1e-6
# Periods without a command after which a motion may start from rest, and after which it must. In between, a sender that
# measures the time a little earlier than its messages are stamped does the one or the other.
MAY_REST = 2.5
MUST_REST = 5.0
START_RAD = 0.004  # so near to where the arm is measured a motion starts there: noise, and an arm that settles
WINDOW_S = 0.5  # over which the rate of commands is judged
FASTEST = 1.25  # times the nominal rate


class LimitMonitor:
    """Counts commands beyond the limits of an arm and records how close the others came.

    Args:
      lower, upper: (n,) joint positions [rad].
      velocity, acceleration, jerk: (n,) limits [rad/s], [rad/s²], [rad/s³].
      period: nominal time from one command to the next [s].
    """

    def __init__(
        self,
        lower: ArrayLike,
        upper: ArrayLike,
        velocity: ArrayLike,
        acceleration: ArrayLike,
        jerk: ArrayLike,
        period: float,
    ) -> None:
        self._lower, self._upper = np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
        # [v_max Δt, a_max Δt², j_max Δt³]: limits of the first, second and third difference. And a_max Δt² once more:
        # of the first, from which the arm can stand still within a period.
        self._step = np.array([velocity, acceleration, jerk, acceleration], dtype=np.float64)
        if self._lower.ndim != 1 or self._step.shape[1:] != self._lower.shape or self._upper.shape != self._lower.shape:
            raise BadInput("limits", got=(self._lower.shape, self._upper.shape, self._step.shape), expected="(n,) each")
        if not period > 0.0:
            raise BadInput("period", got=period, expected="above 0 s")
        self._step *= np.array([period, period**2, period**3, period**2])[:, None]
        self._middle, self._half = 0.5 * (self._lower + self._upper), 0.5 * (self._upper - self._lower)
        self._period = float(period)
        self._slack = TOLERANCE * (self._upper - self._lower)
        self._most = FASTEST * WINDOW_S / period
        self._counts: dict[str, int] = {kind: 0 for kind in KINDS}
        self._peak = [0.0, 0.0, 0.0]
        self._margin = self._state_margin = np.inf
        self._commands = self._gaps = 0
        self._max_age = 0.0
        self._open_age = 0.0  # of the last command, as of the last state; no longer true once a command was only unread
        self._arrivals: deque[float] = deque()
        self._last_at: float | None = None  # when the last command was sent
        self.new_motion()

    @classmethod
    def of(cls, robot: RobotSpec, period: float) -> LimitMonitor:
        """With the limits that the arm itself has."""
        return cls(robot.lower, robot.upper, robot.velocity, robot.acceleration, robot.jerk, period)

    def new_motion(self) -> None:
        """The arm was put elsewhere by other means: commands from before do not count for those that come."""
        self._last: Array | None = None  # the last command, (n,)
        self._diffs = np.zeros_like(self._step)  # its first, second and third difference, and the first again
        self._measured: Array | None = None
        self._moving = False
        self._max_age, self._open_age = max(self._max_age, self._open_age), 0.0

    def command(self, positions: ArrayLike, now: float) -> tuple[str, ...]:
        """A command `positions` (n,) [rad] was sent at the steady time `now` [s]; returns what is wrong with it, of
        `KINDS`."""
        q = np.array(positions, dtype=np.float64)
        self._commands += 1
        wrong = self._check_rate(now)
        if self._moving and self._last_at is not None:
            self._max_age = max(self._max_age, now - self._last_at)
        self._open_age = 0.0
        gap = 0.0 if self._last_at is None else (now - self._last_at) / self._period  # in periods
        self._gaps += gap > MUST_REST
        self._last_at = now
        if q.shape != self._lower.shape:
            return self._count([*wrong, "length"])
        # Each call of numpy costs a microsecond, and an emulated controller commands a thousand times a second.
        margin = self._half - np.abs(q - self._middle)
        closest = float(margin.min())
        if not np.isfinite(closest):
            return self._count([*wrong, "non_finite"])  # a position controller drops these: the arm goes on as it was
        self._margin = min(self._margin, closest)
        if closest < 0.0 and (margin < -self._slack).any():
            wrong.append("position")

        if self._last is None:
            wrong += ["jump"] if self._measured is not None and not self._at_arm(q) else []
            self._moving = False
        else:
            diffs, shares = self._differences(q, self._last, self._diffs)
            if gap > MAY_REST:
                diffs, shares = self._after_gap(q, self._last, gap > MUST_REST, (diffs, shares))
                if gap > MUST_REST and shares[0] > 1.0 + TOLERANCE:
                    wrong.append("jump")
                    diffs, shares = np.zeros_like(diffs), _REST
            self._diffs = diffs
            *shares, at_once = shares
            self._peak = [max(pair) for pair in zip(self._peak, shares, strict=True)]
            # Standing at this command would be a stop harder than the arm brakes.
            self._moving = at_once > 1.0
            wrong += [kind for kind, share in zip(_DERIVATIVES, shares, strict=True) if share > 1.0 + TOLERANCE]
        self._last = q
        return self._count(wrong)

    def state(self, q: ArrayLike, now: float) -> None:
        """The arm was measured at `q` (n,) [rad] at the steady time `now` [s]."""
        measured = np.asarray(q, dtype=np.float64)
        if self._moving and self._last_at is not None:
            self._open_age = now - self._last_at
        if measured.shape == self._lower.shape and np.isfinite(measured).all():
            self._measured = measured.copy()
            margin = np.minimum(measured - self._lower, self._upper - measured)
            self._state_margin = min(self._state_margin, float(margin.min()))

    def summary(self) -> dict[str, Any]:
        """Summary so far, ready for JSON.

        Keys: ``commands``; ``violations`` and ``violations_by_kind``; ``non_finite``; ``peak`` with
        ``position_margin`` (smallest distance of a command to a position limit, negative beyond it) and
        ``measured_margin`` (of the arm itself) [rad], and ``velocity``, ``acceleration``, ``jerk`` as share of the
        limit; ``max_command_age_s``, the longest that a command in mid-motion stood without a successor (at the end
        of a motion that was braked commands may stop for any time); ``gaps`` of more than five
        periods between commands.
        """
        return {
            "commands": self._commands,
            "violations": sum(self._counts.values()),
            "violations_by_kind": dict(self._counts),
            "non_finite": self._counts["non_finite"],
            "peak": {
                "position_margin": self._margin if np.isfinite(self._margin) else None,
                "measured_margin": self._state_margin if np.isfinite(self._state_margin) else None,
                **dict(zip(_DERIVATIVES, self._peak, strict=True)),
            },
            "max_command_age_s": max(self._max_age, self._open_age),
            "gaps": self._gaps,
        }

    def _at_arm(self, q: Array) -> bool:
        """True where `q` is where the arm is measured."""
        return self._measured is not None and bool((np.abs(q - self._measured) <= START_RAD).all())

    def _after_gap(
        self, q: Array, last: Array, must: bool, going_on: tuple[Array, list[float]]
    ) -> tuple[Array, list[float]]:
        """Differences and shares at `q` as of a motion that starts from rest; of `going_on` where it need not have."""
        if must and self._at_arm(q):
            return np.zeros_like(self._diffs), _REST
        from_rest = self._differences(q, last, np.zeros_like(self._diffs))
        # A motion from rest begins with the command that the arm stands at: taken as going on, it would seem to brake
        # within a period.
        begins = max(from_rest[1][:3]) <= 1.0 + TOLERANCE < max(going_on[1][:3]) or np.array_equal(q, last)
        return from_rest if must or begins else going_on

    def _differences(self, q: Array, last: Array, before: Array) -> tuple[Array, list[float]]:
        """(4, n) differences at `q`, and the largest share that each of the four limits is used to."""
        diffs = np.empty_like(before)
        diffs[0] = diffs[3] = q - last
        diffs[1] = diffs[0] - before[0]
        diffs[2] = diffs[1] - before[1]
        return diffs, (np.abs(diffs) / self._step).max(1).tolist()

    def _check_rate(self, now: float) -> list[str]:
        self._arrivals.append(now)
        while now - self._arrivals[0] >= WINDOW_S:
            self._arrivals.popleft()
        if len(self._arrivals) <= self._most:
            return []
        self._arrivals.clear()  # once per window
        return ["rate"]

    def _count(self, wrong: list[str]) -> tuple[str, ...]:
        for kind in wrong:
            self._counts[kind] += 1
        return tuple(wrong)


def joined(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """One summary of the monitors of several arms: their counts together, the least margins, the greatest shares."""
    if len(summaries) == 1:
        return summaries[0]
    peaks = [one["peak"] for one in summaries]
    margins = {
        kind: min((peak[kind] for peak in peaks if peak[kind] is not None), default=None)
        for kind in ("position_margin", "measured_margin")
    }
    return {
        **{kind: sum(one[kind] for one in summaries) for kind in ("commands", "violations", "non_finite", "gaps")},
        "violations_by_kind": {kind: sum(one["violations_by_kind"][kind] for one in summaries) for kind in KINDS},
        "peak": {**margins, **{kind: max(peak[kind] for peak in peaks) for kind in _DERIVATIVES}},
        "max_command_age_s": max(one["max_command_age_s"] for one in summaries),
    }
