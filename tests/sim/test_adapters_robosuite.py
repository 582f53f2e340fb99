"""robosuite's Lift behind `Env`, on the MuJoCo that is installed."""

from __future__ import annotations

import os
import subprocess
import sys

import mujoco
import numpy as np
import pytest

from robolearn.core import BadInput
from sim.adapters import make_robosuite, raw_single
from sim.adapters.robosuite_env import RobosuiteSingle

pytestmark = pytest.mark.long


def test_lift_steps_in_two_workers():
    env = make_robosuite("robosuite:Lift", 2, workers=2, max_episode_steps=12)
    try:
        assert (env.interface.control_hz, env.max_episode_steps, env.interface.embodiment) == (20.0, 12, "panda")
        first, _ = env.reset(seed=1)
        assert first["proprio"].shape[0] == 2 and first["objects"].shape[1] == 10
        assert not np.array_equal(first["objects"][0], first["objects"][1])

        chunks = np.zeros((2, 8, 7), np.float32)
        chunks[0, :, 2] = -1.0  # world 0 goes down
        after, *_ = env.step_chunk(chunks)
        assert np.abs(after["proprio"][0] - first["proprio"][0]).max() > 0.05
        _, _, terminated, truncated, infos = env.step_chunk(chunks)
        assert infos["steps"].tolist() == [4, 4] and truncated.all() and not terminated.any()
        assert not np.array_equal(infos["final_obs"]["objects"], first["objects"])

        again, _ = env.reset(seed=1)
        for key in first:
            np.testing.assert_array_equal(again[key], first[key])
        repeated, *_ = env.step_chunk(chunks)
        for key in after:
            np.testing.assert_array_equal(repeated[key], after[key])
    finally:
        env.close()


def test_success_terminates_and_mujoco_is_left_alone():
    before = {name: getattr(mujoco, name) for name in ("mjtJoint", "mj_fullM")}
    raw = raw_single("robosuite:Lift", seed=0)
    assert {name: getattr(mujoco, name) for name in before} == before
    single = RobosuiteSingle(raw, "robosuite:Lift", "Panda")
    single.reset(seed=0)
    _, reward, terminated, truncated, info = single.step(np.zeros(7, np.float32))
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)

    # The controller's inertia matrix is MuJoCo's own.
    raw.sim.forward()
    model, data = raw.sim.model._model, raw.sim.data._data
    dense = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, dense)
    arm = raw.robots[0].part_controllers["right"]
    arm.update(force=True)
    index = arm.qvel_index
    np.testing.assert_allclose(arm.mass_matrix, dense[np.ix_(index, index)], rtol=1e-9)

    cube = raw.cube.joints[0]
    raw.sim.data.set_joint_qpos(cube, np.array([0, 0, 1.2, 1, 0, 0, 0]))
    _, reward, terminated, truncated, info = single.step(np.zeros(7, np.float32))
    assert reward == 1.0 and terminated and not truncated and info["success"]
    single.close()


def test_cameras_of_robosuite_are_observed():
    env = make_robosuite("robosuite:Lift", 2, workers=2, cameras=("agentview", "robot0_eye_in_hand"), image_size=40)
    try:
        first, _ = env.reset(seed=0)
        views = first["images.agentview"], first["images.robot0_eye_in_hand"]
        assert all(view.shape == (2, 40, 40, 3) and view.dtype == np.uint8 and view.std() > 10 for view in views)
        assert np.abs(views[0].astype(int) - views[1]).mean() > 5
        action = np.zeros((2, env.interface.action.size), np.float32)
        action[:, 2] = -1.0
        moved = env.step(action)[0]["images.robot0_eye_in_hand"].copy()
        for _ in range(3):
            moved = env.step(action)[0]["images.robot0_eye_in_hand"].copy()
        assert np.any(moved != views[1])
    finally:
        env.close()
    with pytest.raises(BadInput, match=r"camera of robosuite:Lift: got agentvew.*did you mean agentview"):
        make_robosuite("robosuite:Lift", 1, workers=0, cameras=("agentvew",))


def test_bad_names_and_quiet_import():
    with pytest.raises(BadInput, match="did you mean Lift"):
        make_robosuite("robosuite:Lifd", 2)
    with pytest.raises(BadInput, match="did you mean Panda"):
        make_robosuite("robosuite:Lift", 1, workers=0, robot="Pandah")
    with pytest.raises(BadInput, match="robosuite:<Name>"):
        make_robosuite("robosuite:", 1)
    code = "import os; from sim.adapters import raw_single; raw_single('robosuite:Lift').reset()"
    code += "; print(os.environ['MUJOCO_GL'])"  # robosuite would set its own
    environment = os.environ | {"MUJOCO_GL": "disabled"}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert (done.stdout, done.stderr) == ("disabled\n", "")


def test_missing_robosuite_says_how_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install"):
        make_robosuite("robosuite:Lift", 1)
