"""Workspace and singularity of one tcp on the way to rest, by forward kinematics in the base frame of its arm.

The distance to singularities is the condition number σ_max/σ_min of the tcp's Jacobian, from the eigenvalues of
J Jᵀ. Lengths in J are measured in half arm lengths, or the number would depend more on the size of the arm than on
its posture. MoveIt Servo watches the same number.

The joints brake each by itself, so between two of the few postures that are looked at the tcp may swing out of its
box and back. How far, with Δ between two postures, ρ_i the most that the tcp is away from joint i, and
ρ_ij = ρ_max(i,j):

    ‖p̈‖ ≤ Σ ρ_i a_i + Σ ρ_ij v_i v_j,      out of the chord by at most Δ² ‖p̈‖ / 8

Where the border is that near, every set-point on the way is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardware.safety.blocks import ArrayBlock, floats_1, floats_2, floats_3, whole_1
from hardware.safety.checks import Array
from robots.chain import Chain, axis_rotation, forward_one, matmul3
from robots.compiled import compiled
from robots.limits import Limits

WORST_CONDITION = 1e6  # what a Jacobian that has lost a direction counts as
_AXES = "xyz"


class Tcp:
    """Judges the tcp of the arm whose joints are `at` among all, by workspace and singularity of its own `limits`;
    `acceleration` (n,) [rad/s²] and `velocity` (n,) [rad/s] are what its joints may do."""

    def __init__(self, chain: Chain, at: slice, limits: Limits, velocity: Array, acceleration: Array) -> None:
        self._geometry = (chain.offset_pos, chain.offset_rot, chain.axis, chain.tcp_pos, chain.tcp_rot)
        self._n, self._at, self._limits = chain.n, at, limits
        points = np.zeros((chain.n + 2, 3))
        _points(np.zeros(chain.n), *self._geometry[:4], points)
        lengths = np.linalg.norm(np.diff(points, axis=0), axis=1)
        self._unit = 0.5 * float(lengths.sum())
        self._box = np.array([[-np.inf] * 3, [np.inf] * 3]) if limits.workspace is None else limits.workspace
        from_end = lengths[::-1].cumsum()[::-1][1:]  # ρ
        farther = np.minimum.outer(from_end, from_end)
        self._swing = float(from_end @ acceleration + velocity @ farther @ velocity)  # largest ‖p̈‖ [m/s²]
        self._points = points
        self._pos = np.empty(3)  # of the tcp, where it is farthest outside
        self._seen = np.empty(2)

    def condition(self, q: Array) -> float:
        """Condition number of the Jacobian, lengths in half arm lengths."""
        return float(_condition(self._own(q), *self._geometry, self._unit, 0.0))

    def look_closer(self, way: Array, seconds: float, set_points: Callable[[], Array]) -> None:
        """Look at every set-point of a way, if a border is so near that between two postures it may be crossed."""
        swing = self._swing * (seconds / max(len(way) - 1, 1)) ** 2 / 8.0
        if self._seen[1] > -swing:
            more = self._own(set_points())
            _outermost(more, *self._geometry[:4], self._box, self._points, self._pos, self._seen)

    def outside_words(self) -> str:
        """The place where the last way left the workspace."""
        sides = np.maximum(self._box[0] - self._pos, self._pos - self._box[1])
        i = int(np.argmax(sides))
        low, high = self._box[:, i]
        return f"{_AXES[i]} = {self._pos[i]:.4f} m, workspace {low:.3f} to {high:.3f} m"

    def singular_words(self) -> str:
        """The condition number at which the last way ended."""
        return f"condition number {self._seen[0]:.1f}, allowed {self._limits.singularity:.1f}"

    def _own(self, q: Array) -> Array:
        """Its arm's columns; what is of this arm alone as it is."""
        return q if q.shape[-1] == self._n else np.ascontiguousarray(q[..., self._at])


class TcpGeometry(NamedTuple):
    """The tcps of several arms, as the compiled functions take them: arrays of all joints, and a row for each arm."""

    ends: NDArray[np.int64]  # where the joints of each arm begin, and the end
    offset_pos: Array
    offset_rot: Array
    axis: Array
    tcp_pos: Array
    tcp_rot: Array
    unit: Array  # half arm length [m]
    box: Array  # workspace
    boxed: NDArray[np.int64]  # 1 where there is one
    most: Array  # condition number allowed
    points: Array  # scratch
    pos: Array  # the tcp where it is farthest outside
    seen: Array  # condition number where the way ends, and how far the tcp was outside on it, at most [m]


class Tcps:
    """The tcps of `each` arm, looked at in one call."""

    def __init__(self, each: Sequence[Tcp]) -> None:
        self.each = each
        chains, count = [tcp._geometry for tcp in each], len(each)
        offset_pos, offset_rot, axis = (np.concatenate([chain[k] for chain in chains]) for k in range(3))
        tcp_pos, tcp_rot = (np.stack([chain[k] for chain in chains]) for k in (3, 4))
        self._limits = [tcp._limits.singularity for tcp in each]
        self.boxed = [tcp for tcp in each if tcp._limits.workspace is not None]
        geometry = TcpGeometry(
            np.cumsum([0, *(tcp._n for tcp in each)], dtype=np.int64),
            offset_pos,
            offset_rot,
            axis,
            tcp_pos,
            tcp_rot,
            np.array([tcp._unit for tcp in each]),
            np.stack([tcp._box for tcp in each]),
            np.array([tcp in self.boxed for tcp in each]).astype(np.int64),
            np.array(self._limits),
            np.zeros((count, max(tcp._n for tcp in each) + 2, 3)),
            np.zeros((count, 3)),
            np.zeros((count, 2)),
        )
        self.block = ArrayBlock(*geometry)
        self._shared = TcpGeometry(*self.block.arrays)
        for k, tcp in enumerate(each):
            tcp._pos, tcp._seen = self._shared.pos[k], self._shared.seen[k]

    def pose(self, q: Array) -> tuple[Array, Array]:
        """Position [m] and wxyz quaternion at `q` (n,) [rad], each in its own base frame: (3,), (4,), of several arms a
        row for each."""
        pos, quat = np.empty((len(self.each), 3)), np.empty((len(self.each), 4))
        _poses(self.block.floats, self.block.whole, q, pos, quat)
        return (pos, quat) if len(self.each) > 1 else (pos[0], quat[0])

    def judged(
        self, way: Array, seconds: float, set_points: Callable[[], Array] | None
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Distance by which each comes outside its workspace on a way [m], and excess over the condition number that is
        allowed, where it ends; all 0 inside. The compiled `inspect` was at `way`."""
        if set_points is not None:
            for tcp in self.boxed:
                tcp.look_closer(way, seconds, set_points)
        seen = self._shared.seen.tolist()
        outside = tuple([max(out, 0.0) for _, out in seen])
        singular = tuple([max(one - most, 0.0) for (one, _), most in zip(seen, self._limits, strict=True)])
        return outside, singular


@compiled()
def tcps_of(floats, whole):
    """The `TcpGeometry` of a block."""
    return TcpGeometry(
        whole_1(whole, 0), floats_2(floats, whole, 1), floats_3(floats, whole, 2), floats_2(floats, whole, 3),
        floats_2(floats, whole, 4), floats_3(floats, whole, 5), floats_1(floats, whole, 6), floats_3(floats, whole, 7),
        whole_1(whole, 8), floats_1(floats, whole, 9), floats_3(floats, whole, 10), floats_2(floats, whole, 11),
        floats_2(floats, whole, 12),
    )  # fmt: skip


@compiled()
def inspect(floats, whole, way):
    """Fill in the findings of a `TcpGeometry` block on a way (m, n); true if every tcp is inside and no arm near a
    singularity. Of an arm without a workspace only the end is looked at."""
    tcps, fine = tcps_of(floats, whole), True
    for arm in range(tcps.unit.shape[0]):
        a, b, seen = tcps.ends[arm], tcps.ends[arm + 1], tcps.seen[arm]
        offset_pos, offset_rot = tcps.offset_pos[a:b], tcps.offset_rot[a:b]
        axis, tcp_pos = tcps.axis[a:b], tcps.tcp_pos[arm]
        seen[1] = -np.inf
        if tcps.boxed[arm]:
            points = tcps.points[arm, : b - a + 2]
            _outermost(way[:, a:b], offset_pos, offset_rot, axis, tcp_pos, tcps.box[arm], points, tcps.pos[arm], seen)
        end = way[way.shape[0] - 1, a:b]
        seen[0] = _condition(
            end, offset_pos, offset_rot, axis, tcp_pos, tcps.tcp_rot[arm], tcps.unit[arm], tcps.most[arm]
        )
        fine = fine and seen[0] <= tcps.most[arm] and seen[1] <= 0.0
    return fine


@compiled()
def _poses(floats, whole, q, pos, quat):
    tcps = tcps_of(floats, whole)
    for arm in range(pos.shape[0]):
        a, b = tcps.ends[arm], tcps.ends[arm + 1]
        _pose(
            q[a:b], tcps.offset_pos[a:b], tcps.offset_rot[a:b], tcps.axis[a:b], tcps.tcp_pos[arm], tcps.tcp_rot[arm],
            pos[arm], quat[arm],
        )  # fmt: skip


@compiled()
def _outermost(way, offset_pos, offset_rot, axis, tcp_pos, box, points, pos, seen):
    """Largest distance of the tcp outside the box on the way (negative: inside), if larger than what was seen."""
    for k in range(way.shape[0]):
        _points(way[k], offset_pos, offset_rot, axis, tcp_pos, points)
        tcp = points[points.shape[0] - 1]
        for r in range(3):
            out = max(box[0, r] - tcp[r], tcp[r] - box[1, r])
            if out > seen[1]:
                seen[1] = out
                pos[:] = tcp


@compiled()
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


@compiled()
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


@compiled()
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


@compiled()
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
