"""Rotations and poses, batched: T_ab is the pose of b in a; quaternions are wxyz; angles in radians."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def quat_to_matrix(quat: Array) -> Array:
    """(…, 4) unit quaternions wxyz → (…, 3, 3) rotation matrices."""
    w, x, y, z = np.moveaxis(quat, -1, 0)
    out = np.empty((*quat.shape[:-1], 3, 3))
    out[..., 0, 0], out[..., 0, 1], out[..., 0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    out[..., 1, 0], out[..., 1, 1], out[..., 1, 2] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    out[..., 2, 0], out[..., 2, 1], out[..., 2, 2] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)
    return out


def matrix_to_quat(rot: Array) -> Array:
    """(…, 3, 3) rotation matrices → (…, 4) unit quaternions wxyz with w ≥ 0.

    Each of the four rows below is a multiple of the quaternion; the one with the largest norm is the most exact.
    """
    r = rot
    t = np.trace(r, axis1=-2, axis2=-1)
    d = np.diagonal(r, axis1=-2, axis2=-1)
    a, b, c = r[..., 2, 1] - r[..., 1, 2], r[..., 0, 2] - r[..., 2, 0], r[..., 1, 0] - r[..., 0, 1]
    e, f, g = r[..., 0, 1] + r[..., 1, 0], r[..., 0, 2] + r[..., 2, 0], r[..., 1, 2] + r[..., 2, 1]
    one = 1 + 2 * d - t[..., None]
    rows = np.stack(
        [
            np.stack([1 + t, a, b, c], -1),
            np.stack([a, one[..., 0], e, f], -1),
            np.stack([b, e, one[..., 1], g], -1),
            np.stack([c, f, g, one[..., 2]], -1),
        ],
        -2,
    )
    best = np.argmax(np.einsum("...ij,...ij->...i", rows, rows), -1)
    quat = np.take_along_axis(rows, best[..., None, None], -2)[..., 0, :]
    quat = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
    return np.where(quat[..., :1] < 0, -quat, quat)


def rotvec_to_matrix(rotvec: Array) -> Array:
    """(…, 3) rotation vectors [rad] → (…, 3, 3): exp([r]×), by Rodrigues' formula."""
    angle = np.linalg.norm(rotvec, axis=-1)[..., None, None]
    K = np.zeros((*rotvec.shape[:-1], 3, 3))
    x, y, z = np.moveaxis(rotvec, -1, 0)
    K[..., 0, 1], K[..., 0, 2], K[..., 1, 2] = -z, y, -x
    K[..., 1, 0], K[..., 2, 0], K[..., 2, 1] = z, -y, x
    small = angle < 1e-8
    safe = np.where(small, 1.0, angle)
    s = np.where(small, 1.0, np.sin(safe) / safe)
    c = np.where(small, 0.5, (1 - np.cos(safe)) / (safe * safe))
    return np.eye(3) + s * K + c * (K @ K)


def matrix_to_rotvec(rot: Array) -> Array:
    """(…, 3, 3) → (…, 3) rotation vectors [rad], of length at most π: the inverse of `rotvec_to_matrix`."""
    quat = matrix_to_quat(rot)
    s = np.linalg.norm(quat[..., 1:], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(s, quat[..., :1])
    small = s < 1e-10
    return quat[..., 1:] * np.where(small, 2.0, angle / np.where(small, 1.0, s))


def yaw_quat(yaw: Array | float) -> Array:
    """(…,) rotation about z [rad] → (…, 4) quaternion."""
    half = 0.5 * np.asarray(yaw, dtype=np.float64)
    zero = np.zeros_like(half)
    return np.stack([np.cos(half), zero, zero, np.sin(half)], -1)


def rot6d(rot: Array) -> Array:
    """(…, 3, 3) → (…, 6): the first two columns, a continuous representation (Zhou et al., CVPR 2019)."""
    return np.concatenate([rot[..., :, 0], rot[..., :, 1]], -1)


def rotate_inverse(rot: Array, vec: Array) -> Array:
    """Rᵀ v for (…, 3, 3) and (…, 3): a base-frame vector seen from the rotated frame."""
    return np.einsum("...ji,...j->...i", rot, vec)
