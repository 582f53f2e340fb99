"""Opening a data set: what is refused, and how the message names the place."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.core import BadInput
from robolearn.data import Dataset, EpisodeWriter

DATA = "data/chunk-000/file-000.parquet"
ROWS = "meta/episodes/chunk-000/file-000.parquet"


@pytest.fixture
def root(tmp_path, interface, episode):
    with EpisodeWriter(tmp_path / "set", interface) as w:
        w.write_all([episode(0, 5), episode(1, 3, success=False, task="push"), episode(2, 4)])
    return tmp_path / "set"


def change(root, name, column, row, value):
    """Set one value in a parquet file."""
    table = pq.read_table(root / name)
    values = table[column].to_pylist()
    values[row] = value
    index = table.column_names.index(column)
    pq.write_table(
        table.set_column(index, table.schema.field(column), pa.array(values, table[column].type)), root / name
    )


def change_info(root, **values):
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    for key, value in values.items():
        if value is None:
            del info[key]
        else:
            info[key] = value
    path.write_text(json.dumps(info))


@pytest.mark.parametrize("name", [DATA, ROWS, "meta/tasks.parquet", "meta/info.json"])
def test_missing_files_are_named(root, name):
    (root / name).unlink()
    with pytest.raises(BadInput, match=name.replace("chunk-000/file-000", ".*")):
        Dataset.open(root)


def last_byte(root, name, column):
    """Where the data of `column` end in a parquet file of one row group."""
    group = pq.read_metadata(root / name).row_group(0)
    (found,) = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema.split(".list")[0] == column]
    return found.data_page_offset + found.total_compressed_size - 1


@pytest.mark.parametrize(("name", "column"), [(DATA, "action"), (ROWS, "length"), ("meta/tasks.parquet", "task_index")])
def test_corrupt_files_are_named(root, name, column):
    whole = (root / name).read_bytes()
    damaged = bytearray(whole)
    damaged[last_byte(root, name, column)] ^= 0x01  # one bit, which only the page's checksum can tell
    for broken in (whole[:-20], whole[: len(whole) // 2], b"", bytes(damaged)):
        (root / name).write_bytes(broken)
        with pytest.raises(BadInput, match=f"{name}: got a corrupt parquet file"):
            Dataset.open(root)


@pytest.mark.parametrize("name", ["meta/info.json", "meta/stats.json"])
def test_corrupt_json_is_named(root, name):
    (root / name).write_text('{"total_ep')
    with pytest.raises(BadInput, match=f"{name}: got unreadable JSON"):
        Dataset.open(root)


@pytest.mark.long
def test_nan_is_named(root):
    change(root, DATA, "observation.state", 6, [0.0, float("nan"), 0.0])
    with pytest.raises(BadInput, match=r"episode 1, frame 1, observation\.state: got NaN"):
        Dataset.open(root)


def test_counts_that_do_not_add_up(root):
    good = {name: (root / name).read_bytes() for name in (DATA, ROWS, "meta/info.json")}

    def refused(match):
        with pytest.raises(BadInput, match=match):
            Dataset.open(root)
        for name, content in good.items():
            (root / name).write_bytes(content)

    change(root, ROWS, "length", 1, 4)
    refused("dataset_to_index of episode 1: got 8, expected 9")
    change_info(root, total_frames=13)
    refused("sum of episode lengths: got 12, expected 13 frames")
    change_info(root, total_episodes=4)
    refused("meta/episodes: got 3 rows, expected episodes 0 to 3")
    change(root, DATA, "frame_index", 7, 5)
    refused("episode 1, frame 2, frame_index: got 5, expected 2")
    change(root, DATA, "task_index", 0, 9)
    refused("task_index: got 9; available: 0, 1")
    pq.write_table(pq.read_table(root / DATA).slice(0, 11), root / DATA)
    refused("got 11 frames, expected 12 frames")
    pq.write_table(pq.read_table(root / DATA).drop_columns(["action"]), root / DATA)
    refused("no column 'action'")
    change_info(root, codebase_version="v2.1")
    refused("format v2.1, expected v3.0")
    change_info(root, fps=None)
    refused("no fps")
    Dataset.open(root)


def test_not_a_data_set(tmp_path, interface):
    with pytest.raises(BadInput, match="no such folder"):
        Dataset.open(tmp_path / "nothing")
    with pytest.raises(BadInput, match=r"no meta/info\.json"):
        Dataset.open(tmp_path)
    EpisodeWriter(tmp_path / "empty", interface).close()
    with pytest.raises(BadInput, match="no episodes"):
        Dataset.open(tmp_path / "empty")


def test_a_set_of_another_writer(root, interface):
    """Lists of free length, no interface, no outcome columns, no stats: as others write them."""
    table = pq.read_table(root / DATA)
    loose = table.set_column(
        table.column_names.index("action"), "action", pa.array(table["action"].to_pylist(), pa.list_(pa.float64()))
    ).drop_columns(["next.reward", "next.success", "next.terminated", "next.truncated"])
    pq.write_table(loose, root / DATA)
    change_info(root, robolearn_interface=None)
    (root / "meta/stats.json").unlink()
    tasks = pq.read_table(root / "meta/tasks.parquet").rename_columns(["task_index", "task"])
    pq.write_table(tasks.replace_schema_metadata(None), root / "meta/tasks.parquet")

    dataset = Dataset.open(root)
    assert dataset.interface.observation == interface.observation and dataset.interface.embodiment == "panda"
    assert dataset.action.dtype == np.float32 and dataset.tasks == ["lift the cube", "push"]
    assert not dataset.success.any() and dataset.truncated.all() and not dataset.reward.any()
    assert dataset.stats["action"]["count"] == 12
    with pytest.raises(BadInput, match="robolearn did not write"):
        EpisodeWriter(root, interface, resume=True)


def test_a_moved_set_opens(root, tmp_path):
    shutil.copytree(root, tmp_path / "copy")
    assert Dataset.open(str(tmp_path / "copy")).episode(1).task == "push"


def test_episodes_out_of_range(root):
    dataset = Dataset.open(root)
    for index in (-1, 3):
        with pytest.raises(BadInput, match="expected 0 to 2"):
            dataset.episode(index)


def test_exact_statistics(root):
    dataset = Dataset.open(root)
    stats = dataset.statistics([0, 2])
    frames = np.concatenate([dataset.episode(0).action, dataset.episode(2).action]).astype(float)
    assert stats["action"]["count"] == 9
    assert np.allclose(stats["action"]["q01"], np.quantile(frames, 0.01, axis=0))
    assert np.allclose(stats["action"]["q90"], np.quantile(frames, 0.90, axis=0))


def retype(root, name, column, kind, values):
    """Put `values` of another type in the place of a column."""
    table = pq.read_table(root / name)
    index = table.column_names.index(column)
    pq.write_table(table.set_column(index, column, pa.array(values, kind)), root / name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda r: change(r, ROWS, "length", 1, None), "length: got a null"),
        (lambda r: change(r, ROWS, "data/file_index", 1, None), "data/file_index: got a null"),
        (lambda r: retype(r, DATA, "action", pa.string(), ["a"] * 12), "action: got a column of type string"),
        (lambda r: retype(r, DATA, "next.success", pa.string(), ["no"] * 12), "next.success: got a column of type"),
        (lambda r: retype(r, DATA, "episode_index", pa.string(), ["0"] * 12), "episode_index: got a column of type"),
    ],
)
def test_values_of_another_kind_are_refused(root, damage, says):
    damage(root)
    with pytest.raises(BadInput, match=says):
        Dataset.open(root)


def test_statistics_with_another_count_are_computed_again(root):
    before = Dataset.open(root).statistics()
    stats = json.loads((root / "meta/stats.json").read_text())
    stats["action"]["count"] = [1, 2]
    (root / "meta/stats.json").write_text(json.dumps(stats))
    after = Dataset.open(root).statistics()
    np.testing.assert_allclose(after["action"]["mean"], before["action"]["mean"])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda r: (r / ROWS).unlink(), "no meta/episodes"),
        (lambda r: change_info(r, total_frames=11), "got 12 frames, expected 11 frames"),
        (lambda r: change_info(r, features=odd_feature(r)), "dtype, shape: got .'foo'"),
    ],
)
def test_what_cannot_be_gone_on_with_is_refused(root, interface, damage, says):
    damage(root)
    with pytest.raises(BadInput, match=says):
        EpisodeWriter(root, interface, resume=True)


def odd_feature(root):
    features = json.loads((root / "meta/info.json").read_text())["features"]
    return features | {"next.reward": features["next.reward"] | {"dtype": "foo"}}


def test_words_and_files_that_info_json_does_not_count_outlive_a_resumption(root, interface, episode):
    change_info(root, total_tasks=0)
    mine = root / "data/chunk-000/file-000-backup.parquet"
    shutil.copy(root / DATA, mine)
    with EpisodeWriter(root, interface, resume=True) as w:
        w.write_all([episode(3, 2, task="push")])
    opened = Dataset.open(root)
    assert opened.episodes == 4 and len(opened.tasks) == 2 and mine.exists()
