"""Arrays of timestamps in npz, zarr and HDF5: judged as LeRobot's are, and never an observation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from robolearn.cli.main import main
from robolearn.data import Dataset

T, HZ = 8, 10.0
MOVES = np.sin(np.arange(2 * T))[:, None]
GRID = np.arange(T) / HZ


def npz(folder: Path, stamps: np.ndarray, name: str) -> Path:
    (path := folder / "npz").mkdir()
    for e, clock in enumerate((1e4 + GRID, stamps)):
        np.savez(path / f"{e}.npz", **{"action": MOVES[:T], "proprio": MOVES[:T] + e, name: clock})
    return path


def stored(folder: Path, stamps: np.ndarray, name: str) -> Path:
    group = zarr.open_group(str(path := folder / "set.zarr"), mode="w", zarr_format=2)
    for key, values in {"action": MOVES, "state": MOVES, name: np.concatenate([1e4 + GRID, stamps])}.items():
        group.require_group("data").create_array(key, data=values)
    group.create_group("meta").create_array("episode_ends", data=np.array([T, 2 * T]))
    return path


def hdf5(folder: Path, stamps: np.ndarray, name: str) -> Path:
    with h5py.File(path := folder / "demos.hdf5", "w") as file:
        for e, clock in enumerate((1e4 + GRID, stamps)):
            demo = file.create_group(f"data/demo_{e}")
            demo["actions"], demo["obs/robot0_eef_pos"] = MOVES[:T], np.repeat(MOVES[:T] + e, 3, 1)
            demo[f"obs/{name}" if name == "timestamp" else name] = clock
    return path


Make = Callable[[Path, np.ndarray, str], Path]


def imported(capsys: pytest.CaptureFixture[str], path: Path, *flags: str, code: int = 0) -> Any:
    out = path.parent / f"set-{len(list(path.parent.iterdir()))}"
    assert main(["dataset", "import", str(path), "--hz", "10", "--out", str(out), "--json", *flags]) == code
    said = capsys.readouterr()
    return said.err if code else (json.loads(said.out.splitlines()[-1]), Dataset.open(out))


@pytest.mark.long
@pytest.mark.parametrize("name", ["timestamp", "timestamps"])
@pytest.mark.parametrize("make", [npz, stored, hdf5])
def test_a_gap_and_what_is_no_number_are_refused_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Make, name: str
) -> None:
    path = make(tmp_path, np.where(np.arange(T) < 3, GRID, GRID + 2), name)
    said = imported(capsys, path, code=2)
    assert "frame 3: got off the grid (timestamp 2.3000 s, expected 0.3000 s), expected frame / 10 Hz" in said
    assert "--skip-bad" in said and f"{name}, frame 3" in said
    result, dataset = imported(capsys, path, "--skip-bad")
    (line,) = (line for line in result["left_out"] if "frame 3: got off the grid" in line)
    assert dataset.episodes == 1 and "--skip-bad" not in line and "puts its frames onto the grid" in line


@pytest.mark.parametrize("make", [npz, stored, hdf5])
def test_a_sound_clock_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Make) -> None:
    path = make(tmp_path, 5.0 + GRID + 0.02 * (np.arange(T) == 5), "timestamp")
    assert "frame 5: got off the grid" in imported(capsys, path, code=2)
    result, dataset = imported(capsys, path, "--tolerance-s", "0.05")
    assert list(dataset.observation) == ["proprio"] and dataset.episodes == 2
    assert any("timestamp (1 float64): a clock, for which frame / hz stands" in line for line in result["left_out"])
    assert sum("its timestamps, up to 0.02 s off, are put onto the grid" in line for line in result["changed"]) == 1


@pytest.mark.long
@pytest.mark.parametrize("make", [npz, stored, hdf5])
def test_other_clocks(tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Make) -> None:
    for folder, stamps, says in (
        ("nan", np.where(np.arange(T) == 4, np.nan, GRID), "frame 4: got off the grid (timestamp nan s"),
        ("back", GRID[::-1].copy(), "time goes back"),
    ):
        (tmp_path / folder).mkdir()
        assert says in imported(capsys, make(tmp_path / folder, stamps, "timestamp"), code=2)
    mapped = f"{'obs/' if make is hdf5 else ''}timestamp=objects"
    _, dataset = imported(capsys, tmp_path / "back" / next((tmp_path / "back").iterdir()).name, "--map", mapped)
    assert "objects" in dataset.observation, "the user says that it is something else"


def test_a_clock_of_whole_numbers_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "npz").mkdir()
    for e in range(2):
        ticks = np.arange(T) ** 2
        np.savez(tmp_path / "npz" / f"{e}.npz", action=MOVES[:T], proprio=MOVES[:T] + e, timestamp=ticks)
    result, dataset = imported(capsys, tmp_path / "npz")
    assert list(dataset.observation) == ["proprio"]
    assert "timestamp (1 int64): a clock in a unit that nothing says" in result["left_out"]
