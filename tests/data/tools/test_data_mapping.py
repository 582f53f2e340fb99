"""Which features are observations, in which kind of number, and the tasks of frames: one answer wherever a set goes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert.source import interface_with_images, open_numbers
from robolearn.data.lerobot.features import INTERFACE_KEY
from robolearn.data.validate import validate
from robolearn.data.writing.repair import repair
from robolearn.data.writing.steps import read_journal

DATA = "data/chunk-000/file-000.parquet"
CLOCK = 1.7e9 + np.arange(14) / 30 + 1e-7  # [s]; float32 has 128 s between two of these
COUNT = (1 << 53) + 1 + np.arange(14)  # beyond what float64 counts
LENGTHS = (8, 6)
ADDED = ("clock", "count", "ready", "pose")


def feature(dtype: str, *shape: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "names": None}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Two episodes as another maker writes them: a clock, a count, a flag, a matrix, and a task that changes."""
    interface = Interface({"proprio": ArraySpec((2,))}, ArraySpec((2,)), 30.0)
    root = tmp_path / "theirs"
    with EpisodeWriter(root, interface) as writer:
        for length in LENGTHS:
            for t in range(length):
                writer.add({"proprio": [t, -t]}, [t / 10, 0.0])
            writer.end(success=False, truncated=True, task="reach")
    info = json.loads((root / "meta/info.json").read_text())
    del info[INTERFACE_KEY]
    info["features"]["action"].pop("info", None)  # which holds the interface
    matrix = np.arange(14 * 6, dtype=np.float32).reshape(14, 2, 3)
    columns: dict[str, pa.Array] = {
        "clock": pa.array(CLOCK),
        "count": pa.array(COUNT),
        "ready": pa.array(np.arange(14) % 2 == 0),
        "pose": pa.array(matrix.tolist(), pa.list_(pa.list_(pa.float32()))),
    }
    kinds = (feature("float64", 1), feature("int64", 1), feature("bool", 1), feature("float32", 2, 3))
    table = pq.read_table(root / DATA)
    for (name, values), kind in zip(columns.items(), kinds, strict=True):
        table = table.append_column(f"observation.{name}", values)
        info["features"][f"observation.{name}"] = kind
    spoken = table["task_index"].to_pylist()
    spoken[5:8] = [1, 1, 1]  # the end of episode 0
    table = table.set_column(table.column_names.index("task_index"), "task_index", pa.array(spoken, pa.int64()))
    pq.write_table(table, root / DATA)
    tasks = pq.read_table(root / "meta/tasks.parquet")
    more = pa.table([pa.array([1], pa.int64()), pa.array(["grasp"])], schema=tasks.schema)
    pq.write_table(pa.concat_tables([tasks, more]), root / "meta/tasks.parquet")
    (root / "meta/info.json").write_text(json.dumps(info | {"total_tasks": 2}))
    return root


def check(dataset: Dataset) -> None:
    """Nothing is lost, not a digit."""
    assert list(dataset.observation) == ["proprio", *ADDED]
    assert dataset.observation["clock"].ravel().tolist() == CLOCK.tolist()
    assert dataset.observation["count"].ravel().tolist() == COUNT.tolist()
    assert dataset.observation["ready"].dtype == bool and dataset.observation["ready"].ravel().tolist()[:3] == [1, 0, 1]
    assert dataset.observation["pose"].shape == (14, 2, 3) and dataset.observation["pose"][1, 1, 2] == 11
    assert dataset.interface.observation["pose"].shape == (2, 3)
    assert [dataset.tasks[i] for i in dataset.task_index] == ["reach"] * 5 + ["grasp"] * 3 + ["reach"] * 6
    assert dataset.episode(0).frame_tasks == ("reach",) * 5 + ("grasp",) * 3 and dataset.episode(1).frame_tasks == ()


WAYS: dict[str, Callable[[Path, Path], list[list[str]]]] = {
    "open": lambda root, out: [],
    "import": lambda root, out: [["import", str(root)]],
    "drop": lambda root, out: [["edit", "drop", str(root), "--keep", "0-1"]],
    "merge and drop": lambda root, out: [
        ["edit", "merge", str(root), str(root)],
        ["edit", "drop", f"{out}-0", "--episodes", "2-3"],
    ],
    "npz": lambda root, out: [["export", str(root), "--format", "npz"], ["import", f"{out}-0"]],
    "v2.1": lambda root, out: [["export", str(root), "--format", "lerobot-v2.1"], ["import", f"{out}-0"]],
    "robomimic": lambda root, out: [["export", str(root), "--format", "robomimic"], ["import", f"{out}-0.hdf5"]],
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_set_is_the_same_wherever_it_goes(theirs: Path, tmp_path: Path, way: str) -> None:
    out = tmp_path / "out"
    if way == "robomimic":
        pytest.importorskip("h5py")
    place = theirs
    for number, words in enumerate(WAYS[way](theirs, out)):
        place = Path(f"{out}-{number}.hdf5" if "robomimic" in words else f"{out}-{number}")
        assert main(["dataset", *words, "--out", str(place), "--json"]) == 0, words
    check(open_numbers(place))
    if place != theirs:
        assert [finding for finding in validate(place) if finding.check != "duplicate episode"] == []


def test_what_is_lost_is_said(theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = json.loads((theirs / "meta/info.json").read_text())
    info["features"]["action"]["dtype"] = "float64"
    info["features"]["observation.words"] = feature("string", 2)
    (theirs / "meta/info.json").write_text(json.dumps(info))
    assert main(["dataset", "import", str(theirs), "--out", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["left_out"] == ["observation.words (string)"] and "observation.pose → pose (2×3)" in said["read"]
    assert said["changed"] == [
        "observation.pose is stored row by row, as one vector",
        "the actions, which are float64, are stored as float32",
        "these components of the action never change: 1",
        "these components of clock hardly change: 0 (by 0.43 at most)",
        "these components of count hardly change: 0 (by 14 at most)",
    ]
    words = ["dataset", "edit", "drop", str(theirs), "--keep", "0", "--out", str(tmp_path / "kept"), "--json"]
    assert main(words) == 0, "an edit says it, too"
    assert "observation.words (string)" in json.loads(capsys.readouterr().out.splitlines()[-1])["left_out"]


def test_an_edit_of_frames_and_of_tasks_keeps_the_tasks_of_the_others(theirs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["dataset", "edit", "crop", str(theirs), "--start", "2", "--end", "1", "--out", str(out)]) == 0
    cropped = open_numbers(out)
    assert cropped.episode(0).frame_tasks == ("reach",) * 3 + ("grasp",) * 2
    words = ["--task", "grasp", "--to", "close the hand", "--out", f"{out}-2"]
    assert main(["dataset", "edit", "rename-task", str(theirs), *words]) == 0
    assert open_numbers(f"{out}-2").episode(0).frame_tasks == ("reach",) * 5 + ("close the hand",) * 3


def test_info_shows_the_tasks_of_frames(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dataset", "info", str(theirs), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["tasks"] == {"reach": 2, "grasp": 1} and told["episodes_of_several_tasks"] == 1


def test_a_matrix_trains_and_a_clock_that_float32_cannot_hold_is_named(
    theirs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from policies.settings import FlowConfig
    from robolearn.train.imitation import ImitationConfig, ImitationTrainer

    config = ImitationConfig(FlowConfig(horizon=4, execute=2), steps=2, steps_per_iteration=2, batch=4, validation=0.0)
    with caplog.at_level(logging.WARNING):
        trainer = ImitationTrainer.of_dataset(config, open_numbers(theirs))
    assert [record.message.split(":")[0] for record in caplog.records] == ["observation clock", "observation count"]
    assert np.isfinite(trainer.iterate(0)["loss"])


def test_a_killed_recording_keeps_every_digit(tmp_path: Path) -> None:
    interface = Interface(
        {"proprio": ArraySpec((2,)), "clock": ArraySpec((1,), "float64"), "count": ArraySpec((1,), "int64")},
        ArraySpec((2,)),
        20.0,
    )
    root = tmp_path / "set"
    writer = EpisodeWriter(root, interface, task="count")
    for t in range(5):
        writer.add({"proprio": [t, 0], "clock": [CLOCK[t]], "count": [COUNT[t]]}, [0.5, -0.5], t)
    writer.journal.close()  # type: ignore[union-attr]
    writer.locked.lock.release()  # as a kill leaves it
    found = read_journal(root / ".running")
    assert found is not None and [step.row["count"][0] for step in found.steps] == COUNT[:5].tolist()
    assert repair(root).saved == [(0, 5)]
    dataset = Dataset.open(root)
    assert dataset.observation["clock"].ravel().tolist() == CLOCK[:5].tolist()
    assert dataset.observation["count"].ravel().tolist() == COUNT[:5].tolist() and dataset.reward.tolist() == [
        *range(5)
    ]


def test_what_no_kind_of_number_holds_is_refused(tmp_path: Path) -> None:
    interface = Interface({"proprio": ArraySpec((2,), "uint64")}, ArraySpec((2,)), 20.0)
    with pytest.raises(BadInput, match="got uint64, expected bool, float32, float64 or int64"):
        EpisodeWriter(tmp_path / "set", interface)


@pytest.mark.parametrize("kept", ["top", "features", "nothing"])
def test_the_interface_outlives_a_tool_that_keeps_only_the_features(plain: Path, copy: Any, kept: str) -> None:
    """LeRobot's own edits write features, rate and robot anew; what actions mean is still known after them."""
    root, before = copy(plain), interface_with_images(open_numbers(plain))
    info = json.loads((root / "meta/info.json").read_text())
    if kept != "top":
        del info[INTERFACE_KEY]
    if kept == "nothing":
        del info["features"]["action"]["info"]
    (root / "meta/info.json").write_text(json.dumps(info))
    after = interface_with_images(open_numbers(root))
    assert after == (before if kept != "nothing" else replace(before, action_kind="native", extra={}))


def test_a_feature_that_a_tool_took_away_or_added_is_no_observation_or_one(plain: Path, copy: Any) -> None:
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["observation.effort"] = info["features"].pop("observation.environment_state")
    with_key = json.dumps(info)
    del info[INTERFACE_KEY]
    (root / "meta/info.json").write_text(json.dumps(info))
    table = pq.read_table(root / DATA)
    names = ["observation.effort" if n == "observation.environment_state" else n for n in table.column_names]
    pq.write_table(table.rename_columns(names), root / DATA)
    dataset = open_numbers(root)
    assert list(dataset.observation) == ["proprio", "effort"] and dataset.interface.action_kind == "tcp_delta"
    (root / "meta/info.json").write_text(with_key)  # of a set that is ours alone it is a fault
    with pytest.raises(BadInput, match=r"features: got no 'observation\.environment_state'"):
        open_numbers(root)


@pytest.mark.parametrize(("version", "said"), [
    ("v3.1", r"got format v3\.1, a newer one, expected v3\.0\. This version of robolearn reads"),
    ("v4.0", r"got format v4\.0, a newer one"),
    ("v1.6", r"got format v1\.6, expected v3\.0$"),
])  # fmt: skip
def test_a_version_that_is_too_new_is_said_to_be(plain: Path, copy: Any, tmp_path: Path, version: str, said: str,
                                                 capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text()) | {"codebase_version": version}
    if version == "v4.0":
        del info["total_tasks"], info["features"]  # whatever else will have changed
    (root / "meta/info.json").write_text(json.dumps(info))
    for open_it in (Dataset.open, lambda path: list(validate(path))):
        with pytest.raises(BadInput, match=said):
            open_it(root)
    assert main(["dataset", "import", str(root), "--out", str(tmp_path / "out")]) == 2
    assert version in capsys.readouterr().err


def test_whole_numbers_that_are_no_flags_are_refused(theirs: Path) -> None:
    table = pq.read_table(theirs / DATA)
    at = table.column_names.index("observation.ready")
    numbers = pa.array(np.array([7, 2, -1, *[0, 1] * 5, 1]))
    pq.write_table(table.set_column(at, "observation.ready", numbers), theirs / DATA)
    with pytest.raises(BadInput, match=r"observation\.ready: got 7, expected numbers that are bool"):
        Dataset.open(theirs)
    zeros_and_ones = pa.array(np.arange(14) % 2)
    pq.write_table(table.set_column(at, "observation.ready", zeros_and_ones), theirs / DATA)
    assert Dataset.open(theirs).observation["ready"].ravel().tolist() == [False, True] * 7
