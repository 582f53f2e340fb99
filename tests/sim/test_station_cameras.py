"""The cameras of a station in its simulated world: where a cube is in their pictures, by hand and by OpenCV."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import mujoco
import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.core.se3 import quat_to_matrix
from robots import PANDA, UR5E
from robots.spec import Pose
from robots.stations import CameraPose, Contract, Intrinsics, load_contract
from sim.embedded.scene import field_of_view
from sim.embedded.world import MujocoWorlds
from sim.registry import make_env
from sim.tasks import TASKS

SIM = load_contract("sim")
# In front of the arm, looking back and down at it (z forward, y down); and one on the flange that looks along it.
LOOK = np.array([[0.0, 0.6, -0.8], [1.0, 0.0, 0.0], [0.0, -0.8, -0.6]])
AT = np.array([1.3, 0.1, 0.9])
LENS = Intrinsics((480, 640), 600.0, 600.0, 320.0, 240.0)


def station() -> Contract:
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, LOOK.reshape(9))
    front = CameraPose("base", Pose(tuple(AT), tuple(quat)))
    wrist = CameraPose("flange", Pose((0.05, 0.0, 0.02), (1.0, 0.0, 0.0, 0.0)))
    cameras = {
        "front": replace(SIM.cameras["front"], crop="center", intrinsics=LENS, pose=front),
        "wrist": replace(SIM.cameras["wrist"], pose=wrist),
    }
    return replace(SIM, cameras=cameras)


def test_a_cube_is_where_opencv_projects_it() -> None:
    assert np.linalg.det(LOOK) == pytest.approx(1.0)
    env = MujocoWorlds(TASKS["lift"](), 1, cameras=("front",), image_size=240, station=station(), threads=1)
    try:
        for seed in (1, 2, 3):
            seen = env.reset(seed=seed)[0]
            names = env.interface.observation["objects"].names
            cube = np.array([seen["objects"][0, names.index(f"cube_{axis}")] for axis in "xyz"], np.float64)
            # x_c = Rᵀ (x − t), projected by the lens, then the middle 480 × 480 resized to 240 × 240
            rotation, _ = cv2.Rodrigues(LOOK.T)
            k = np.array([[600.0, 0, 320.0], [0, 600.0, 240.0], [0, 0, 1.0]])
            (((u, v),),) = cv2.projectPoints(cube[None], rotation, -LOOK.T @ AT, k, None)[0]
            u, v = (u - 80.0) / 2.0, v / 2.0
            picture = seen["images.front"][0].astype(int)
            red = (picture[..., 0] > 1.8 * picture[..., 1]) & (picture[..., 0] > 80)
            rows, columns = np.nonzero(red)
            assert len(rows) > 15, "the cube is seen"
            assert abs(columns.mean() - u) < 2.5 and abs(rows.mean() - v) < 2.5, (u, v, columns.mean(), rows.mean())
    finally:
        env.close()


@pytest.mark.long
@pytest.mark.parametrize(("degrees", "quarters"), [(90, -1), (180, -2), (270, 1)])
def test_a_camera_on_its_side_shows_what_it_sees_upright(degrees: int, quarters: int) -> None:
    """The same place, pose and lens: what the policy gets is the raw picture, turned clockwise."""
    square = Intrinsics((480, 480), 600.0, 600.0, 240.0, 240.0)
    shown = {}
    for turn in (0, degrees):
        made = station()
        front = replace(made.cameras["front"], crop=None, intrinsics=square, rotate=turn)
        made = replace(made, cameras={**made.cameras, "front": front})
        env = MujocoWorlds(TASKS["lift"](), 1, cameras=("front",), image_size=120, station=made, threads=1)
        try:
            shown[turn] = env.reset(seed=3)[0]["images.front"][0].astype(int)
        finally:
            env.close()
    raw, upright = shown[0], shown[degrees]
    apart = np.abs(np.rot90(raw, quarters) - upright).mean()
    assert apart < 2.0 < np.abs(raw - upright).mean() / 5, apart


def test_a_camera_on_the_flange_moves_with_it() -> None:
    env = MujocoWorlds(TASKS["lift"](), 1, cameras=("wrist",), station=station(), threads=1)
    try:
        model, data = env.model, mujoco.MjData(env.model)
        for q in (PANDA.home, np.array(PANDA.home) + 0.2):
            data.qpos[[model.joint(name).qposadr[0] for name in PANDA.joints]] = q
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            link = data.body(model.joint(PANDA.joints[-1]).bodyid[0])
            rotation = quat_to_matrix(link.xquat)
            expected = link.xpos + rotation @ (np.array(PANDA.flange) + np.array([0.05, 0.0, 0.02]))
            np.testing.assert_allclose(data.camera("wrist").xpos, expected, atol=1e-9)
            # MuJoCo's cameras look along −z, with y up.
            np.testing.assert_allclose(
                data.camera("wrist").xmat.reshape(3, 3), rotation @ np.diag([1, -1, -1]), atol=1e-9
            )
    finally:
        env.close()


def test_the_field_of_view_is_that_of_what_is_cut_out() -> None:
    camera = replace(SIM.cameras["front"], intrinsics=LENS)
    whole = np.degrees(2 * np.arctan(240 / 600))
    assert field_of_view(camera) == pytest.approx(whole)
    assert field_of_view(replace(camera, crop="center")) == pytest.approx(whole)
    assert field_of_view(replace(camera, crop=(100, 0, 200, 200))) == pytest.approx(
        np.degrees(2 * np.arctan(100 / 600))
    )
    assert field_of_view(replace(camera, rotate=180)) == pytest.approx(whole)
    lying = replace(camera, rotate=90, intrinsics=replace(LENS, fx=500.0))  # 640 px wide become 640 px high
    assert field_of_view(lying) == pytest.approx(np.degrees(2 * np.arctan(320 / 500)))


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--station sim: got no camera with a pose, expected cameras.<name>.pose"):
        make_env("lift", 1, cameras=("front",), station="sim")
    with pytest.raises(BadInput, match="got one with panda, expected one with ur5e"):
        MujocoWorlds(TASKS["lift"](), 1, robot=UR5E, station=station())
    with pytest.raises(BadInput, match="option station"):
        make_env("gym:robolearn.examples.catch:Catch-v0", 1, station="sim")
