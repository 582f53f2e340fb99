"""Joint states that come late under new stamps, found by how the arm follows its commands.

A driver that stamps at publication hides how old its readings are; only motion shows it. Where it begins to send
readings of before while the arm moves, the arm leaps (`hardware.safety.readings`); what is late from the beginning is
found here. With the commands c and the measured joints q of an arm, on a grid of time over the last `WINDOW_S`

    r(d) = Σ_j var_t( q_j(t) − c_j(t − d) )            var: joints that sag by a constant follow all the same
    late:  d* = argmin r > D,    r(d*) ≤ `EXPLAINED` Σ_j var_t( c_j(t − d*) ),    r(d*) ≤ `TELLS` min_{d ≤ D} r(d)

and √r(d ≤ D) is more than `BESIDE_RAD`. So an arm that is held up, or goes another way, is none that follows late; a
motion to and fro that repeats itself within d* shows nothing; nor does a uniform one, which lags by a constant. Two
looks in a row have to say so.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from robots.stations import POSE, AnyContract

Array = NDArray[np.float64]

STEP_S = 0.04  # of the grid
APART_S = 0.9 * STEP_S  # what is kept, at least
WINDOW_S = 1.5
MOST_S = 1.2  # the longest delay that is looked for
EXPLAINED, TELLS = 0.1, 0.25
BESIDE_RAD = 0.02
LOOKS = 2
LOOK_S = 0.1  # between two looks
OF_ARMS_S = 0.2  # of an arm and its controller itself, at most

_K, _L = round(WINDOW_S / STEP_S), round(MOST_S / STEP_S)


class Lag:
    """Delay between the commands and the joint states of an arm.

    Args:
      allowed_s: D, the longest that is none [s].
    """

    def __init__(self, allowed_s: float) -> None:
        self.allowed_s = allowed_s
        room = _K + _L + 2
        self._commanded: deque[tuple[float, Array]] = deque(maxlen=room)
        self._measured: deque[tuple[float, Array]] = deque(maxlen=room)
        self.begin()

    def begin(self) -> None:
        """The arm is armed, at rest: what came before does not count."""
        self._commanded.clear()
        self._measured.clear()
        self._late = 0  # looks in a row

    def commanded(self, positions: Array, now: float) -> None:
        """The set-point (n,) [rad] that is sent at the steady time `now` [s]."""
        _keep(self._commanded, positions, now)

    def due(self, now: float) -> bool:
        """True where a joint state at `now` [s] would be kept."""
        return not self._measured or now - self._measured[-1][0] >= APART_S

    def measured(self, positions: Array, now: float) -> None:
        """(n,) [rad], as a joint state says that arrives at `now` [s]."""
        _keep(self._measured, positions, now)

    def look(self, now: float) -> float | None:
        """The delay [s] with which the joint states follow, where it is longer than allowed; else None. Called every
        `LOOK_S`."""
        found = self._found(now)
        self._late = 0 if found is None else self._late + 1
        return found if self._late >= LOOKS else None

    def _found(self, now: float) -> float | None:
        if len(self._commanded) < 2 or len(self._measured) < 2:
            return None
        grid = now - STEP_S * np.arange(_K + _L, -1, -1)
        c = _on(grid, self._commanded)
        q = _on(grid[_L:], self._measured)
        # (L + 1, n, K + 1): the window as it was d = 0, STEP_S, … before
        past = np.lib.stride_tricks.sliding_window_view(c, _K + 1, axis=0)[::-1]
        r = (q.T - past).var(axis=2).sum(axis=1)
        best = int(np.argmin(r))
        allowed = math.ceil(self.allowed_s / STEP_S - 1e-6)
        if best <= allowed:
            return None
        in_time = float(r[: allowed + 1].min())
        follows = r[best] <= EXPLAINED * float(past[best].var(axis=1).sum()) and r[best] <= TELLS * in_time
        return best * STEP_S if follows and in_time > BESIDE_RAD**2 else None


def _keep(kept: deque[tuple[float, Array]], positions: Array, now: float) -> None:
    if not kept or now - kept[-1][0] >= APART_S:
        kept.append((now, np.array(positions, dtype=np.float64)))


def _on(grid: NDArray[np.floating], kept: deque[tuple[float, Array]]) -> Array:
    """(T, n) on the lines between what was kept; before the first and after the last as those."""
    times, rows = np.array([at for at, _ in kept]), np.stack([row for _, row in kept])
    at = np.clip(grid, times[0], times[-1])
    i = np.clip(np.searchsorted(times, at, side="right"), 1, len(times) - 1)
    share = ((at - times[i - 1]) / (times[i] - times[i - 1]))[:, None]
    return (1.0 - share) * rows[i - 1] + share * rows[i]


class Lags:
    """`Lag` of each arm of a station whose commands are positions of joints.

    Args:
      contract: the station.
      clock: steady time [s].
    """

    def __init__(self, contract: AnyContract, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        arms = zip(contract.arms.items(), contract.robot.slices, strict=True)
        self._arms = {
            name: (arm, at, Lag(arm.limits.state_timeout_s + arm.command.horizon_s + OF_ARMS_S))
            for (name, arm), at in arms
            if arm.command.type != POSE  # a spring that follows a pose has a delay of its own, as long as these
        }

    def begin(self) -> None:
        """The arms are armed."""
        for _, _, lag in self._arms.values():
            lag.begin()

    def commanded(self, positions: Array) -> None:
        """The set-point of all arms (n,) [rad] that is sent now."""
        now = self._clock()
        for _, at, lag in self._arms.values():
            lag.commanded(positions[at], now)

    def measured(self, name: str, names: Sequence[str], values: Array) -> None:
        """A joint state of the arm `name`; one that is not whole is refused elsewhere."""
        if name not in self._arms:
            return
        arm, _, lag = self._arms[name]
        now = self._clock()
        if lag.due(now) and len(values) == len(names) and set(arm.joints) <= set(names):
            lag.measured(values[[names.index(joint) for joint in arm.joints]], now)

    def look(self, stop: Callable[[str], object]) -> None:
        """Call `stop` with the reason where joint states come late; to be called every `LOOK_S`."""
        for arm, _, lag in self._arms.values():
            if late := lag.look(self._clock()):
                seen = f"joint states on {arm.joint_states.topic}: the arm follows its commands {late:.2f} s late"
                stop(f"{seen}, expected {lag.allowed_s:.2f} s at most; are old readings sent with new stamps?")
