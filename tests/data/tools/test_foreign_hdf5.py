"""Files as LIBERO, Isaac Lab, ManiSkill and robomimic write them: what is read, what is left out, what is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.data import Dataset

T = 6


def steps(width: int, e: int = 0) -> np.ndarray:
    """(T, width): e + t / 10 + the component / 1000."""
    return e + np.arange(T)[:, None] / 10 + np.arange(width) / 1000


def picture(rows: int = T) -> np.ndarray:
    """The upper half dark, the lower bright."""
    images = np.full((rows, 64, 64, 3), 20, np.uint8)
    images[:, 32:] = 220
    return images


def libero(path: Path) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        kwargs = {"robots": ["Panda"], "control_freq": 20}
        data.attrs["env_args"] = json.dumps({"type": 1, "env_name": "Libero_Kitchen", "env_kwargs": kwargs})
        data.attrs["problem_info"] = json.dumps({"language_instruction": ["open", "the", "drawer"]})
        data.attrs["macros_image_convention"] = "opengl"
        for e in range(2):
            demo = data.create_group(f"demo_{e}")
            demo["actions"] = steps(7) / 10
            demo["rewards"] = demo["dones"] = (np.arange(T) == T - 1).astype(np.uint8)
            demo["states"], demo["robot_states"] = steps(40), steps(9)
            for key, width in {
                "ee_pos": 3,
                "ee_ori": 3,
                "ee_states": 6,
                "gripper_states": 2,
                "joint_states": 7,
            }.items():
                demo[f"obs/{key}"] = steps(width, e)
            demo["obs/agentview_rgb"] = picture()[:, ::-1]


def isaac_lab(path: Path) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Isaac-Stack-Cube-Franka-IK-Rel-v0", "type": 2})
        for e in range(2):
            demo = data.create_group(f"demo_{e}")
            demo.attrs["success"] = e == 0
            demo["actions"] = steps(7) / 10
            for key, width in {"eef_pos": 3, "eef_quat": 4, "gripper_pos": 2, "joint_pos": 9, "object": 39}.items():
                demo[f"obs/{key}"] = steps(width, e).astype(np.float32)
            demo["obs/table_cam"] = picture()
            demo["states/articulation/robot/joint_position"] = steps(9)
            demo["initial_state/rigid_object/cube/root_pose"] = np.zeros((1, 7))


def maniskill(path: Path) -> None:
    kwargs = {"robot_uids": "panda", "control_mode": "pd_ee_delta_pose"}
    path.with_suffix(".json").write_text(json.dumps({"env_info": {"env_id": "PickCube-v1", "env_kwargs": kwargs}}))
    with h5py.File(path, "w") as file:
        for e in range(2):
            demo = file.create_group(f"traj_{e}")
            demo["actions"] = steps(7)[:-1] / 10
            demo["success"] = demo["terminated"] = np.arange(T - 1) == (T - 2 if e else 99)
            demo["truncated"] = np.zeros(T - 1, bool)
            demo["obs/agent/qpos"], demo["obs/agent/qvel"] = steps(9, e), steps(9, e)
            demo["obs/extra/tcp_pose"] = steps(7, e)
            demo["obs/sensor_data/hand/rgb"] = picture()
            demo["obs/sensor_data/hand/depth"] = np.zeros((T, 64, 64, 1), np.int16)


def bring(path: Path, out: Path, capsys: pytest.CaptureFixture[str], *words: Any, code: int = 0) -> Any:
    """The result of importing `path`, or what it says when it is refused."""
    capsys.readouterr()
    assert main(["dataset", "import", str(path), "--out", str(out), *map(str, words), "--json"]) == code
    said = capsys.readouterr()
    return said.err if code else json.loads(said.out.splitlines()[-1])


def test_libero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    libero(tmp_path / "libero.hdf5")
    said = bring(tmp_path / "libero.hdf5", tmp_path / "set", capsys)
    dataset = Dataset.open(tmp_path / "set", cache=False)
    assert dataset.tasks == ["open the drawer"] and dataset.success.all()
    assert (dataset.interface.embodiment, dataset.interface.control_hz) == ("panda", 20)
    expected = np.concatenate([steps(3, 1), steps(3, 1), steps(2, 1)], axis=1)
    np.testing.assert_allclose(dataset.episode(1).observation["proprio"], expected, atol=1e-6)
    assert dataset.interface.observation["proprio"].names[:4] == ("ee_pos.x", "ee_pos.y", "ee_pos.z", "ee_ori.0")
    shown = dataset.episode(0).observation["images.agentview"][0]
    assert shown[:28].mean() < 40 and shown[-28:].mean() > 200, "upright"
    assert "obs/ee_pos + obs/ee_ori + obs/gripper_states → proprio (8)" in said["read"]
    assert "obs/agentview_rgb → images.agentview (64×64×3)" in said["read"]
    left = {"states (1 array)", "robot_states (1 array)", "obs/joint_states (7 float32)", "obs/ee_states (6 float32)"}
    assert set(said["left_out"]) == {*left, "dones: no part of an episode here"} and "rewards → reward" in said["read"]
    assert any("turned upright" in line for line in said["changed"])
    assert any(line.startswith("float64 is stored as float32: ") for line in said["changed"])


def test_a_file_of_two_robots_is_not_the_first_one_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.hdf5"
    with h5py.File(path, "w") as file:
        kwargs = {"robots": ["Panda", "Sawyer"], "control_freq": 20}
        file.create_group("data").attrs["env_args"] = json.dumps({"type": 1, "env_kwargs": kwargs})
        for arm in (0, 1):
            file[f"data/demo_0/obs/robot{arm}_joint_pos"] = steps(7)
            file[f"data/demo_0/obs/robot{arm}_eef_pos"] = steps(3)
            file[f"data/demo_0/obs/robot{arm}_gripper_qpos"] = steps(2)
        file["data/demo_0/actions"] = steps(14) / 10
    said = bring(path, tmp_path / "set", capsys)
    assert "no arm for 2 robots (Panda, Sawyer), which --embodiment names" in said["changed"][-1]
    assert Dataset.open(tmp_path / "set").interface.embodiment == "none"
    said = bring(path, tmp_path / "named", capsys, "--embodiment", "panda_pair")
    assert not any("no arm" in line for line in said["changed"])
    refused = bring(path, tmp_path / "arm", capsys, "--robot", "fr3", code=2)
    assert "got more than one robot: Panda, Sawyer, expected one arm" in refused


def test_what_only_some_episodes_have_and_single_values_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    libero(tmp_path / "libero.hdf5")
    with h5py.File(tmp_path / "libero.hdf5", "a") as file:
        file["data/demo_1/obs/force"], file["data/demo_1/notes/mark"] = steps(2), steps(1)
        file["data/demo_0/horizon"], file["data/demo_0"].attrs["seed"] = 30, 7
        file["data/demo_0/obs/pair"] = np.zeros(T, [("a", "f4"), ("b", "i4")])
    said = bring(tmp_path / "libero.hdf5", tmp_path / "set", capsys)
    assert {
        "notes/mark (1 float64): not in data/demo_0",
        "obs/force (2 float64): not in data/demo_0",
        "horizon (one value an episode)",
        "attributes of the episodes: seed",
    } <= set(said["left_out"])
    assert any(line.startswith("obs/pair (1 [") for line in said["left_out"])


def test_strings_in_the_observations_come_in_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    libero(tmp_path / "libero.hdf5")
    phases = [["reach", "ä\u2028b", ""] * T, ["grasp"] * T]
    with h5py.File(tmp_path / "libero.hdf5", "a") as file:
        for e, said in enumerate(phases):
            file[f"data/demo_{e}/obs"].create_dataset("phase", data=said[:T], dtype=h5py.string_dtype())
        file["data/demo_0/obs/sometimes"] = np.array([b"x"] * T, "S4")
    said = bring(tmp_path / "libero.hdf5", tmp_path / "set", capsys)
    assert "obs/phase → phase (text)" in said["read"]
    assert any(line.startswith("obs/sometimes") for line in said["left_out"])
    (file,) = (tmp_path / "set" / "data").rglob("*.parquet")
    table = pq.read_table(file, columns=["phase", "episode_index"])
    assert table["phase"].to_pylist() == phases[0][:T] + phases[1]
    assert "phase" not in Dataset.open(tmp_path / "set", images=False).interface.observation


def test_isaac_lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    isaac_lab(tmp_path / "stack.hdf5")
    said = bring(tmp_path / "stack.hdf5", tmp_path / "set", capsys, "--embodiment", "panda")
    dataset = Dataset.open(tmp_path / "set", images=False)
    assert dataset.success.tolist() == [True, False] and dataset.interface.observation["objects"].shape == (39,)
    assert dataset.interface.observation["proprio"].names[3:7] == tuple(f"eef_quat.{axis}" for axis in "wxyz")
    assert said["left_out"] == ["initial_state (1 array)", "obs/joint_pos (9 float32)", "states (1 array)"]
    assert any("20 Hz; --hz changes it" in line and "no arm" not in line for line in said["changed"])
    assert "obs/table_cam → images.table_cam (64×64×3)" in said["read"]


def test_maniskill_keeps_what_the_last_action_led_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maniskill(tmp_path / "trajectory.h5")
    said = bring(tmp_path / "trajectory.h5", tmp_path / "set", capsys)
    dataset = Dataset.open(tmp_path / "set", cache=False)
    assert dataset.tasks == ["PickCube-v1"] and dataset.interface.embodiment == "panda"
    assert dataset.lengths.tolist() == [T - 1] * 2 and dataset.success.tolist() == [False, True]
    final = dataset.episode(1).final
    np.testing.assert_allclose(final["proprio"], np.tile(steps(9, 1)[-1], 2), atol=1e-6)
    assert final["images.hand"].shape == (64, 64, 3)
    assert {"obs/extra/tcp_pose (7 float32)", "obs/sensor_data/hand/depth (64×64×1 int16)"} <= set(said["left_out"])


def test_a_user_names_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    libero(path := tmp_path / "libero.hdf5")
    said = bring(path, tmp_path / "set", capsys, "--no-images", "--map", "obs/joint_states=proprio",
                 "gripper_states=proprio", "states=objects", "robot_states=action")  # fmt: skip
    interface = Dataset.open(tmp_path / "set").interface
    assert {key: spec.shape for key, spec in interface.observation.items()} == {"proprio": (9,), "objects": (40,)}
    assert interface.action.shape == (9,) and "obs/ee_pos (3 float32): not asked for" in said["left_out"]
    assert "actions (7 float32)" in said["left_out"]
    wrong = bring(path, tmp_path / "other", capsys, "--map", "obs/joints=proprio", code=2)
    assert "--map: got obs/joints" in wrong and "obs/joint_states" in wrong
    assert "NAME=FEATURE" in bring(path, tmp_path / "other", capsys, "--map", "states", code=2)


def test_a_file_of_unknown_names_is_refused_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File(path := tmp_path / "mine.hdf5", "w") as file:
        file["data/demo_0/actions"], file["data/demo_0/obs/tip"] = steps(2) / 10, steps(3)
    said = bring(path, tmp_path / "set", capsys, code=2)
    assert "got no observation that is known; available: obs/tip" in said and "--map NAME=proprio" in said
    assert not (tmp_path / "set").exists()
    bring(path, tmp_path / "set", capsys, "--map", "obs/tip=proprio")


def test_a_list_of_episodes_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    libero(path := tmp_path / "libero.hdf5")
    with h5py.File(path, "a") as file:
        file["mask/train"], file["mask/bad"] = np.array([b"demo_1"]), np.array([b"demo_0"])
    said = bring(path, tmp_path / "train", capsys, "--no-images", "--filter", "train")
    assert Dataset.open(tmp_path / "train").observation["proprio"][0, 0] == pytest.approx(1.0)
    assert "1 of 2 episodes, which --filter train does not name" in said["left_out"]
    said = bring(path, tmp_path / "all", capsys, "--no-images")
    assert (
        said["episodes"] == 2 and "mask: bad (1), train (1); --filter takes the episodes of one" in said["left_out"][0]
    )
    assert "available: bad, train" in bring(path, tmp_path / "x", capsys, "--filter", "valid", code=2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rewards", "success"),
    [
        (lambda e: (np.arange(T) == T - 1) * float(e), [False, True]),
        (lambda e: (np.arange(T) == T - 1) * 4.0 * e, [False, True]),
        (lambda e: -1.0 + (np.arange(T) == T - 1) * e, [False, True]),
        (lambda e: 0.1 * e + np.arange(T) / 10, None),  # dense: no word on success
        (lambda e: np.zeros(T), None),
    ],
)
def test_what_rewards_say_of_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rewards: Callable[[int], np.ndarray], success: Any
) -> None:
    with h5py.File(path := tmp_path / "demos.hdf5", "w") as file:
        for e in range(2):
            demo = file.create_group(f"data/demo_{e}")
            demo["actions"], demo["obs/robot0_eef_pos"], demo["rewards"] = steps(2) / 10, steps(3, e), rewards(e)
    said = bring(path, tmp_path / "set", capsys)
    dataset = Dataset.open(tmp_path / "set")
    assert dataset.outcomes == (success is not None)
    assert any("outcomes" in line for line in said["left_out"]) == (success is None)
    if success is not None:
        assert dataset.success.tolist() == success
    np.testing.assert_allclose(dataset.episode(1).reward, rewards(1), atol=1e-6)
    bring(path, tmp_path / "said", capsys, "--outcome", "success")
    assert Dataset.open(tmp_path / "said").success.all(), "the person's word goes before what rewards imply"


def test_an_option_without_a_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "npz").mkdir()
    np.savez(path / "0.npz", action=steps(2) / 10, proprio=steps(3))
    said = bring(path, tmp_path / "set", capsys, "--hz", "10", "--filter", "train", code=2)
    assert "--filter with npz: got train, expected none; available: --task, --hz, --embodiment, --action-kind" in said
    assert main(["dataset", "import", str(path), "--hz", "10", "--out", str(tmp_path / "set")]) == 0
    said = bring(tmp_path / "set", tmp_path / "again", capsys, "--map", "a=proprio", "b=action", code=2)
    assert "--map with lerobot-v3.0: got a=proprio b=action, expected none; available: --task" in said


def test_bad_episodes_are_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    libero(path := tmp_path / "libero.hdf5")
    with h5py.File(path, "a") as file:
        for number in (2, 3, 4):
            file.copy("data/demo_1", f"data/demo_{number}")
        file["data/demo_1/actions"][2, 3] = np.nan
        file["data/demo_2/obs/ee_pos"][4, 1] = np.inf
        del file["data/demo_3/obs/ee_ori"]
    refused = bring(path, tmp_path / "set", capsys, "--no-images", code=2)
    assert "demo_1: action at frame 2, component 3: got nan" in refused
    said = bring(path, tmp_path / "set", capsys, "--no-images", "--skip-bad")
    assert said["episodes"] == Dataset.open(tmp_path / "set").episodes == 2
    bad = [line for line in said["left_out"] if "demo_" in line]
    assert not any("--skip-bad" in line for line in bad)
    assert len(bad) == 3 and "no obs/ee_ori" in bad[1] + bad[2] and "inf" in bad[1] + bad[2]
    said = bring(path, tmp_path / "some", capsys, "--no-images", "--episodes", "4,0")
    assert said["episodes"] == 2 and "3 of 5 episodes, which --episodes does not name" in said["left_out"]
    with h5py.File(path, "a") as file:
        for number in (0, 4):
            file[f"data/demo_{number}/actions"][0] = np.nan
    assert "no episode" in bring(path, tmp_path / "none", capsys, "--no-images", "--skip-bad", code=2)
