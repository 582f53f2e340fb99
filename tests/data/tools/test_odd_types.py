"""Columns of types that no set has, and values of JSON that are none: refused by name, or read, never a traceback."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "programs"))
from fuzz_sets import KINDS

from robolearn.core import RobolearnError
from robolearn.data import Dataset
from robolearn.data.convert.formats import ReadOptions, reader
from robolearn.data.convert.source import write_dataset
from robolearn.data.lerobot import layout
from robolearn.data.validate import validate

EPISODES, TASKS, DATA = (
    "meta/episodes/chunk-000/file-000.parquet",
    "meta/tasks.parquet",
    "data/chunk-000/file-000.parquet",
)
PLACES = [(EPISODES, name) for name in ("episode_index", "length", "data/chunk_index", "dataset_from_index")]
PLACES += [(TASKS, "task_index")]
PLACES += [
    (DATA, name) for name in ("episode_index", "frame_index", "task_index", "timestamp", "observation.state", "action")
]


def refused_or_read(root: Path, tmp_path: Path) -> None:
    """Raise what is neither."""
    out = tmp_path / "out"
    for use in (
        lambda: Dataset.open(root),
        lambda: list(validate(root)),
        lambda: write_dataset(reader("lerobot-v3.0")(root, ReadOptions()), out),
    ):
        try:
            use()
        except RobolearnError as error:
            assert len(str(error)) < 2000
    shutil.rmtree(out, ignore_errors=True)


@pytest.mark.long
@pytest.mark.parametrize(("file", "column"), PLACES)
def test_columns_of_other_types(
    plain: Path, copy: Callable[[Path], Path], tmp_path: Path, file: str, column: str
) -> None:
    root = copy(plain)
    table = pq.read_table(root / file)
    for make in KINDS.values():
        pq.write_table(table.set_column(table.column_names.index(column), column, make(table.num_rows)), root / file)
        refused_or_read(root, tmp_path)


def test_numbers_are_not_rounded_on_the_way_in(plain: Path, copy: Callable[[Path], Path]) -> None:
    root = copy(plain)
    table = pq.read_table(root / DATA)
    for kind, got in (("NaN", "nan"), ("1.7", "1.7")):
        odd = table.set_column(table.column_names.index("task_index"), "task_index", KINDS[kind](table.num_rows))
        pq.write_table(odd, root / DATA)
        with pytest.raises(RobolearnError, match=rf"task_index: got {got}, expected numbers that are int64"):
            Dataset.open(root)


BEGIN, CHUNK = (f"videos/observation.images.front/{name}" for name in ("from_timestamp", "chunk_index"))


@pytest.mark.long
@pytest.mark.parametrize(("column", "kind"), [(BEGIN, k) for k in ("text", "null", "time", "struct", "NaN")]
                         + [(CHUNK, k) for k in ("text", "null", "time")])  # fmt: skip
def test_places_of_pictures_of_other_types(
    filmed: Path, copy: Callable[[Path], Path], tmp_path: Path, column: str, kind: str
) -> None:
    root = copy(filmed)
    table = pq.read_table(root / EPISODES)
    odd = table.set_column(table.column_names.index(column), column, KINDS[kind](table.num_rows))
    pq.write_table(odd, root / EPISODES)
    refused_or_read(root, tmp_path)
    with pytest.raises(RobolearnError, match=f"meta/episodes.*{column}"):
        Dataset.open(root)


def test_a_place_is_a_whole_number() -> None:
    row = {"episode_index": 0, "data/chunk_index": 1.0, "data/file_index": 1.7}
    with pytest.raises(RobolearnError, match=r"data/file_index: got 1\.7, expected a whole number"):
        layout.file_of({}, row)
    assert layout.file_of({}, row | {"data/file_index": 2.0}) == "data/chunk-001/file-002.parquet"


@pytest.mark.long
def test_sets_of_strangers_drawn_at_random() -> None:
    """150 of the 3,900 cases of the program, others after each change of the date."""
    program = Path(__file__).parents[2] / "programs" / "fuzz_sets.py"
    seed = datetime.date.today().toordinal()
    command = [sys.executable, str(program), "--cases", "150", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"--seed {seed}: {done.stdout}{done.stderr[-2000:]}"


def test_a_table_without_its_episodes(plain: Path, copy: Callable[[Path], Path], tmp_path: Path) -> None:
    root = copy(plain)
    pq.write_table(pq.read_table(root / DATA).drop_columns(["episode_index"]), root / DATA)
    refused_or_read(root, tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("observation", "proprio", "dtype"), "x"),
        (("observation", "proprio", "dtype"), "\ud800"),
        (("observation", "proprio", "names", 0), "\ud800"),
        (("control_hz",), 10**30),
        (("extra", "gripper"), float("nan")),
    ],
)
def test_interfaces_that_are_none(
    plain: Path, copy: Callable[[Path], Path], tmp_path: Path, path: tuple[str | int, ...], value: Any
) -> None:
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text())
    place: Any = info["robolearn_interface"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (root / "meta/info.json").write_text(json.dumps(info))
    refused_or_read(root, tmp_path)
    with pytest.raises(RobolearnError):
        Dataset.open(root)


@pytest.mark.long
@pytest.mark.parametrize("key", ["fps", "total_episodes", "features", "data_path", "robot_type", "robolearn_interface"])
def test_values_of_other_types(plain: Path, copy: Callable[[Path], Path], tmp_path: Path, key: str) -> None:
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text())
    own = [{**info[key], name: float("nan")} for name in info[key]] if key == "robolearn_interface" else []
    for value in (None, True, -1, 1.5, float("nan"), 10**30, "x", [], {}, {"a": 1}, [[1]], *own):
        (root / "meta/info.json").write_text(json.dumps(info | {key: value}))
        refused_or_read(root, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("value", [10**30, "x", None, {"a": 1}, [[1], [1, 2]]])
def test_statistics_of_other_types(plain: Path, copy: Callable[[Path], Path], tmp_path: Path, value: Any) -> None:
    root = copy(plain)
    stats = json.loads((root / "meta/stats.json").read_text())
    for name in ("count", "mean"):
        (root / "meta/stats.json").write_text(json.dumps(stats | {"action": stats["action"] | {name: value}}))
        refused_or_read(root, tmp_path)
