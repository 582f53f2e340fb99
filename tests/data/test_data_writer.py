"""The writer: what it refuses, resuming, and being killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.writing import locked_dataset

STEP = {"proprio": [1.0, 2.0, 3.0], "objects": [4.0, 5.0]}


def test_round_trip(tmp_path, interface, episode):
    written = [episode(0, 5), episode(1, 1, success=False, task="push"), episode(2, 3)]
    with EpisodeWriter(tmp_path / "set", interface) as w:
        assert [w.write(e) for e in written] == [0, 1, 2]
        assert (w.episodes, w.frames) == (3, 9)
    dataset = Dataset.open(tmp_path / "set")
    assert dataset.interface == interface and dataset.lengths.tolist() == [5, 1, 3]
    for i, e in enumerate(written):
        read = dataset.episode(i)
        assert (read.success, read.terminated, read.truncated, read.task) == (
            e.success,
            e.terminated,
            e.truncated,
            e.task,
        )
        assert (read.action == e.action).all() and (read.reward == e.reward).all()
        assert all((read.observation[key] == e.observation[key]).all() for key in e.observation)
        assert all(a.flags.c_contiguous for a in (read.action, *read.observation.values()))


def test_streaming_equals_whole(tmp_path, interface, episode):
    whole = episode(3, 4)
    with EpisodeWriter(tmp_path / "a", interface) as a, EpisodeWriter(tmp_path / "b", interface) as b:
        a.write(whole)
        b.add(STEP, [0.0, 0.0])
        b.discard()
        for t in range(4):
            b.add({key: v[t][None] for key, v in whole.observation.items()}, whole.action[t], whole.reward[t])
        b.end(success=True, terminated=True, task=whole.task)
    for name in ("data/chunk-000/file-000.parquet", "meta/stats.json", "meta/info.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_bad_steps_are_refused_and_named(tmp_path, interface, episode):
    with EpisodeWriter(tmp_path / "set", interface) as w:
        w.add(STEP, [0.0, 0.0])
        with pytest.raises(BadInput, match=r"'proprio' at step 1, component 1 \(b\): got nan"):
            w.add(STEP | {"proprio": [0.0, np.nan, 0.0]}, [0.0, 0.0])
        with pytest.raises(BadInput, match=r"action at step 1, component 0: got inf"):
            w.add(STEP, [np.inf, 0.0])
        with pytest.raises(BadInput, match=r"reward at step 1"):
            w.add(STEP, [0.0, 0.0], float("nan"))
        with pytest.raises(BadInput, match=r"'objects' at step 1: got shape \(3,\), expected shape \(2,\)"):
            w.add(STEP | {"objects": [1.0, 2.0, 3.0]}, [0.0, 0.0])
        with pytest.raises(BadInput, match="no 'objects'"):
            w.add({"proprio": [0.0, 0.0, 0.0]}, [0.0, 0.0])
        with pytest.raises(BadInput, match=r"action at step 1: got -1\.1, expected components in \[-1, 1\]"):
            w.add(STEP, [0.0, -1.1])
        with pytest.raises(BadInput, match="1 steps begun"):
            w.write(episode(0))
        w.add(STEP | {"more": [np.nan]}, [1.0 + 5e-7, -1.0])
        w.end(success=False, truncated=True)
        with pytest.raises(BadInput, match="no steps"):
            w.end(success=True)

        broken = episode(0, 6)
        broken.observation["objects"][4, 1] = np.nan
        with pytest.raises(BadInput, match="'objects' at step 4, component 1: got nan"):
            w.write_all([episode(1), broken])
        loud = episode(0, 6)
        loud.action[5, 0] = 2.0
        with pytest.raises(BadInput, match="action at step 5: got 2"):
            w.write(loud)
    dataset = Dataset.open(tmp_path / "set")
    assert dataset.lengths.tolist() == [2] and dataset.action.max() == 1.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int64", np.nan, r"got nan, expected a finite number"),
        ("int64", np.inf, r"got inf, expected a finite number"),
        ("int64", 1.7, r"got 1\.7, expected a whole number \(int64\)"),
        ("int64", 1e30, r"got 1e\+30, expected a whole number \(int64\)"),
        ("bool", 0.4, r"got 0\.4, expected 0 or 1"),
        ("bool", np.nan, r"got nan, expected a finite number"),
        ("bool", 2, r"got 2, expected 0 or 1"),
    ],
)
def test_numbers_that_a_cast_would_change_are_refused(tmp_path, dtype, value, message):
    interface = Interface({"mode": ArraySpec((2,), dtype, ("a", "b"))}, ArraySpec((1,)), 20.0)
    with EpisodeWriter(tmp_path / "set", interface) as w:
        w.add({"mode": [0, 1.0]}, [0.0])
        with pytest.raises(BadInput, match=rf"'mode' at step 1, component 1 \(b\): {message}"):
            w.add({"mode": [0, value]}, [0.0])
        w.end(success=True)
        bad = Episode({"mode": np.array([[0, 1], [1, value]])}, np.zeros((2, 1), np.float32), np.zeros(2), True, True,
                      False, "x")  # fmt: skip
        with pytest.raises(BadInput, match=rf"'mode' at step 1, component 1 \(b\): {message}"):
            w.write(bad)
        w.write(replace(bad, observation={"mode": np.array([[0, 1], [1.0, 0]])}))
    assert Dataset.open(tmp_path / "set").observation["mode"].tolist() == [[0, 1], [0, 1], [1, 0]]


def test_existing_folders_are_left_alone(tmp_path, interface, episode):
    root = tmp_path / "set"
    with EpisodeWriter(root, interface) as w:
        w.write(episode(0))
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    with pytest.raises(BadInput, match="existing data set"):
        EpisodeWriter(root, interface)
    other = Interface(interface.observation, interface.action, 10.0, "panda", "tcp_delta", interface.extra)
    with pytest.raises(BadInput, match=r"control_hz: got 10\.0, expected 20\.0"):
        EpisodeWriter(root, other, resume=True)
    wider = Interface(interface.observation, ArraySpec((3,)), 20.0, "panda", "tcp_delta", interface.extra)
    with pytest.raises(BadInput, match="interface, action"):
        EpisodeWriter(root, wider, resume=True)
    scenes = replace(interface, extra={**interface.extra, "cousins": {"name": "train", "mass": [0.1, 0.2]}})
    with pytest.raises(
        BadInput, match=r"interface, extra\.cousins\.name: got train, expected nothing, as the episodes"
    ):
        EpisodeWriter(root, scenes, resume=True)
    assert before == {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_text("x")
    with EpisodeWriter(tmp_path / "scenes", scenes) as w:
        w.write(episode(0))
    others = replace(scenes, extra={**scenes.extra, "cousins": {"name": "held-out", "mass": [0.3, 0.4]}})
    with pytest.raises(BadInput, match=r"interface, extra\.cousins\.name: got held-out, expected train"):
        EpisodeWriter(tmp_path / "scenes", others, resume=True)
    with pytest.raises(BadInput, match="other files"):
        EpisodeWriter(tmp_path / "photos", interface, resume=True)
    assert [p.name for p in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_one_writer_at_a_time(tmp_path, interface, episode):
    with EpisodeWriter(tmp_path / "set", interface) as w:
        w.write(episode(0))
        with pytest.raises(BadInput, match="another writer"):
            EpisodeWriter(tmp_path / "set", interface, resume=True)
        w.write(episode(1))
    assert Dataset.open(tmp_path / "set").episodes == 2


@pytest.mark.long
def test_resume_equals_one_go(tmp_path, interface, episode, monkeypatch):
    monkeypatch.setattr(locked_dataset, "META_ROWS", 3)
    monkeypatch.setattr(locked_dataset, "DATA_BYTES", 1000)
    episodes = [episode(e, 4 + e, task=f"task {e % 3}") for e in range(8)]
    with EpisodeWriter(tmp_path / "one", interface) as w:
        for e in episodes:
            w.write(e)
    for e in episodes:
        with EpisodeWriter(tmp_path / "many", interface, resume=True) as w:
            w.write(e)
    names = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(tmp_path / "many") for p in (tmp_path / "many").rglob("*") if p.is_file())
    for name in names:
        if name.name == "stats.json":
            one, many = (json.loads((tmp_path / s / name).read_text()) for s in ("one", "many"))
            for feature, part in one.items():
                assert all(np.allclose(part[k], many[feature][k], rtol=1e-12, atol=1e-15) for k in part)
        elif name.suffix == ".parquet":
            assert pq.read_table(tmp_path / "one" / name).equals(pq.read_table(tmp_path / "many" / name))
        else:
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()


@pytest.mark.long
def test_resume_removes_what_was_never_committed(tmp_path, interface, episode, monkeypatch):
    """A kill between the renames of the frames and of info.json, at every point between them."""
    monkeypatch.setattr(locked_dataset, "META_ROWS", 2)
    replace = os.replace
    for kept in range(5):
        root = tmp_path / f"set{kept}"
        w = EpisodeWriter(root, interface)
        for e in range(2):
            w.write(episode(e))
        done = []

        def interrupted(source, target, done=done, kept=kept):
            if len(done) == kept:
                raise KeyboardInterrupt
            done.append(target)
            replace(source, target)

        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            w.write(episode(2, 9, task="another"))
        monkeypatch.setattr(os, "replace", replace)
        w.locked.lock.release()

        dataset = Dataset.open(root)
        assert dataset.lengths.tolist() == [5, 5] and dataset.stats["action"]["count"] == 10
        with EpisodeWriter(root, interface, resume=True) as w:
            assert (w.episodes, w.frames) == (2, 10)
            assert not list(root.rglob("*.tmp"))
            assert json.loads((root / "meta/stats.json").read_text())["action"]["count"] == [10]
            w.write(episode(7, 2, task="a third"))
        dataset = Dataset.open(root)
        assert dataset.lengths.tolist() == [5, 5, 2] and dataset.tasks == ["lift the cube", "a third"]
        assert dataset.action[:, 0].tolist() == [np.float32(e / 1000) for e in [0] * 5 + [1] * 5 + [7] * 2]


def test_resume_after_another_tool_rewrote_the_rows(tmp_path, interface, episode):
    """Columns in another order, with more of them: as LeRobot leaves them when it appends."""
    root = tmp_path / "set"
    with EpisodeWriter(root, interface) as w:
        w.write(episode(0))
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.select(rows.column_names[::-1]).append_column("mood", [["good"]]), path)
    with EpisodeWriter(root, interface, resume=True) as w:
        w.write(episode(1))
    assert Dataset.open(root).stats["action"]["count"] == 10
    pq.write_table(pq.read_table(path).drop_columns(["stats/action/q10"]), path)
    with pytest.raises(BadInput, match="no column 'stats/action/q10'"):
        EpisodeWriter(root, interface, resume=True)


CHILD = """
import sys, numpy as np
from robolearn.core import ArraySpec, Interface
from robolearn.data.writing.writer import EpisodeWriter
interface = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), 20.0)
with EpisodeWriter(sys.argv[1], interface, resume=True) as writer:
    print("begun", writer.episodes, flush=True)
    while True:
        e = writer.episodes
        for t in range(3 + e % 5):
            writer.add({"proprio": [e, t, 0]}, [0, 0])
        writer.end(success=True, terminated=True, task=f"task {e // 4}")
        print(e, flush=True)
"""


@pytest.mark.long
def test_sigkill_loses_no_finished_episode(tmp_path):
    """One data set, killed and resumed at random moments; every episode that end() returned from is there."""
    root, rng, finished = tmp_path / "set", np.random.default_rng(), 0
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(root)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert child.stdout is not None
        assert child.stdout.readline() == f"begun {finished}\n"
        assert child.stdout.readline() == f"{finished}\n"
        time.sleep(rng.uniform(0.0, 0.25))
        child.send_signal(signal.SIGKILL)
        said = child.stdout.read().split()
        child.wait()
        dataset = Dataset.open(root)
        # The episode at hand may have been committed before its number was printed.
        assert dataset.episodes - (int(said[-1]) + 1 if said else finished + 1) in (0, 1)
        finished = dataset.episodes
        assert dataset.lengths.tolist() == [3 + e % 5 for e in range(finished)]
        assert dataset.observation["proprio"][:, 0].tolist() == np.repeat(range(finished), dataset.lengths).tolist()
        assert [dataset.episode(e).task for e in range(finished)] == [f"task {e // 4}" for e in range(finished)]


HOLDER = """
import multiprocessing, sys, time
from robolearn.core import ArraySpec, Interface
from robolearn.data.writing.writer import EpisodeWriter
writer = EpisodeWriter(sys.argv[1], Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), 20.0), resume=True)
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
worker.start()
print(worker.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.long
def test_the_lock_ends_with_a_killed_writer_even_if_a_forked_worker_lives_on(tmp_path):
    interface = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), 20.0)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "set")]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert owner.stdout is not None
    worker = int(owner.stdout.readline())
    try:
        with pytest.raises(BadInput, match="another writer"):
            EpisodeWriter(tmp_path / "set", interface, resume=True)
        owner.kill()
        owner.wait(10)
        os.kill(worker, 0)  # it is alive
        EpisodeWriter(tmp_path / "set", interface, resume=True).close()
    finally:
        owner.kill()
        os.kill(worker, signal.SIGKILL)
        owner.stdout.close()


def test_many_episodes_at_once_are_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many files are waited for by the disk for fifty episodes as for two."""
    interface = Interface({"proprio": ArraySpec((20,))}, ArraySpec((7,)), 20.0)
    still = {"observation": {"proprio": np.zeros((5, 20), np.float32)}, "action": np.zeros((5, 7), np.float32)}
    ended = {"success": True, "terminated": True, "truncated": False, "task": "lift"}
    episode = Episode(reward=np.zeros(5, np.float32), **still, **ended)
    waits, fsync = [0], os.fsync

    def counted(descriptor: int) -> None:
        waits[0] += 1
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    found = []
    for count in (2, 50):
        waits[0] = 0
        with EpisodeWriter(tmp_path / f"{count}", interface) as w:
            w.write_all([episode] * count)
        found.append(waits[0])
        assert Dataset.open(tmp_path / f"{count}").frames == 5 * count
    assert found[0] == found[1] > 0


@pytest.mark.parametrize(
    ("key", "spec", "expected"),
    [
        ("state", ArraySpec((3,)), "expected proprio"),
        ("environment_state", ArraySpec((3,)), "expected objects"),
        ("front", ArraySpec((64, 64, 3), "uint8"), r"expected images\.front"),
    ],
)
def test_a_name_that_would_not_come_back_is_refused(tmp_path: Path, key: str, spec: ArraySpec, expected: str) -> None:
    with pytest.raises(BadInput, match=rf"observation '{key}': got a name that no reader gives back, {expected}"):
        EpisodeWriter(tmp_path / "set", Interface({key: spec}, ArraySpec((2,)), 10.0))
    assert not (tmp_path / "set" / "meta").exists()


@pytest.mark.parametrize("camera", ["rows", "x.tmp"])
def test_a_camera_with_the_name_of_a_file_of_ours_is_refused(tmp_path: Path, camera: str) -> None:
    interface = Interface({f"images.{camera}": ArraySpec((64, 64, 3), "uint8")}, ArraySpec((2,)), 10.0)
    with pytest.raises(BadInput, match=f"got a camera called '{camera}', expected another name"):
        EpisodeWriter(tmp_path / "set", interface)
