"""Damped-least-squares inverse kinematics, batched; the one way from a tcp pose to joint set-points.

    e  = [ w (p* − p) ;  log(R* Rᵀ) ]
    Δq = Jᵀ (J Jᵀ + λ² I)⁻¹ e  +  (I − J⁺J) k (q_rest − q)

with the rows of J weighted as those of e (Wampler 1986; Nakamura & Hanafusa 1986; the second term keeps the elbow near
its rest posture). A joint that would leave its limits is set on the limit and taken out of J for the remaining
iterations, so that the other joints take over its share. The whole step is scaled, never bent, to respect the joint
velocity limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robots.chain import Array, Chain, forward_one
from robots.compiled import compiled


@dataclass(frozen=True)
class IKConfig:
    """Settings of the solver."""

    iterations: int = 3  # Newton steps a call
    damping: float = 0.02  # λ; larger is calmer near singularities and less exact
    posture_gain: float = 0.02  # k, share of the posture error removed a call
    limit_margin: float = 0.02  # distance kept from the joint limits [rad]
    # w [1/m], what a metre of position error counts beside a radian; for an arm that cannot take every pose, which of
    # the two it gives up
    position_weight: float = 1.0


def solve(
    chain: Chain, q: Array, target_pos: Array, target_rot: Array, *, rest: Array, max_step: Array | None = None,
    config: IKConfig | None = None,
) -> Array:  # fmt: skip
    """Joint positions that bring the tcp to a pose, starting from `q`.

    Args:
      q: (N, n) present joint positions [rad].
      target_pos: (N, 3) wanted tcp positions in the base frame [m].
      target_rot: (N, 3, 3) wanted tcp orientations.
      rest: (n,) posture that the redundancy is drawn to [rad].
      max_step: (n,) largest change of each joint in this call [rad], e.g. velocity limit × control period.

    Returns:
      (N, n) joint positions inside the limits [rad].
    """
    config = config or IKConfig()
    weight = config.position_weight
    q, pos, rot = (np.ascontiguousarray(array, dtype=np.float64) for array in (q, target_pos, target_rot))
    rest, steps = np.asarray(rest, dtype=np.float64), np.full(chain.n, np.inf) if max_step is None else max_step
    lower = np.minimum(chain.lower + config.limit_margin, chain.upper)
    upper = np.maximum(chain.upper - config.limit_margin, chain.lower)
    # Lengths in units in which the position counts w times as much.
    geometry = chain.offset_pos * weight, chain.offset_rot, chain.axis, chain.tcp_pos * weight, chain.tcp_rot
    solver, out = (config.iterations, config.damping, config.posture_gain), np.empty_like(q)
    _solve_batch(q, pos * weight, rot, rest, np.asarray(steps, np.float64), lower, upper, *geometry, *solver, out)
    return out


@compiled()
def _solve_batch(
    q0, target_pos, target_rot, rest, max_step, lower, upper,
    offset_pos, offset_rot, axis, tcp_pos, tcp_rot, iterations, damping, posture_gain, out,
):  # fmt: skip
    n = q0.shape[1]
    pos, rot, jac = np.empty(3), np.empty((3, 3)), np.empty((6, n))
    A, e, y = np.empty((6, 6)), np.empty(6), np.empty(6)
    q, dq, rest_step = np.empty(n), np.empty(n), np.empty(n)
    free = np.empty(n, dtype=np.bool_)
    for w in range(q0.shape[0]):
        for i in range(n):
            q[i] = q0[w, i]
            free[i] = True
        for iteration in range(iterations):
            forward_one(q, offset_pos, offset_rot, axis, tcp_pos, tcp_rot, pos, rot, jac)
            for r in range(3):
                e[r] = target_pos[w, r] - pos[r]
            _rotation_error(target_rot[w], rot, e)
            for i in range(n):
                rest_step[i] = posture_gain * (rest[i] - q0[w, i]) if (iteration == 0 and free[i]) else 0.0
                if not free[i]:
                    for r in range(6):
                        jac[r, i] = 0.0
            # A = J Jᵀ + λ² I;  y = A⁻¹ (e − J q̇_rest);  Δq = Jᵀ y + q̇_rest
            for r in range(6):
                for c in range(r + 1):
                    s = damping * damping if r == c else 0.0
                    for i in range(n):
                        s += jac[r, i] * jac[c, i]
                    A[r, c] = s
                s = e[r]
                for i in range(n):
                    s -= jac[r, i] * rest_step[i]
                y[r] = s
            _cholesky_solve6(A, y)
            for i in range(n):
                s = rest_step[i]
                for r in range(6):
                    s += jac[r, i] * y[r]
                q[i] += s
                if q[i] < lower[i]:
                    q[i] = lower[i]
                    free[i] = False
                elif q[i] > upper[i]:
                    q[i] = upper[i]
                    free[i] = False
        scale = 1.0
        for i in range(n):
            dq[i] = q[i] - q0[w, i]
            step = abs(dq[i])
            if step > max_step[i] and max_step[i] / step < scale:
                scale = max_step[i] / step
        for i in range(n):
            # A start outside the limits is brought back, however small the scaled step.
            out[w, i] = min(max(q0[w, i] + scale * dq[i], lower[i]), upper[i])


@compiled(inline="always")
def _rotation_error(target, rot, e):
    # log(R* Rᵀ) as a rotation vector in the base frame, without loss of precision at small angles.
    m00 = target[0, 0] * rot[0, 0] + target[0, 1] * rot[0, 1] + target[0, 2] * rot[0, 2]
    m11 = target[1, 0] * rot[1, 0] + target[1, 1] * rot[1, 1] + target[1, 2] * rot[1, 2]
    m22 = target[2, 0] * rot[2, 0] + target[2, 1] * rot[2, 1] + target[2, 2] * rot[2, 2]
    m21 = target[2, 0] * rot[1, 0] + target[2, 1] * rot[1, 1] + target[2, 2] * rot[1, 2]
    m12 = target[1, 0] * rot[2, 0] + target[1, 1] * rot[2, 1] + target[1, 2] * rot[2, 2]
    m02 = target[0, 0] * rot[2, 0] + target[0, 1] * rot[2, 1] + target[0, 2] * rot[2, 2]
    m20 = target[2, 0] * rot[0, 0] + target[2, 1] * rot[0, 1] + target[2, 2] * rot[0, 2]
    m10 = target[1, 0] * rot[0, 0] + target[1, 1] * rot[0, 1] + target[1, 2] * rot[0, 2]
    m01 = target[0, 0] * rot[1, 0] + target[0, 1] * rot[1, 1] + target[0, 2] * rot[1, 2]
    x, y, z = 0.5 * (m21 - m12), 0.5 * (m02 - m20), 0.5 * (m10 - m01)
    s = np.sqrt(x * x + y * y + z * z)  # sin θ
    c = 0.5 * (m00 + m11 + m22 - 1.0)  # cos θ
    angle = np.arctan2(s, c)
    k = 1.0 if s < 1e-9 else angle / s
    e[3], e[4], e[5] = k * x, k * y, k * z


@compiled(inline="always")
def _cholesky_solve6(A, y):
    # A is symmetric positive definite (λ > 0); only its lower triangle is read. y is overwritten by A⁻¹ y.
    for i in range(6):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= A[i, k] * A[j, k]
            A[i, j] = np.sqrt(s) if i == j else s / A[j, j]
    for i in range(6):
        s = y[i]
        for k in range(i):
            s -= A[i, k] * y[k]
        y[i] = s / A[i, i]
    for i in range(5, -1, -1):
        s = y[i]
        for k in range(i + 1, 6):
            s -= A[k, i] * y[k]
        y[i] = s / A[i, i]
