"""What a stranger's ``meta/info.json`` may not do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert.formats import ReadOptions, reader
from robolearn.data.validate import validate
from robolearn.data.writing.repair import repair


@pytest.mark.parametrize(
    "pattern",
    [
        "../../{chunk_index}-{file_index}",
        "/etc/{chunk_index}{file_index}",
        "data/{chunk_index:0999999999d}/{file_index}",
        "..\\{chunk_index}{file_index}",
        "data/{chunk_index:>99}{file_index}",
    ],
)
def test_a_pattern_that_leads_elsewhere_is_refused_before_it_is_followed(
    plain: Path, copy: Callable[[Path], Path], tmp_path: Path, pattern: str
) -> None:
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"data_path": pattern}))
    for read in (
        lambda: Dataset.open(root),
        lambda: reader("lerobot-v3.0")(root, ReadOptions()),
        lambda: [*validate(root)],
    ):
        with pytest.raises(
            BadInput, match=r"data_path: got .*expected a pattern of chunk_index, file_index, video_key within"
        ):
            read()


def test_counts_that_no_set_has_are_refused(plain: Path, copy: Callable[[Path], Path]) -> None:
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"total_episodes": 10**30}))
    with pytest.raises(BadInput, match="total_episodes: got 1000000000000000000000000000000"):
        repair(root)


def test_more_episodes_than_frames_are_refused_before_they_are_counted(
    plain: Path, copy: Callable[[Path], Path]
) -> None:
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"total_episodes": 10**11}))
    reads = [lambda: repair(root), lambda: [*validate(root)], lambda: reader("lerobot-v3.0")(root, ReadOptions())]
    for read in reads:
        with pytest.raises(
            BadInput, match=r"total_episodes: got 100000000000, expected no more than the \d+ rows of its tables"
        ):
            read()


@pytest.mark.parametrize("key", ["", "images.", "images.x\0y", "images." + "a" * 300])
def test_names_that_no_file_can_have_are_refused(tmp_path: Path, key: str) -> None:
    interface = Interface({key: ArraySpec((64, 64, 3), "uint8")}, ArraySpec((1,)), 10.0)
    with pytest.raises(BadInput, match=r"got a name of \d+ bytes, expected 1 to 200 that may name a file"):
        EpisodeWriter(tmp_path / "set", interface)


def test_a_camera_may_have_braces_in_its_name(tmp_path: Path) -> None:
    interface = Interface({"images.{a}": ArraySpec((64, 64, 3), "uint8")}, ArraySpec((1,)), 10.0)
    with EpisodeWriter(tmp_path / "set", interface, task="lift") as writer:
        for _ in range(3):
            writer.add({"images.{a}": np.zeros((64, 64, 3), np.uint8)}, [0.0])
        writer.end(success=True)
    assert Dataset.open(tmp_path / "set", cache=False).images("{a}").shape == (3, 64, 64, 3)


def test_a_feature_whose_name_no_path_can_have_is_refused(plain: Path, copy: Callable[[Path], Path]) -> None:
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["observation.images.x\0y"] = {"dtype": "video", "shape": [64, 64, 3], "names": None}
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(BadInput, match="got this name, expected one without '/' and"):
        reader("lerobot-v3.0")(root, ReadOptions())
