"""Sets of other makers, and of ours that went through other hands."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert.formats import writer
from robolearn.data.convert.source import open_numbers
from robolearn.data.video.encoder import VideoConfig

Run = Callable[..., tuple[int, Any]]
Make = Callable[..., Path]
DATA = "data/chunk-000/file-000.parquet"


def change(root: Path, name: str, of: Callable[[Any], Any], file: str = DATA) -> None:
    """Replace a column of a table."""
    table = pq.read_table(root / file)
    values = of(np.array(table[name].to_pylist()))
    field = table.schema.field(name)
    pq.write_table(
        table.set_column(table.column_names.index(name), field, pa.array(values.tolist(), field.type)), root / file
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("clock", "says"),
    [
        (lambda t: t * 2, "off the grid"),  # recorded at half the rate that the set states
        (lambda t: np.where(np.arange(len(t)) < 3, t, t + 2), "off the grid"),  # a gap of 2 s
        (lambda t: t[::-1].copy(), "time goes back"),
        (lambda t: np.where(np.arange(len(t)) == 3, 0.0, t), "time goes back"),
        (lambda t: np.where(np.arange(len(t)) == 3, np.nan, t), "timestamp nan"),
    ],
)
def test_lerobot_933_timestamps_off_the_grid_are_judged_alike_everywhere(
    make: Make, run: Run, tmp_path: Path, clock: Callable[[Any], Any], says: str
) -> None:
    root = make(lengths=(8,))
    change(root, "timestamp", clock)
    for words in (
        ("dataset", "import", root, "--out", tmp_path / "in"),
        ("train", "--data", root, "--out", tmp_path / "bc"),
    ):
        code, said = run(*words)
        assert code == 2 and says in said and "--skip-bad" in said, said
    code, found = run("dataset", "validate", root)
    assert code == 1 and {"off the grid", "time goes back"} & {one["check"] for one in found["findings"]}


def test_lerobot_933_a_person_may_take_them(make: Make, run: Run, tmp_path: Path) -> None:
    root = make(lengths=(8, 6))
    change(root, "timestamp", lambda t: t + 0.04 * (np.arange(14) % 8 == 5))
    code, said = run("dataset", "import", root, "--tolerance-s", 0.05, "--out", tmp_path / "in")
    assert code == 0 and any("up to 0.04 s off, are put onto the grid" in line for line in said["changed"])
    assert run("dataset", "validate", tmp_path / "in")[0] == 0


def test_lerobot_4156_quantiles_of_a_merged_set_are_those_of_its_frames(make: Make, run: Run, tmp_path: Path) -> None:
    narrow, wide = make("narrow", (30, 30, 30)), make("wide", (30,), width=40.0)
    assert run("dataset", "edit", "merge", narrow, wide, "--out", tmp_path / "both")[0] == 0
    stats = json.loads((tmp_path / "both/meta/stats.json").read_text())
    frames = Dataset.open(tmp_path / "both").observation["proprio"]
    for name, q in (("q01", 0.01), ("q99", 0.99)):
        np.testing.assert_allclose(stats["observation.state"][name], np.quantile(frames, q, axis=0), rtol=1e-6)
    assert stats["observation.state"]["q99"][2] > 30, "the mean of the two sets' would be 10"


def test_lerobot_3508_indices_count_through_a_merged_set(make: Make, run: Run, tmp_path: Path) -> None:
    assert run("dataset", "edit", "merge", make("a", (5, 4)), make("b", (6,)), "--out", tmp_path / "both")[0] == 0
    stats = json.loads((tmp_path / "both/meta/stats.json").read_text())
    assert stats["episode_index"]["max"] == [2] and stats["index"]["max"] == [14]


def test_lerobot_4109_nothing_of_a_discarded_take_is_in_the_next_one(tmp_path: Path, run: Run) -> None:
    interface = Interface({"images.front": ArraySpec((64, 64, 3), "uint8")}, ArraySpec((1,)), 10.0)
    with EpisodeWriter(tmp_path / "set", interface, video=VideoConfig(codec="libx264"), task="lift") as opened:
        for take, level in (("bad", 220), ("good", 30)):
            for _ in range(9 if take == "bad" else 4):
                opened.add({"images.front": np.full((64, 64, 3), level, np.uint8)}, [0.0])
            opened.discard() if take == "bad" else opened.end(success=True)
    shown = Dataset.open(tmp_path / "set", cache=False).episode(0).observation["images.front"]
    assert shown.shape[0] == 4 and shown.max() < 60
    assert run("dataset", "validate", tmp_path / "set")[0] == 0


def test_lerobot_2401_a_row_that_points_to_another_file_is_refused(make: Make, run: Run, tmp_path: Path) -> None:
    root = make()
    (root / "data/chunk-000/file-001.parquet").write_bytes((root / DATA).read_bytes())
    table = pq.read_table(root / DATA)
    pq.write_table(
        table.filter(pa.compute.less(table["episode_index"], 2)), root / DATA
    )  # the last is in the new file only
    code, said = run("dataset", "import", root, "--out", tmp_path / "in")
    assert code == 2 and "episode 2" in said and "got 0 frames, expected 7" in said
    code, said = run("dataset", "import", root, "--skip-bad", "--out", tmp_path / "in")
    assert code == 0 and said["episodes"] == 2 and any("episode 2" in line for line in said["left_out"])


def pictures_in(root: Path, sizes: list[int], width: int = 64) -> Path:
    """Put PNG pictures into the table of the set `root`, as LeRobot's image sets have them."""
    images = [np.full((size, width, 3), 10 * i % 250, np.uint8) for i, size in enumerate(sizes)]
    cells = [{"bytes": cv2.imencode(".png", image)[1].tobytes(), "path": None} for image in images]
    pq.write_table(pq.read_table(root / DATA).append_column("observation.images.top", pa.array(cells)), root / DATA)
    info = json.loads((root / "meta/info.json").read_text())
    names = ["height", "width", "channels"]
    info["features"]["observation.images.top"] = {"dtype": "image", "shape": [64, width, 3], "names": names}
    del info["robolearn_interface"]
    (root / "meta/info.json").write_text(json.dumps(info))
    return root


def test_lerobot_1919_pictures_in_the_table_come_in(make: Make, run: Run, tmp_path: Path) -> None:
    root = pictures_in(make(lengths=(8, 6)), [64] * 14)
    code, said = run("dataset", "import", root, "--out", tmp_path / "in")
    assert code == 0 and "observation.images.top → images.top (64×64×3)" in said["read"]
    shown = Dataset.open(tmp_path / "in", cache=False).episode(1).observation["images.top"]
    np.testing.assert_allclose(shown.mean(axis=(1, 2, 3)), [10 * i for i in range(8, 14)], atol=4)


@pytest.mark.long
def test_lerobot_1919_memory_does_not_grow_with_the_pictures_in_the_table(make: Make, run: Run, tmp_path: Path) -> None:
    peaks = []
    for frames in (60, 240):
        root = pictures_in(make(f"of-{frames}", (frames,)), [64] * frames, width=2048)
        tracemalloc.start()
        assert run("dataset", "import", root, "--out", tmp_path / f"in-{frames}")[0] == 0
        peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 10, "MiB, where 180 pictures more take 68"


def test_a_picture_that_changes_its_size_is_named(make: Make, run: Run, tmp_path: Path) -> None:
    root = pictures_in(make(lengths=(8, 6)), [64] * 10 + [48] + [64] * 3)
    code, said = run("dataset", "import", root, "--out", tmp_path / "in")
    assert code == 2 and "episode 1" in said and "frame 2" in said and "(48, 64, 3)" in said
    code, said = run("dataset", "import", root, "--skip-bad", "--out", tmp_path / "in")
    assert code == 0 and said["episodes"] == 1


def corners_of_an_upside_down_file(run: Run, tmp_path: Path) -> list[list[bool]]:
    """Bright corners [[above left, above right], [below left, below right]] as imported, of a camera of OpenGL's."""
    with h5py.File(tmp_path / "open_the_drawer_demo.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        file["data"].attrs["macros_image_convention"] = "opengl"
        demo["actions"], demo["obs/ee_pos"] = np.zeros((4, 7)), np.zeros((4, 3))
        pictures = np.full((4, 64, 64, 3), 20, np.uint8)
        pictures[:, :32, :32] = 220  # in the file's first rows and columns: below, on the left
        demo["obs/agentview_rgb"] = pictures
    code, said = run("dataset", "import", tmp_path / "open_the_drawer_demo.hdf5", "--out", tmp_path / "in")
    assert code == 0 and any("turned upright" in line for line in said["changed"])
    shown = Dataset.open(tmp_path / "in", cache=False).episode(0).observation["images.agentview"][0].mean(axis=2)
    ends = (slice(0, 24), slice(40, 64))
    return [[bool(shown[y, x].mean() > 120) for x in ends] for y in ends]


def test_libero_11_pictures_are_turned_upright(run: Run, tmp_path: Path) -> None:
    above, below = corners_of_an_upside_down_file(run, tmp_path)
    assert any(below) and not any(above)


def test_openvla_295_pictures_that_are_turned_upright_are_not_mirrored(run: Run, tmp_path: Path) -> None:
    left, right = zip(*corners_of_an_upside_down_file(run, tmp_path), strict=True)
    assert any(left) and not any(right)


def test_words_that_hold_other_ends_of_lines_come_back(make: Make, run: Run, tmp_path: Path) -> None:
    words = "lift\u2028the\u2029cube\u0085gently"
    writer("lerobot-v2.1")(open_numbers(make(task=words)), tmp_path / "v21", None)
    code, said = run("dataset", "import", tmp_path / "v21", "--out", tmp_path / "in")
    assert code == 0, said
    assert Dataset.open(tmp_path / "in").tasks == [words]


@pytest.mark.long
def test_lerobot_630_an_episode_taken_out_by_hand_is_left_out(make: Make, run: Run, tmp_path: Path) -> None:
    writer("lerobot-v2.1")(open_numbers(make()), tmp_path / "v21", None)
    lines = (tmp_path / "v21/meta/episodes.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "v21/meta/episodes.jsonl").write_text("".join([lines[0], lines[2]]))
    (tmp_path / "v21/data/chunk-000/episode_000001.parquet").unlink()
    code, said = run("dataset", "import", tmp_path / "v21", "--out", tmp_path / "in")
    assert code == 2 and "episode 1: got no line in meta/episodes.jsonl" in said
    code, said = run("dataset", "import", tmp_path / "v21", "--skip-bad", "--out", tmp_path / "in")
    assert code == 0 and said["episodes"] == 2 and Dataset.open(tmp_path / "in").observation["proprio"][-1, 0] == 2.0
    code, said = run("dataset", "import", tmp_path / "v21", "--episodes", "2", "--out", tmp_path / "third")
    assert code == 0 and said["frames"] == 7


def test_lerobot_630_the_same_of_a_set_of_v3(make: Make, run: Run, tmp_path: Path) -> None:
    root, rows = make(lengths=(5, 6, 7, 8)), "meta/episodes/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(root / rows).take([0, 1, 3]), root / rows)
    code, said = run("dataset", "import", root, "--out", tmp_path / "in")
    assert code == 2 and "episode 2: got no row in meta/episodes" in said and "--skip-bad" in said
    code, said = run("dataset", "import", root, "--skip-bad", "--out", tmp_path / "in")
    assert code == 0 and said["frames"] == 19 and any("episode 2: got no row" in line for line in said["left_out"])
    code, said = run("dataset", "import", root, "--episodes", "1,3", "--out", tmp_path / "two")
    assert code == 0 and said["frames"] == 14 and Dataset.open(tmp_path / "two").observation["proprio"][-1, 0] == 3.0


def test_a_line_that_does_not_read_costs_its_episode_only(make: Make, run: Run, tmp_path: Path) -> None:
    writer("lerobot-v2.1")(open_numbers(make()), tmp_path / "v21", None)
    file = tmp_path / "v21/meta/episodes.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], lines[1][:20] + "\n", lines[2]]))
    code, said = run("dataset", "import", tmp_path / "v21", "--out", tmp_path / "in")
    assert code == 2 and "episode 1" in said and "episodes.jsonl, line 2" in said and "--skip-bad" in said
    code, said = run("dataset", "import", tmp_path / "v21", "--skip-bad", "--out", tmp_path / "in")
    assert code == 0 and said["episodes"] == 2 and any("jsonl, line 2" in line for line in said["left_out"])


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_without_its_tasks_a_set_comes_in_with_those_of_the_user(
    make: Make, run: Run, tmp_path: Path, version: str
) -> None:
    root = make()
    if version == "v2.1":
        writer("lerobot-v2.1")(open_numbers(root), tmp_path / "v21", None)
        root = tmp_path / "v21"
    next(root.glob("meta/tasks.*")).unlink()
    code, said = run("dataset", "import", root, "--out", tmp_path / "in")
    assert code == 2 and "With --task WORDS" in said
    code, said = run("dataset", "import", root, "--task", "lift it", "--out", tmp_path / "in")
    assert code == 0 and Dataset.open(tmp_path / "in").tasks == ["lift it"]


def test_refusals_of_one_episode_name_the_flag_that_leaves_it_out(make: Make, run: Run, tmp_path: Path) -> None:
    root = make()
    table = pq.read_table(root / DATA)
    state = np.stack(table["observation.state"].to_pylist())
    state[8] = np.nan
    kind = table.schema.field("observation.state").type
    table = table.set_column(
        table.column_names.index("observation.state"), "observation.state", pa.array([*state], kind)
    )
    pq.write_table(table, root / DATA)
    code, said = run("dataset", "import", root, "--out", tmp_path / "in")
    assert code == 2 and "with --skip-bad" in said
    (root / DATA).unlink()
    code, said = run("dataset", "import", root, "--out", tmp_path / "in")
    assert code == 2 and f"no {DATA}" in said and "with --skip-bad" in said


def test_numbers_of_tasks_with_a_hole_stay(make: Make, run: Run, tmp_path: Path) -> None:
    root = make()
    tasks = pa.table({"task_index": [2, 0], "task": ["push it", "lift it"]})
    pq.write_table(tasks, root / "meta/tasks.parquet")
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"total_tasks": 2}))
    change(root, "task_index", lambda index: np.where(np.arange(len(index)) < 8, 0, 2))
    opened = Dataset.open(root)
    assert opened.episode(0).task == "lift it" and opened.episode(2).task == "push it"
    assert not {"tasks", "counts"} & {one["check"] for one in run("dataset", "validate", root)[1]["findings"]}
    code, _ = run("dataset", "import", root, "--out", tmp_path / "in")
    assert code == 0 and Dataset.open(tmp_path / "in").episode(2).task == "push it"
    change(root, "task_index", lambda index: np.where(np.arange(len(index)) < 8, 0, 1))
    with pytest.raises(BadInput, match=r"task_index: got 1; available: .*--task WORDS"):
        Dataset.open(root)
