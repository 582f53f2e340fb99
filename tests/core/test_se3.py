"""Rotations against scipy's, and the identities that tie them together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from robolearn.core import se3

ROTATIONS = Rotation.random(200, random_state=0)
VECTORS = arrays(np.float64, 3, elements=st.floats(-1.0, 1.0))


def wxyz(rotation: Rotation) -> NDArray:
    """scipy writes quaternions xyzw."""
    return np.roll(rotation.as_quat(), 1, axis=-1)


def turn(axis: NDArray, angle: float) -> NDArray:
    return se3.rotvec_to_matrix(axis / np.linalg.norm(axis) * angle)


def test_quaternions_and_matrices_are_scipys() -> None:
    matrices = ROTATIONS.as_matrix()
    np.testing.assert_allclose(se3.quat_to_matrix(wxyz(ROTATIONS)), matrices, atol=1e-14)
    np.testing.assert_allclose(se3.quat_to_matrix(-wxyz(ROTATIONS)), matrices, atol=1e-14)
    quat = se3.matrix_to_quat(matrices)
    expected = wxyz(ROTATIONS)
    np.testing.assert_allclose(quat, expected * np.sign(expected[:, :1]), atol=1e-14)


def test_rotation_vectors_are_scipys() -> None:
    np.testing.assert_allclose(se3.matrix_to_rotvec(ROTATIONS.as_matrix()), ROTATIONS.as_rotvec(), atol=1e-13)
    np.testing.assert_allclose(se3.rotvec_to_matrix(ROTATIONS.as_rotvec()), ROTATIONS.as_matrix(), atol=1e-14)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-9, 1e-7, 1e-4, 3.0, np.pi - 1e-6])
def test_small_and_large_angles_keep_their_precision(angle: float) -> None:
    """The relative error stays small where sin θ / θ and 1 / sin θ are delicate."""
    rotvec = np.array([0.6, -0.64, 0.48]) * angle
    matrix = se3.rotvec_to_matrix(rotvec)
    np.testing.assert_allclose(matrix, Rotation.from_rotvec(rotvec).as_matrix(), atol=1e-15)
    # The upper end is limited by the matrix: its diagonal holds cos θ to 1e-16 only.
    np.testing.assert_allclose(se3.matrix_to_rotvec(matrix), rotvec, rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("axis", [*np.eye(3), np.array([1.0, 1.0, 0.0]), np.array([-1.0, 2.0, 3.0])])
def test_half_turns(axis: NDArray) -> None:
    """At θ = π the quaternion's w vanishes and the sign of the axis is free."""
    unit = axis / np.linalg.norm(axis)
    matrix = 2 * np.outer(unit, unit) - np.eye(3)
    rotvec = se3.matrix_to_rotvec(matrix)
    assert np.linalg.norm(rotvec) == pytest.approx(np.pi, abs=1e-12)
    np.testing.assert_allclose(se3.rotvec_to_matrix(rotvec), matrix, atol=1e-12)


@given(VECTORS, VECTORS)
@settings(max_examples=60, deadline=None)
def test_identities(a: NDArray, b: NDArray) -> None:
    A, B = se3.rotvec_to_matrix(3.0 * a), se3.rotvec_to_matrix(b)
    np.testing.assert_allclose(A @ A.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(A) == pytest.approx(1.0)
    np.testing.assert_allclose(se3.rotvec_to_matrix(-3.0 * a), A.T, atol=1e-12)  # exp(−r) = exp(r)ᵀ
    np.testing.assert_allclose(se3.quat_to_matrix(se3.matrix_to_quat(A @ B)), A @ B, atol=1e-12)
    log = se3.matrix_to_rotvec(A @ B)
    assert np.linalg.norm(log) <= np.pi + 1e-12
    np.testing.assert_allclose(se3.rotvec_to_matrix(log), A @ B, atol=1e-9)
    np.testing.assert_allclose(se3.rotate_inverse(A, A @ b), b, atol=1e-12)
    assert se3.matrix_to_quat(A)[0] >= 0


def test_every_function_takes_leading_axes() -> None:
    matrices = ROTATIONS.as_matrix().reshape(4, 50, 3, 3)
    quats, rotvecs = wxyz(ROTATIONS).reshape(4, 50, 4), ROTATIONS.as_rotvec().reshape(4, 50, 3)
    for function, value in (
        (se3.quat_to_matrix, quats),
        (se3.matrix_to_quat, matrices),
        (se3.rotvec_to_matrix, rotvecs),
        (se3.matrix_to_rotvec, matrices),
        (se3.rot6d, matrices),
    ):
        np.testing.assert_allclose(function(value)[2, 7], function(value[2, 7]), atol=1e-15)
    np.testing.assert_allclose(se3.rotate_inverse(matrices, rotvecs)[1, 3], matrices[1, 3].T @ rotvecs[1, 3])


def test_yaw_and_rot6d() -> None:
    np.testing.assert_allclose(se3.yaw_quat(0.3), wxyz(Rotation.from_euler("z", 0.3)), atol=1e-15)
    yaw = np.linspace(-3.0, 3.0, 12).reshape(3, 4)
    np.testing.assert_allclose(se3.quat_to_matrix(se3.yaw_quat(yaw))[1, 2], turn(np.array([0, 0, 1.0]), yaw[1, 2]))
    np.testing.assert_array_equal(se3.rot6d(np.arange(9.0).reshape(3, 3)), [0, 3, 6, 1, 4, 7])  # columns x, then y
