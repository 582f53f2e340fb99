"""Distance of two rounded convex pieces: the algorithm of Gilbert, Johnson and Keerthi.

For convex A and B the difference A − B = {a − b} holds the origin if they touch, and else its nearest point v is as
long as they are apart. A simplex of up to four of its points walks towards v: in the direction −v lies the point w of
A − B, and

    v·w / ‖v‖ ≤ distance ≤ ‖v‖

What is returned is the lower bound, so a walk that is cut short calls two pieces nearer than they are, never farther.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from robots.compiled import compiled

# For functions that make no arrays: they borrow those that they are given, and count no references to them, which took
# three quarters of the time that distances take.
borrowing = partial(compiled, _nrt=False)

_ENOUGH = 1e-6  # [m] between the two bounds
_MOST = 40  # steps


@borrowing()
def distance(points, first_a, end_a, frame_a, first_b, end_b, frame_b, need, axis, scratch):
    """Distance of the hulls of two rows of points [m]; at least `need` where it is more than that.

    Args:
      points: (m, 3), each in the frame of its link.
      first_a, end_a, first_b, end_b: which of them.
      frame_a, frame_b: (12,) rotation, row by row, and origin of the links in the base frame.
      axis: (3,) where the last search ended, in the frame of a; overwritten. It saves steps and changes no result.
      scratch: (5, 3), overwritten.
    """
    simplex, v = scratch[:4], scratch[4]
    _turn(frame_a, axis[0], axis[1], axis[2], v)
    size, best = 0, 0.0
    for _ in range(_MOST):
        length = np.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])
        if length < 1e-9:
            return best if size > 0 else 0.0
        ax, ay, az = _support(points, first_a, end_a, frame_a, -v[0], -v[1], -v[2])
        bx, by, bz = _support(points, first_b, end_b, frame_b, v[0], v[1], v[2])
        wx, wy, wz = ax - bx, ay - by, az - bz
        low = (v[0] * wx + v[1] * wy + v[2] * wz) / length
        if low > best:
            best = low
            _turn_back(frame_a, v[0] / length, v[1] / length, v[2] / length, axis)
            if best >= need:
                return best
        if size > 0 and length - best <= _ENOUGH:
            return best
        for k in range(size):
            if simplex[k, 0] == wx and simplex[k, 1] == wy and simplex[k, 2] == wz:
                return best  # no farther on: rounding
        simplex[size, 0], simplex[size, 1], simplex[size, 2] = wx, wy, wz
        size = _nearest(simplex, size + 1, v)
        if size == 4:
            return best  # the origin is inside
    return best


@borrowing(inline="always")
def _turn(frame, x, y, z, out):
    """Write a vector of a link's frame into `out` (3,), in the base frame."""
    for r in range(3):
        out[r] = frame[3 * r] * x + frame[3 * r + 1] * y + frame[3 * r + 2] * z


@borrowing(inline="always")
def _turn_back(frame, x, y, z, out):
    """Write a vector of the base frame into `out` (3,), in a link's."""
    for r in range(3):
        out[r] = frame[r] * x + frame[3 + r] * y + frame[6 + r] * z


@borrowing()
def _support(points, first, end, frame, x, y, z):
    """The point farthest in a direction, both in the base frame."""
    dx = frame[0] * x + frame[3] * y + frame[6] * z
    dy = frame[1] * x + frame[4] * y + frame[7] * z
    dz = frame[2] * x + frame[5] * y + frame[8] * z
    best, most = first, -np.inf
    for k in range(first, end):
        along = points[k, 0] * dx + points[k, 1] * dy + points[k, 2] * dz
        if along > most:
            best, most = k, along
    px, py, pz = points[best, 0], points[best, 1], points[best, 2]
    return (
        frame[9] + frame[0] * px + frame[1] * py + frame[2] * pz,
        frame[10] + frame[3] * px + frame[4] * py + frame[5] * pz,
        frame[11] + frame[6] * px + frame[7] * py + frame[8] * pz,
    )


@borrowing()
def _nearest(s, size, v):
    """Nearest point of the simplex to the origin into `v`; keeps the corners that it needs, in front. Returns how many
    those are; 4: the origin is inside."""
    if size == 1:
        v[0], v[1], v[2] = s[0, 0], s[0, 1], s[0, 2]
        return 1
    if size == 2:
        t = _along(s, 0, 1)
        return _keep(s, 0, 1, 1, 1.0 - t, t, 0.0, v)
    if size == 3:
        x, y, z = _weights(s, 0, 1, 2)
        return _keep(s, 0, 1, 2, x, y, z, v)
    best, kept, wx, wy, wz = np.inf, -1, 0.0, 0.0, 0.0
    for face in range(4):
        a, b, c = _corners(face)
        if not _outside(s, a, b, c, 3 - face):
            continue
        x, y, z = _weights(s, a, b, c)
        far = 0.0
        for r in range(3):
            far += (x * s[a, r] + y * s[b, r] + z * s[c, r]) ** 2
        if far < best:
            best, kept, wx, wy, wz = far, face, x, y, z
    if kept < 0:
        return 4
    a, b, c = _corners(kept)
    return _keep(s, a, b, c, wx, wy, wz, v)


@borrowing(inline="always")
def _corners(face):
    """Of a tetrahedron's face; the corner 3 − face is not in it."""
    return (0 if face < 3 else 1), (1 if face < 2 else 2), (2 if face < 1 else 3)


@borrowing()
def _keep(s, a, b, c, x, y, z, v):
    """The point x a + y b + z c into `v`, and its corners (a < b ≤ c) to the front; returns how many have weight."""
    for r in range(3):
        v[r] = x * s[a, r] + y * s[b, r] + z * s[c, r]
    size = 0
    for k, weight in ((a, x), (b, y), (c, z)):
        if weight > 0.0:
            for r in range(3):
                s[size, r] = s[k, r]
            size += 1
    return size


@borrowing()
def _along(s, a, b):
    """Point of the segment from a (0) to b (1) that is nearest to the origin."""
    along = square = 0.0
    for r in range(3):
        d = s[b, r] - s[a, r]
        along -= s[a, r] * d
        square += d * d
    return min(max(along / square, 0.0), 1.0) if square > 0.0 else 0.0


@borrowing()
def _weights(s, a, b, c):
    """Barycentric coordinates of the point of a triangle nearest to the origin (Ericson, Real-Time Collision
    Detection, 5.1.5)."""
    d1 = d2 = d3 = d4 = d5 = d6 = 0.0
    for r in range(3):
        ab, ac = s[b, r] - s[a, r], s[c, r] - s[a, r]
        d1 -= ab * s[a, r]
        d2 -= ac * s[a, r]
        d3 -= ab * s[b, r]
        d4 -= ac * s[b, r]
        d5 -= ab * s[c, r]
        d6 -= ac * s[c, r]
    x, y, z = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    whole = x + y + z
    if x > 0.0 and y > 0.0 and z > 0.0 and whole > 0.0:
        return x / whole, y / whole, z / whole
    # On an edge: the nearest of the three, which also is right for a triangle without area.
    best, x, y, z = np.inf, 0.0, 0.0, 0.0
    for edge in range(3):
        p, q = (a, b) if edge == 0 else ((b, c) if edge == 1 else (a, c))
        t = _along(s, p, q)
        far = 0.0
        for r in range(3):
            far += (s[p, r] + t * (s[q, r] - s[p, r])) ** 2
        if far < best:
            best = far
            x = 1.0 - t if edge != 1 else 0.0
            y = t if edge == 0 else (1.0 - t if edge == 1 else 0.0)
            z = t if edge > 0 else 0.0
    return x, y, z


@borrowing()
def _outside(s, a, b, c, d):
    """True if the origin and the corner d are not on the same side of the triangle a, b, c; flat counts as outside."""
    ux, uy, uz = s[b, 0] - s[a, 0], s[b, 1] - s[a, 1], s[b, 2] - s[a, 2]
    wx, wy, wz = s[c, 0] - s[a, 0], s[c, 1] - s[a, 1], s[c, 2] - s[a, 2]
    nx, ny, nz = uy * wz - uz * wy, uz * wx - ux * wz, ux * wy - uy * wx
    origin = -(nx * s[a, 0] + ny * s[a, 1] + nz * s[a, 2])
    fourth = nx * (s[d, 0] - s[a, 0]) + ny * (s[d, 1] - s[a, 1]) + nz * (s[d, 2] - s[a, 2])
    return origin * fourth <= 0.0
