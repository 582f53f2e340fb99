"""Sets with their pictures in the tables: as many as there are, they are never in memory all at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.core import BadInput
from robolearn.data import Dataset
from robolearn.data.convert.formats import ReadOptions, reader
from robolearn.data.convert.source import open_numbers, write_dataset
from robolearn.data.lerobot.tables import tasks_table
from robolearn.data.video import readers
from robolearn.data.video.readers import PictureReader
from robolearn.data.video.segments import array

FPS = 30
CAMERAS = ("front", "wrist")


def picture_set(
    root: Path, version: str, lengths: Sequence[int], size: int, noise: int, row_group: int | None = None
) -> Path:
    """A set with two cameras; frame t of episode e shows 8 t + 64 e, and as much noise."""
    specks = np.random.default_rng(0).integers(0, noise + 1, (size, size, 3))
    index = {name: {"dtype": "int64", "shape": [1], "names": None} for name in ("frame_index", "episode_index")}
    kind = {"dtype": "image", "shape": [size, size, 3], "names": ["height", "width", "channels"]}
    info = {
        "codebase_version": version,
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": 1,
        "fps": FPS,
        "features": {
            "action": {"dtype": "float32", "shape": [1], "names": None},
            **index,
            **{f"observation.images.{camera}": kind for camera in CAMERAS},
        },
    }
    tables, starts = [], np.cumsum([0, *lengths])
    for e, length in enumerate(lengths):
        t = np.arange(length)
        columns = {"action": (t / length).astype(np.float32), "frame_index": t, "episode_index": np.full(length, e)}
        columns = {name: pa.array(values) for name, values in columns.items()}
        for c, camera in enumerate(CAMERAS):
            shown = ((8 * int(i) + 64 * e + 5 * c) % 160 + np.roll(specks, i, axis=1) for i in t)
            files = [cv2.imencode(".png", picture.astype(np.uint8))[1].tobytes() for picture in shown]
            columns[f"observation.images.{camera}"] = pa.array([{"bytes": file, "path": None} for file in files])
        tables.append(pa.table(columns))
    if version == "v3.0":
        rows = [
            {
                "episode_index": e,
                "length": length,
                "data/chunk_index": 0,
                "data/file_index": 0,
                "dataset_from_index": int(starts[e]),
                "dataset_to_index": int(starts[e + 1]),
            }
            for e, length in enumerate(lengths)
        ]
        files = {
            "data/chunk-000/file-000.parquet": pa.concat_tables(tables),
            "meta/episodes/chunk-000/file-000.parquet": pa.Table.from_pylist(rows),
            "meta/tasks.parquet": tasks_table(["push"]),
        }
    else:
        files = {f"data/chunk-000/episode_{e:06d}.parquet": table for e, table in enumerate(tables)}
    for name, table in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, root / name, row_group_size=row_group)
    (root / "meta").mkdir(exist_ok=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    if version != "v3.0":
        lines = [json.dumps({"episode_index": e, "length": length}) for e, length in enumerate(lengths)]
        (root / "meta/episodes.jsonl").write_text("\n".join(lines))
        (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "push"}))
    return root


# The kernel's own peak of this process alone; `ru_maxrss` begins with that of the process that started it.
IMPORTS = """
import re, sys
from pathlib import Path
from robolearn.data.convert.formats import ReadOptions, reader
from robolearn.data.convert.source import write_dataset

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def grown(root, out):
    before = peak()
    write_dataset(reader(sys.argv[1])(Path(root), ReadOptions(task="push")), out)
    return peak() - before

grown(sys.argv[2], sys.argv[4])
print(grown(sys.argv[3], sys.argv[5]))
"""


@pytest.mark.long
@pytest.mark.parametrize(("version", "lengths"), [("v3.0", (200, 200)), ("v2.1", (400,))])
def test_pictures_wait_in_a_file_and_not_in_memory(tmp_path: Path, version: str, lengths: tuple[int, ...]) -> None:
    """Beyond a small import: read whole, 3.5 and 4.9 times the pictures of both cameras."""
    small = picture_set(tmp_path / "small", version, (10,), 256, 63)
    large = picture_set(tmp_path / "large", version, lengths, 256, 63)
    held = sum(path.stat().st_size for path in large.glob("data/*/*")) >> 10
    words = [f"lerobot-{version}", small, large, tmp_path / "one", tmp_path / "two"]
    child = subprocess.run(
        [sys.executable, "-c", IMPORTS, *map(str, words)], capture_output=True, text=True, check=True
    )
    assert held > 100_000 and int(child.stdout) < 2.5 * held, held


@pytest.mark.long
@pytest.mark.parametrize("row_group", [None, 5], ids=["one row group", "groups across episodes"])
@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_each_frame_shows_its_own_picture(tmp_path: Path, version: str, row_group: int | None) -> None:
    root = picture_set(tmp_path / "set", version, (12, 9, 4), 64, 0, row_group)
    source = reader(f"lerobot-{version}")(root, ReadOptions(episodes=lambda count: [2, 0, 1]))
    for e, draft in zip((2, 0, 1), source.drafts, strict=True):
        for c, camera in enumerate(CAMERAS):
            shown = array(draft.images[f"images.{camera}"])[:, 0, 0, 0].tolist()
            assert shown == [(8 * t + 64 * e + 5 * c) % 160 for t in range(len(draft))]
    write_dataset(reader(f"lerobot-{version}")(root, ReadOptions()), tmp_path / "out")
    assert open_numbers(tmp_path / "out").lengths.tolist() == [12, 9, 4]


def opened(root: Path, lengths: Sequence[int], size: int) -> PictureReader:
    starts = np.cumsum([0, *lengths])[:-1]
    paths, column = ["data/chunk-000/file-000.parquet"] * len(lengths), "observation.images.front"
    return PictureReader(root, "images.front", (size, size, 3), np.array(lengths), paths, None, starts, column)


@pytest.mark.parametrize("kept", [0, 1 << 28])
def test_a_reader_looks_at_the_row_groups_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """Each once, as long as their pictures may wait; threads that read beside each other get their own frames."""
    taken, real = [], readers.layout
    reader = opened(picture_set(tmp_path, "v3.0", (12, 9, 4), 64, 0, 5), (12, 9, 4), 64)
    monkeypatch.setattr(readers, "KEPT", kept)

    class Counted(pq.ParquetFile):
        def iter_batches(self, size: int, groups: list[int], *args, **more):
            taken.extend(groups)
            return super().iter_batches(size, groups, *args, **more)

    monkeypatch.setattr(real.pq, "ParquetFile", Counted)
    assert reader.decode(2)[:, 0, 0, 0].tolist() == [(8 * t + 128) % 160 for t in range(4)] and taken == [4]
    assert reader.decode(1, 2, 1)[0, 0, 0, 0] == 80 and taken == [4, 2]
    asked = [(e, t) for e, length in enumerate((12, 9, 4)) for t in range(length)] * 4
    np.random.default_rng(0).shuffle(asked)
    with ThreadPoolExecutor(4) as pool:
        shown = list(pool.map(lambda one: int(reader.decode(one[0], one[1], 1)[0, 0, 0, 0]), asked))
    assert shown == [(8 * t + 64 * e) % 160 for e, t in asked]
    assert sorted(taken) == [0, 1, 2, 3, 4] if kept else len(taken) > 5


READS = """
import re, sys
from pathlib import Path
import numpy as np
from robolearn.data.video.readers import PictureReader

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def grown(root, lengths):
    before, starts = peak(), np.cumsum([0, *lengths])[:-1]
    files = ["data/chunk-000/file-000.parquet"] * len(lengths)
    place = (Path(root), "images.front", (256, 256, 3), np.array(lengths), files, None)
    reader = PictureReader(*place, starts, "observation.images.front")
    for e in range(len(lengths)):
        for _ in reader.packed(e):
            pass
    return peak() - before

grown(sys.argv[1], [10])
print(grown(sys.argv[2], [50] * 8))
"""


@pytest.mark.long
def test_a_reader_has_no_file_in_memory(tmp_path: Path) -> None:
    """Read whole, all pictures of the camera were in memory while those of one episode were looked at."""
    small = picture_set(tmp_path / "small", "v3.0", (10,), 256, 63)
    large = picture_set(tmp_path / "large", "v3.0", (50,) * 8, 256, 63, 50)
    held = sum(path.stat().st_size for path in large.glob("data/*/*")) >> 11  # of one camera
    child = subprocess.run([sys.executable, "-c", READS, small, large], capture_output=True, text=True, check=True)
    assert held > 50_000 and int(child.stdout) < 0.7 * held, (held, child.stdout)


@pytest.mark.parametrize("camera", ["rows", "x.tmp"])
def test_a_strangers_camera_with_a_name_that_is_taken_gets_another(tmp_path: Path, camera: str) -> None:
    root = picture_set(tmp_path / "set", "v3.0", (4,), 64, 0)
    info = (root / "meta/info.json").read_text().replace("observation.images.front", f"observation.images.{camera}")
    (root / "meta/info.json").write_text(info)
    (file,) = root.glob("data/*/*")
    table = pq.read_table(file)
    names = [name.replace("images.front", f"images.{camera}") for name in table.column_names]
    pq.write_table(table.rename_columns(names), file)
    source = reader("lerobot-v3.0")(root, ReadOptions())
    assert f"observation.images.{camera} is called {camera}_" in "".join(source.account.changed)
    write_dataset(source, tmp_path / "out")
    assert Dataset.open(tmp_path / "out", cache=False).cameras == [f"{camera}_", "wrist"]


@pytest.mark.parametrize("camera", ["rows", "x.tmp"])
def test_a_camera_of_a_file_of_arrays_does_too(tmp_path: Path, camera: str) -> None:
    (folder := tmp_path / "npz").mkdir()
    numbers = {"action": np.zeros((4, 1)), "state": np.arange(8.0).reshape(4, 2), "control_hz": 10.0}
    np.savez(folder / "0.npz", **numbers, **{camera: np.full((4, 32, 32, 3), 90, np.uint8)})
    source = reader("npz")(folder, ReadOptions())
    assert f"the camera of {camera} is called {camera}_" in "".join(source.account.changed)
    write_dataset(source, tmp_path / "out")
    assert Dataset.open(tmp_path / "out", cache=False).cameras == [f"{camera}_"]
    said = rf"--map {camera}=images.{camera}: got a camera called '{camera}', expected another name"
    with pytest.raises(BadInput, match=said):  # who names one is told, before anything is read
        reader("npz")(folder, ReadOptions(named=((camera, f"images.{camera}"),)))
