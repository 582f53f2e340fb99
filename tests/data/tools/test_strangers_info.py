"""What a stranger's ``meta/info.json`` may not do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from robolearn.core import BadInput
from robolearn.data import Dataset
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
