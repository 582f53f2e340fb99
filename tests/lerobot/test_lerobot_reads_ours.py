"""Our sets in LeRobot's own reader, frame by frame, across the boundaries of episodes and files; and in its merge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lerobot.datasets.dataset_tools import delete_episodes, merge_datasets, remove_feature, split_dataset
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from robolearn.cli.main import main
from robolearn.core import ArraySpec, Episode, Interface, check_compatible
from robolearn.data import Dataset, EpisodeWriter, VideoConfig, Windows
from robolearn.data.lerobot.features import INTERFACE_KEY
from robolearn.data.writing.repair import repair

CAMERAS = ("front", "wrist")
HZ = 20
LOSSY = 4.0  # mean error of a picture, of 255


def lerobot(root: Path, **options: Any) -> LeRobotDataset:
    return LeRobotDataset("ours/set", root=root, video_backend="pyav", **options)


def same_frame(theirs: dict[str, Any], ours: Dataset, i: int) -> None:
    """Everything of frame `i`."""
    e = int(np.searchsorted(ours.starts, i, side="right")) - 1
    t = i - int(ours.starts[e])
    np.testing.assert_array_equal(theirs["observation.state"].numpy(), ours.observation["proprio"][i])
    np.testing.assert_array_equal(theirs["observation.environment_state"].numpy(), ours.observation["objects"][i])
    np.testing.assert_array_equal(theirs["action"].numpy(), ours.action[i])
    numbers = ("index", "episode_index", "frame_index", "task_index")
    assert [int(theirs[name]) for name in numbers] == [i, e, t, ours.task_index[i]]
    assert float(theirs["timestamp"]) == np.float32(t / HZ) and theirs["task"] == ours.tasks[ours.task_index[i]]
    assert float(theirs["next.reward"]) == ours.reward[i]
    last = t == ours.lengths[e] - 1
    assert bool(theirs["next.success"]) == (last and ours.success[e]) and bool(theirs["next.done"]) == last
    assert bool(theirs["is_intervention"]) == ours.intervention[i]
    assert float(theirs["stamp.proprio"]) == ours.stamps["proprio"][i]
    assert float(theirs["stamp.camera.front"]) == ours.stamps["images.front"][i]
    for camera in CAMERAS:
        same_picture(theirs[f"observation.images.{camera}"], ours.images(camera)[i])


def same_picture(theirs: torch.Tensor, ours: np.ndarray) -> None:
    """(3, H, W) in [0, 1] and (H, W, 3) uint8, decoded from one video."""
    picture = theirs.permute(1, 2, 0).numpy() * 255.0
    assert picture.shape == ours.shape and np.abs(picture - ours).mean() < 1.5, np.abs(picture - ours).mean()


def test_every_frame_is_ours(ours: Path, episode) -> None:
    theirs, mine = lerobot(ours), Dataset.open(ours, cache=False)
    assert theirs.num_episodes == mine.episodes == 6 and len(theirs) == mine.frames == 40 and theirs.fps == HZ
    assert theirs.meta.tasks.index.tolist() == mine.tasks and theirs.meta.robot_type == "panda"
    for i in range(len(theirs)):
        same_frame(theirs[i], mine, i)
    for e in range(mine.episodes):  # and what was recorded
        for camera in CAMERAS:
            recorded = episode(e, int(mine.lengths[e])).observation[f"images.{camera}"].astype(float)
            shown = mine.episode(e).observation[f"images.{camera}"]
            assert np.abs(shown - recorded).mean(axis=(1, 2, 3)).max() < LOSSY


def test_h264_of_an_odd_size(tmp_path: Path) -> None:
    t = np.arange(9)
    pictures = np.stack([np.full((63, 65, 3), (20 * e + 10, 200, 250 - 20 * e), np.uint8) for e in t])
    interface = Interface(
        {"images.front": ArraySpec((63, 65, 3), "uint8")}, ArraySpec((2,)), float(HZ), "panda", "tcp_delta"
    )
    with EpisodeWriter(tmp_path / "set", interface, video=VideoConfig(codec="libx264", crf=10)) as writer:
        writer.write(Episode({"images.front": pictures}, np.zeros((9, 2), np.float32), 0.0 * t, True, True, False, "x"))
    theirs = lerobot(tmp_path / "set")
    for i in t:
        same_picture(theirs[int(i)]["observation.images.front"], pictures[i])


def test_windows_and_their_padding_are_ours(ours: Path) -> None:
    past, future = [-1 / HZ, 0.0], [t / HZ for t in range(4)]
    theirs = lerobot(
        ours, delta_timestamps={"observation.state": past, "observation.images.front": past, "action": future}
    )
    windows = Windows(Dataset.open(ours, cache=False), 2, 4)
    batch = windows.gather(torch.arange(len(windows)))
    assert batch.action_is_pad.any() and batch.observation_is_pad.any()
    for i in range(len(theirs)):
        step = theirs[i]
        assert torch.equal(step["action"], batch.action[i])
        assert torch.equal(step["action_is_pad"], batch.action_is_pad[i])
        assert torch.equal(step["observation.state"], batch.observation["proprio"][i])
        assert torch.equal(step["observation.state_is_pad"], batch.observation_is_pad[i])
        assert torch.equal(step["observation.images.front_is_pad"], batch.observation_is_pad[i])
        for k in range(2):
            same_picture(step["observation.images.front"][k], batch.observation["images.front"][i, k].numpy())


def test_some_of_the_episodes(ours: Path) -> None:
    theirs, mine = lerobot(ours, episodes=[2, 4]), Dataset.open(ours, cache=False)
    assert len(theirs) == mine.lengths[2] + mine.lengths[4]
    for row, i in enumerate(mine.frames_of([2, 4]).tolist()):
        same_frame(theirs[row], mine, i)


def test_its_statistics_are_ours(ours: Path) -> None:
    stats, mine = lerobot(ours).meta.stats, Dataset.open(ours, cache=False)
    np.testing.assert_allclose(stats["observation.state"]["mean"], mine.observation["proprio"].mean(0), atol=1e-5)
    np.testing.assert_allclose(stats["action"]["std"], mine.action.std(0), atol=1e-5)
    for camera in CAMERAS:
        pixels = np.concatenate([mine.episode(e).observation[f"images.{camera}"] for e in range(6)]) / 255.0
        assert np.shape(stats[f"observation.images.{camera}"]["mean"]) == (3, 1, 1)
        np.testing.assert_allclose(
            np.ravel(stats[f"observation.images.{camera}"]["mean"]), pixels.mean((0, 1, 2)), atol=0.05
        )


def test_its_merge_of_our_sets_is_read_by_both(ours: Path, write, tmp_path: Path) -> None:
    more = write(tmp_path / "more", (4, 8))
    merge_datasets([lerobot(ours), lerobot(more)], "ours/merged", tmp_path / "merged")
    merged, first, second = (Dataset.open(p, cache=False) for p in (tmp_path / "merged", ours, more))
    assert merged.episodes == 8 and set(merged.stamps) == {"proprio", "images.front"}
    for e in range(8):
        a = merged.episode(e)
        b = first.episode(e) if e < 6 else second.episode(e - 6)
        np.testing.assert_array_equal(a.action, b.action)
        np.testing.assert_array_equal(a.stamps["images.front"], b.stamps["images.front"])
        assert a.task == b.task and a.success == b.success
        for camera in CAMERAS:
            key = f"images.{camera}"
            np.testing.assert_array_equal(a.observation[key], b.observation[key])
    theirs = lerobot(tmp_path / "merged")
    for i in range(len(theirs)):
        same_frame(theirs[i], merged, i)


@pytest.mark.parametrize("edit", ["delete", "split", "merge", "remove a feature"])
def test_what_an_action_means_outlives_its_edits(ours: Path, write, tmp_path: Path, edit: str) -> None:
    """LeRobot writes info.json anew; a policy that was trained on what it wrote still fits the world."""
    theirs, out = lerobot(ours), tmp_path / "out"
    if edit == "delete":
        delete_episodes(theirs, [0, 3], out, "ours/edited")
    elif edit == "split":
        split_dataset(theirs, {"train": [0, 1, 4], "val": [2, 3, 5]}, out)
        out = out / "val"
    elif edit == "merge":
        merge_datasets([theirs, lerobot(write(tmp_path / "more", (4, 8)))], "ours/edited", out)
    else:
        remove_feature(theirs, "observation.environment_state", out, "ours/edited")
    before, after = Dataset.open(ours, cache=False), Dataset.open(out, cache=False)
    assert INTERFACE_KEY not in after.info, "LeRobot keeps it by now: the copy in the features is not needed"
    lost = {"objects"} if edit == "remove a feature" else set()
    kept = {key: spec for key, spec in before.interface.observation.items() if key not in lost}
    assert after.interface == replace(before.interface, observation=kept)
    check_compatible(after.interface, before.interface, what="policy")
    assert main(["dataset", "import", str(out), "--out", str(tmp_path / "again"), "--json"]) == 0
    assert Dataset.open(tmp_path / "again", cache=False).interface == after.interface


RECORDER = """
import sys
import numpy as np
from robolearn.core import ArraySpec, Interface
from robolearn.data import EpisodeWriter
seen = {"proprio": ArraySpec((2,)), "images.front": ArraySpec((64, 64, 3), "uint8")}
interface = Interface(seen, ArraySpec((2,)), 20.0)
with EpisodeWriter(sys.argv[1], interface, task="count") as writer:
    for e in range(1000):
        for t in range(5 + e % 3 if e < 4 else 10**6):
            picture = np.full((64, 64, 3), 20 + (37 * e + 11 * t) % 200, np.uint8)
            writer.add({"proprio": [e, t], "images.front": picture}, [0, 0])
            if e == 4 and t == 150:
                print("deep in episode 4", flush=True)
        writer.end(success=True, terminated=True)
"""


def test_a_recording_that_was_killed_opens_before_and_after_the_repair(tmp_path: Path) -> None:
    root = tmp_path / "killed"
    recorder = subprocess.Popen([sys.executable, "-c", RECORDER, str(root)], stdout=subprocess.PIPE, text=True)
    assert recorder.stdout is not None and recorder.stdout.readline() == "deep in episode 4\n"
    os.kill(recorder.pid, signal.SIGKILL)
    recorder.wait()
    counted(root, 4)
    assert len(repair(root).saved) == 1
    counted(root, 5)


def counted(root: Path, episodes: int) -> None:
    theirs = lerobot(root)
    assert theirs.num_episodes == episodes
    for i in [*range(min(len(theirs), 50)), *range(50, len(theirs), 7), len(theirs) - 1]:
        step = theirs[i]
        e, t = int(step["episode_index"]), int(step["frame_index"])
        assert step["observation.state"].tolist() == [e, t] and step["task"] == "count"
        expected = 20 + (37 * e + 11 * t) % 200
        assert abs(float(step["observation.images.front"].mean()) * 255 - expected) < LOSSY


def test_one_file_of_everything_too(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a recording of this length comes out by default."""
    root = write(tmp_path / "default", (3, 4))
    assert len(list(root.glob("data/*/*.parquet"))) == 1
    theirs, mine = lerobot(root), Dataset.open(root, cache=False)
    for i in range(7):
        same_frame(theirs[i], mine, i)
