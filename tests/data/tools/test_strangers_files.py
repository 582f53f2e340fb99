"""Files of strangers: HDF5 that reaches out of itself, and links where a command would write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from robolearn.cli.main import main

SECRET = np.arange(70, dtype=np.float64)  # of a local file that the sender wants to have


def file_of(path: Path) -> Path:
    """One demonstration of ten steps; its observation is whatever a test puts there."""
    with h5py.File(path, "w") as file:
        file["data/demo_0/actions"] = np.zeros((10, 7))
        file["data/demo_0/rewards"] = np.ones(10)
        file["data/demo_0/obs/robot0_eef_pos"] = np.zeros((10, 3))
    return path


def outside(folder: Path) -> Path:
    """An HDF5 file and a file of raw numbers that lie somewhere else."""
    with h5py.File(folder / "elsewhere.hdf5", "w") as file:
        file["secret"] = SECRET.reshape(10, 7)
    (folder / "elsewhere.raw").write_bytes(SECRET.tobytes())
    return folder


def by_link(demo: Any, folder: Path) -> None:
    demo["obs/object"] = h5py.ExternalLink(str(folder / "elsewhere.hdf5"), "/secret")


def by_a_link_to_a_link(demo: Any, folder: Path) -> None:
    demo.file["hidden/away"] = h5py.ExternalLink(str(folder / "elsewhere.hdf5"), "/secret")
    demo["obs/object"] = h5py.SoftLink("/hidden/away")


def by_storage(demo: Any, folder: Path) -> None:
    external = [(str(folder / "elsewhere.raw"), 0, SECRET.nbytes)]
    demo["obs"].create_dataset("object", (10, 7), np.float64, external=external)


def by_view(demo: Any, folder: Path) -> None:
    view = h5py.VirtualLayout((10, 7), np.float64)
    view[:] = h5py.VirtualSource(str(folder / "elsewhere.hdf5"), "secret", (10, 7))
    demo["obs"].create_virtual_dataset("object", view)


@pytest.mark.parametrize("reach", [by_link, by_a_link_to_a_link, by_storage, by_view])
def test_hdf5_that_reaches_out_of_itself_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reach: Callable[[Any, Path], None]
) -> None:
    path = file_of(tmp_path / "demos.hdf5")
    file: Any
    with h5py.File(path, "a") as file:
        reach(file["data/demo_0"], outside(tmp_path))
        assert (file["data/demo_0/obs/object"][()] == SECRET.reshape(10, 7)).all(), "h5py itself follows"
    assert main(["dataset", "import", str(path), "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "elsewhere" in line and "expected everything in the file itself" in line
    assert not (tmp_path / "out").exists()


def test_links_inside_a_file_are_followed(tmp_path: Path) -> None:
    path = file_of(tmp_path / "demos.hdf5")
    with h5py.File(path, "a") as file:
        file["shared"] = SECRET.reshape(10, 7)
        file["data/demo_0/obs/object"] = h5py.SoftLink("/shared")
        file["data/demo_0/itself"] = file["data"]  # a circle
    assert main(["dataset", "import", str(path), "--out", str(tmp_path / "out"), "--json"]) == 0


@pytest.mark.parametrize("words", [["import", "demos.hdf5"], ["export", "lift", "--format", "robomimic"]])
def test_a_link_where_a_command_writes_is_not_followed(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path / "demos.hdf5")
    (tmp_path / "lift").symlink_to(plain)
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "thesis.txt").write_text("years")
    out = "new.hdf5" if words[0] == "export" else "new"
    (tmp_path / f".{out}.part").symlink_to(treasure / "thesis.txt" if words[0] == "export" else treasure)
    assert main(["dataset", *words, "--out", out]) == 2
    assert "a link" in capsys.readouterr().err
    assert (treasure / "thesis.txt").read_text() == "years" and not (tmp_path / out).exists()
