"""Hand-eye calibration: from pictures of a board and the postures of the arm to the pose of the camera.

With H_i the pose of the flange in the base (the camera on the flange) or its inverse (the camera beside the arm, the
board on the flange), X the camera in its parent, Z the board in the other frame and B_i the board in the camera,

    H_i X B_i = Z,        so that for two pictures        (H_j⁻¹ H_i) X = X (B_j B_i⁻¹)         A X = X B

The rotation of X aligns the rotation vectors of all A with those of all B, its translation solves
(R_A − I) t = R_X t_B − t_A (Park and Martin, IEEE T-RA 1994). X and Z are then refined together on the distances
between seen and projected corners.

A board that is larger than stated moves X a lot and the corners little (3%: 10 mm and 0.4 px), so its scale is fitted
once as well, by the motion of the arm. OpenCV 5 has no `calibrateHandEye` for Python.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from robolearn.core import BadInput
from robots.spec import Pose
from robots.stations import Intrinsics

Array = NDArray[np.float64]
Spread = tuple[float, float]  # root mean square and largest

LEAST = 6  # pictures
SAME_MM, SAME_DEG = 1.0, 0.2  # poses of the hand that are nearer to each other are one: the arm did not move
TURNED = math.radians(10.0)  # spread of the rotations about the second most turned axis, below which t is a guess
WORST_MM, WORST_DEG = 3.0, 0.5  # standard deviations of a result that is given
OUTLIER_PX = 1.0  # corners farther off count less and less
SCALE = 0.01  # by which the board may seem larger or smaller than stated, if that is more than its scatter
FAR_PX = 5.0  # root mean square of a result that is wrong: another lens, board or arm


@dataclass(frozen=True)
class BoardView:
    """One picture: pose of the flange in the base (4, 4), corners seen (n, 2) [px], and on the board (n, 3) [m]."""

    flange: Array
    pixels: Array
    places: Array


@dataclass(frozen=True)
class Calibration:
    """A camera's pose, and how far it can be trusted.

    Attributes:
      parent: ``"flange"`` or ``"base"``.
      pose: of the camera (z forward, x right, y down) in its parent.
      board: pose of the board in the base, or on the flange.
      pixels_rms: distances of seen from projected corners [px].
      position_mm, rotation_deg: root mean square and largest distance of the board as each picture has it from `board`.
      deviation_mm, deviation_deg: standard deviation of the pose, by the scatter of the corners.
      views: pictures used.
      intrinsics: the lens.
    """

    parent: str
    pose: Pose
    board: Pose
    pixels_rms: float
    position_mm: Spread
    rotation_deg: Spread
    deviation_mm: float
    deviation_deg: float
    views: int
    intrinsics: Intrinsics


def matrix_of(lens: Intrinsics) -> Array:
    """(3, 3) K [px]."""
    return np.array([[lens.fx, 0.0, lens.cx], [0.0, lens.fy, lens.cy], [0.0, 0.0, 1.0]])


def estimate_lens(views: Sequence[BoardView], size: tuple[int, int]) -> Intrinsics:
    """Intrinsics from the views themselves, for pictures of `size` = (height, width).

    Raises:
      BadInput: too few views.
    """
    if len(views) < 10:
        raise BadInput("pictures of the board for the lens", got=len(views), expected="at least 10")
    places = [view.places.astype(np.float32) for view in views]
    pixels = [view.pixels.astype(np.float32) for view in views]
    _, k, distortion, _, _ = cv2.calibrateCamera(places, pixels, size[::-1], None, None)  # type: ignore[call-overload]
    return Intrinsics(size, k[0, 0], k[1, 1], k[0, 2], k[1, 2], tuple(float(d) for d in distortion.ravel()[:5]))


def calibrate(views: Sequence[BoardView], lens: Intrinsics, parent: str) -> Calibration:
    """The pose of a camera on the flange (``parent="flange"``) or beside the arm (``"base"``).

    Raises:
      BadInput: too few views, numbers that are not finite, pictures of the same pose over and over, motion that does
        not determine the pose, or corners that fit no pose.
    """
    if len(views) < LEAST:
        raise BadInput("pictures of the board", got=len(views), expected=f"at least {LEAST}")
    for number, view in enumerate(views, 1):
        if not all(np.isfinite(part).all() for part in (view.flange, view.pixels, view.places)):
            raise BadInput(f"picture {number} of the board", got="NaN or infinity", expected="a pose and corners")
    if (poses := _poses(views)) < LEAST:
        raise BadInput(
            "poses of the hand", got=f"{poses} in {len(views)} pictures", expected=f"at least {LEAST} that differ"
        )
    hands: list[Array] = [v.flange if parent == "flange" else np.linalg.inv(v.flange).astype(float) for v in views]
    _check_motion(hands)
    boards = [_board_in_camera(view, lens) for view in views]
    camera = _closed_form(hands, boards)
    found = np.array([hand @ camera @ seen for hand, seen in zip(hands, boards, strict=True)])
    board = pose_matrix(_rotation(found).mean().as_matrix(), found[:, :3, 3].mean(0))
    camera, board, rms, deviation, _ = _refine(views, hands, lens, camera, board, scaled=False)
    mm, degrees = 1e3 * float(np.linalg.norm(deviation[3:6])), math.degrees(float(np.linalg.norm(deviation[:3])))
    if rms > FAR_PX:
        expected = f"at most {FAR_PX:g} px: is the board's size right, and the lens, and the joint order?"
        raise BadInput("distance of corners from where they should be", got=f"{rms:.1f} px", expected=expected)
    _, _, _, scatter, scale = _refine(views, hands, lens, camera, board, scaled=True)
    if abs(scale - 1.0) > max(SCALE, 3.0 * float(scatter[-1])):
        got = f"{100 * abs(scale - 1.0):.2f}% {'more' if scale > 1 else 'less'} than stated, by the motion of the arm"
        raise BadInput("size of the board", got=got, expected=f"within {SCALE:.0%}: measure a square again")
    if mm > WORST_MM or degrees > WORST_DEG:
        got, expected = f"{mm:.1f} mm, {degrees:.2f}°", f"at most {WORST_MM:g} mm, {WORST_DEG:g}°"
        raise BadInput("standard deviation of the pose", got=got, expected=expected, hint="More pictures, tilted more")
    apart = np.array([np.linalg.inv(board) @ hand @ camera @ seen for hand, seen in zip(hands, boards, strict=True)])
    places, angles = 1e3 * np.linalg.norm(apart[:, :3, 3], axis=1), np.degrees(_rotation(apart).magnitude())
    return Calibration(
        parent=parent,
        pose=Pose.from_matrix(camera[:3, 3], camera[:3, :3]),
        board=Pose.from_matrix(board[:3, 3], board[:3, :3]),
        pixels_rms=rms,
        position_mm=(_rms(places), float(places.max())),
        rotation_deg=(_rms(angles), float(angles.max())),
        deviation_mm=mm,
        deviation_deg=degrees,
        views=len(views),
        intrinsics=lens,
    )


def _poses(views: Sequence[BoardView]) -> int:
    """Number of poses of the flange that differ from each other."""
    kept: list[Array] = []
    for view in views:
        apart = np.array([np.linalg.inv(one) @ view.flange for one in kept]).reshape(-1, 4, 4)
        near = 1e3 * np.linalg.norm(apart[:, :3, 3], axis=1) < SAME_MM
        if not len(kept) or not (near & (np.degrees(_rotation(apart).magnitude()) < SAME_DEG)).any():
            kept.append(view.flange)
    return len(kept)


def _check_motion(hands: Sequence[Array]) -> None:
    """Refuse rotations about one axis: the camera could be anywhere along it."""
    turns = _rotation([a.T @ b for a, b in combinations([hand[:3, :3] for hand in hands], 2)]).as_rotvec()
    spread = np.linalg.svd(turns, compute_uv=False) / math.sqrt(len(turns))
    if spread[1] < TURNED:
        largest, second = (math.degrees(value) for value in spread[:2])
        got = f"turned by {largest:.0f}° about one axis and {second:.1f}° about others"
        expected = f"{math.degrees(TURNED):.0f}° about two axes at least"
        hint = "Tilt the hand to several sides between pictures"
        raise BadInput("motion between the pictures", got=got, expected=expected, hint=hint)


def _board_in_camera(view: BoardView, lens: Intrinsics) -> Array:
    found, turn, place = cv2.solvePnP(
        view.places, view.pixels, matrix_of(lens), np.array(lens.distortion), flags=cv2.SOLVEPNP_IPPE
    )
    if not found:
        raise BadInput("a picture of the board", got="corners that fit no pose", expected="a flat board")
    return _matrix(np.concatenate([turn, place]).ravel().astype(np.float64))


def _closed_form(hands: Sequence[Array], boards: Sequence[Array]) -> Array:
    """X of all A X = X B."""
    first, second = map(list, zip(*combinations(range(len(hands)), 2), strict=True))
    hand, board = np.array(hands), np.array(boards)
    a, b = np.linalg.inv(hand[second]) @ hand[first], board[second] @ np.linalg.inv(board[first])
    turn = Rotation.align_vectors(_rotation(a).as_rotvec(), _rotation(b).as_rotvec())[0]
    left, right = a[:, :3, :3] - np.eye(3), turn.apply(b[:, :3, 3]) - a[:, :3, 3]
    return pose_matrix(turn.as_matrix(), np.linalg.lstsq(left.reshape(-1, 3), right.ravel(), rcond=None)[0])


def _refine(
    views: Sequence[BoardView], hands: Sequence[Array], lens: Intrinsics, camera: Array, board: Array, *, scaled: bool
) -> tuple[Array, Array, float, Array, float]:
    """Fit X, Z and, if `scaled`, the scale of the board.

    Returns:
      X, Z, the root mean square of the corners' distances [px], the deviations of X (6,) and of the scale, the scale.
    """
    k, distortion = matrix_of(lens), np.array(lens.distortion)

    def residuals(x: Array) -> Array:
        back, there, scale = np.linalg.inv(_matrix(x[:6])), _matrix(x[6:12]), x[12] if scaled else 1.0
        found = []
        for view, hand in zip(views, hands, strict=True):
            turn, place = np.split(_vector(back @ np.linalg.inv(hand) @ there), 2)
            projected, _ = cv2.projectPoints(scale * view.places, turn, place, k, distortion)
            found.append((projected.reshape(-1, 2) - view.pixels).ravel())
        return np.concatenate(found)

    start = np.concatenate([_vector(camera), _vector(board), [1.0] if scaled else []])
    done = least_squares(residuals, start, loss="soft_l1", f_scale=OUTLIER_PX, x_scale="jac")
    apart = residuals(done.x)
    rms = math.sqrt(2.0 * float(np.mean(apart**2)))  # of a corner, which has two coordinates
    variance = 2.0 * float(done.cost) / max(len(apart) - len(start), 1)  # of corners that fit: the loss bends the rest
    deviation = np.sqrt(np.diag(np.linalg.pinv(done.jac.T @ done.jac)) * variance)
    scale = float(done.x[12]) if scaled else 1.0
    return _matrix(done.x[:6]), _matrix(done.x[6:12]), rms, np.concatenate([deviation[:6], deviation[12:]]), scale


def pose_matrix(rotation: Array, place: Array) -> Array:
    """(4, 4) of a rotation (3, 3) and a position (3,)."""
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = rotation, place
    return out


def _matrix(vector: Array) -> Array:
    """(4, 4) of a rotation vector and a position, (6,)."""
    return pose_matrix(Rotation.from_rotvec(vector[:3]).as_matrix(), vector[3:])


def _vector(pose: Array) -> Array:
    return np.concatenate([_rotation(pose).as_rotvec(), pose[:3, 3]])


def _rotation(poses: Array | Sequence[Array]) -> Rotation:
    return Rotation.from_matrix(np.asarray(poses)[..., :3, :3])


def _rms(values: Array) -> float:
    return math.sqrt(float(np.mean(values**2)))
