"""Workspace, self-collision and singularity on the way to rest, by forward kinematics.

Links are capsules around the lines between the origins of the joints (and the tcp). The radius is a share of the
arm's length, the same for all; the gap between two capsules is the distance of their lines less two radii. Pairs
that hang together by less arm than would fit between them (neighbours, and the two sides of an elbow's offset) are
left to the joint limits.

The distance to singularities is the condition number σ_max/σ_min of the tcp's Jacobian, from the eigenvalues of
J Jᵀ. Lengths in J are measured in half arm lengths, or the number would say more about the size of the arm than about
its posture. MoveIt Servo watches the same number.

The joints brake each by itself, so between two of the few postures that are looked at the tcp may swing out of its
box and back. How far, with Δ between two postures, ρ_i the most that the tcp is away from joint i, and
ρ_ij = ρ_max(i,j):

    ‖p̈‖ ≤ Σ ρ_i a_i + Σ ρ_ij v_i v_j,      out of the chord by at most Δ² ‖p̈‖ / 8

Where the border is that near, every set-point on the way is looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from hardware.safety.checks import Array, Refused
from robots.chain import Chain, axis_rotation, forward_one, matmul3
from robots.limits import Limits

THICKNESS = 0.042  # radius of a link as a share of the arm's length; 6 cm for a Panda
WORST_CONDITION = 1e6  # what a Jacobian that has lost a direction counts as
_AXES = "xyz"
_SLACK = 1e-9


class Geometry:
    """Judges postures of one arm.

    A way outside the limits is not refused if the one before was at least as far outside: the way back in is open.
    """

    def __init__(self, chain: Chain, limits: Limits) -> None:
        self._geometry = (chain.offset_pos, chain.offset_rot, chain.axis, chain.tcp_pos, chain.tcp_rot)
        self._limits = limits
        points = np.zeros((chain.n + 2, 3))
        _points(np.zeros(chain.n), *self._geometry[:4], points)
        lengths = np.linalg.norm(np.diff(points, axis=0), axis=1)
        self.radius = THICKNESS * float(lengths.sum())
        self._unit = 0.5 * float(lengths.sum())
        links = [i for i, length in enumerate(lengths) if length > 1e-3]
        apart = 2.0 * self.radius + limits.collision_distance
        self._pairs = np.array(
            [(i, j) for i in links for j in links if i < j and lengths[i + 1 : j].sum() > apart], dtype=np.int64
        ).reshape(-1, 2)
        self._box = np.array([[-np.inf] * 3, [np.inf] * 3]) if limits.workspace is None else limits.workspace
        from_end = lengths[::-1].cumsum()[::-1][1:]  # ρ
        farther = np.minimum.outer(from_end, from_end)
        speeds = limits.velocity
        self._swing = float(from_end @ limits.acceleration + speeds @ farther @ speeds)  # largest ‖p̈‖ [m/s²]
        self._points = points
        self._pos = np.empty(3)  # of the tcp, where it is farthest outside
        self._seen = np.empty(4)
        self._excess = (0.0, 0.0, 0.0)

    def pose(self, q: Array) -> tuple[Array, Array]:
        """Position [m] and wxyz quaternion of the tcp at `q` (n,) [rad], in the base frame."""
        pos, quat = np.empty(3), np.empty(4)
        _pose(q, *self._geometry, pos, quat)
        return pos, quat

    def gap(self, q: Array) -> float:
        """Smallest gap between links that are not neighbours [m]; negative where the capsules overlap."""
        self._look(q[None])
        return float(self._seen[1])

    def condition(self, q: Array) -> float:
        """Condition number of the tcp's Jacobian, lengths in half arm lengths."""
        self._look(q[None])
        return float(self._seen[0])

    def outside(self, q: Array) -> float:
        """How far the tcp is outside the workspace [m]."""
        self._look(q[None])
        return float(self._seen[2])

    def begin(self, q: Array) -> None:
        """The arm is at `q`: what is outside there is what later postures are compared with."""
        self._look(q[None])
        self._excess = self._measure()

    def check(
        self, way: Array, seconds: float = 0.0, set_points: Callable[[], Array] | None = None
    ) -> tuple[float, float, float]:
        """Judge a way to rest.

        Args:
          way: (m, n) joint positions [rad], evenly spaced in time, the last ones at rest. Singularity is judged there
            only: the arm passes others while it slows down.
          seconds: from the first of them to the last.
          set_points: gives all set-points on the way; asked for near a border of the workspace.

        Returns:
          What `keep` takes when the way is taken.

        Raises:
          Refused: it leads outside the workspace, too near to itself or to a singularity, and farther so than before.
        """
        self._look(way, self._limits.singularity)
        if set_points is not None and self._seen[3] > -self._swing * (seconds / max(len(way) - 1, 1)) ** 2 / 8.0:
            _outermost(set_points(), *self._geometry[:4], self._box, self._points, self._pos, self._seen)
        excess = self._measure()
        if excess != (0.0, 0.0, 0.0):
            self.stays_in_workspace(excess[0])
            self.keeps_apart(excess[1])
            self.stays_regular(excess[2])
        return excess

    def keep(self, excess: tuple[float, float, float]) -> None:
        """The way that `check` returned this for is taken."""
        self._excess = excess

    def stays_in_workspace(self, excess: float) -> None:
        if excess > self._excess[0] + _SLACK:
            sides = np.maximum(self._box[0] - self._pos, self._pos - self._box[1])
            i = int(np.argmax(sides))
            low, high = self._box[:, i]
            raise Refused(
                "workspace",
                f"the tcp would come to {_AXES[i]} = {self._pos[i]:.4f} m, workspace {low:.3f} to {high:.3f} m",
            )

    def keeps_apart(self, excess: float) -> None:
        if excess > self._excess[1] + _SLACK:
            raise Refused(
                "self-collision",
                f"two links would come within {self._seen[1]:.4f} m of each other, "
                f"allowed {self._limits.collision_distance:.3f} m",
            )

    def stays_regular(self, excess: float) -> None:
        if excess > self._excess[2] + _SLACK:
            raise Refused(
                "singularity",
                f"the arm would come near a singularity: condition number {self._seen[0]:.1f}, "
                f"allowed {self._limits.singularity:.1f}",
            )

    def _measure(self) -> tuple[float, float, float]:
        condition, gap, outside, _ = self._seen.tolist()
        return (
            outside,
            max(self._limits.collision_distance - gap, 0.0),
            max(condition - self._limits.singularity, 0.0),
        )

    def _look(self, way: Array, enough: float = 0.0) -> None:
        _inspect(
            way, *self._geometry, self._unit, self._pairs, 2.0 * self.radius, self._box, enough,
            self._points, self._pos, self._seen,
        )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _inspect(
    way, offset_pos, offset_rot, axis, tcp_pos, tcp_rot, unit, pairs, thickness, box, enough, points, pos, seen
):  # fmt: skip
    """Condition number at the end of the way; smallest gap and largest distance outside the box on it; tcp there."""
    gap = np.inf
    seen[3] = -np.inf
    pos[:] = 0.0
    for k in range(way.shape[0]):
        _points(way[k], offset_pos, offset_rot, axis, tcp_pos, points)
        for p in range(pairs.shape[0]):
            i, j = pairs[p, 0], pairs[p, 1]
            gap = min(gap, _segments(points[i], points[i + 1], points[j], points[j + 1]) - thickness)
        _outside(points[points.shape[0] - 1], box, pos, seen)
    seen[0] = _condition(way[way.shape[0] - 1], offset_pos, offset_rot, axis, tcp_pos, tcp_rot, unit, enough)
    seen[1] = gap
    seen[2] = max(seen[3], 0.0)


@numba.njit(cache=True, nogil=True)
def _outermost(way, offset_pos, offset_rot, axis, tcp_pos, box, points, pos, seen):
    """Largest distance of the tcp outside the box on the way, added to what was seen."""
    for k in range(way.shape[0]):
        _points(way[k], offset_pos, offset_rot, axis, tcp_pos, points)
        _outside(points[points.shape[0] - 1], box, pos, seen)
    seen[2] = max(seen[3], 0.0)


@numba.njit(cache=True, nogil=True)
def _outside(tcp, box, pos, seen):
    for r in range(3):
        out = max(box[0, r] - tcp[r], tcp[r] - box[1, r])
        if out > seen[3]:
            seen[3] = out
            pos[:] = tcp


@numba.njit(cache=True, nogil=True)
def _condition(q, offset_pos, offset_rot, axis, tcp_pos, tcp_rot, unit, enough):
    """Condition number, or an upper bound of it that is no more than `enough`."""
    n = q.shape[0]
    pos, rot, jac = np.empty(3), np.empty((3, 3)), np.empty((6, n))
    forward_one(q, offset_pos, offset_rot, axis, tcp_pos, tcp_rot, pos, rot, jac)
    gram = np.empty((6, 6))
    for r in range(6):
        for c in range(r + 1):
            s = 0.0
            for i in range(n):
                s += jac[r, i] * jac[c, i]
            s /= (unit if r < 3 else 1.0) * (unit if c < 3 else 1.0)
            gram[r, c] = s
            gram[c, r] = s
    bound = _bound(gram)
    if bound <= enough:
        return bound
    values = np.linalg.eigvalsh(gram)
    least = values[max(0, 6 - n)]  # an arm of fewer than six joints has only so many singular values
    return min(np.sqrt(values[5] / least), WORST_CONDITION) if least > 0.0 else WORST_CONDITION


@numba.njit(cache=True, nogil=True)
def _bound(gram):
    """√(tr G · tr G⁻¹) ≥ σ_max/σ_min, by G = L Lᵀ and tr G⁻¹ = Σ (L⁻¹)²: a tenth of the time that eigenvalues take."""
    n = gram.shape[0]
    low, inverse = np.zeros((n, n)), np.zeros((n, n))
    trace, trace_inverse = 0.0, 0.0
    for i in range(n):
        trace += gram[i, i]
        for j in range(i + 1):
            s = gram[i, j]
            for k in range(j):
                s -= low[i, k] * low[j, k]
            if i > j:
                low[i, j] = s / low[j, j]
            elif s > 0.0:
                low[i, i] = np.sqrt(s)
            else:
                return np.inf
        inverse[i, i] = 1.0 / low[i, i]
        for j in range(i):
            s = 0.0
            for k in range(j, i):
                s -= low[i, k] * inverse[k, j]
            inverse[i, j] = s * inverse[i, i]
        for j in range(i + 1):
            trace_inverse += inverse[i, j] ** 2
    return np.sqrt(trace * trace_inverse)


@numba.njit(cache=True, nogil=True)
def _points(q, offset_pos, offset_rot, axis, tcp_pos, points):
    """Base, origins of the joints, tcp: (n + 2, 3) [m]."""
    n = q.shape[0]
    R, A, B = np.eye(3), np.empty((3, 3)), np.empty((3, 3))
    points[0, :] = 0.0
    for i in range(n + 1):
        step = offset_pos[i] if i < n else tcp_pos
        for r in range(3):
            points[i + 1, r] = points[i, r] + R[r, 0] * step[0] + R[r, 1] * step[1] + R[r, 2] * step[2]
        if i < n:
            matmul3(R, offset_rot[i], A)
            axis_rotation(axis[i], q[i], B)
            matmul3(A, B, R)


@numba.njit(cache=True, nogil=True)
def _segments(p1, q1, p2, q2):
    """Distance of two line segments (Ericson, Real-Time Collision Detection, 5.1.9)."""
    a = e = f = c = b = 0.0
    for r in range(3):
        d1, d2, w = q1[r] - p1[r], q2[r] - p2[r], p1[r] - p2[r]
        a += d1 * d1
        e += d2 * d2
        f += d2 * w
        c += d1 * w
        b += d1 * d2
    denominator = a * e - b * b
    s = min(max((b * f - c * e) / denominator, 0.0), 1.0) if denominator > 1e-12 else 0.0
    t = (b * s + f) / e
    if t < 0.0:
        t = 0.0
        s = min(max(-c / a, 0.0), 1.0)
    elif t > 1.0:
        t = 1.0
        s = min(max((b - c) / a, 0.0), 1.0)
    total = 0.0
    for r in range(3):
        d = p1[r] + s * (q1[r] - p1[r]) - p2[r] - t * (q2[r] - p2[r])
        total += d * d
    return np.sqrt(total)


@numba.njit(cache=True, nogil=True)
def _pose(q, offset_pos, offset_rot, axis, tcp_pos, tcp_rot, pos, quat):
    rot, jac = np.empty((3, 3)), np.empty((6, q.shape[0]))
    forward_one(q, offset_pos, offset_rot, axis, tcp_pos, tcp_rot, pos, rot, jac)
    # The largest component first, from the diagonal; the others by dividing by it.
    t = rot[0, 0] + rot[1, 1] + rot[2, 2]
    best, most = 3, t
    for i in range(3):
        if rot[i, i] > most:
            best, most = i, rot[i, i]
    if best == 3:
        quat[0] = 1.0 + t
        quat[1], quat[2], quat[3] = rot[2, 1] - rot[1, 2], rot[0, 2] - rot[2, 0], rot[1, 0] - rot[0, 1]
    else:
        i, j, k = best, (best + 1) % 3, (best + 2) % 3
        quat[0] = rot[k, j] - rot[j, k]
        quat[1 + i] = 1.0 + 2.0 * rot[i, i] - t
        quat[1 + j] = rot[j, i] + rot[i, j]
        quat[1 + k] = rot[k, i] + rot[i, k]
    norm = np.sqrt(quat[0] ** 2 + quat[1] ** 2 + quat[2] ** 2 + quat[3] ** 2)
    if quat[0] < 0.0:
        norm = -norm
    for r in range(4):
        quat[r] /= norm
