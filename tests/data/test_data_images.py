"""Reading images: the frame cache, on demand, windows, and sets that LeRobot made."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import resource
import shutil
import time
import tracemalloc
from pathlib import Path

import av
import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from robolearn.core import ArraySpec, BadInput, Episode, Interface, RobolearnError
from robolearn.data import Dataset, EpisodeWriter, Windows
from robolearn.data.reading import cache
from robolearn.data.reading.cache import OnDemand, cache_folder
from robolearn.data.reading.loading import write_weights
from robolearn.data.video.encoder import VideoConfig, open_stream
from robolearn.data.video.readers import picture_in

SIZE = 64
LENGTHS = (4, 2, 6)
INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((SIZE, SIZE, 3), "uint8")}, ArraySpec((2,)), 20.0
)


def value(e: int, t: int) -> int:
    return 20 + 60 * e + 9 * t


def film(e: int, length: int) -> Episode:
    t = np.arange(length, dtype=np.float32)
    images = np.stack([np.full((SIZE, SIZE, 3), value(e, i), np.uint8) for i in range(length)])
    vectors = np.stack([0 * t + e, t], 1)
    return Episode({"proprio": vectors, "images.front": images}, vectors / 100, t, True, True, False, "film")


@pytest.fixture
def root(tmp_path) -> Path:
    with EpisodeWriter(tmp_path / "set", INTERFACE) as w:
        w.write_all([film(e, length) for e, length in enumerate(LENGTHS)])
    return tmp_path / "set"


EXPECTED = [value(e, t) for e, length in enumerate(LENGTHS) for t in range(length)]


def values(frames) -> list[int]:
    """What the frames say; a codec may be off by a little."""
    nearest = np.asarray(frames).astype(int).mean(axis=(-3, -2, -1))
    return [min(EXPECTED, key=lambda v: abs(v - x)) if abs(x - round(x)) < 5 else -1 for x in nearest.reshape(-1)]


def test_the_cache_is_built_once(root, tmp_path, monkeypatch):
    told = []
    folder = tmp_path / "cache"
    dataset = Dataset.open(root, cache=folder)
    assert not folder.exists()
    frames = dataset.images("front", lambda done, total: told.append((done, total)))
    assert isinstance(frames, np.ndarray) and frames.shape == (12, SIZE, SIZE, 3) and values(frames) == EXPECTED
    assert told[0] == (0, 12) and told[-1] == (12, 12) and len(told) == 4
    assert dataset.images("images.front") is frames
    assert values(dataset.episode(1).observation["images.front"]) == EXPECTED[4:6]

    monkeypatch.setattr(cache, "_build", lambda *a: pytest.fail("decoded again"))
    moved = shutil.copytree(root, tmp_path / "elsewhere")
    assert values(Dataset.open(moved, cache=folder).images("front")) == EXPECTED
    frames[:] = 0  # our own
    assert values(Dataset.open(root, cache=folder).images("front")) == EXPECTED
    with pytest.raises(BadInput, match=r"got top, expected one it has; available: front"):
        dataset.images("top")


def files(folder: Path) -> list[Path]:
    """The files of the cache that hold pictures."""
    return [path for path in folder.rglob("frames/*/*") if path.suffix not in (".lock", ".tmp")]


def decoded(dataset: Dataset) -> set[int]:
    """Which episodes are decoded, from now on."""
    reader, seen = dataset.readers["images.front"], set()
    real = reader.packed
    object.__setattr__(reader, "packed", lambda e: (seen.add(e), real(e))[1])
    return seen


def test_a_grown_set_decodes_what_is_new(root, tmp_path):
    folder = tmp_path / "cache"
    Dataset.open(root, cache=folder).build_cache()
    with EpisodeWriter(root, INTERFACE, resume=True) as w:
        w.write(film(3, 3))
    dataset = Dataset.open(root, cache=folder)
    seen = decoded(dataset)
    assert values(dataset.images("front")[:12]) == EXPECTED and seen == {3}
    assert len(files(folder)) == 4

    # An episode replaced by another one, alone.
    video = root / "videos/observation.images.front/chunk-000"
    shutil.copy(video / "file-003.mp4", video / "file-001.mp4")
    dataset = Dataset.open(root, cache=folder)
    seen = decoded(dataset)
    assert values(dataset.images("front")[:4]) == EXPECTED[:4] and seen == {1}
    assert len(files(folder)) == 5


def test_building_goes_on_where_it_stopped(root, tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    dataset = Dataset.open(root, cache=folder)
    reader = dataset.readers["images.front"]
    real = reader.packed

    def stopped(e):
        if e == 2:
            raise KeyboardInterrupt
        return real(e)

    object.__setattr__(reader, "packed", stopped)
    with pytest.raises(KeyboardInterrupt):
        dataset.build_cache()
    dataset = Dataset.open(root, cache=folder)
    seen = decoded(dataset)
    assert values(dataset.images("front")) == EXPECTED and 2 in seen and len(seen) < 3


def test_parts_of_killed_builders_are_removed_by_the_next(root, tmp_path):
    folder = tmp_path / "cache"
    dead, alive = (folder / "frames" / name for name in ("ab/abc.17.tmp", "cd/cde.18.tmp"))
    for part in (dead, alive):
        part.parent.mkdir(parents=True)
        part.write_bytes(b"half an episode")
    os.utime(dead, times=(time.time() - 7200,) * 2)
    Dataset.open(root, cache=folder).build_cache()
    assert not dead.exists() and alive.exists() and len(files(folder)) == 3


@pytest.mark.long
def test_building_holds_a_few_frames_at_a_time(tmp_path, monkeypatch):
    length = 300
    images = np.arange(length).astype(np.uint8)[:, None, None, None] * np.ones((1, SIZE, SIZE, 3), np.uint8)
    vectors = np.zeros((length, 2), np.float32)
    with EpisodeWriter(tmp_path / "set", INTERFACE) as w:
        w.write(Episode({"proprio": vectors, "images.front": images}, vectors, vectors[:, 0], True, True, False, "x"))
    dataset = Dataset.open(tmp_path / "set", cache=tmp_path / "cache")
    whole = dataset.readers["images.front"].decode(0)
    monkeypatch.setattr(cache, "MEMORY_SHARE", 0.0)
    tracemalloc.start()
    try:
        frames = dataset.images("front")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * images[0].nbytes
    np.testing.assert_array_equal(frames[:], whole)
    monkeypatch.undo()
    np.testing.assert_array_equal(Dataset.open(tmp_path / "set", cache=tmp_path / "cache").images("front"), whole)
    assert sum(path.stat().st_size for path in files(tmp_path / "cache")) < whole.nbytes / 20


def test_equal_episodes_share_a_file(tmp_path):
    with EpisodeWriter(tmp_path / "set", INTERFACE) as w:
        w.write_all([film(0, 4)] * 6)
    videos = sorted((tmp_path / "set/videos").rglob("*.mp4"))
    for path in videos[1:]:
        shutil.copy(videos[0], path)
    told = []
    dataset = Dataset.open(tmp_path / "set", cache=tmp_path / "cache")
    frames = dataset.images("front", lambda done, total: told.append((done, total)))
    assert values(frames) == 6 * EXPECTED[:4] and len(files(tmp_path / "cache")) == 1 and told[-1] == (24, 24)


def build(root: Path, folder: Path) -> None:
    assert values(Dataset.open(root, cache=folder).images("front")) == EXPECTED


@pytest.mark.long
def test_processes_share_one_cache(root, tmp_path):
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=build, args=(root, tmp_path / "cache")) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0] and len(files(tmp_path)) == 3


def test_a_full_disk_is_said(root, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.raises(RobolearnError, match=r"cannot be written \(No space left on device\).*ROBOLEARN_CACHE=off"):
        Dataset.open(root, cache=tmp_path / "cache").build_cache()
    monkeypatch.undo()
    build(root, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_the_size_is_said_before_building_and_a_disk_that_is_too_small(root, tmp_path, monkeypatch, caplog):
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 100))
    with (
        caplog.at_level("INFO"),
        pytest.raises(RobolearnError, match=r"needs about 0\.0 MB, 0\.0 MB are free"),
    ):
        Dataset.open(root, cache=tmp_path / "cache").build_cache()
    assert "12 pictures to decode, about 0.0 MB in" in caplog.text and not files(tmp_path / "cache")
    assert f"{12 * SIZE * SIZE * 3 / 1e6:.1f} MB in memory" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("harm", ["cut", "empty", "flipped", "other head"])
@pytest.mark.parametrize("fits", [True, False])
def test_a_damaged_cache_file_is_made_anew(root, tmp_path, monkeypatch, harm, fits):
    folder = tmp_path / "cache"
    build(root, folder)
    for path in files(folder):
        content = bytearray(path.read_bytes())
        content[-20] ^= 0 if harm != "flipped" else 0x55
        content[9] ^= 0 if harm != "other head" else 1
        path.write_bytes(content[: {"cut": len(content) // 2, "empty": 0}.get(harm, len(content))])
    monkeypatch.setattr(cache, "MEMORY_SHARE", 0.5 if fits else 0.0)
    dataset = Dataset.open(root, cache=folder)
    frames = dataset.images("front")
    assert isinstance(frames, OnDemand) != fits and values(frames[:]) == EXPECTED
    build_anew = Dataset.open(root, cache=folder)
    assert values(build_anew.images("front")[:]) == EXPECTED
    dataset = Dataset.open(root, cache=folder)
    again = decoded(dataset)
    assert values(dataset.images("front")[:]) == EXPECTED and not again


def test_what_memory_has_no_room_for_is_unpacked_when_it_is_read(root, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "available_memory", lambda: 2 * 12 * SIZE * SIZE * 3)
    whole = Dataset.open(root, cache=tmp_path).images("front")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # as torchrun does
    dataset = Dataset.open(root, cache=tmp_path)
    frames = dataset.images("front")
    assert isinstance(whole, np.ndarray) and isinstance(frames, OnDemand)
    np.testing.assert_array_equal(frames[[7, 0, 11, 7]], whole[[7, 0, 11, 7]])
    batch = Windows(dataset, To=2, Tp=3).gather(torch.tensor([0, 3, 4, 11]))
    assert values(batch.observation["images.front"].numpy()) == [EXPECTED[i] for i in (0, 0, 2, 3, 4, 4, 10, 11)]


@pytest.mark.long
def test_a_set_of_more_files_than_a_process_may_open(tmp_path, monkeypatch):
    with EpisodeWriter(tmp_path / "set", INTERFACE) as w:
        w.write_all([film(e % 3, 2) for e in range(60)])
    monkeypatch.setattr(cache, "MEMORY_SHARE", 0.0)
    dataset = Dataset.open(tmp_path / "set", cache=tmp_path / "cache")
    frames = dataset.images("front")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 10, hard))
    try:
        seen = values(frames[:])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(frames, OnDemand)
    assert seen == [value(e % 3, t) for e in range(60) for t in range(2)]


def test_where_the_cache_lies(tmp_path, monkeypatch):
    monkeypatch.delenv("ROBOLEARN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder(tmp_path) == tmp_path / "xdg/robolearn" == cache_folder(tmp_path, True)
    monkeypatch.setenv("ROBOLEARN_CACHE", "beside")
    assert cache_folder(tmp_path) == tmp_path / ".cache" and cache_folder(tmp_path, tmp_path / "x") == tmp_path / "x"
    monkeypatch.setenv("ROBOLEARN_CACHE", "off")
    assert cache_folder(tmp_path) is None and cache_folder(tmp_path, False) is None


def test_on_demand(root):
    dataset = Dataset.open(root, cache=False)
    frames = dataset.images("front")
    assert isinstance(frames, OnDemand) and len(frames) == 12 and frames.dtype == np.uint8
    assert values(frames) == EXPECTED and values(frames[3:9:2]) == EXPECTED[3:9:2]
    assert frames[5].shape == (SIZE, SIZE, 3) and values(frames[np.array([[11, 0], [5, 5]])]) == [
        EXPECTED[i] for i in (11, 0, 5, 5)
    ]


@pytest.mark.parametrize("cached", [True, False])
def test_windows_of_images(root, tmp_path, cached):
    windows = Windows(Dataset.open(root, cache=tmp_path / "cache" if cached else False), To=2, Tp=3)
    batch = windows.gather(torch.tensor([0, 3, 4, 11]))
    images = batch.observation["images.front"]
    assert images.dtype == torch.uint8 and images.shape == (4, 2, SIZE, SIZE, 3)
    assert values(images.numpy()) == [EXPECTED[i] for i in (0, 0, 2, 3, 4, 4, 10, 11)]
    assert batch.observation["proprio"][:, 1, 1].tolist() == [0, 3, 0, 5]


def test_bad_videos_are_named(root):
    path = root / "videos/observation.images.front/chunk-000/file-001.mp4"
    whole = path.read_bytes()
    shutil.copy(path, path.with_name("file-002.mp4"))
    with pytest.raises(BadInput, match=r"file-002\.mp4 \(episode 2, images\.front, frame 2\): got no picture at 0\.1"):
        Dataset.open(root, cache=False).images("front")[:]
    for broken in (b"", whole[: len(whole) // 2], b"x" * 5000):
        path.write_bytes(broken)
        with pytest.raises(BadInput, match=r"file-001\.mp4 \(episode 1, images\.front\): got an unreadable video"):
            Dataset.open(root, cache=False).images("front")[:]
    path.unlink()
    with pytest.raises(BadInput, match=r"episode 1: got no videos/.*/file-001\.mp4"):
        Dataset.open(root)
    assert Dataset.open(root, images=False).episodes == 3


def as_lerobot(root: Path, change) -> None:
    """Make the set look like another writer's: no interface, and `change` (info) → what it likes."""
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    del info["robolearn_interface"]
    change(info)
    path.write_text(json.dumps(info))


def test_episodes_that_share_an_mp4(root, tmp_path):
    """As LeRobot concatenates them: one stream, with offsets in seconds."""
    chunk = root / "videos/observation.images.front/chunk-000"
    with av.open(str(tmp_path / "all.mp4"), "w") as out:
        stream, first = open_stream(out, INTERFACE.observation["images.front"], 20.0, VideoConfig()), 0
        for e, length in enumerate(LENGTHS):
            with av.open(str(chunk / f"file-00{e}.mp4")) as part:
                source = part.streams.video[0]
                for packet in part.demux(source):
                    if packet.dts is None:
                        continue
                    shift = round(first / 20 / packet.time_base)
                    packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                    out.mux_one(packet)
            first += length
    for e in range(3):
        (chunk / f"file-00{e}.mp4").unlink()
    shutil.move(tmp_path / "all.mp4", chunk / "file-000.mp4")
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.read_table(path)
    at = "videos/observation.images.front/"
    for name, numbers in (("file_index", [0, 0, 0]), ("from_timestamp", [0.0, 0.2, 0.3])):
        index = rows.column_names.index(at + name)
        rows = rows.set_column(index, at + name, pa.array(numbers, rows.schema.field(at + name).type))
    pq.write_table(rows, path)
    as_lerobot(root, lambda info: None)
    for choice in (tmp_path / "cache", False):
        dataset = Dataset.open(root, cache=choice)
        assert dataset.cameras == ["front"] and dataset.interface.observation == INTERFACE.observation
        assert values(dataset.images("front")) == EXPECTED
        assert values(dataset.episode(2).observation["images.front"]) == EXPECTED[6:]


def test_pictures_inside_the_table(root, tmp_path):
    """LeRobot's dtype "image": PNG files in a column, here with the channels first in the feature's shape."""
    shutil.rmtree(root / "videos")
    path = root / "data/chunk-000/file-000.parquet"
    cells = []
    for e, length in enumerate(LENGTHS):
        for t in range(length):
            ok, png = cv2.imencode(".png", film(e, length).observation["images.front"][t])
            cells.append({"bytes": io.BytesIO(png.tobytes()).getvalue(), "path": f"{e}-{t}.png"})
            assert ok
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pq.read_table(path).append_column("observation.image", pa.array(cells, kind))
    pq.write_table(table, path)

    def change(info):
        del info["features"]["observation.images.front"]
        shape = {"shape": [3, SIZE, SIZE], "names": ["channels", "height", "width"]}
        info["features"]["observation.image"] = {"dtype": "image", **shape}
        info["features"]["observation.images.depth"] = {"dtype": "video", "shape": [SIZE, SIZE, 1], "names": None}

    as_lerobot(root, change)
    for choice in (tmp_path / "cache", False):
        dataset = Dataset.open(root, cache=choice)
        assert dataset.cameras == ["image"]
        assert dataset.interface.observation["images.image"] == ArraySpec((SIZE, SIZE, 3), "uint8")
        assert np.asarray(dataset.images("image"))[:, 0, 0, 0].tolist() == EXPECTED
        assert values(dataset.episode(1).observation["images.image"]) == EXPECTED[4:6]


def test_weights_of_a_set(root):
    assert Dataset.open(root).weights is None
    write_weights(root, [1, 0, 2.5], 3, "a test")
    assert Dataset.open(root).weights == [1.0, 0.0, 2.5]
    with pytest.raises(BadInput, match="expected one for each of 3 episodes"):
        write_weights(root, [1.0], 3, "a test")
    with EpisodeWriter(root, INTERFACE, resume=True) as w:
        w.write(film(3, 2))
    dataset = Dataset.open(root)
    with pytest.raises(BadInput, match=r"robolearn_weights\.json: got 3 weights, expected one for each of 4"):
        _ = dataset.weights


def test_a_rate_that_is_no_small_fraction_can_be_read_to_its_end(tmp_path: Path) -> None:
    """30.0003 Hz stored as 30: frame 301 would be 0.1 ms away from its time."""
    interface = Interface({"images.front": ArraySpec((SIZE, SIZE, 3), "uint8")}, ArraySpec((1,)), 1 / 0.033333)
    with EpisodeWriter(tmp_path / "set", interface, video=VideoConfig(codec="libx264")) as writer:
        for t in range(400):
            writer.add({"images.front": np.full((SIZE, SIZE, 3), 40 + t // 2, np.uint8)}, [0.0])
        writer.end(success=True, task="look")
    shown = Dataset.open(tmp_path / "set", cache=False).images("front")
    assert [round(float(shown[t].mean())) for t in (0, 301, 399)] == pytest.approx([40, 190, 239], abs=3)


def test_moved_boundaries_are_another_content(root: Path, tmp_path: Path) -> None:
    plain = Interface({"proprio": ArraySpec((2,))}, ArraySpec((2,)), 20.0)
    rows = np.stack([np.arange(6.0), np.zeros(6)], 1)
    contents = []
    for name, lengths in (("a", (2, 4)), ("b", (4, 2)), ("c", (2, 4))):
        with EpisodeWriter(tmp_path / name, plain, task="reach") as writer:
            for t, row in enumerate(rows):
                writer.add({"proprio": row}, row / 10)
                if t in (lengths[0] - 1, 5):
                    writer.end(success=True)
        contents.append(Dataset.open(tmp_path / name).content())
    assert contents[0] == contents[2] != contents[1]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("held", [1, 3, 6, 8])
def test_a_note_of_the_camera_turns_no_picture(kind: str, held: int) -> None:
    """As PIL decodes it, by which LeRobot reads: an upright camera and one on its side store the same pixels."""
    from PIL import Image

    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, :16], pixels[:8, 16:] = (255, 0, 0), (0, 0, 255)
    drawn, note, file = Image.fromarray(pixels), Image.Exif(), io.BytesIO()
    note[0x112] = held
    drawn.save(file, kind, exif=note, **({"quality": 95} if kind == "JPEG" else {}))
    picture = picture_in({"bytes": file.getvalue()})
    assert picture is not None and picture.shape == (16, 32, 3)
    assert np.abs(picture.astype(int) - np.asarray(Image.open(file))).max() <= 3
