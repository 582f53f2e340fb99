"""Goals in pictures by a station's cameras: where the goal lies in what the policy is told, projected by OpenCV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import mujoco
import numpy as np
import pytest
import yaml

from policies.wrappers.prompted import PromptedPolicy
from robolearn.cli.main import main
from robots.stations.contract_file import CONTRACTS

EDGE = 120  # [px]
# A camera before the arm that looks back and down at it (z forward, x right, y down), on the base.
LOOK = np.array([[0.0, 0.6, -0.8], [1.0, 0.0, 0.0], [0.0, -0.8, -0.6]])
AT = np.array([1.3, 0.1, 0.9])
FOCAL = 600.0  # [px], of pictures 480 × 640, of which the middle 480 × 480 is seen


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("goal-pictures")


@pytest.fixture(scope="module")
def aimed(folder: Path) -> Path:
    """A policy that is told a picture of the front camera and sees none."""
    shown = ("--task", "lift_to", "--quality", "expert", "--episodes", 2, "--worlds", 2)
    cameras = ("--cameras", "front", "--image-size", EDGE)
    assert run("collect", *shown, *cameras, "--out", folder / "demos", "--json") == 0
    asked = ("--observe", "proprio", "objects", "--goal", "images.front", "--steps", 1, "--batch", 8)
    assert run("train", "--data", folder / "demos", *asked, "--out", folder / "aimed", "--json") == 0
    return folder / "aimed"


def contract(file: Path, **changes: Any) -> Path:
    """The simulated arm's, with a measured front camera, or with `changes` in that camera."""
    content = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, LOOK.reshape(9))
    content["cameras"]["front"] |= {
        "crop": "center",
        "intrinsics": {"size": [480, 640], "fx": FOCAL, "fy": FOCAL, "cx": 320.0, "cy": 240.0},
        "pose": {"parent": "base", "position": AT.tolist(), "quaternion": quat.tolist()},
        **changes,
    }
    file.write_text(yaml.safe_dump(content))
    return file


def where_red(picture: np.ndarray) -> np.ndarray:
    """(column, row) of the middle of what is red: the cube."""
    picture = picture.astype(int)
    rows, columns = np.nonzero((picture[..., 0] > 1.8 * picture[..., 1]) & (picture[..., 0] > 80))
    assert len(rows) > 8, "the cube is seen"
    return np.array([columns.mean(), rows.mean()])


@pytest.mark.long
def test_the_expert_s_ends_are_pictures_by_the_station_s_camera(
    folder: Path, aimed: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, np.ndarray]] = []
    told = PromptedPolicy.seen

    def spy(self: PromptedPolicy, observation: Any) -> Any:
        seen.append({key: np.array(value) for key, value in told(self, observation).items()})
        return seen[-1]

    monkeypatch.setattr(PromptedPolicy, "seen", spy)
    off: dict[bool, np.ndarray] = {}
    for placed in (True, False):
        seen.clear()
        asked = ("evaluate", "--policy", aimed, "--task", "lift_to", "--goals", "expert", "--episodes", 3)
        station = ("--station", contract(folder / "station.yaml")) if placed else ()
        capsys.readouterr()
        assert run(*asked, *station, "--json") == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["success"]["episodes"] == 3
        rotation, _ = cv2.Rodrigues(LOOK.T)  # x_c = Rᵀ (x − t)
        k = np.array([[FOCAL, 0, 320.0], [0, FOCAL, 240.0], [0, 0, 1.0]])
        goal = seen[0]["target"].astype(np.float64)
        pixels = cv2.projectPoints(goal, rotation, -LOOK.T @ AT, k, None)[0][:, 0]
        expected = (pixels - [80.0, 0.0]) * EDGE / 480.0
        found = np.stack([where_red(picture) for picture in seen[0]["goal.images.front"]])
        off[placed] = np.abs(found - expected).max(1)
    assert off[True].max() < 3.0, off  # the fingers hide part of a cube of 6 px
    assert off[False].min() > 5.0, off


@pytest.mark.parametrize(
    ("station", "says"),
    [
        ("no.yaml", "no.yaml"),
        ("parent", "parent"),
        ("lens", "fx"),
        ("empty", "cameras"),
    ],
)
def test_a_station_that_does_not_do_is_one_line(
    folder: Path, aimed: Path, capsys: pytest.CaptureFixture, station: str, says: str
) -> None:
    file = folder / "bad.yaml"
    if station == "parent":
        contract(file, pose={"parent": "ceiling", "position": [0, 0, 1], "quaternion": [1, 0, 0, 0]})
    elif station == "lens":
        contract(file, intrinsics={"size": [480, 640], "fx": "wide", "fy": 600.0, "cx": 320.0, "cy": 240.0})
    elif station == "empty":
        content = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())
        del content["cameras"]["front"]
        file.write_text(yaml.safe_dump(content))
    else:
        file = folder / station
    capsys.readouterr()
    asked = ("evaluate", "--policy", aimed, "--task", "lift_to", "--goals", "expert", "--episodes", 2)
    code = run(*asked, "--station", file)
    err = capsys.readouterr().err.splitlines()
    assert code == 2 and says in err[-1] and sum("error" in line for line in err) == 1, (code, err)
