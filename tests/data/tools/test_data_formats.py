"""Other formats: what is written is read back the same, and files that others made are understood."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput, RobolearnError
from robolearn.data.convert.formats import FORMATS, FormatConfig, ReadOptions, guess, reader, writer
from robolearn.data.convert.source import (
    EpisodeSource,
    drafts,
    interface_with_images,
    open_numbers,
    source_of,
    write_dataset,
)
from robolearn.data.lerobot.tables import tasks_table
from robolearn.data.validate import validate
from robolearn.data.video.encoder import EpisodeVideo, VideoEncoder
from robolearn.data.video.segments import array

pytestmark = pytest.mark.long

CAMERA = "images.front"


def bring(path: Path, out: Path, name: str | None = None, **options: Any) -> Path:
    """Import `path` as the set `out`."""
    found = name or guess(path)
    assert found is not None
    write_dataset(reader(found)(path, ReadOptions(**options)), out)
    assert list(validate(out)) == []
    return out


@pytest.mark.parametrize(("name", "file"), [("lerobot-v2.1", "v21"), ("robomimic", "demos.hdf5"), ("npz", "npz")])
def test_a_set_comes_back_as_it_was(filmed: Path, tmp_path: Path, name: str, file: str) -> None:
    before = open_numbers(filmed)
    writer(name)(before, tmp_path / file, None)
    assert guess(tmp_path / file) == name
    after = open_numbers(bring(tmp_path / file, tmp_path / "back"))
    assert interface_with_images(after).to_json() == interface_with_images(before).to_json()
    for a, b in zip(drafts(after), drafts(before), strict=True):
        for key in b.episode.observation:
            np.testing.assert_array_equal(a.episode.observation[key], b.episode.observation[key])
        for key in ("action", "reward", "intervention"):
            np.testing.assert_array_equal(getattr(a.episode, key), getattr(b.episode, key))
        for key in b.episode.stamps:
            np.testing.assert_array_equal(a.episode.stamps[key], b.episode.stamps[key])
        for key in ("success", "terminated", "truncated", "task"):
            assert getattr(a.episode, key) == getattr(b.episode, key)
        # Videos of v2.1 are copied both ways; pixels of the others are encoded a second time.
        shown, meant = array(a.images[CAMERA]).astype(int), array(b.images[CAMERA])
        assert np.abs(shown - meant).mean() <= (0 if name == "lerobot-v2.1" else 2)


@pytest.mark.parametrize(("name", "file"), [("lerobot-v2.1", "v21"), ("robomimic", "demos.hdf5"), ("npz", "npz")])
def test_a_task_of_the_users_goes_before_that_of_the_files(plain: Path, tmp_path: Path, name: str, file: str) -> None:
    writer(name)(open_numbers(plain), tmp_path / file, None)
    assert open_numbers(bring(tmp_path / file, tmp_path / "theirs")).tasks == ["lift the cube", "place it"]
    assert open_numbers(bring(tmp_path / file, tmp_path / "ours", task="wave")).tasks == ["wave"]


def test_v21_has_the_files_that_lerobot_asks_for(filmed: Path, tmp_path: Path) -> None:
    root = tmp_path / "v21"
    writer("lerobot-v2.1")(open_numbers(filmed), root, None)
    info = json.loads((root / "meta/info.json").read_text())
    assert info["codebase_version"] == "v2.1" and info["total_videos"] == 6 and info["total_chunks"] == 1
    assert info["features"]["observation.images.front"]["info"]["video.fps"] == 10
    first = json.loads((root / "meta/episodes.jsonl").read_text().splitlines()[0])
    assert first == {"episode_index": 0, "tasks": ["lift the cube"], "length": 14}
    stats = json.loads((root / "meta/episodes_stats.jsonl").read_text().splitlines()[2])["stats"]
    assert stats["action"]["count"] == [16] and len(stats["action"]["mean"]) == 2
    assert np.shape(stats["observation.images.front"]["mean"]) == (3, 1, 1)
    table = pq.read_table(root / info["data_path"].format(episode_chunk=0, episode_index=1))
    assert table["index"].to_pylist() == list(range(14, 23)) and table.num_rows == 9
    assert set(table.column_names) == {k for k, f in info["features"].items() if f["dtype"] != "video"}
    mp4 = root / info["video_path"].format(episode_chunk=0, video_key="observation.images.wrist", episode_index=2)
    with av.open(str(mp4)) as container:
        assert container.streams.video[0].frames == 16


# Sets that others made


def columns(e: int, first: int, length: int) -> dict[str, Any]:
    t = np.arange(length)
    state = np.stack([t, np.full(length, e)], 1).astype(np.float64)
    action = np.stack([50.0 + 10 * t, np.full(length, 3.0)], 1).astype(np.float32)
    return {
        "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(state.reshape(-1)), 2),
        "observation.effort": pa.array(t.astype(np.int32)),
        "action": pa.array(list(action.tolist()), pa.list_(pa.float32())),
        "note": pa.array(["x"] * length),
        "timestamp": pa.array((t / 10).astype(np.float32)),
        "frame_index": pa.array(t),
        "episode_index": pa.array(np.full(length, e)),
        "index": pa.array(first + t),
        "task_index": pa.array(np.full(length, e % 2)),
    }


FEATURES = {
    "observation.state": {"dtype": "float64", "shape": [2], "names": {"motors": ["pan", "lift"]}},
    "observation.effort": {"dtype": "int32", "shape": [1], "names": None},
    "action": {"dtype": "float32", "shape": [2], "names": ["pan", "lift"]},
    "note": {"dtype": "string", "shape": [1], "names": None},
}


def film(path: Path, lengths: tuple[int, ...], codec: str, options: dict[str, str]) -> None:
    """One mp4 for several episodes; grey level = 16 + 8 × frame, counted through the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10, options=options)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for i in range(sum(lengths)):
            image = np.full((64, 64, 3), 16 + 8 * i, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture
def foreign(tmp_path: Path) -> Callable[..., Path]:
    """A v3.0 set as another program might write it: two episodes to a file, actions in degrees, no outcome."""

    def make(lengths: tuple[int, ...] = (8, 6), codec: str = "libx264", options: dict[str, str] | None = None) -> Path:
        root = tmp_path / "foreign"
        feature = "observation.image"
        film(root / f"videos/{feature}/chunk-000/file-000.mp4", lengths, codec, options or {"bf": "2", "g": "12"})
        firsts = np.concatenate([[0], np.cumsum(lengths)])
        parts = [pa.table(columns(e, int(firsts[e]), n)) for e, n in enumerate(lengths)]
        rows = []
        for e, n in enumerate(lengths):
            rows.append(
                {
                    "episode_index": e,
                    "tasks": ["push"],
                    "length": n,
                    "data/chunk_index": 0,
                    "data/file_index": 0,
                    "dataset_from_index": int(firsts[e]),
                    "dataset_to_index": int(firsts[e + 1]),
                    f"videos/{feature}/chunk_index": 0,
                    f"videos/{feature}/file_index": 0,
                    f"videos/{feature}/from_timestamp": firsts[e] / 10,
                    f"videos/{feature}/to_timestamp": firsts[e + 1] / 10,
                }
            )
        for name, table in (
            ("data/chunk-000/file-000.parquet", pa.concat_tables(parts)),
            ("meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(rows)),
            ("meta/tasks.parquet", tasks_table(["push", "pull"])),
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, root / name)
        video = {"dtype": "video", "shape": [3, 64, 64], "names": ["channels", "height", "width"]}
        index = {k: {"dtype": "int64", "shape": [1], "names": None} for k in ("frame_index", "episode_index")}
        info = {
            "codebase_version": "v3.0",
            "robot_type": "so101",
            "total_episodes": len(lengths),
            "total_frames": sum(lengths),
            "total_tasks": 2,
            "fps": 10,
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
            "features": {**FEATURES, feature: video, **index},
        }
        (root / "meta/info.json").write_text(json.dumps(info))
        return root

    return make


@pytest.mark.parametrize(
    ("options", "copied"),
    [({"bf": "2", "g": "12"}, False), ({"bf": "0", "g": "2"}, True)],
)
def test_several_episodes_in_one_video_are_told_apart(
    foreign: Callable[..., Path], tmp_path: Path, options: dict[str, str], copied: bool
) -> None:
    out = bring(root := foreign(options=options), tmp_path / "out")
    dataset = open_numbers(out)
    first = 0
    for draft in drafts(dataset):
        shown = array(draft.images["images.image"]).mean(axis=(1, 2, 3))
        np.testing.assert_allclose(shown, 16 + 8 * (first + np.arange(len(draft))), atol=4)
        first += len(draft)
    assert dataset.features["observation.images.image"]["info"]["video.codec"] == "h264"
    (before,), (_, after) = root.glob("videos/*/*/*.mp4"), sorted(out.glob("videos/*/*/*.mp4"))
    assert (set(packets(after)) <= set(packets(before))) == copied


def packets(path: Path) -> list[bytes]:
    with av.open(str(path)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


def test_foreign_actions_are_scaled_and_the_scale_is_kept(foreign: Callable[..., Path], tmp_path: Path) -> None:
    source = reader("lerobot-v3.0")(foreign(), ReadOptions(task="push it"))
    assert any("extra['action_scale']" in line for line in source.account.changed)
    assert any("none is marked as a success" in line for line in source.account.left_out)
    assert "note (text)" in source.account.read
    write_dataset(source, tmp_path / "out")
    dataset = open_numbers(tmp_path / "out")
    assert dataset.interface.extra["action_scale"] == {"low": [50.0, 3.0], "high": [120.0, 3.0]}
    assert dataset.interface.observation["proprio"].names == ("pan", "lift")
    np.testing.assert_allclose(dataset.action[:8, 0], np.linspace(-1, 1, 8), atol=1e-6)
    assert dataset.action[:, 1].tolist() == [0.0] * 14 and dataset.tasks == ["push it"]
    np.testing.assert_array_equal(dataset.observation["effort"][:8].reshape(-1), np.arange(8))
    writer("npz")(dataset, tmp_path / "npz", None)
    back = np.load(tmp_path / "npz/episode_000000.npz")
    np.testing.assert_allclose(back["action"], np.stack([50.0 + 10 * np.arange(8), np.full(8, 3.0)], 1), rtol=1e-6)


@pytest.mark.parametrize("name", ["lerobot-v2.1", "npz", "robomimic"])
def test_a_camera_without_the_usual_prefix_is_exported(foreign: Callable[..., Path], tmp_path: Path, name: str) -> None:
    """``observation.image``, as LeRobot's own sets of PushT have it."""
    place = tmp_path / ("out.hdf5" if name == "robomimic" else "out")
    assert main(["dataset", "export", str(foreign()), "--format", name, "--out", str(place)]) == 0
    before, after = open_numbers(foreign()), open_numbers(bring(place, tmp_path / "back"))
    assert interface_with_images(before).observation.keys() == interface_with_images(after).observation.keys()
    for one, two in zip(drafts(before), drafts(after), strict=True):
        shown = [array(draft.images["images.image"]).mean(axis=(1, 2)) for draft in (one, two)]
        np.testing.assert_allclose(shown[1], shown[0], atol=4)


def test_cameras_can_be_left_out(foreign: Callable[..., Path], tmp_path: Path) -> None:
    dataset = open_numbers(bring(foreign(), tmp_path / "out", cameras=()))
    assert "images.image" not in interface_with_images(dataset).observation


def test_a_foreign_set_that_does_not_add_up_is_refused(foreign: Callable[..., Path], tmp_path: Path) -> None:
    root = foreign()
    table = pq.read_table(root / "data/chunk-000/file-000.parquet")
    pq.write_table(table.slice(0, 12), root / "data/chunk-000/file-000.parquet")
    with pytest.raises(BadInput, match=r"episode 1 \(data/chunk-000/file-000.parquet\): got 4 frames, expected 6"):
        bring(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_video_that_ends_early_is_refused_with_its_episode(foreign: Callable[..., Path], tmp_path: Path) -> None:
    root = foreign()
    film(root / "videos/observation.image/chunk-000/file-000.mp4", (8, 3), "libx264", {"bf": "2"})
    with pytest.raises(BadInput, match=r"episode 1 .*file-000.mp4 \(episode 1, image, frame 3\): got no picture"):
        bring(root, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["foreign"]


def test_images_in_parquet_are_read(foreign: Callable[..., Path], tmp_path: Path) -> None:
    import cv2

    root = foreign()
    file = root / "data/chunk-000/file-000.parquet"
    cells = []
    for i in range(14):
        picture = np.full((64, 64, 3), (200, 10 * i, 0), np.uint8)  # BGR for OpenCV
        cells.append({"bytes": cv2.imencode(".png", picture)[1].tobytes(), "path": None})
    table = pq.read_table(file).append_column("observation.images.top", pa.array(cells))
    pq.write_table(table, file)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["observation.images.top"] = {
        "dtype": "image", "shape": [64, 64, 3], "names": ["height", "width", "channels"]
    }  # fmt: skip
    (root / "meta/info.json").write_text(json.dumps(info))
    dataset = open_numbers(bring(root, tmp_path / "out", cameras=("top",)))
    second = list(drafts(dataset))[1]
    shown = array(second.images["images.top"]).mean(axis=(1, 2))
    np.testing.assert_allclose(shown[:, 1], 10 * np.arange(8, 14), atol=6)
    assert shown[:, 2].mean() > 180 and shown[:, 0].mean() < 20


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_wrong_path_is_bad_input(name: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "x.hdf5").write_bytes(b"no hdf5")
    with pytest.raises(BadInput):
        reader(name)(tmp_path / ("x.hdf5" if name == "robomimic" else "set"), ReadOptions())


def test_damaged_lines_of_v21_are_named(plain: Path, tmp_path: Path) -> None:
    root = tmp_path / "v21"
    writer("lerobot-v2.1")(open_numbers(plain), root, None)
    file = root / "meta/episodes.jsonl"
    good = file.read_text()
    file.write_text(good.replace('"length": 9', '"long": 9'))
    with pytest.raises(BadInput, match=r"episodes\.jsonl, line 2"):
        bring(root, tmp_path / "out")
    file.write_text(good.replace('"length": 9', '"length": 8'))
    with pytest.raises(BadInput, match=r"episode_000001\.parquet: got 9 frames, expected 8"):
        bring(root, tmp_path / "out")
    file.write_text(good)
    shutil.copy(root / "meta/tasks.jsonl", root / "meta/t")
    (root / "data/chunk-000/episode_000002.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInput, match=r"episode_000002\.parquet: got a corrupt parquet"):
        bring(root, tmp_path / "out")


def test_a_format_is_one_config_and_one_line(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(path: Path, options: ReadOptions) -> EpisodeSource:
        return source_of(open_numbers(Path(path.read_text())))

    form = FormatConfig("pointer", "a file with the path of a set", lambda path: path.suffix == ".ptr", read)
    monkeypatch.setitem(FORMATS, form.name, form)
    file = tmp_path / "set.ptr"
    file.write_text(str(plain))
    assert main(["dataset", "import", str(file), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["format"] == "pointer"
    with pytest.raises(BadInput, match=r"available: lerobot-v2\.1, robomimic, npz, mcap$"):
        writer("pointer")
    for command, listed in (("import", True), ("export", False)):
        with pytest.raises(SystemExit):
            main(["dataset", command, "--help"])
        assert ("pointer" in capsys.readouterr().out) is listed


def test_what_an_encoder_does_not_finish_is_encoded_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder := tmp_path / "push").mkdir()
    for e in range(2):
        np.savez(
            folder / f"{e}.npz", action=np.full((4, 2), e / 2), front=np.full((4, 64, 64, 3), 40 + 60 * e, np.uint8)
        )
    finish, calls = VideoEncoder.finish, []

    def hangs(encoder: VideoEncoder) -> EpisodeVideo:
        calls.append(encoder)
        if len(calls) in hung:
            raise RobolearnError("libsvtav1 has not moved for 60 s after 4 frames")
        return finish(encoder)

    monkeypatch.setattr(VideoEncoder, "finish", hangs)
    hung = {1}
    dataset = open_numbers(bring(folder, tmp_path / "out", hz=10.0))
    assert [array(draft.images[CAMERA]).mean().round(-1) for draft in drafts(dataset)] == [40, 100]
    assert len(calls) == 3 and "encoded once more" in caplog.text
    hung = {4, 5}
    with pytest.raises(RobolearnError, match="has not moved"):
        bring(folder, tmp_path / "none", hz=10.0)
    assert not (tmp_path / "none").exists()
