"""Least distances of pairs of pieces on a way, compiled.

Along a way from posture to posture a piece b moves against a piece a by at most

    M = Σ_k |Δq_k| R_kb          over the joints k between the two, with R_kb the most that b is away from joint k
    M = Σ_k |Δq_k| R_ka + Σ_l |Δq_l| R_lb                where they are of two arms: the joints below each of them

so where they are d₁ apart before and d₂ after, they are no nearer than (d₁ + d₂ − M)/2 in between. Most pairs are done
with before any posture is worked out: where they were last measured they were farther apart than what is allowed and
the M from there to the farthest posture. Many others are at the first posture, by spheres around them.

If one plane parts the two by h₁ before and h₂ after, they are no nearer than min(h₁, h₂) less by how much a point of b
may leave its chord: with θ_k = |Δq_k|, and δ_k = min(a_k Δt²/8, θ_k) the most that joint k is from where it would be at
constant speed,

    Σ_k R_kb δ_k + (Σ_k θ_k) (Σ_k θ_k R_kb) / 8

The plane is one of a's frame; of two arms it stands in the station, and what a point of a may leave its chord by is
added, which the same sum over the joints of both covers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hardware.safety.arm_geometry import OBSTACLE, PLANE, SELF, arm_of, findings_of, odometers_of
from hardware.safety.checks import Array
from hardware.safety.gjk import borrowing, distance
from hardware.safety.odometers import ROUNDING, advance, reading
from robots.chain import axis_rotation
from robots.compiled import compiled

AHEAD = 0.02  # [m] how much farther than needed a pair is measured, so that it need not be again at once


class Path(NamedTuple):
    """A way, and what was found out about its postures."""

    postures: Array
    travelled: Array  # Σ |Δq| up to each
    frames: Array  # (m, n + 1, 12) rotation, row by row, and origin of the base and each link
    centres: Array  # (m, count, 3) of the spheres around the pieces
    ready: Array  # whether the two are known
    bend: Array  # (n,) the most that a joint is from where it would be at constant speed
    scratch: Array  # of distances
    turn: Array  # of one joint


@compiled()
def look(floats, whole, way, seconds, final):
    """Worst pairs of a way (m, n) into `Findings`, for a block of `ArmGeometry`, `Odometers` and `Findings`; pairs that
    its postures leave uncertain become suspects. All but the first are evenly spaced, `seconds` from the second on; at
    the end of a `final` one (1, else 0), set-points go on to the period after rest. It looks at suspects only, and
    where it is not certain how near they come they count as that near. Returns whether all is certain, or `final`."""
    arm, odometers, findings = arm_of(floats, whole), odometers_of(floats, whole), findings_of(floats, whole)
    suspects, found = findings.suspects, findings.found
    step = seconds / max(way.shape[0] - (3 if final else 2), 1)
    path = _path(arm, way, 0.125 * step * step * findings.acceleration)
    low, high = _extremes(way)
    for kind in range(2):
        found[kind, 0], found[kind, 1] = 0.0, np.inf
    certain = True
    if not final:
        advance(odometers, way[0], low, high)
    for pair in range(arm.pairs.shape[0]):
        if final:
            if suspects[pair]:
                _walk(arm, path, pair, _gap(arm, path, 0, pair, arm.allowed[pair, 0]), True, found)
            continue
        suspects[pair] = 0
        if reading(odometers, 1, pair) <= odometers.until[pair]:
            continue
        odometers.until[pair] = -np.inf
        here, nearest = _nearest(arm, way[0], low, high, pair)
        if nearest >= arm.allowed[pair, 0]:
            clear = here - arm.allowed[pair, 0] - ROUNDING
            odometers.until[pair] = reading(odometers, 0, pair) + clear
        else:
            reach = arm.allowed[pair, 0] + _moved(arm, path, 0, way.shape[0] - 1, pair)
            gap = _measured(arm, path, pair, reach)
            if gap < reach and not _walk(arm, path, pair, gap, False, found):
                suspects[pair] = 1
                certain = False
    return certain or final == 1


@compiled()
def _extremes(way):
    """(n,) least and greatest position of each joint on the way."""
    low, high = way[0].copy(), way[0].copy()
    for row in range(1, way.shape[0]):
        for k in range(way.shape[1]):
            low[k], high[k] = min(low[k], way[row, k]), max(high[k], way[row, k])
    return low, high


@borrowing(inline="always")
def _nearest(arm, start, low, high, pair):
    """Lower bounds of the gap of a pair, from its last measurement: at `start`, and between these extremes."""
    here = gap = arm.apart[pair]
    for k in range(arm.between[pair, 1], arm.between[pair, 2]):
        there, reach = arm.where[pair, k], arm.reach[pair, k]
        here -= abs(start[k] - there) * reach
        gap -= max(high[k] - there, there - low[k]) * reach
    return here, gap


@borrowing()
def _measured(arm, path, pair, reach):
    """Gap of a pair at the first posture, or at least `reach` of it; kept."""
    _ready(arm, path, 0)
    gap = _spheres(arm, path, 0, pair)
    if gap < reach:
        gap = _gap(arm, path, 0, pair, reach + AHEAD)
    arm.apart[pair] = gap
    for k in range(path.postures.shape[1]):
        arm.where[pair, k] = path.postures[0, k]
    return gap


@borrowing()
def _walk(arm, path, pair, before, final, found):
    """One pair along the way, `before` apart at its first posture; true if what happens in between is certain."""
    last, certain = path.postures.shape[0] - 1, True
    may, less = arm.allowed[pair, 0], arm.allowed[pair, 1]
    _note(arm, found, pair, before)
    row, here = 0, np.nan  # `here`: gap along the axis at `row`, if it is known
    while row < last:
        stop = row + 1
        while final and stop < last and _moved(arm, path, row, stop + 1, pair) <= before - may + less:
            stop += 1  # it cannot get there sooner
        moved = _moved(arm, path, row, stop, pair)
        _ready(arm, path, stop)
        after = _spheres(arm, path, stop, pair)
        if after >= may and 0.5 * (before + after - moved) >= may - less:
            row, before, here = stop, after, np.nan
            continue
        if np.isnan(here):
            here = _along(arm, path, row, pair)
        there = _along(arm, path, stop, pair)
        before, after = max(before, here), max(after, there)
        if after < may:
            after = _gap(arm, path, stop, pair, may)
            _note(arm, found, pair, after)
            here, there = _along(arm, path, row, pair), _along(arm, path, stop, pair)
        least, floor = 0.5 * (before + after - moved), min(may, before, after) - less
        if stop == row + 1 and least < floor:
            bow = _bow(arm, path, row, pair)
            parted = min(here, there)
            if parted < floor + bow:
                parted = max(parted, _parted(arm, path, row, pair, floor + bow))
                there = np.nan  # the axis has turned
            if parted < floor + bow:
                certain = False
                if final:
                    _note(arm, found, pair, max(least, parted - bow))
        row, before, here = stop, after, there
    return certain


@borrowing()
def _parted(arm, path, row, pair, need):
    """Distance by which a plane across the shortest way at a posture, or at the next, parts a pair at both."""
    best = -np.inf
    for at in range(row + 1, row - 1, -1):
        if best < need and arm.pairs[pair, 2] != PLANE:
            _gap(arm, path, at, pair, need)  # turns the axis
            best = max(best, min(_along(arm, path, row, pair), _along(arm, path, row + 1, pair)))
    return best


@borrowing()
def _along(arm, path, row, pair):
    """Gap of a pair's surfaces along its axis."""
    a, b = arm.pairs[pair, 0], arm.pairs[pair, 1]
    frame, axis = path.frames[row, arm.which[b, 0]], path.scratch[0]
    if arm.pairs[pair, 2] == PLANE:
        near = -arm.planes[a, 3]
        for r in range(3):
            axis[r] = -arm.planes[a, r]
    else:
        other = path.frames[row, arm.which[a, 0]]
        _turn_axis(arm, path, row, pair, True)
        ux, uy, uz = arm.axes[pair, 0], arm.axes[pair, 1], arm.axes[pair, 2]
        _turn_axis(arm, path, row, pair, False)
        near = np.inf
        for k in range(arm.which[a, 1], arm.which[a, 2]):
            near = min(near, ux * arm.points[k, 0] + uy * arm.points[k, 1] + uz * arm.points[k, 2])
        for r in range(3):
            axis[r] = other[3 * r] * ux + other[3 * r + 1] * uy + other[3 * r + 2] * uz
            near += axis[r] * other[9 + r]
        near -= arm.sizes[a, 4]
    ux = frame[0] * axis[0] + frame[3] * axis[1] + frame[6] * axis[2]
    uy = frame[1] * axis[0] + frame[4] * axis[1] + frame[7] * axis[2]
    uz = frame[2] * axis[0] + frame[5] * axis[1] + frame[8] * axis[2]
    far = -np.inf
    for k in range(arm.which[b, 1], arm.which[b, 2]):
        far = max(far, ux * arm.points[k, 0] + uy * arm.points[k, 1] + uz * arm.points[k, 2])
    for r in range(3):
        far += axis[r] * frame[9 + r]
    return near - far - arm.sizes[b, 4]


@borrowing()
def _bow(arm, path, row, pair):
    """Largest distance of a point of the second piece from its chord on the way from a posture to the next."""
    late = turned = moved = 0.0
    for k in range(arm.between[pair, 1], arm.between[pair, 2]):
        angle, reach = path.travelled[row + 1, k] - path.travelled[row, k], arm.reach[pair, k]
        late += reach * (min(path.bend[k], angle) if row > 0 else angle)
        turned += angle
        moved += reach * angle
    return late + 0.125 * turned * moved


@borrowing()
def _moved(arm, path, first, last, pair):
    """M between two postures."""
    moved = 0.0
    for k in range(arm.between[pair, 1], arm.between[pair, 2]):
        moved += (path.travelled[last, k] - path.travelled[first, k]) * arm.reach[pair, k]
    return moved


@borrowing()
def _note(arm, found, pair, gap):
    """Remember a pair if it is the worst so far."""
    of, allowed = SELF if arm.pairs[pair, 2] == SELF else OBSTACLE, arm.allowed[pair, 0]
    if allowed - gap > found[of, 0]:
        found[of, 0], found[of, 1], found[of, 2], found[of, 3] = allowed - gap, gap, allowed, pair


@borrowing()
def _spheres(arm, path, row, pair):
    """Gap between the spheres around two pieces: they are no nearer."""
    a, b = arm.pairs[pair, 0], arm.pairs[pair, 1]
    far = 0.0
    if arm.pairs[pair, 2] == PLANE:
        for r in range(3):
            far += arm.planes[a, r] * path.centres[row, b, r]
        return far - arm.planes[a, 3] - arm.sizes[b, 3]
    for r in range(3):
        far += (path.centres[row, a, r] - path.centres[row, b, r]) ** 2
    return np.sqrt(far) - arm.sizes[a, 3] - arm.sizes[b, 3]


@borrowing()
def _gap(arm, path, row, pair, need):
    """Distance of a pair's surfaces, or at least `need` of it; negative where they overlap by less than their radii."""
    _ready(arm, path, row)
    gap = _spheres(arm, path, row, pair)
    if gap >= need:
        return gap
    a, b = arm.pairs[pair, 0], arm.pairs[pair, 1]
    frame = path.frames[row, arm.which[b, 0]]
    if arm.pairs[pair, 2] == PLANE:
        least = np.inf
        for k in range(arm.which[b, 1], arm.which[b, 2]):
            _place(frame, arm.points[k], path.scratch[0])
            far = -arm.planes[a, 3]
            for r in range(3):
                far += arm.planes[a, r] * path.scratch[0, r]
            least = min(least, far)
        return least - arm.sizes[b, 4]
    radii = arm.sizes[a, 4] + arm.sizes[b, 4]
    _turn_axis(arm, path, row, pair, True)
    apart = distance(
        arm.points, arm.which[a, 1], arm.which[a, 2], path.frames[row, arm.which[a, 0]],
        arm.which[b, 1], arm.which[b, 2], frame, need + radii, arm.axes[pair], path.scratch,
    )  # fmt: skip
    _turn_axis(arm, path, row, pair, False)
    return apart - radii


@borrowing()
def _turn_axis(arm, path, row, pair, inward):
    """The axis of a pair of two arms, which is kept in the frame of the station, into that of its first piece, or back;
    any other is there already."""
    link = arm.which[arm.pairs[pair, 0], 0]
    if arm.between[pair, 0] == link:
        return
    frame, axis = path.frames[row, link], arm.axes[pair]
    x, y, z = axis[0], axis[1], axis[2]
    for r in range(3):
        if inward:
            axis[r] = frame[r] * x + frame[3 + r] * y + frame[6 + r] * z
        else:
            axis[r] = frame[3 * r] * x + frame[3 * r + 1] * y + frame[3 * r + 2] * z


@compiled()
def gaps_at(floats, whole, q, gaps):
    """Of all pairs of a block at one posture (1, n)."""
    arm = arm_of(floats, whole)
    path = _path(arm, q, q[0])
    for pair in range(arm.pairs.shape[0]):
        gaps[pair] = _gap(arm, path, 0, pair, np.inf)


@compiled()
def _path(arm, way, bend):
    rows, n = way.shape
    travelled = np.zeros((rows, n))
    for k in range(1, rows):
        for i in range(n):
            travelled[k, i] = travelled[k - 1, i] + abs(way[k, i] - way[k - 1, i])
    frames, centres = np.empty((rows, n + 1, 12)), np.empty((rows, arm.which.shape[0], 3))
    return Path(way, travelled, frames, centres, np.zeros(rows, np.bool_), bend, np.empty((5, 3)), np.empty((3, 3)))


@borrowing(inline="always")
def _place(frame, local, out):
    """A point of a link into `out`, in the base frame."""
    for r in range(3):
        out[r] = frame[9 + r] + frame[3 * r] * local[0] + frame[3 * r + 1] * local[1] + frame[3 * r + 2] * local[2]


@borrowing()
def _ready(arm, path, row):
    """Compute the poses of links and spheres at a posture, once."""
    if path.ready[row]:
        return
    path.ready[row] = True
    out, q, turn = path.frames[row], path.postures[row], path.turn
    for k in range(12):
        out[0, k] = 1.0 if k == 0 or k == 4 or k == 8 else 0.0
    for i in range(q.shape[0]):
        below, step, turned = out[arm.below[i]], arm.offset_pos[i], arm.offset_rot[i]
        axis_rotation(arm.axis[i], q[i], turn)
        for r in range(3):
            x, y, z = below[3 * r], below[3 * r + 1], below[3 * r + 2]
            out[i + 1, 9 + r] = below[9 + r] + x * step[0] + y * step[1] + z * step[2]
            a = x * turned[0, 0] + y * turned[1, 0] + z * turned[2, 0]
            b = x * turned[0, 1] + y * turned[1, 1] + z * turned[2, 1]
            c = x * turned[0, 2] + y * turned[1, 2] + z * turned[2, 2]
            for k in range(3):
                out[i + 1, 3 * r + k] = a * turn[0, k] + b * turn[1, k] + c * turn[2, k]
    for p in range(arm.which.shape[0]):
        _place(out[arm.which[p, 0]], arm.sizes[p], path.centres[row, p])
