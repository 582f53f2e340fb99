"""Files of robomimic, and folders of npz files, that others made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.data.convert.formats import ReadOptions, guess, reader
from robolearn.data.convert.source import interface_with_images, open_numbers, write_dataset
from robolearn.data.validate import validate

pytestmark = pytest.mark.long


def bring(path: Path, out: Path, **options: Any) -> Path:
    write_dataset(reader(guess(path) or "")(path, ReadOptions(**options)), out)
    assert list(validate(out)) == []
    return out


@pytest.fixture
def robomimic(tmp_path: Path) -> Path:
    """A file as robosuite and robomimic write it."""
    path = tmp_path / "low_dim.hdf5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        env = {"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20, "robots": ["Panda"]}}
        data.attrs["env_args"] = json.dumps(env)
        data.attrs["total"] = 19
        for i, length in ((0, 9), (1, 5), (10, 5)):
            demo = data.create_group(f"demo_{i}")
            demo.attrs["num_samples"] = length
            demo["actions"] = rng.uniform(-1, 1, (length, 7))
            demo["rewards"] = (np.arange(length) == length - 1).astype(float) * (i != 1)
            demo["dones"] = (np.arange(length) == length - 1).astype(int)
            demo["states"] = rng.normal(size=(length, 32))
            demo["obs/robot0_eef_pos"] = rng.normal(size=(length, 3))
            demo["obs/robot0_eef_quat"] = np.full((length, 4), i / 10)
            demo["obs/robot0_gripper_qpos"] = rng.normal(size=(length, 2))
            demo["obs/robot0_joint_pos"] = rng.normal(size=(length, 7))
            demo["obs/object"] = rng.normal(size=(length, 10))
            demo["obs/agentview_image"] = np.full((length, 64, 64, 3), 100 + 5 * i, np.uint8)
        file["mask/train"] = np.array([b"demo_0"])
    return path


def test_robomimic_features_become_ours(robomimic: Path, tmp_path: Path) -> None:
    dataset = open_numbers(bring(robomimic, tmp_path / "out"))
    interface = interface_with_images(dataset)
    assert interface.control_hz == 20 and interface.embodiment == "panda" and dataset.tasks == ["Lift"]
    assert interface.observation["proprio"].names[3:7] == tuple(f"robot0_eef_quat.{axis}" for axis in "xyzw")
    assert interface.observation["images.agentview"].shape == (64, 64, 3)
    assert dataset.lengths.tolist() == [9, 5, 5] and dataset.success.tolist() == [True, False, True]
    with h5py.File(robomimic) as file:
        np.testing.assert_allclose(dataset.episode(2).action, file["data/demo_10/actions"][()], atol=1e-7)
        np.testing.assert_allclose(dataset.episode(2).observation["objects"], file["data/demo_10/obs/object"][()], 1e-6)
    chosen = bring(robomimic, tmp_path / "joints", named=(("robot0_joint_pos", "proprio"),), cameras=())
    assert open_numbers(chosen).interface.observation["proprio"].shape == (7,)


def test_robomimic_with_a_short_feature_names_the_demo(robomimic: Path, tmp_path: Path) -> None:
    with h5py.File(robomimic, "a") as file:
        del file["data/demo_1/obs/object"]
        file["data/demo_1/obs/object"] = np.zeros((4, 10))
    with pytest.raises(BadInput, match=r"demo_1, obs/object: got 4 rows, expected 5 rows"):
        bring(robomimic, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_npz_without_an_interface_is_understood(tmp_path: Path) -> None:
    folder = tmp_path / "push"
    folder.mkdir()
    for i in range(2):
        t = np.arange(6.0)
        np.savez(folder / f"{i}.npz", action=np.stack([t, -t], 1), proprio=np.stack([t] * 3, 1), reward=t == 5, gap=t)
    with pytest.raises(BadInput, match="Say --hz"):
        bring(folder, tmp_path / "out")
    out = tmp_path / "out"
    np.savez(folder / "1.npz", action=np.stack([np.arange(4.0)] * 2, 1), proprio=np.zeros((4, 3)), gap=np.zeros(4))
    dataset = open_numbers(bring(folder, out, hz=5.0, embodiment="so101"))
    assert dataset.interface.control_hz == 5 and dataset.tasks == ["push"] and dataset.success.tolist() == [True, False]
    assert dataset.interface.extra["action_scale"] == {"low": [0.0, -5.0], "high": [5.0, 3.0]}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: np.savez(f, proprio=np.zeros((3, 2))), "no array 'action'"),
        (lambda f: np.savez(f, action=np.zeros((3, 5))), r"action: got \(3, 5\)"),
        (lambda f: np.savez(f, action=np.zeros((3, 2)), reward=np.zeros(2)), r"reward: got \(2,\)"),
        (lambda f: np.savez(f, action=np.array([[0, np.nan]])), "action at frame 0, component 1: got nan"),
        (lambda f: np.savez(f, action=np.array([{}], dtype=object)), "unreadable"),
        (lambda f: f.write_bytes(b"PK\x03\x04 nothing"), "unreadable"),
    ],
)
def test_npz_files_that_do_not_fit_are_named(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    np.savez(folder / "0.npz", action=np.zeros((3, 2)))
    damage(folder / "1.npz")
    with pytest.raises(BadInput, match=rf"1\.npz.*{message}"):
        bring(folder, tmp_path / "out", hz=10.0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "whole"), [("float64", 2**53), ("float32", 2**53), ("float32", -(2**53))])
def test_npz_whole_numbers_are_not_rounded_by_the_floats_of_another_file(tmp_path: Path, kind: str, whole: int) -> None:
    (folder := tmp_path / "set").mkdir()
    moves = np.sin(np.arange(6.0))[:, None]
    np.savez(folder / "0.npz", action=moves, count=np.arange(6, dtype=kind))
    np.savez(folder / "1.npz", action=moves, count=whole + np.arange(0, 12, 2))
    dataset = open_numbers(bring(folder, tmp_path / "even", hz=10.0))
    assert dataset.episode(1).observation["count"].ravel().tolist() == [whole + n for n in range(0, 12, 2)]
    odd = whole + (1 if whole > 0 else -1)
    np.savez(folder / "1.npz", action=moves, count=np.where(np.arange(6) == 4, odd, whole))
    with pytest.raises(BadInput, match=rf"1\.npz: count at frame 4: got {odd}, expected a number that float64 holds"):
        bring(folder, tmp_path / "odd", hz=10.0)
    np.savez(folder / "0.npz", action=moves, count=np.arange(6))
    dataset = open_numbers(bring(folder, tmp_path / "whole", hz=10.0))
    assert dataset.episode(1).observation["count"].ravel()[4] == odd


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30, 1.7, 0.4, -1])
@pytest.mark.parametrize("fact", ["success", "terminated", "truncated", "intervention"])
def test_npz_facts_that_are_no_truth_values_are_refused(tmp_path: Path, fact: str, value: float) -> None:
    (tmp_path / "push").mkdir()
    said = np.array([0, 0, value, 0])
    np.savez(tmp_path / "push" / "0.npz", action=np.zeros((4, 2)), proprio=np.eye(4), **{fact: said})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=rf"0\.npz: {fact}: got .*, expected truth values, 0 or 1"):
        bring(tmp_path / "push", tmp_path / "set", hz=10.0)


def test_words_are_no_truth_values(tmp_path: Path) -> None:
    (tmp_path / "push").mkdir()
    np.savez(tmp_path / "push" / "0.npz", action=np.zeros((4, 2)), proprio=np.eye(4), intervention=["False"] * 4)
    with pytest.raises(BadInput, match=r"0\.npz: intervention: got <U5, expected truth values"):
        bring(tmp_path / "push", tmp_path / "set", hz=10.0)


@pytest.mark.parametrize("fact", ["success", "terminated", "interventions"])
def test_facts_in_hdf5_that_are_no_truth_values_are_refused(robomimic: Path, tmp_path: Path, fact: str) -> None:
    with h5py.File(robomimic, "a") as file:
        demo: Any = file["data/demo_0"]
        if fact in demo:
            del demo[fact]
        demo.attrs.pop(fact, None)
        demo[fact] = np.full(len(demo["actions"]), 0.4)
    with pytest.raises(BadInput, match=rf"demo_0, {fact}: got 0\.4, expected truth values, 0 or 1"):
        bring(robomimic, tmp_path / "set")
