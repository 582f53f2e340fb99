"""Pictures of a board by casting a ray through each pixel, and the flange by MuJoCo: nothing of what is tested."""

from __future__ import annotations

from functools import cache

import cv2
import mujoco
import numpy as np

from hardware.calibration import Board, Shot
from robots import FR3, solve

LENS = {"size": (480, 640), "fx": 610.0, "fy": 608.0, "cx": 322.5, "cy": 236.5}
LENS["distortion"] = (0.05, -0.1, 0.0008, -0.0006, 0.02)
FLANGE_Z = 0.107  # of the last link's frame
FINE = 2  # rays a pixel and axis


def pose(place: list[float], turn: list[float]) -> np.ndarray:
    """(4, 4) of a position [m] and a rotation vector [rad]."""
    out = np.eye(4)
    out[:3, :3], _ = cv2.Rodrigues(np.array(turn, dtype=np.float64))
    out[:3, 3] = place
    return out


@cache
def _model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(FR3.mjcf))


def flange(q: np.ndarray) -> np.ndarray:
    """(4, 4) pose of the FR3's flange in its base, by MuJoCo."""
    model = _model()
    data = mujoco.MjData(model)
    for name, value in zip(FR3.joints, q, strict=True):
        data.qpos[model.joint(name).qposadr[0]] = value
    mujoco.mj_kinematics(model, data)
    out = np.eye(4)
    out[:3, :3] = data.body("fr3_link7").xmat.reshape(3, 3)
    out[:3, 3] = data.body("fr3_link7").xpos + FLANGE_Z * out[:3, 2]
    return out


@cache
def _rays() -> np.ndarray:
    """(N, 3) direction of the ray through each fine pixel, row by row, with z = 1."""
    height, width = LENS["size"]
    k = np.array([[LENS["fx"], 0, LENS["cx"]], [0, LENS["fy"], LENS["cy"]], [0, 0, 1]])
    steps = (np.arange(FINE) + 0.5) / FINE - 0.5
    u = (np.arange(width)[:, None] + steps).ravel()
    v = (np.arange(height)[:, None] + steps).ravel()
    pixels = np.stack(np.meshgrid(u, v), -1).reshape(-1, 1, 2)
    exact = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 50, 1e-12)
    rays = cv2.undistortPoints(pixels, k, np.array(LENS["distortion"]), None, None, None, exact)
    return np.concatenate([rays.reshape(-1, 2), np.ones((len(rays), 1))], 1)


@cache
def _sheet(board: Board, per_square: int) -> np.ndarray:
    return cv2.copyMakeBorder(board.draw(per_square), 100, 100, 100, 100, cv2.BORDER_CONSTANT, value=255)


def render(board: Board, seen: np.ndarray, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """(480, 640, 3) picture of a board at `seen` (4, 4) in the camera, on grey; `noise` of a grey value."""
    height, width = LENS["size"]
    rays = _rays()
    # Where the ray meets the plane z = 0 of the board: n · (s d) = n · o.
    normal, origin = seen[:3, 2], seen[:3, 3]
    share = (normal @ origin) / (rays @ normal)
    places = (rays * share[:, None] - origin) @ seen[:3, :3]
    per_square = 200
    sheet = _sheet(board, per_square)
    where = places[:, :2] / board.square * per_square + 100 - 0.5
    shape = (height * FINE, width * FINE)
    maps = [where[:, i].reshape(shape).astype(np.float32) for i in (0, 1)]
    fine = cv2.remap(sheet, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=128)
    fine[share.reshape(shape) < 0] = 128
    grey = fine.reshape(height, FINE, width, FINE).mean((1, 3))
    grey = grey + np.random.default_rng(seed).normal(0, noise, grey.shape)
    return np.repeat(np.clip(np.rint(grey), 0, 255).astype(np.uint8)[..., None], 3, -1)


def looking_at(place: np.ndarray, target: np.ndarray, roll: float) -> np.ndarray:
    """(4, 4) camera at `place`, its z axis towards `target`, turned by `roll` about it."""
    z = (target - place) / np.linalg.norm(target - place)
    x = np.cross([0.0, 1.0, 0.0], z)
    x /= np.linalg.norm(x)
    out = np.eye(4)
    out[:3, :3] = np.stack([x, np.cross(z, x), z], 1) @ pose([0, 0, 0], [0, 0, roll])[:3, :3]
    out[:3, 3] = place
    return out


def reach(goal: np.ndarray) -> np.ndarray | None:
    """Joint positions with the flange at `goal` (4, 4), or None."""
    home = np.array(FR3.home)
    q = home[None]
    for _ in range(150):
        q = solve(FR3.flange_chain, q, goal[None, :3, 3], goal[None, :3, :3], rest=home)
    off = np.abs(flange(q[0]) - goal).max()
    return q[0] if off < 5e-3 else None


def session(
    board: Board,
    camera: np.ndarray,
    still: np.ndarray,
    parent: str,
    count: int = 15,
    *,
    one_axis: bool = False,
    noise: float = 2.0,
    seed: int = 0,
) -> list[Shot]:
    """Pictures of a board at `still` (in the base, or on the flange) by a camera at `camera` in its parent."""
    rng = np.random.default_rng(seed)
    middle = np.array([*np.array(board.size) / 2, 0.0])
    shots: list[Shot] = []
    tries = 0
    while len(shots) < count and tries < 40 * count:
        tries += 1
        side = rng.uniform(-0.14, 0.14, 2) if not one_axis else np.zeros(2)
        away = rng.uniform(0.28, 0.42)
        roll = rng.uniform(-0.5, 0.5)
        # The camera in the frame of the board: in front of it (z of the board points away), looking at its middle.
        view = looking_at(middle + np.array([*side, -away]), middle, roll)
        if parent == "flange":
            goal = still @ view @ np.linalg.inv(camera)
        else:
            goal = camera @ np.linalg.inv(view) @ np.linalg.inv(still)
        if (q := reach(goal)) is None:
            continue
        at = flange(q)
        seen = np.linalg.inv(at @ camera) @ still if parent == "flange" else np.linalg.inv(camera) @ at @ still
        shots.append(Shot(render(board, seen, noise, seed + len(shots)), tuple(q.tolist())))
    assert len(shots) == count, f"{len(shots)} postures reached"
    return shots
