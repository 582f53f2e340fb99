"""Cameras without colours in files of arrays: taken where the user names them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from robolearn.cli.main import main
from robolearn.data import Dataset

T = 6
MOVES = np.sin(np.arange(T))[:, None]


def seen(last: tuple[int, ...]) -> np.ndarray:
    """The upper half 40, the lower from 100 on, by 20 brighter each frame."""
    pictures = np.full((T, 48, 64), 40, np.uint8)
    pictures[:, 24:] = 100 + 20 * np.arange(T)[:, None, None]
    return pictures.reshape(T, 48, 64, *last)


def npz(folder: Path, pictures: np.ndarray) -> tuple[Path, str]:
    (path := folder / "npz").mkdir()
    np.savez(path / "0.npz", action=MOVES, proprio=MOVES, grey=pictures)
    return path, "grey"


def stored(folder: Path, pictures: np.ndarray) -> tuple[Path, str]:
    group = zarr.open_group(str(path := folder / "set.zarr"), mode="w", zarr_format=2)
    for key, values in {"action": MOVES, "state": MOVES, "grey": pictures}.items():
        group.require_group("data").create_array(key, data=values)
    group.create_group("meta").create_array("episode_ends", data=np.array([T]))
    return path, "grey"


def hdf5(folder: Path, pictures: np.ndarray) -> tuple[Path, str]:
    with h5py.File(path := folder / "demos.hdf5", "w") as file:
        file["data/demo_0/actions"], file["data/demo_0/obs/grey"] = MOVES, pictures[:, ::-1]
        file["data/demo_0/obs/robot0_eef_pos"] = np.repeat(MOVES, 3, 1)
        file["data"].attrs["macros_image_convention"] = "opengl"
    return path, "obs/grey"


@pytest.mark.parametrize("last", [(), (1,)])
@pytest.mark.parametrize("make", [npz, stored, hdf5])
def test_a_grey_camera_is_stored_as_three_equal_colours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable, last: tuple[int, ...]
) -> None:
    path, name = make(tmp_path, seen(last))
    words = ["dataset", "import", str(path), "--hz", "10", "--map", f"{name}=images.grey", "--json", "--out"]
    assert main([*words, str(tmp_path / "set")]) == 0, capsys.readouterr().err
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert f"{name}, which is grey, is stored as three equal colours" in result["changed"]
    assert f"{name} → images.grey (48×64×3)" in result["read"]
    pictures = np.asarray(Dataset.open(tmp_path / "set").episode(0).observation["images.grey"]).astype(int)
    assert pictures.shape == (T, 48, 64, 3)
    assert np.abs(pictures - seen((1,)))[:, [*range(20), *range(28, 48)]].max() < 12


def test_depth_is_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, name = npz(tmp_path, seen(()).astype(np.uint16))
    words = ["dataset", "import", str(path), "--hz", "10", "--map", f"{name}=images.grey", "--out"]
    assert main([*words, str(tmp_path / "set")]) == 2
    assert "got 48×64 uint16, expected (T, H, W, 3) uint8, or (T, H, W) where it is grey" in capsys.readouterr().err
