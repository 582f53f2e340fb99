"""Features of text and checksums: sets of LeRobot's own recorder with strings, edited here, in LeRobot's reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from robolearn.cli.main import main
from robolearn.data import Dataset
from robolearn.data.validate import validate

HZ, LENGTHS = 20, (6, 4, 5)
ODD = ("", "a\u2028b\u0085c", 'say "hi"\\', "größe 漢字 🦾", "two\nlines")


def said(e: int, t: int) -> str:
    return ODD[(3 * e + t) % len(ODD)]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": ["a", "b"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
        "note": {"dtype": "string", "shape": (1,), "names": None},
    }
    root = tmp_path / "theirs"
    recorder = LeRobotDataset.create("theirs/set", HZ, features, root, robot_type="so101", use_videos=False)
    for e, length in enumerate(LENGTHS):
        for t in range(length):
            numbers = np.array([e, t], np.float32)
            frame = {"observation.state": numbers, "action": numbers / np.float32(10), "note": said(e, t)}
            recorder.add_frame({**frame, "task": "wave"})
        recorder.save_episode()
    recorder.finalize()
    return root


def heard(root: Path) -> list[str]:
    dataset = LeRobotDataset("ours/set", root=root)
    return [dataset[i]["note"] for i in range(len(dataset))]


def test_its_strings_come_through_edits_and_back(theirs: Path, tmp_path: Path) -> None:
    assert list(Dataset.open(theirs).episode(1).texts["note"]) == [said(1, t) for t in range(4)]
    words = ["dataset", "edit", "drop", str(theirs), "--episodes", "1", "--out", str(tmp_path / "dropped")]
    assert main(words) == 0
    assert heard(tmp_path / "dropped") == [said(e, t) for e in (0, 2) for t in range(LENGTHS[e])]
    words = ["dataset", "edit", "merge", str(tmp_path / "dropped"), str(tmp_path / "dropped")]
    assert main([*words, "--out", str(tmp_path / "merged")]) == 0
    assert heard(tmp_path / "merged") == 2 * heard(tmp_path / "dropped")


def test_it_opens_a_set_with_checksums(theirs: Path, tmp_path: Path) -> None:
    assert main(["dataset", "import", str(theirs), "--out", str(tmp_path / "ours")]) == 0
    assert main(["dataset", "checksums", str(tmp_path / "ours")]) == 0
    assert heard(tmp_path / "ours") == [said(e, t) for e, length in enumerate(LENGTHS) for t in range(length)]
    assert not [one for one in validate(tmp_path / "ours") if "checksum" in one.check]
