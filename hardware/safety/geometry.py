"""Workspace, obstacles, self-collision and singularity on the way to rest, by forward kinematics.

Distances between links and of links from obstacles are measured in `hardware.safety.collision`, workspace and
singularity of each tcp in `hardware.safety.tcp`. Where a border or another link is near, every set-point on the way is
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hardware.safety.arm_geometry import nothing_found
from hardware.safety.checks import Array, Refused
from hardware.safety.collision import NONE, Collision, Nearest, each_of
from hardware.safety.nearing import look
from hardware.safety.tcp import Tcp, Tcps, inspect
from robots.chain import Chain
from robots.compiled import compiled
from robots.limits import Limits
from robots.shapes import Piece

_SLACK = 1e-9
_NEAR_SLACK = 1e-5  # [m] distances are measured to 1e-6 m


class Excess(NamedTuple):
    """Excess of a way over each of the limits, of each arm or of all together; 0 inside."""

    workspace: tuple[float, ...]  # [m]
    obstacle: float  # [m]
    collision: float  # [m]
    singularity: tuple[float, ...]  # condition number


LEAVING = 0.8  # of the distance from an obstacle, by which the arm may come nearer when it leaves


class Geometry:
    """Judges postures of an arm, or of several in one station, that fill `pieces` of space, by the limits of the
    station. `home` (n,) [rad] is a posture in which nothing is wrong. A way outside the limits is not refused if none
    before was less far outside: the way back in is open. Of several arms joints stand one after the other, and so do
    their `chain` and their `names`."""

    def __init__(
        self, chain: Chain | Sequence[Chain], pieces: tuple[Piece, ...], limits: Limits, home: Array,
        names: Sequence[str] = ("",),
    ) -> None:  # fmt: skip
        self._collision = Collision(chain, pieces, limits, home)
        self._own = self._around = NONE
        self._limits, self._names = limits, [f"{name} " if name else "" for name in names]
        self._tcps: list[Tcp] = []
        end = 0
        for one, own in zip(each_of(chain), limits.each, strict=True):
            at = slice(end, end := end + one.n)
            self._tcps.append(Tcp(one, at, own, limits.velocity[at], limits.acceleration[at]))
        self._together = Tcps(self._tcps)
        none = (0.0,) * len(self._tcps)
        self._inside = self._excess = Excess(none, 0.0, 0.0, none)
        self._rows = np.zeros((2, end))  # the posture before, then the way

    def pose(self, q: Array) -> tuple[Array, Array]:
        """Position [m] and wxyz quaternion of the tcp at `q` (n,) [rad], in the base frame; of several arms (2, 3) and
        (2, 4), each in its own."""
        return self._together.pose(q)

    def condition(self, q: Array) -> float:
        """Condition number of the tcp's Jacobian, lengths in half arm lengths; the largest of several arms."""
        return max(tcp.condition(q) for tcp in self._tcps)

    def outside(self, q: Array) -> tuple[float, str]:
        """Distance by which the arm is outside the workspace or too near to an obstacle [m], and that in words."""
        excess = self._measure(q[None], q[None])
        farthest = max(excess.workspace)
        if excess.obstacle > farthest:
            return excess.obstacle, _between(self._around)
        name = self._names[excess.workspace.index(farthest)]
        return farthest, f"the {name}tcp is {farthest:.3f} m outside the workspace"

    def begin(self, q: Array) -> None:
        """The arm is at `q`: what is outside there is what later postures are compared with."""
        self.at(q)
        self._excess = self._measure(q[None], q[None])

    def warm_up(self, q: Array) -> None:
        """Compile the look that only ways ask for whose postures leave something open; `q` (n,) is where the arm is."""
        self._collision.judged(False, q[None], 0.0, None)

    def check(self, way: Array, seconds: float = np.inf, set_points: Callable[[], Array] | None = None) -> Excess:
        """Judge a way to rest: (m, n) joint positions [rad], evenly spaced over `seconds`, the last ones at rest.

        Singularity is judged there only: the arm passes others while it slows down. `set_points` gives all set-points
        on the way; asked for near a border of the workspace, and near a collision. Returns what `keep` takes when the
        way is taken. Raises `Refused`: it leads outside the workspace, too near to itself, an obstacle or a
        singularity, and farther so than before.
        """
        if len(self._rows) != len(way) + 1:
            self._rows = np.concatenate([self._rows[:1], way])
        self._rows[1:] = way
        excess = self._measure(way, self._rows, seconds, set_points)
        if excess is not self._inside:
            self.stays_in_workspace(excess.workspace)
            self.keeps_clear(excess.obstacle)
            self.keeps_apart(excess.collision)
            self.stays_regular(excess.singularity)
        return excess

    def keep(self, excess: Excess) -> None:
        """The way that `check` returned this for is taken."""
        before = self._excess
        if before is self._inside:
            return
        self._excess = self._inside
        if excess is not self._inside:
            workspace, singularity = (
                tuple(map(min, now, then))
                for now, then in ((excess.workspace, before.workspace), (excess.singularity, before.singularity))
            )
            obstacle, collision = map(min, excess[1:3], before[1:3])
            self._excess = Excess(workspace, obstacle, collision, singularity)

    def leave(self) -> None:
        """The arm leaves an obstacle that it stopped at. Each joint moves by itself, so it may come nearer at first."""
        nearer = max(self._excess.obstacle, LEAVING * self._limits.obstacle_distance)
        self._excess = self._excess._replace(obstacle=nearer)

    def at(self, q: Array) -> None:
        """The set-point is at `q` (n,) [rad]: ways begin there."""
        self._rows[0] = q

    def stays_in_workspace(self, excess: tuple[float, ...]) -> None:
        for name, tcp, now, before in zip(self._names, self._tcps, excess, self._excess.workspace, strict=True):
            if now > before + _SLACK:
                raise Refused("workspace", f"the {name}tcp would come to {tcp.outside_words()}")

    def keeps_clear(self, excess: float) -> None:
        if excess > self._excess.obstacle + _NEAR_SLACK:
            raise Refused("obstacle", _between(self._around))

    def keeps_apart(self, excess: float) -> None:
        if excess > self._excess.collision + _NEAR_SLACK:
            raise Refused("self-collision", _between(self._own))

    def stays_regular(self, excess: tuple[float, ...]) -> None:
        for name, tcp, now, before in zip(self._names, self._tcps, excess, self._excess.singularity, strict=True):
            if now > before + _SLACK:
                raise Refused("singularity", f"the {name}arm would come near a singularity: {tcp.singular_words()}")

    def _measure(
        self, way: Array, rows: Array, seconds: float = np.inf, set_points: Callable[[], Array] | None = None
    ) -> Excess:
        """Excess over the limits on `way`; `rows` are the posture before, and the way."""
        tcps, pieces = self._together.block, self._collision.block
        seen = measure(tcps.floats, tcps.whole, pieces.floats, pieces.whole, way, rows, seconds)
        if seen == CLEAR and not (self._together.boxed and set_points):
            self._own = self._around = NONE
            return self._inside
        outside, singular = self._together.judged(way, seconds, set_points)
        more = None if set_points is None else lambda: np.concatenate([rows[:1], set_points()])
        self._own, self._around = self._collision.judged(seen != UNCERTAIN, rows, seconds, more)
        if not any(outside) and not any(singular) and self._own is NONE and self._around is NONE:
            return self._inside
        return Excess(outside, self._around.excess, self._own.excess, singular)


CLEAR, NOT_CLEAR, UNCERTAIN = 0, 1, 2


@compiled()
def measure(tcp_floats, tcp_whole, floats, whole, way, rows, seconds):
    """Look at a way with the tcps and the pieces of all arms, by their blocks: `CLEAR` where nothing is outside, near
    or uncertain."""
    fine = inspect(tcp_floats, tcp_whole, way)
    if not look(floats, whole, rows, seconds, 0):
        return UNCERTAIN
    return CLEAR if fine and nothing_found(floats, whole) else NOT_CLEAR


def _between(pair: Nearest) -> str:
    first, second = pair.names
    return f"{second} would come within {pair.gap:.4f} m of {first}, allowed {pair.allowed:.3f} m"
