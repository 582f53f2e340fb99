"""Sets that LeRobot's own recorder wrote, in our reader and in `robolearn dataset import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from robolearn.cli.main import main
from robolearn.data import Dataset

HZ = 20
LENGTHS = (6, 9, 4, 7)
SIZE = (48, 64)
TASKS = ("lift the cube", "place it")


def color(e: int, t: int, camera: int) -> int:
    return 20 + (37 * e + 11 * t + 90 * camera) % 200


def record(root: Path, kind: str, scale: float = 1.0) -> Path:
    """Four episodes with LeRobot: of a camera several share an mp4, or they lie as PNG in the tables."""
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    for camera in ("front", "wrist"):
        names = ["height", "width", "channels"]
        features[f"observation.images.{camera}"] = {"dtype": kind, "shape": (*SIZE, 3), "names": names}
    options = {"vcodec": "h264"} if kind == "video" else {}
    theirs = LeRobotDataset.create(
        "theirs/set", HZ, features, root, robot_type="so101", use_videos=kind == "video", **options
    )
    for e, length in enumerate(LENGTHS):
        for t in range(length):
            pictures = {
                f"observation.images.{camera}": np.full((*SIZE, 3), color(e, t, c), np.uint8)
                for c, camera in enumerate(("front", "wrist"))
            }
            action = np.array([e, t], np.float32) * np.float32(scale / 10)
            state = np.array([e, t, -t], np.float32)
            theirs.add_frame({"observation.state": state, "action": action, "task": TASKS[e % 2], **pictures})
        theirs.save_episode()
    theirs.finalize()
    return root


@pytest.fixture(scope="module", params=["video", "image"])
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = record(tmp_path_factory.mktemp(request.param) / "set", request.param)
    count = len(list(root.glob("videos/*/*/*.mp4")))
    assert count == (2 if request.param == "video" else 0), "all episodes of a camera are to be in one file"
    return root


def check(dataset: Dataset, scaled: bool = False) -> None:
    """Every frame is what was recorded; actions too, unless they were `scaled` into [-1, 1]."""
    assert dataset.lengths.tolist() == list(LENGTHS) and sorted(dataset.cameras) == ["front", "wrist"]
    assert dataset.interface.embodiment == "so101" and dataset.interface.control_hz == HZ
    for e, length in enumerate(LENGTHS):
        episode, t = dataset.episode(e), np.arange(length)
        np.testing.assert_array_equal(episode.observation["proprio"], np.stack([0 * t + e, t, -t], 1))
        assert episode.task == TASKS[e % 2]
        if not scaled:
            np.testing.assert_allclose(episode.action, np.stack([0 * t + e, t], 1) / 10, atol=1e-6)
        for c, camera in enumerate(("front", "wrist")):
            shown = episode.observation[f"images.{camera}"].astype(float)
            assert shown.shape == (length, *SIZE, 3)
            assert np.abs(shown.mean((1, 2, 3)) - [color(e, int(i), c) for i in t]).max() < 3.0


def test_it_opens_frame_by_frame(theirs: Path) -> None:
    check(Dataset.open(theirs, cache=False))


def test_the_frame_cache_holds_the_same(theirs: Path, tmp_path: Path) -> None:
    dataset = Dataset.open(theirs, cache=tmp_path / "cache")
    frames = dataset.images("wrist")
    decoded = np.concatenate([Dataset.open(theirs, cache=False).episode(e).observation["images.wrist"]
                              for e in range(len(LENGTHS))])  # fmt: skip
    np.testing.assert_array_equal(np.asarray(frames), decoded)


def test_import_makes_it_one_of_ours(theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ours"
    assert main(["dataset", "import", str(theirs), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == len(LENGTHS)
    check(Dataset.open(out, cache=False))
    assert main(["dataset", "validate", str(out), "--json"]) == 0
    again = LeRobotDataset("ours/set", root=out, video_backend="pyav")  # and back
    assert len(again) == sum(LENGTHS)
    step = again[LENGTHS[0] + 2]
    assert step["observation.state"].tolist() == [1, 2, -2] and step["task"] == TASKS[1]
    assert abs(float(step["observation.images.wrist"].mean()) * 255 - color(1, 2, 1)) < 4.0


def test_actions_in_other_units_come_into_range(tmp_path: Path) -> None:
    root, out = record(tmp_path / "degrees", "image", scale=300.0), tmp_path / "ours"
    assert main(["dataset", "import", str(root), "--out", str(out), "--json"]) == 0
    dataset = Dataset.open(out, cache=False)
    check(dataset, scaled=True)
    assert dataset.action.min() == -1 and dataset.action.max() == 1
    assert dataset.interface.extra["action_scale"] == {"low": [0.0, 0.0], "high": [90.0, 240.0]}
