"""Distances of the arm from itself and from what stands around it, on all of a way.

Links, obstacles and what the gripper holds are rounded convex pieces (`robots.shapes`). A pair of pieces is looked at
unless both are fixed, or on the same link or on neighbours: what a joint holds together touches by design (MuJoCo
leaves out the same pairs). Every piece of an arm is looked at with every one of another arm. Pairs of one arm that are
nearer at home than allowed touch by design, too: they may come `BY_DESIGN` nearer than there and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardware.safety.arm_geometry import OBSTACLE, PLANE, SELF, ArmGeometry, Findings
from hardware.safety.blocks import ArrayBlock
from hardware.safety.checks import Array
from hardware.safety.nearing import gaps_at, look
from hardware.safety.odometers import Odometers
from robolearn.core.errors import BadInput
from robots.chain import Chain
from robots.limits import Box, Limits, Plane
from robots.shapes import Piece, box_piece

BY_DESIGN = 0.005  # [m]
OUTSIDE = -1  # the group of obstacles
HELD = "what the gripper holds"


class Nearest(NamedTuple):
    """The pair that comes nearer than allowed by the most.

    Attributes:
      excess: by how much [m]; 0: none does.
      gap: between the two; negative: overlap [m].
      allowed: [m].
      names: of the two.
    """

    excess: float
    gap: float
    allowed: float
    names: tuple[str, str]


NONE = Nearest(0.0, np.inf, 0.0, ("", ""))


class Collision:
    """Judges ways of an arm, or of several in one station, with `pieces`, by distances, obstacles and the box that each
    gripper holds, of `limits`. In the posture `home` (n,) [rad] nothing is wrong. Of several arms joints stand one
    after the other, and so do their `chain`. Raises `BadInput`: two arms are nearer at home than allowed."""

    def __init__(self, chain: Chain | Sequence[Chain], pieces: tuple[Piece, ...], limits: Limits, home: Array) -> None:
        chains = [one.placed for one in each_of(chain)]
        starts = np.cumsum([0, *(one.n for one in chains)], dtype=np.int64)
        n = int(starts[-1])
        offset_pos, offset_rot = (np.concatenate([getattr(one, at) for one in chains]) for at in _OFFSETS)
        below = np.arange(n)
        below[starts[:-1]] = 0
        pieces = (*pieces, *_around(chains, limits))
        planes = [obstacle for obstacle in limits.obstacles if isinstance(obstacle, Plane)]
        self._names = ([piece.body for piece in pieces], [plane.name for plane in planes])
        counts = [len(piece.points) for piece in pieces]
        ends = np.cumsum(counts, dtype=np.int64)
        sizes, reach = np.zeros((len(pieces), 5)), np.zeros((len(pieces), n))
        steps = np.linalg.norm(offset_pos, axis=1)
        for row, far, piece in zip(sizes, reach, pieces, strict=True):
            centre = 0.5 * (piece.points.min(0) + piece.points.max(0))
            row[:3], row[4] = centre, piece.radius
            row[3] = piece.radius + np.linalg.norm(piece.points - centre, axis=1).max()
            for k in range(int(starts[piece.arm]), piece.link):
                far[k] = steps[k + 1 : piece.link].sum() + np.linalg.norm(centre) + row[3]
        pairs, between, allowed = _all_pairs(pieces, len(planes), limits, starts.tolist(), below.tolist())
        arm_of = np.array([piece.arm for piece in pieces])
        first = starts[arm_of]  # joint of the arm of each piece
        across = pairs[:, 2] == SELF
        across[across] = arm_of[pairs[across, 0]] != arm_of[pairs[across, 1]]
        arm = ArmGeometry(
            offset_pos,
            offset_rot,
            np.concatenate([one.axis for one in chains]),
            np.concatenate([piece.points for piece in pieces]),
            np.column_stack([np.array([piece.link for piece in pieces], dtype=np.int64), ends - counts, ends]),
            sizes,
            below,
            pairs,
            between,
            reach[pairs[:, 1]] + np.where(across[:, None], reach[pairs[:, 0]], 0.0),
            allowed,
            np.tile([0.0, 0.0, 1.0], (len(pairs), 1)),
            np.full(len(pairs), -np.inf),
            np.zeros((len(pairs), n)),
            np.array([[*plane.normal, plane.offset] for plane in planes]).reshape(-1, 4),
        )
        odometers = Odometers(
            reach,
            np.array([(begin, max(begin, piece.link)) for begin, piece in zip(first, pieces, strict=True)]),
            np.column_stack(
                [
                    n * pairs[:, 1] + np.maximum(between[:, 1], first[pairs[:, 1]]),
                    np.where(across, n * pairs[:, 0], n * len(pieces)),
                ]
            ),
            np.zeros((2, n * len(pieces) + 1)),
            np.zeros(n),
            np.zeros((2, n)),
            np.full(len(pairs), -np.inf),
        )
        findings = Findings(np.zeros(len(pairs), np.int64), np.empty((2, 4)), limits.acceleration)
        self.block = ArrayBlock(*arm, *odometers, *findings)
        shared, of_arm, of_odometers = self.block.arrays, len(arm), len(arm) + len(odometers)
        self.arm = ArmGeometry(*shared[:of_arm])
        self.odometers = Odometers(*shared[of_arm:of_odometers])
        self._found = Findings(*shared[of_odometers:]).found
        # Pairs of the arm that are nearer at home than allowed may be as near as there, less `BY_DESIGN`.
        gaps = self.gaps(np.asarray(home, dtype=np.float64))
        close = gaps < allowed[:, 0]
        if (meet := across & close).any():
            first, second = (self._names[0][one] for one in pairs[meet][0, :2])
            got, least = f"{second} {gaps[meet][0]:.3f} m from {first} at home", allowed[meet][0, 0]
            raise BadInput("bases of two arms", got=got, expected=f"at least {least:g} m")
        near = (pairs[:, 2] == SELF) & close
        self.arm.allowed[near, 0] = gaps[near] - BY_DESIGN

    def gaps(self, q: Array) -> Array:
        """(p,) distance of each pair at `q` (n,) [m]."""
        gaps = np.empty(len(self.arm.pairs))
        gaps_at(self.block.floats, self.block.whole, q[None], gaps)
        return gaps

    def look(
        self, way: Array, seconds: float = np.inf, set_points: Callable[[], Array] | None = None
    ) -> tuple[Nearest, Nearest]:
        """Judge a way (m, n) of postures [rad], in order; all but the first evenly spaced in time, `seconds` from the
        second on.

        `set_points` gives more of them, spaced as evenly, where those leave open what happens in between. What they
        leave open, too, counts as near as it may be. Returns the worst pair of the arm itself, and of the arm and an
        obstacle.
        """
        certain = look(self.block.floats, self.block.whole, way, float(seconds), 0)
        return self.judged(certain, way, seconds, set_points)

    def judged(
        self, certain: bool, way: Array, seconds: float, set_points: Callable[[], Array] | None
    ) -> tuple[Nearest, Nearest]:
        """The same after the compiled `look` was at `way`, and was `certain` or not."""
        if not certain:
            before = self._found.copy()
            again = way if set_points is None else set_points()
            look(self.block.floats, self.block.whole, again, float(seconds), 1)
            worse = before[:, 0] > self._found[:, 0]
            self._found[worse] = before[worse]
        return self._nearest(SELF), self._nearest(OBSTACLE)

    def _nearest(self, of: int) -> Nearest:
        excess, gap, allowed, pair = self._found[of].tolist()
        if excess <= 0.0:
            return NONE
        a, b, kind = self.arm.pairs[int(pair)].tolist()
        first = self._names[1][a] if kind == PLANE else self._names[0][a]
        return Nearest(excess, gap, allowed, (first, self._names[0][b]))


_OFFSETS = ("offset_pos", "offset_rot")


def each_of(chain: Chain | Sequence[Chain]) -> Sequence[Chain]:
    """The chains of several arms, or the one there is."""
    return (chain,) if isinstance(chain, Chain) else chain


def _around(chains: Sequence[Chain], limits: Limits) -> list[Piece]:
    """Boxes around the arms, and those that the grippers hold."""
    found = [
        replace(box_piece(box.name, 0, box.half, box.centre, box.rotation), group=OUTSIDE)
        for box in limits.obstacles
        if isinstance(box, Box)
    ]
    last = 0
    for number, (chain, own) in enumerate(zip(chains, limits.each, strict=True)):
        last += chain.n
        if own.held is not None:
            lower, upper = own.held
            centre = chain.tcp_pos + chain.tcp_rot @ (0.5 * (lower + upper))
            box = box_piece(HELD, last, 0.5 * (upper - lower), centre, chain.tcp_rot)
            found.append(replace(box, arm=number))
    return found


def _neighbours(a: Piece, b: Piece, below: Sequence[int]) -> bool:
    """True where a joint holds the two together: on one link (fingers meet each other and the hand), or on the next."""
    if a.arm != b.arm:
        return False
    return a.link == b.link or (below[b.link - 1] == a.link and a.group == a.link and b.group == b.link)


def _all_pairs(
    pieces: Sequence[Piece], planes: int, limits: Limits, starts: Sequence[int], below: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """(p, 3) pairs and (p, 3) what is between them, as `ArmGeometry` has both; (p, 2) distance allowed, and by how much
    less in between."""
    own = (limits.collision_distance, 0.5 * limits.collision_distance)
    others = (limits.obstacle_distance, 0.2 * limits.obstacle_distance)
    pairs, between, allowed = [], [], []
    for j, second in enumerate(pieces):
        for i, first in enumerate(pieces[:j]):
            (a, x), (b, y) = sorted(((first, i), (second, j)), key=lambda one: one[0].link)
            if b.link > 0 and not _neighbours(a, b, below):
                across = (
                    a.arm != b.arm and a.link > 0
                )  # two that move, each with its own arm: the axis is the station's
                kind, first_joint = OBSTACLE if a.group == OUTSIDE else SELF, starts[a.arm if across else b.arm]
                pairs.append((x, y, kind))
                between.append((0, first_joint, b.link) if across else (a.link, max(first_joint, a.link), b.link))
                allowed.append(others if a.group == OUTSIDE else own)
        if second.link > 0:
            pairs += [(plane, j, PLANE) for plane in range(planes)]
            between += [(0, starts[second.arm], second.link)] * planes
            allowed += [others] * planes
    rows = (np.array(one, dtype=np.int64).reshape(-1, 3) for one in (pairs, between))
    return next(rows), next(rows), np.array(allowed).reshape(-1, 2)
