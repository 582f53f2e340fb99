"""Images: encoded while recording, read back frame by frame, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

from robolearn.core import ArraySpec, BadInput, Episode, Interface, RobolearnError
from robolearn.data import Dataset, EpisodeWriter, VideoConfig
from robolearn.data.lerobot.statistics import PixelStatistics, describe, describe_frames
from robolearn.data.video import encoder
from robolearn.data.writing.repair import repair
from robolearn.io.append_only import records

HEIGHT, WIDTH = 64, 80


@pytest.fixture
def cameras() -> Interface:
    pictures = {f"images.{name}": ArraySpec((HEIGHT, WIDTH, 3), "uint8") for name in ("front", "wrist")}
    return Interface({"proprio": ArraySpec((2,)), **pictures}, ArraySpec((2,)), 20.0, "panda", "tcp_delta")


def picture(e: int, t: int, camera: int) -> np.ndarray:
    """A colour of its own for every place, in two halves."""
    image = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    image[:, : WIDTH // 2] = (20 + 9 * t % 200, 60 * camera + 20, 30 * e + 10)
    image[:, WIDTH // 2 :] = (30 * e + 10, 20 + 9 * t % 200, 200)
    return image


def film(e: int, length: int = 9, **more) -> Episode:
    t = np.arange(length, dtype=np.float32)
    cameras = enumerate(("front", "wrist"))
    images = {f"images.{name}": np.stack([picture(e, i, c) for i in range(length)]) for c, name in cameras}
    return Episode(
        {"proprio": np.stack([t, t + e], 1), **images}, np.stack([t, t], 1) / 100, t, True, True, False, "film", **more
    )  # fmt: skip


def add(writer: EpisodeWriter, episode: Episode, **more) -> None:
    for t in range(len(episode)):
        step = {key: value[t] for key, value in episode.observation.items()}
        writer.add(step, episode.action[t], episode.reward[t], **{k: v(t) for k, v in more.items()})


def close(a, b, most=6.0) -> bool:
    return bool(np.abs(np.asarray(a).astype(int) - np.asarray(b).astype(int)).mean() < most)


@pytest.mark.long
def test_round_trip_step_by_step_and_whole(tmp_path, cameras):
    films = [film(0), film(1, 5), film(2, 1)]
    with EpisodeWriter(tmp_path / "a", cameras) as w:
        for one in films:
            add(w, one)
            w.end(success=True, terminated=True, task="film")
    with EpisodeWriter(tmp_path / "b", cameras) as w:
        w.write_all(films)
    for root in (tmp_path / "a", tmp_path / "b"):
        dataset = Dataset.open(root, cache=tmp_path / "cache")
        assert dataset.cameras == ["front", "wrist"] and dataset.interface == cameras
        for e, one in enumerate(films):
            read = dataset.episode(e).observation
            assert set(read) == set(one.observation) and len(read) == 3
            assert all(close(read[f"images.{name}"], one.observation[f"images.{name}"]) for name in dataset.cameras)
        assert not list(root.rglob("*.tmp")) and not (root / ".running").exists()
    assert not Dataset.open(tmp_path / "a", images=False).cameras


def test_the_format_is_lerobots(tmp_path, cameras):
    root = tmp_path / "set"
    with EpisodeWriter(root, cameras) as w:
        w.write_all([film(0), film(1, 5)])
    info = json.loads((root / "meta/info.json").read_text())
    assert info["video_path"] == "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    feature = info["features"]["observation.images.wrist"]
    assert feature["dtype"] == "video" and feature["shape"] == [HEIGHT, WIDTH, 3]
    assert feature["info"]["video.fps"] == 20 and feature["info"]["video.pix_fmt"] == "yuv420p"
    assert feature["info"]["video.codec"] in ("av1", "h264") and feature["info"]["has_audio"] is False
    frames = pq.read_table(root / "data/chunk-000/file-000.parquet")
    assert not [name for name in frames.column_names if "images" in name]
    rows = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet")
    at = "videos/observation.images.front/"
    assert rows[at + "file_index"].to_pylist() == [0, 1] and rows[at + "from_timestamp"].to_pylist() == [0.0, 0.0]
    assert rows[at + "to_timestamp"].to_pylist() == [0.45, 0.25]
    assert np.shape(rows["stats/observation.images.front/mean"].to_pylist()) == (2, 3, 1, 1)
    assert rows["stats/observation.images.front/count"].to_pylist() == [[9], [5]]
    stats = json.loads((root / "meta/stats.json").read_text())["observation.images.front"]
    pixels = np.concatenate([film(0).observation["images.front"], film(1, 5).observation["images.front"]]) / 255.0
    assert np.shape(stats["max"]) == (3, 1, 1) and stats["count"] == [14]
    assert np.allclose(np.ravel(stats["mean"]), pixels.mean(axis=(0, 1, 2)))
    assert np.allclose(np.ravel(stats["std"]), pixels.std(axis=(0, 1, 2)))
    with av.open(str(root / "videos/observation.images.front/chunk-000/file-000.mp4")) as container:
        shown = [float(frame.pts * frame.time_base) for frame in container.decode(video=0)]
    assert np.allclose(shown, np.arange(9) / 20, atol=1e-4)


def test_interventions_and_stamps(tmp_path, cameras):
    names = ("proprio", "images.front")
    clock = {"proprio": np.arange(4) * 0.05 + 1e9, "images.front": np.arange(4) * 0.04}
    whole = film(1, 4, intervention=np.array([True, False, False, True]), stamps=clock)
    with EpisodeWriter(tmp_path / "set", cameras, stamps=names) as w:
        add(w, film(0, 4), intervention=lambda t: t == 2, stamps=lambda t: {n: clock[n][t] for n in names})
        w.end(success=False, truncated=True)
        w.write(whole)
        with pytest.raises(BadInput, match=r"stamps at step 0: got no 'images\.front'"):
            w.add({k: v[0] for k, v in whole.observation.items()}, [0, 0], stamps={"proprio": 0.0})
        with pytest.raises(BadInput, match="stamp: got clock"):
            w.add({k: v[0] for k, v in whole.observation.items()}, [0, 0], stamps={"clock": 0.0})
        with pytest.raises(BadInput, match="stamp 'proprio' at step 0: got nan"):
            w.add({k: v[0] for k, v in whole.observation.items()}, [0, 0], stamps=dict.fromkeys(names, np.nan))
        with pytest.raises(BadInput, match="no 'proprio'"):
            w.write(film(1, 4))
    dataset = Dataset.open(tmp_path / "set", cache=False)
    assert dataset.intervention.tolist() == [False, False, True, False, True, False, False, True]
    assert dataset.stamps["proprio"].dtype == np.float64
    assert dataset.stamps["proprio"].tolist() == clock["proprio"].tolist() * 2
    last = dataset.episode(1)
    assert last.intervention is not None and last.intervention.tolist() == [True, False, False, True]
    assert last.stamps["images.front"].tolist() == clock["images.front"].tolist()
    with pytest.raises(BadInput, match=r"stamps: missing; expected \['proprio', 'images.front'\]"):
        EpisodeWriter(tmp_path / "set", cameras, resume=True)


@pytest.mark.long
def test_resume_and_discard(tmp_path, cameras):
    root = tmp_path / "set"
    for e in range(3):
        with EpisodeWriter(root, cameras, resume=True, task="film") as w:
            add(w, film(7, 3))
            w.discard()
            assert not (root / ".running").exists()
            add(w, film(e, 4))
            w.end(success=True)
            add(w, film(8, 3))  # forgotten by close
    dataset = Dataset.open(root, cache=False)
    assert dataset.lengths.tolist() == [4, 4, 4] and dataset.tasks == ["film"]
    assert len(list(root.rglob("*.mp4"))) == 6
    for e in range(3):
        assert close(dataset.episode(e).observation["images.wrist"], film(e, 4).observation["images.wrist"])
    assert dataset.stats["observation.images.front"]["count"] == 12


def test_a_set_without_interventions_is_resumed_as_it_is(tmp_path, interface, episode):
    """As versions before this one wrote them."""
    root = tmp_path / "set"
    with EpisodeWriter(root, interface) as w:
        w.write(episode(0))
    info = json.loads((root / "meta/info.json").read_text())
    del info["features"]["is_intervention"]
    (root / "meta/info.json").write_text(json.dumps(info))
    for name in ("data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"):
        table = pq.read_table(root / name)
        pq.write_table(table.select([c for c in table.column_names if "is_intervention" not in c]), root / name)
    with EpisodeWriter(root, interface, resume=True) as w:
        w.write(episode(1))
        with pytest.raises(BadInput, match="expected a set that can say so"):
            w.add({k: v[0] for k, v in episode(1).observation.items()}, [0, 0], intervention=True)
    assert "is_intervention" not in pq.read_table(root / "data/chunk-000/file-000.parquet").column_names
    dataset = Dataset.open(root)
    assert dataset.episodes == 2 and not dataset.intervention.any()


def test_bad_images_are_named(tmp_path, cameras):
    one = {key: value[0] for key, value in film(0).observation.items()}
    with EpisodeWriter(tmp_path / "set", cameras) as w:
        w.add(one | {"images.front": one["images.front"][None]}, [0, 0])
        with pytest.raises(BadInput, match=r"'images.wrist' at step 1: got shape \(64, 79, 3\) uint8"):
            w.add(one | {"images.wrist": one["images.wrist"][:, 1:]}, [0, 0])
        with pytest.raises(BadInput, match=r"'images.front' at step 1: .*float32, expected .*uint8"):
            w.add(one | {"images.front": one["images.front"] / np.float32(255)}, [0, 0])
        w.add(one, [0, 0])
        w.end(success=True)
        short = film(1)
        short.observation["images.front"] = short.observation["images.front"][1:]  # type: ignore[index]
        with pytest.raises(BadInput, match=r"'images\.front'"):
            w.write_all([film(2), short])
    assert Dataset.open(tmp_path / "set").lengths.tolist() == [2] and len(list(tmp_path.rglob("*.mp4"))) == 2
    with pytest.raises(BadInput, match=r"video of 'images.front'.*nonsense"):
        EpisodeWriter(tmp_path / "other", cameras, video=VideoConfig(codec="nonsense"))
    assert not (tmp_path / "other/meta").exists()


def test_h264_where_there_is_no_av1(tmp_path, cameras, monkeypatch):
    monkeypatch.setattr(av, "codecs_available", {"libx264"})
    with EpisodeWriter(tmp_path / "set", cameras) as w:
        add(w, film(0))
        w.end(success=True)
    dataset = Dataset.open(tmp_path / "set", cache=False)
    assert dataset.features["observation.images.front"]["info"]["video.codec"] == "h264"
    assert close(dataset.episode(0).observation["images.front"], film(0).observation["images.front"])


@pytest.mark.parametrize("size", [(63, 65), (64, 65), (63, 64), (3, 5)])
def test_h264_of_odd_sizes(tmp_path, size):
    t, (height, width) = np.arange(9), size
    pictures = np.stack([np.full((height, width, 3), (20 * e + 10, 200, 250 - 20 * e), np.uint8) for e in t])
    interface = Interface({"images.front": ArraySpec((*size, 3), "uint8")}, ArraySpec((2,)), 10.0, "panda", "tcp_delta")
    with EpisodeWriter(tmp_path / "set", interface, video=VideoConfig(codec="libx264", crf=10)) as writer:
        writer.write(Episode({"images.front": pictures}, np.zeros((9, 2), np.float32), 0.0 * t, True, True, False, "x"))
    (path,) = (tmp_path / "set").rglob("*.mp4")
    with av.open(str(path)) as container:  # without a reader of ours
        judged = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    assert judged.shape == pictures.shape and close(judged, pictures)
    assert close(np.asarray(Dataset.open(tmp_path / "set", cache=tmp_path / "cache").images("front")[:]), pictures)


def test_a_size_that_no_encoder_takes_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"video of 'images.front': got 20000x2, libx264, yuv420p"):
        encoder.check_encodable("images.front", ArraySpec((2, 20000, 3), "uint8"), 10.0, VideoConfig(codec="libx264"))


@pytest.mark.long
@pytest.mark.parametrize("recorded", [True, False])
def test_only_a_recording_is_written_packet_by_packet(tmp_path, monkeypatch, recorded):
    """What is made at once has no index, by which its packets could be found after a kill."""
    writes, real = [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: writes.append(len(args[1])) or real(*args))
    index = tmp_path / "a.journal" if recorded else None
    config = VideoConfig("libx264", preset="ultrafast", threads=1)
    made = encoder.VideoEncoder(tmp_path / "a.mp4", "a", ArraySpec((64, 80, 3), "uint8"), 20.0, config, index=index)
    for t in range(60):
        made.put(picture(0, t, 0)[:, ::-1])  # not in one piece
    assert made.finish().frames == 60
    assert (len(writes) > 60) is recorded
    found = [frame.to_ndarray(format="rgb24") for frame in av.open(str(tmp_path / "a.mp4")).decode(video=0)]
    assert len(found) == 60 and all(close(found[t], picture(0, t, 0)[:, ::-1]) for t in range(60))


@pytest.mark.parametrize("where", ["video", "journal", "table"])
def test_a_full_disk_costs_the_episode_at_hand_alone(tmp_path, cameras, monkeypatch, where):
    root, real, real_at = tmp_path / "set", os.write, os.pwrite
    full = [False]

    def of(descriptor: int) -> str:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        return {".mp4": "video", ".journal": "journal"}.get(Path(name).suffix, "table")

    def checked(write):
        def written(descriptor, data, *at):
            if full[0] and of(descriptor) == where:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data, *at)

        return written

    monkeypatch.setattr(os, "write", checked(real))
    monkeypatch.setattr(os, "pwrite", checked(real_at))
    with EpisodeWriter(root, cameras) as w:
        add(w, film(0))
        w.end(success=True)
        full[0] = True
        with pytest.raises(RobolearnError, match=r"cannot be written .*No space left on device") as caught:
            add(w, film(1))
            w.end(success=True)
        assert "\n" not in str(caught.value)
        full[0] = False
        if where == "table":  # the steps are still there
            w.end(success=True)
        else:
            with pytest.raises(RobolearnError, match="No space"):
                w.end(success=True)
            w.discard()
            add(w, film(1))
            w.end(success=True)
        full[0] = True
        with pytest.raises(RobolearnError, match="No space"):
            add(w, film(2))
            w.end(success=True)
        full[0] = False
    assert Dataset.open(root, cache=False).lengths.tolist() == [9, 9]
    repair(root)  # of the third episode the encoders had everything, or nothing
    lengths = [9, 9, 9] if where == "table" else [9, 9]
    assert Dataset.open(root, cache=False).lengths.tolist() == lengths
    assert not list(root.rglob("*.tmp")) and not (root / ".running").exists()
    assert len(list(root.rglob("*.mp4"))) == 2 * len(lengths)


@pytest.mark.long
@pytest.mark.parametrize("where", ["video", "journal", "table"])
def test_what_a_full_disk_refused_is_there_for_repair(tmp_path, cameras, monkeypatch, where):
    """The session ends with the error, nothing more can be written, and later there is room."""
    root, full = tmp_path / "set", [False]
    names = {"video": (".mp4",), "journal": ("rows.journal",), "table": (".tmp",)}[where]

    def checked(write):
        def written(descriptor, data, *at):
            if full[0] and os.readlink(f"/proc/self/fd/{descriptor}").endswith((*names, ".tmp")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data, *at)

        return written

    monkeypatch.setattr(os, "write", checked(os.write))
    monkeypatch.setattr(os, "pwrite", checked(os.pwrite))

    def encoded() -> int:
        return min(sum(1 for _ in records(root / f".running/{name}.journal")) for name in ("front", "wrist"))

    prompt = VideoConfig(codec="libx264", preset="ultrafast")
    refused = pytest.raises(RobolearnError, match="No space left on device")
    with refused, EpisodeWriter(root, cameras, task="film", video=prompt) as w:
        add(w, film(0))
        w.end(success=True)
        add(w, film(1, 40))
        end = time.monotonic() + 20.0
        while encoded() < 5 and time.monotonic() < end:
            time.sleep(0.01)
        full[0] = True
        add(w, film(2, 1))
        w.end(success=True)
    assert Dataset.open(root, cache=False).lengths.tolist() == [9]
    with pytest.raises(RobolearnError, match="No space left on device"):
        repair(root)
    full[0] = False
    done = repair(root)
    steps = {"video": 41, "journal": 40, "table": 41}[where]
    assert len(done.saved) == 1 and done.saved[0][1] + done.lost == steps
    assert done.lost == 0 if where != "video" else done.saved[0][1] >= 5
    saved = Dataset.open(root, cache=False).episode(1)
    kept = min(len(saved), 40)
    assert (saved.success, saved.truncated, saved.task) == (False, True, "film")
    assert saved.observation["proprio"][:kept].tolist() == film(1, kept).observation["proprio"].tolist()
    for name in ("images.front", "images.wrist"):
        assert close(saved.observation[name][:kept], film(1, kept).observation[name])
    assert not (root / ".running").exists() and not (root / ".unfinished").exists()


def test_pixel_statistics_by_hand():
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (7, 10, 12, 3)).astype(np.uint8)
    got, expected = describe_frames(frames), describe(frames.reshape(-1, 3) / 255.0)
    assert got.pop("count") == 7
    assert all(np.allclose(got[name], expected[name]) for name in got)
    many = PixelStatistics()
    for i in range(1000):
        many.add(np.full((2, 2, 3), i // 4, np.uint8))
    stats = many.stats()
    assert 100 <= stats["count"] < 200 and stats["max"][0] > 0.95 and abs(stats["mean"][0] - 0.49) < 0.01
    large = PixelStatistics()
    large.add(np.zeros((480, 640, 3), np.uint8))
    assert large.histograms[0][0].sum() == 120 * 160


def test_an_encoder_that_lags_is_waited_for(tmp_path, cameras, monkeypatch):
    slow = PixelStatistics.add
    monkeypatch.setattr(PixelStatistics, "add", lambda self, frame: (time.sleep(0.01), slow(self, frame)))
    with EpisodeWriter(tmp_path / "set", cameras, video=VideoConfig(queue=2)) as w:
        add(w, film(0, 12))
        w.end(success=True)
    frames = Dataset.open(tmp_path / "set", cache=False).episode(0).observation["images.front"]
    assert close(frames, film(0, 12).observation["images.front"])


@pytest.mark.long
def test_an_encoder_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    hangs, goes_on = threading.Event(), threading.Event()

    def encode(stream: object, *frame: object) -> list:
        hangs.set()
        goes_on.wait()
        return []

    real, hung = encoder.open_stream, SimpleNamespace(encode=encode, pix_fmt="rgb24")
    monkeypatch.setattr(encoder, "PATIENCE_S", 0.6)
    monkeypatch.setattr(encoder, "open_stream", lambda *all: real(*all) and hung)
    video = encoder.VideoEncoder(
        tmp_path / "hung.mp4", "front", ArraySpec((HEIGHT, WIDTH, 3), "uint8"), 20.0, VideoConfig(queue=2)
    )
    try:
        video.put(picture(0, 0, 0))
        assert hangs.wait(10)
        for t in (1, 2):
            video.put(picture(0, t, 0))
        began = time.monotonic()
        with pytest.raises(RobolearnError, match=r"has not moved for 0\.6 s after 0 frames"):
            video.put(picture(0, 3, 0))
        with pytest.raises(RobolearnError, match="has not moved"):
            video.finish()
        video.abort()
        assert not video.path.exists() and time.monotonic() - began < 30
    finally:
        goes_on.set()


@pytest.mark.long
def test_an_encoder_whose_frames_come_seldom_is_no_hung_one(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder, "PATIENCE_S", 1.0)
    spec = ArraySpec((HEIGHT, WIDTH, 3), "uint8")
    video = encoder.VideoEncoder(tmp_path / "slow.mp4", "front", spec, 20.0, VideoConfig())
    for t in range(2):
        video.put(picture(0, t, 0))
        time.sleep(1.5)
    assert video.finish().frames == 2
