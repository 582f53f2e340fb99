"""The measured arm: its joint states, whether it rests where it is armed, and whether they follow its commands.

One joint state proves nothing: it may be another sender's, or a moment of a motion. Within the window of `Rest` every
sample must agree with the first; one that does not, one that cannot be used, and a pause between two begin it anew.

A driver that has lost its arm may go on publishing the last values with new stamps: `Stuck` finds joint states that
repeat the same values while the arm is commanded to go elsewhere.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.safety import checks
from hardware.safety.checks import Refused
from hardware.safety.geometry import Geometry
from robolearn.core.errors import BadInput

BOX_TOLERANCE = 2e-3  # [rad] beyond its limits a joint may be measured when arming: sensors, soft stops
WORKSPACE_TOLERANCE = 0.01  # [m] the same for the tcp and the workspace, and for the arm and obstacles


def first_set_point(
    joints: Sequence[str], measured: list[float], lower: list[float], upper: list[float], geometry: Geometry
) -> list[float]:
    """(n,) where the set-point begins [rad]: where the arm is measured (n,) [rad], inside its limits `lower`, `upper`
    (n,).

    The last command is no place to begin: whether a controller still holds it is not known. Raises `Refused`: the arm
    is measured outside its limits or the workspace.
    """
    for name, q, low, high in zip(joints, measured, lower, upper, strict=True):
        if not low - BOX_TOLERANCE <= q <= high + BOX_TOLERANCE:
            raise Refused("joint box", f"{name} is measured at {q:.4f} rad, limits {low:.4f} to {high:.4f} rad")
    outside, words = geometry.outside(np.array(measured))
    if outside > WORKSPACE_TOLERANCE:
        raise Refused("workspace", words)
    return checks.clamped(measured, lower, upper)


REST_S = 0.2  # length of the window
REST_RAD = 0.004  # within it no joint is measured farther from its first position: 0.02 rad/s, or 2 steps of 12 bits
REST_SAMPLES = 3  # the slowest joint states that are fresh, 10 Hz, are as many in a window


class Rest:
    """The samples of a window, of n joints; `pause` is the longest time between two of them [s]."""

    def __init__(self, joints: Sequence[str], pause: float) -> None:
        self._joints, self._pause = tuple(joints), pause
        self.begin()

    def begin(self) -> None:
        """Begin a new window: earlier measurements do not count."""
        self._first: list[float] = []
        self._since = self._last = 0.0
        self._samples = 0
        self._moved = ""  # what began this window

    def add(self, positions: list[float], now: float) -> None:
        """The arm was measured at `positions` (n,) [rad] at the time `now` [s]."""
        moved = self._away(positions)
        if moved or not 0.0 <= now - self._last <= self._pause or not self._first:
            self.begin()
            self._first, self._since, self._moved = list(positions), now, moved
        self._last = now
        self._samples += 1

    def check(self, now: float) -> None:
        """Refuse unless the arm has been at rest up to `now` [s]."""
        seconds = now - self._since
        if self._samples >= REST_SAMPLES and seconds >= REST_S:
            return
        why = f": {self._moved}" if self._moved else ""
        raise Refused(
            "rest",
            f"the arm has been measured at rest for {seconds:.2f} s in {self._samples} joint states, expected "
            f"{REST_S:.2f} s{why}",
        )

    def _away(self, positions: list[float]) -> str:
        """The joint that is not where the window began, in words."""
        for name, q, first in zip(self._joints, positions, self._first, strict=bool(self._first)):
            if not abs(q - first) <= REST_RAD:
                return f"{name} went from {first:.3f} to {q:.3f} rad"
        return ""


class MeasuredArm:
    """The joint states of an arm of n joints, base to tip, in whatever order and company they come.

    After `timeout` [s] one is stale. `arm` is the name of one of two, for reasons. Raises `BadInput`: a joint's name
    twice.

    Attributes:
      positions, at: n newest positions [rad], or None, and when they arrived [s].
    """

    def __init__(self, joints: tuple[str, ...], timeout: float, arm: str = "") -> None:
        if len(set(joints)) != len(joints):
            raise BadInput("joints", got=", ".join(joints), expected="names that differ")
        self._joints, self._rest, self._timeout = joints, Rest(joints, timeout), timeout
        self._of = f" of {arm}" if arm else ""
        self._names: tuple[str, ...] | None = None  # of the last joint state
        self._index: list[int] = []
        self.positions: list[float] | None = None
        self.at = -math.inf
        self._problem = "none has arrived"

    def take(self, names: Sequence[str], positions: ArrayLike, now: float, *, armed: bool) -> None:
        """A joint state arrived at the time `now` [s]; while `armed` it is no sample of an arm at rest. Raises
        `Refused`: it cannot be used."""
        try:
            self.positions = self._pick(tuple(names), positions)
        except Exception as error:
            refused = isinstance(error, Refused)
            self._problem = error.reason if refused else f"joint state: {type(error).__name__}: {error}"
            self._rest.begin()
            if refused:
                raise
            raise Refused("exception", self._problem) from error
        self.at, self._problem = now, ""
        if armed:
            self._rest.begin()
        else:
            self._rest.add(self.positions, now)

    def _pick(self, names: tuple[str, ...], positions: ArrayLike) -> list[float]:
        """(n,) positions [rad], base to tip; `Refused` where one is missing, not finite, or not one per name."""
        if names != self._names:
            missing = [name for name in self._joints if name not in names]
            if missing:
                raise Refused("joint state", f"joint state: no {', '.join(missing)}; got {', '.join(names)}")
            self._names, self._index = names, [names.index(name) for name in self._joints]
        values = np.asarray(positions, dtype=np.float64).ravel().tolist()
        if len(values) != len(names):
            raise Refused("joint state", f"joint state: {len(values)} positions for {len(names)} names")
        return checks.finite("joint state", [values[i] for i in self._index], stage="joint state")

    def fresh(self, now: float) -> list[float]:
        """(n,) newest positions [rad]. Raises `Refused`: they are stale."""
        checks.fresh("joint state", f"the joint state{self._of}", now - self.at, self._timeout)
        assert self.positions is not None
        return self.positions

    def at_rest(self, now: float) -> list[float]:
        """(n,) positions [rad] where the arm rests. Raises `Refused`: the newest joint state cannot be used or is
        stale, or the arm has not been at rest for long enough."""
        if self._problem:
            raise Refused("joint state", f"no joint state{self._of} that can be used: {self._problem}")
        positions = self.fresh(now)
        if not any(positions):
            raise Refused(
                "joint state",
                "every joint is measured at exactly 0 rad, as drivers report before their first reading; wait for it, "
                "or move a joint",
            )
        self._rest.check(now)
        return positions


AWAY_RAD = 0.05  # a set-point that goes so far moves any arm by more than the resolution of its encoders
ONWARD_RAD = 0.02  # the same of one that goes on, on the way on which a joint moves: friction holds none that moves
MOVES = 0.1  # [rad/s] at least, of a joint that moves: above it a servo does not stick and slip
REPEATS = 3  # fewer may come from an arm that was held up together with the commands that wait for it


class OwnJoints:
    """The `joints` of an arm out of joint states of any order and company."""

    def __init__(self, joints: Sequence[str]) -> None:
        self._joints = tuple(joints)
        self._names: tuple[str, ...] | None = None  # of the last joint state
        self._index: list[int] = []

    def __call__(self, names: tuple[str, ...], values: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """(n,) positions of the arm, base to tip [rad]; None where the joint state is not whole, which is refused
        elsewhere."""
        if names != self._names:
            self._names, self._index = names, [names.index(name) for name in self._joints if name in names]
        if len(self._index) < len(self._joints) or len(values) != len(names):
            return None
        return values[self._index]


class Stuck:
    """Detection of measured joints that stay while set-points move. `delay` is the dead time of the arm and of its
    joint states [s]: for so long nothing follows a set-point.

    An arm that was at rest is stuck where it stays for `delay` once the set-point is `AWAY_RAD` away. One that moved is
    stuck where it stays for `delay` at once, while the set-point of a joint that moved goes on by `ONWARD_RAD`. A joint
    moved whose last `REPEATS` readings went one way, at `MOVES` in the mean.
    """

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self.begin()

    def begin(self) -> None:
        """The arm is armed: what was measured before does not count."""
        self._new: deque[tuple[NDArray[np.float64], float]] = deque(maxlen=REPEATS + 1)  # readings and when
        self._set_point = np.zeros(0)  # commanded when the newest came
        self._repeats, self._left_at = 0, np.inf  # of it, and when the set-point had left it

    def __call__(self, positions: NDArray[np.float64], set_point: NDArray[np.float64], now: float) -> bool:
        """Judge the positions (n,) of the arm alone [rad] that arrive at the steady time `now` [s], by the set-point
        (n,) [rad] sent last: fingers and wheels may move beside an arm that is repeated."""
        if not self._new or not np.array_equal(positions, self._new[-1][0]):
            self._new.append((positions, now))
            self._set_point, self._repeats, self._left_at = set_point, 0, np.inf
            return False
        self._repeats += 1
        went, stood = set_point - self._set_point, now - self._new[-1][1]
        if float(np.abs(went).max()) > AWAY_RAD:
            self._left_at = min(self._left_at, now)
        # Not later: a set-point that waits before it goes on leaves an arm at rest.
        at_once = self._delay <= stood <= 2.0 * self._delay and self._goes_on(went)
        return self._repeats >= REPEATS and (at_once or now - self._left_at >= self._delay)

    def _goes_on(self, went: NDArray[np.float64]) -> bool:
        """True where the set-point of a joint that moved `went` (n,) [rad] on since its newest reading."""
        if len(self._new) <= REPEATS:
            return False
        readings = np.array([positions for positions, _ in self._new])
        way = np.sign(np.diff(readings, axis=0))
        moved = np.abs(readings[-1] - readings[0]) >= MOVES * (self._new[-1][1] - self._new[0][1])
        return bool((moved & (way == way[-1]).all(axis=0) & (way[-1] * went > ONWARD_RAD)).any())
