"""Sets of many kinds that LeRobot wrote, under each operation of ours: LeRobot says what is in them before, after."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import av
import lerobot.datasets.lerobot_dataset as lerobot_dataset
import numpy as np
import pytest
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.v30.convert_dataset_v21_to_v30 import convert_dataset

from robolearn.core import BadInput
from robolearn.data import Dataset, Windows
from robolearn.data.convert import edit, view
from robolearn.data.convert.formats import ReadOptions, reader, writer
from robolearn.data.convert.source import open_numbers, write_dataset
from robolearn.data.validate import validate
from robolearn.data.validate.opened import Tolerances
from robolearn.data.writing.repair import repair

LOSSY = 4.0  # mean error of a picture, of 255, by encoding it once more; neighbours differ by 11
AV_PICTURE_TYPE_B = 3  # <libavutil/avutil.h>
TASKS = ("lift the cube", "place it", "push it")


@dataclass(frozen=True)
class Kind:
    """A set to be written by LeRobot.

    Attributes:
      codec: of the videos; none: pictures lie as PNG in the tables.
      gop: frames between two that stand for themselves; 2 is LeRobot's own.
      reopened: LeRobot closes the set after so many episodes, opens it again and goes on.
      tiny: hardly an episode to a file.
      task_by_frame: the task changes within episodes.
      more: columns besides: a flag, a count, a clock of 64 bits.
    """

    fps: int = 20
    lengths: tuple[int, ...] = (4, 6, 4)
    codec: str = "h264"
    gop: int = 2
    sizes: dict[str, tuple[int, int]] = field(default_factory=lambda: {"front": (48, 64), "wrist": (48, 64)})
    reopened: int = 0
    tiny: bool = False
    task_by_frame: bool = False
    more: bool = False


ONE = {"front": (48, 64)}
KINDS = {
    "7 fps": Kind(7, sizes=ONE),
    "15 fps": Kind(15, sizes=ONE),
    "24 fps": Kind(24, sizes=ONE),
    "30 fps": Kind(30, sizes=ONE),
    "50 fps": Kind(50, sizes=ONE),
    "60 fps": Kind(60, sizes=ONE),
    "PNG": Kind(codec=""),
    "AV1": Kind(codec="libsvtav1", sizes=ONE),
    "B-frames": Kind(30, (14, 17), gop=6, sizes=ONE),
    "tiny files": Kind(tiny=True),
    "episodes of one frame": Kind(lengths=(4, 1, 1, 3), sizes=ONE, tiny=True),
    "cameras of different size": Kind(sizes={"front": (64, 96), "wrist": (32, 32)}),
    "written in two goes": Kind(reopened=2, sizes=ONE),
    "a task for every frame": Kind(sizes=ONE, task_by_frame=True),
    "more columns": Kind(sizes=ONE, more=True),
}


def write(root: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set, by LeRobot alone."""
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    for camera, size in kind.sizes.items():
        names = ["height", "width", "channels"]
        dtype = "video" if kind.codec else "image"
        features[f"observation.images.{camera}"] = {"dtype": dtype, "shape": (*size, 3), "names": names}
    if kind.more:
        features["observation.touch"] = {"dtype": "bool", "shape": (1,), "names": None}
        features["observation.count"] = {"dtype": "int64", "shape": (1,), "names": None}
        features["observation.clock"] = {"dtype": "float64", "shape": (1,), "names": None}
    encode = partial(lerobot_dataset.encode_video_frames, g=kind.gop)
    monkeypatch.setattr(lerobot_dataset, "encode_video_frames", encode)
    options = {"vcodec": kind.codec} if kind.codec else {}
    out = LeRobotDataset.create(
        "theirs/set", kind.fps, features, root, robot_type="so101", use_videos=bool(kind.codec), **options
    )
    if kind.tiny:
        out.meta.update_chunk_settings(chunks_size=2, data_files_size_in_mb=1e-4, video_files_size_in_mb=1e-4)
    for e, length in enumerate(kind.lengths):
        if e and e == kind.reopened:
            out.finalize()
            out = LeRobotDataset("theirs/set", root, **options)
        for t in range(length):
            frame: dict[str, Any] = {
                "observation.state": np.array([e, t, -t], np.float32),
                "action": np.array([e, t], np.float32) / np.float32(50),
                "task": TASKS[(e + t * kind.task_by_frame) % 3],
            }
            for c, (camera, size) in enumerate(kind.sizes.items()):
                shade = 20 + (37 * e + 11 * t + 90 * c) % 200
                frame[f"observation.images.{camera}"] = np.full((*size, 3), shade, np.uint8)
            if kind.more:
                frame["observation.touch"] = np.array([t % 2 == 0])
                frame["observation.count"] = np.array([2**53 + t], np.int64)
                frame["observation.clock"] = np.array([1.7e9 + t / 1000], np.float64)
            out.add_frame(frame)
        out.save_episode()
    out.finalize()


@dataclass(frozen=True)
class Frames:
    """What LeRobot reads from a set: lists over all frames in order."""

    episode: list[int]
    task: list[str]
    state: np.ndarray
    action: np.ndarray
    pictures: dict[str, list[np.ndarray]]

    def of(self, episodes: list[int], rows: slice = slice(None)) -> Frames:
        """Those episodes in that order, of each the frames `rows`."""
        index = [i for e in episodes for i in np.flatnonzero(np.array(self.episode) == e)[rows]]
        numbers = [n for n, e in enumerate(episodes) for _ in np.flatnonzero(np.array(self.episode) == e)[rows]]
        pictures = {camera: [shown[i] for i in index] for camera, shown in self.pictures.items()}
        return Frames(numbers, [self.task[i] for i in index], self.state[index], self.action[index], pictures)


def by_lerobot(root: Path) -> Frames:
    theirs = LeRobotDataset("some/set", root, video_backend="pyav")
    rows = [theirs[i] for i in range(len(theirs))]
    return Frames(
        [int(row["episode_index"]) for row in rows],
        [row["task"] for row in rows],
        torch.stack([row["observation.state"] for row in rows]).numpy(),
        torch.stack([row["action"] for row in rows]).numpy(),
        {
            key.removeprefix("observation.images."): [row[key].permute(1, 2, 0).numpy() * 255.0 for row in rows]
            for key in theirs.meta.camera_keys
        },
    )


def by_us(dataset: Dataset) -> Frames:
    episodes = [dataset.episode(e) for e in range(dataset.episodes)]
    counts = dataset.lengths.tolist()
    return Frames(
        [e for e, count in enumerate(counts) for _ in range(count)],
        [dataset.tasks[i] for i in dataset.task_index],
        np.concatenate([episode.observation["proprio"] for episode in episodes]),
        np.concatenate([episode.action for episode in episodes]),
        {
            camera: [picture for episode in episodes for picture in episode.observation[f"images.{camera}"]]
            for camera in dataset.cameras
        },
    )


def same(found: Frames, wanted: Frames, loss: float) -> None:
    assert found.episode == wanted.episode and found.task == wanted.task
    np.testing.assert_array_equal(found.state, wanted.state)
    np.testing.assert_array_equal(found.action, wanted.action)
    assert sorted(found.pictures) == sorted(wanted.pictures)
    for camera, shown in wanted.pictures.items():
        for i, (a, b) in enumerate(zip(found.pictures[camera], shown, strict=True)):
            assert a.shape == b.shape and np.abs(a - b).mean() < loss, (camera, i, np.abs(a - b).mean())


@pytest.fixture(scope="module", params=KINDS)
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Frames]]:
    """A set, and what LeRobot says is in it, which is what was put in."""
    kind, root = KINDS[request.param], tmp_path_factory.mktemp("theirs") / "set"
    with pytest.MonkeyPatch.context() as patch:
        write(root, kind, patch)
    frames = by_lerobot(root)
    assert [frames.episode.count(e) for e in range(len(kind.lengths))] == list(kind.lengths)
    for i, (e, t) in enumerate((e, t) for e, length in enumerate(kind.lengths) for t in range(length)):
        for c, camera in enumerate(kind.sizes):
            assert abs(frames.pictures[camera][i].mean() - (20 + (37 * e + 11 * t + 90 * c) % 200)) < LOSSY
    if kind.gop > 2:
        with av.open(str(next(root.glob("videos/*/*/*.mp4")))) as film:
            assert AV_PICTURE_TYPE_B in {int(frame.pict_type) for frame in film.decode(video=0)}
    if kind.tiny:
        assert len(list(root.glob("videos/*/*/*.mp4"))) == len(kind.lengths) * len(kind.sizes)
    yield root, frames
    shutil.rmtree(root)


def test_every_way_of_reading(theirs: tuple[Path, Frames], tmp_path: Path) -> None:
    root, wanted = theirs
    same(by_us(Dataset.open(root, cache=False)), wanted, 1.5)
    cached = Dataset.open(root, cache=tmp_path / "cache")
    same(by_us(cached), wanted, 1.5)
    batch = Windows(cached, 1, 1).gather(torch.arange(cached.frames))
    for camera, shown in wanted.pictures.items():
        seen = batch.observation[f"images.{camera}"].numpy()
        assert np.abs(seen.reshape(len(shown), -1).mean(1) - [picture.mean() for picture in shown]).max() < 1.5
    assert [f for f in validate(root, Tolerances()) if f.severity == "error"] == []


def open_videos(root: Path, folder: Path) -> Dataset:
    """The set as edits and exports take it: what lies as PNG in the tables is imported first, as the refusal says."""
    if not list(root.glob("videos")):
        with pytest.raises(BadInput, match="robolearn dataset import"):
            write_dataset(edit.keep(open_numbers(root), [0]), folder / "refused")
        write_dataset(reader("lerobot-v3.0")(root, ReadOptions()), folder / "videos")
        root = folder / "videos"
    return open_numbers(root)


def edited(root: Path, out: Path, n: int) -> list[tuple[Path, list[int], slice]]:
    """Sets that our edits wrote: folder, which episodes are in it, and which frames of each."""
    dataset, everything = open_videos(root, out), list(range(n))
    whole = slice(None)
    made = [("drop", edit.drop(dataset, [1]), [e for e in everything if e != 1], whole)]
    made.append(("keep", edit.keep(dataset, everything[::-1]), everything[::-1], whole))
    made.append(("merge", edit.merge([dataset, dataset]), everything * 2, whole))
    made.append(("import", reader("lerobot-v3.0")(root, ReadOptions()), everything, whole))
    if dataset.lengths.min() > 3:
        made.append(("crop", edit.crop(dataset, 1, 1), everything, slice(1, -1)))
        made.append(("subsample", edit.subsample(dataset, 2, "first"), everything, slice(None, None, 2)))
    for name, source, *_ in made:
        write_dataset(source, out / name)
    return [(out / name, episodes, rows) for name, _, episodes, rows in made]


def test_every_edit_and_the_import(theirs: tuple[Path, Frames], tmp_path: Path) -> None:
    root, wanted = theirs
    for path, episodes, rows in edited(root, tmp_path, wanted.episode[-1] + 1):
        expected = wanted.of(episodes, rows)
        theirs_again = by_lerobot(path)
        same(theirs_again, expected, LOSSY)
        same(by_us(Dataset.open(path, cache=False)), theirs_again, 1.5)


def test_every_export(theirs: tuple[Path, Frames], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, wanted = theirs
    dataset = open_videos(root, tmp_path)
    writer("npz")(dataset, tmp_path / "npz", None)
    at = 0
    for path in sorted((tmp_path / "npz").glob("*.npz")):
        file = np.load(path)
        for camera, shown in wanted.pictures.items():
            for t, picture in enumerate(file[f"images.{camera}"]):
                assert np.abs(picture - shown[at + t]).mean() < LOSSY
        np.testing.assert_array_equal(file["proprio"], wanted.state[at : at + len(file["proprio"])])
        at += len(file["proprio"])
    assert at == len(wanted.episode)
    if wanted.episode.count(1) == 1:
        return  # LeRobot cannot put a film of one frame behind another one: it does not record such episodes either
    # The older format: LeRobot's own converter brings it up to date.
    writer("lerobot-v2.1")(dataset, tmp_path / "some/old", None)
    monkeypatch.setattr(os, "environ", {**os.environ, "HF_HUB_OFFLINE": "1"})
    convert_dataset("some/old", root=tmp_path, push_to_hub=False)
    same(by_lerobot(tmp_path / "some/old"), wanted, LOSSY)


def test_the_viewer(theirs: tuple[Path, Frames], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rerun

    root, wanted = theirs
    shown: list[np.ndarray] = []
    real = rerun.Image
    monkeypatch.setattr(rerun, "Image", lambda image: (shown.append(np.array(image)), real(image))[1])
    n = wanted.episode[-1] + 1
    view.save(open_videos(root, tmp_path), range(n), tmp_path / "set.rrd")
    left = {camera: iter(pictures) for camera, pictures in wanted.pictures.items()}
    # Camera after camera within an episode.
    expected = [next(left[c]) for e in range(n) for c in sorted(left) for _ in range(wanted.episode.count(e))]
    assert len(shown) == len(expected)
    assert max(np.abs(a - b).mean() for a, b in zip(shown, expected, strict=True)) < LOSSY


def test_a_truncated_table_of_episodes_is_made_again(theirs: tuple[Path, Frames], tmp_path: Path) -> None:
    root, wanted = theirs
    with pytest.raises(BadInput, match="robolearn did not write"):
        repair(root)
    out = tmp_path / "ours"
    write_dataset(reader("lerobot-v3.0")(root, ReadOptions()), out)
    before = by_lerobot(out)
    same(before, wanted, LOSSY)
    table = next(out.glob("meta/episodes/*/*.parquet"))
    table.write_bytes(table.read_bytes()[:-40])
    repair(out)
    same(by_lerobot(out), before, 1e-3)
    same(by_us(Dataset.open(out, cache=False)), before, 1.5)
