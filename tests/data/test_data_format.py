"""What lies on disk is the v3.0 format, column by column."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.lerobot.features import features_of, interface_of, schema_of, stamp_column, stamp_name
from robolearn.data.writing import locked_dataset


@pytest.fixture
def root(tmp_path, interface, episode):
    with EpisodeWriter(tmp_path / "set", interface) as w:
        w.write(episode(0, 5))
        w.write_all([episode(1, 3, success=False, task="push"), episode(2, 4)])
    return tmp_path / "set"


def test_info(root, interface):
    info = json.loads((root / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0" and info["robot_type"] == "panda"
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (3, 12, 2)
    assert info["fps"] == 20 and isinstance(info["fps"], int) and info["splits"] == {"train": "0:3"}
    assert info["chunks_size"] == 1000 and info["video_path"] is None
    assert info["data_path"] == "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    assert info["features"]["observation.state"] == {"dtype": "float32", "shape": [3], "names": ["a", "b", "c"]}
    assert info["features"]["observation.environment_state"]["shape"] == [2]
    assert Interface.from_json(info["robolearn_interface"]) == interface


def test_frames(root):
    table = pq.read_table(root / "data/chunk-000/file-000.parquet")
    kinds = {field.name: field.type for field in table.schema}
    assert kinds["observation.state"] == pa.list_(pa.float32(), 3)
    assert kinds["observation.environment_state"] == kinds["action"] == pa.list_(pa.float32(), 2)
    assert kinds["timestamp"] == kinds["next.reward"] == pa.float32()
    assert {kinds[k] for k in ("frame_index", "episode_index", "index", "task_index")} == {pa.int64()}
    assert {kinds[f"next.{k}"] for k in ("done", "success", "terminated", "truncated")} == {pa.bool_()}
    assert table["index"].to_pylist() == list(range(12))
    assert table["episode_index"].to_pylist() == [0] * 5 + [1] * 3 + [2] * 4
    assert table["frame_index"].to_pylist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3]
    assert table["task_index"].to_pylist() == [0] * 5 + [1] * 3 + [0] * 4
    assert np.flatnonzero(table["next.done"].to_pylist()).tolist() == [4, 7, 11]
    assert np.flatnonzero(table["next.success"].to_pylist()).tolist() == [4, 11]
    assert np.flatnonzero(table["next.truncated"].to_pylist()).tolist() == [7]
    timestamps = np.array(table["timestamp"].to_pylist())
    assert np.allclose(timestamps, np.array(table["frame_index"].to_pylist()) / 20, atol=1e-6)


def test_episodes(root):
    rows = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet")
    assert rows["length"].to_pylist() == [5, 3, 4]
    assert rows["dataset_from_index"].to_pylist() == [0, 5, 8] and rows["dataset_to_index"].to_pylist() == [5, 8, 12]
    assert rows["tasks"].to_pylist() == [["lift the cube"], ["push"], ["lift the cube"]]
    for name in ("data/chunk_index", "data/file_index", "meta/episodes/chunk_index", "meta/episodes/file_index"):
        assert rows[name].to_pylist() == [0, 0, 0] and rows[name].type == pa.int64()
    assert rows["stats/action/count"].to_pylist() == [[5], [3], [4]]
    assert rows["stats/observation.state/max"].to_pylist() == [[0, 4, 0], [1, 2, 0], [2, 3, 0]]
    for feature in json.loads((root / "meta/info.json").read_text())["features"]:
        for name in ("min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99"):
            assert f"stats/{feature}/{name}" in rows.column_names


def test_tasks_have_the_words_as_their_pandas_index(root):
    table = pq.read_table(root / "meta/tasks.parquet")
    pandas = json.loads(table.schema.metadata[b"pandas"])
    (index,) = pandas["index_columns"]
    assert table[index].to_pylist() == ["lift the cube", "push"]
    assert table["task_index"].to_pylist() == [0, 1] and table["task_index"].type == pa.int64()
    assert {c["field_name"] for c in pandas["columns"]} == {"task_index", index}


def test_stats_of_the_whole_set(root):
    stats = json.loads((root / "meta/stats.json").read_text())
    state = Dataset.open(root).observation["proprio"].astype(float)
    assert stats["action"]["count"] == [12]
    assert np.allclose(stats["observation.state"]["mean"], state.mean(0))
    assert np.allclose(stats["observation.state"]["std"], state.std(0))
    assert np.allclose(stats["observation.state"]["min"], state.min(0))
    assert set(stats) == set(json.loads((root / "meta/info.json").read_text())["features"])


def test_files_roll_over(tmp_path, interface, episode, monkeypatch):
    monkeypatch.setattr(locked_dataset, "DATA_BYTES", 1000)
    monkeypatch.setattr(locked_dataset, "META_ROWS", 2)
    with EpisodeWriter(tmp_path / "set", interface) as w:
        for e in range(4):
            w.write(episode(e, 7))
        w.write_all([episode(e, 7) for e in range(4, 11)])
    data = sorted(p.name for p in (tmp_path / "set/data/chunk-000").iterdir())
    assert data == [f"file-{i:03d}.parquet" for i in range(len(data))] and len(data) > 2
    assert len(list((tmp_path / "set/meta/episodes/chunk-000").iterdir())) == 6
    rows = [pq.read_table(p) for p in sorted((tmp_path / "set/meta/episodes/chunk-000").iterdir())]
    for number, table in enumerate(rows):
        assert set(table["meta/episodes/file_index"].to_pylist()) == {number}
        for e, file in zip(table["episode_index"].to_pylist(), table["data/file_index"].to_pylist(), strict=True):
            assert (
                e
                in pq.read_table(tmp_path / f"set/data/chunk-000/file-{file:03d}.parquet")["episode_index"].to_pylist()
            )
    dataset = Dataset.open(tmp_path / "set")
    assert dataset.observation["proprio"][:, 0].tolist() == [float(e) for e in range(11) for _ in range(7)]


def test_one_component_is_a_plain_column(tmp_path):
    interface = Interface({"proprio": ArraySpec((1,)), "grid": ArraySpec((2, 2))}, ArraySpec((1,)), 12.5)
    assert schema_of(features_of(interface)).field("action").type == pa.float32()
    grid = np.arange(4, dtype=np.float32).reshape(2, 2)
    with EpisodeWriter(tmp_path / "set", interface) as w:
        w.add({"proprio": [0.5], "grid": grid}, [0.1])
        w.add({"proprio": [[0.25]], "grid": grid[None]}, [0.2], 1.0)
        w.end(success=True, terminated=True)
    read = Dataset.open(tmp_path / "set").episode(0)
    assert read.action.tolist() == [[np.float32(0.1)], [np.float32(0.2)]]
    assert read.observation["grid"].shape == (2, 2, 2) and (read.observation["grid"][1] == grid).all()
    assert read.observation["proprio"].tolist() == [[0.5], [0.25]] and read.task == ""
    assert json.loads((tmp_path / "set/meta/info.json").read_text())["fps"] == 12.5


def test_what_cannot_be_stored():
    action = ArraySpec((2,))
    with pytest.raises(BadInput, match=r"images\.front.*expected \(height, width, 3\)"):
        features_of(Interface({"images.front": ArraySpec((8, 8, 1), "uint8")}, action, 20.0))
    with pytest.raises(BadInput, match=r"observation\.state"):
        features_of(Interface({"proprio": ArraySpec((2,)), "state": ArraySpec((2,))}, action, 20.0))


def test_an_interface_is_derived_from_foreign_features(interface):
    features = features_of(interface) | {
        "observation.images.top": {"dtype": "video", "shape": [8, 8, 3], "names": ["height", "width", "channels"]}
    }
    del features["action"]["info"]  # which holds the interface
    derived = interface_of({"features": features, "fps": 20, "robot_type": None}, what="data set x")
    seen = {"proprio": interface.observation["proprio"], "objects": ArraySpec((2,))}
    assert derived.observation == seen | {"images.top": ArraySpec((8, 8, 3), "uint8")}
    assert (derived.embodiment, derived.action_kind, derived.control_hz) == ("none", "native", 20.0)


def test_columns_of_stamps_have_no_word_that_lerobot_takes_for_a_picture() -> None:
    for name, column in {
        "proprio": "stamp.proprio",
        "images.front": "stamp.camera.front",
        "images.agentview_image": "stamp.camera.agentview_imag-e",
        "image_clock": "stamp.imag-e_clock",
    }.items():
        assert stamp_column(name) == column and "image" not in column and stamp_name(column) == name
    assert stamp_name("stamp.images.front") == "images.front", "as an older version wrote it"
    assert stamp_name("timestamp") is None
    for name in ("camera.front", "a/b", "imag-e"):
        with pytest.raises(BadInput, match="stamps"):
            stamp_column(name)
