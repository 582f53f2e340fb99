"""What is left of a killed recording, and what `repair` makes of it. Real kills are in tests/programs/crash.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.validate import validate
from robolearn.data.writing import locked_dataset
from robolearn.data.writing.locked_dataset import LockedDataset
from robolearn.data.writing.repair import Repaired, repair
from robolearn.data.writing.uncommitted import leftovers
from robolearn.io.append_only import Journal, records

SIZE = 64
INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((SIZE, SIZE, 3), "uint8")}, ArraySpec((2,)), 20.0
)


def add(writer: EpisodeWriter, e: int, steps: int) -> None:
    for t in range(steps):
        seen = {"proprio": [e, t], "images.front": np.full((SIZE, SIZE, 3), 50 * e + t + 20, np.uint8)}
        writer.add(seen, [0, t / 100], t, intervention=t == 1, stamps={"clock": t * 0.05})


def left(folder: Path, root: Path, e: int, steps: int, *, flushed: bool = True) -> None:
    """In `root` what a writer that was killed after `steps` steps of episode `e` leaves there."""
    with EpisodeWriter(root, INTERFACE, resume=True, stamps=("clock",), task="press") as w:
        add(w, e, steps)
        if flushed:  # as if the encoder had let go of all frames
            for encoder in w.encoders.values():
                encoder.finish()
        shutil.copytree(w.locked.running, folder)
        w.discard()
    shutil.move(folder, root / ".running")


@pytest.fixture
def root(tmp_path) -> Path:
    with EpisodeWriter(tmp_path / "set", INTERFACE, stamps=("clock",)) as w:
        add(w, 0, 6)
        w.end(success=True, terminated=True, task="press")
    return tmp_path / "set"


@pytest.mark.long
def test_the_running_episode_is_saved(root, tmp_path):
    left(tmp_path / "left", root, 1, 5)
    assert Dataset.open(root).episodes == 1
    assert repair(root) == Repaired(episodes=2, frames=11, saved=[(1, 5)], lost=0)
    dataset = Dataset.open(root, cache=False)
    saved = dataset.episode(1)
    assert (saved.success, saved.terminated, saved.truncated, saved.task) == (False, False, True, "press")
    assert saved.observation["proprio"].tolist() == [[1, t] for t in range(5)]
    assert saved.reward.tolist() == [0, 1, 2, 3, 4] and saved.action[:, 1].tolist() == pytest.approx(np.arange(5) / 100)
    assert saved.intervention is not None and saved.intervention.tolist() == [False, True, False, False, False]
    assert saved.stamps["clock"].tolist() == [t * 0.05 for t in range(5)]
    shown = saved.observation["images.front"].astype(int).mean(axis=(1, 2, 3))
    assert np.abs(shown - [70 + t for t in range(5)]).max() < 3
    assert sorted(p.name for p in root.iterdir()) == [".writer.lock", "data", "meta", "videos"]
    assert dataset.stats["observation.images.front"]["count"] == 11
    assert repair(root) == Repaired(2, 11, [], 0)


@pytest.mark.long
def test_a_control_rate_that_is_a_whole_number(tmp_path):
    """20 and 20.0 are one rate, but not one JSON text."""
    whole = replace(INTERFACE, control_hz=20)
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_data_repair import *
w = EpisodeWriter({str(tmp_path / "set")!r}, replace(INTERFACE, control_hz=20), stamps=("clock",), task="press")
add(w, 0, 6)
w.end(success=True)
add(w, 1, 5)
for encoder in w.encoders.values():
    encoder.finish()
os._exit(9)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 9
    older = tmp_path / "set/meta/info.json"  # as an older version wrote it
    older.write_text(older.read_text().replace('"control_hz": 20.0', '"control_hz": 20'))
    assert repair(tmp_path / "set") == Repaired(2, 11, [(1, 5)], 0)
    with EpisodeWriter(tmp_path / "set", whole, stamps=("clock",), resume=True) as w:
        assert w.episodes == 2


@pytest.mark.long
def test_a_resumed_recording_keeps_it_for_later(root, tmp_path):
    left(tmp_path / "left", root, 1, 5)
    with EpisodeWriter(root, INTERFACE, resume=True, stamps=("clock",)) as w:
        add(w, 2, 3)
        w.end(success=True, task="press")
    left(tmp_path / "left", root, 3, 4)
    told = [(f.check, f.file) for f in validate(root)]
    assert told == [("unfinished episode", name) for name in (".running", ".unfinished/000")]
    assert repair(root) == Repaired(4, 18, [(2, 5), (3, 4)], 0)
    order = Dataset.open(root, cache=False).observation["proprio"][:, 0].tolist()
    assert order == [0] * 6 + [2] * 3 + [1] * 5 + [3] * 4


@pytest.mark.long
@pytest.mark.parametrize("name", ["rows.journal", "front.journal", "front.mp4"])
def test_torn_files_are_read_up_to_the_tear(root, tmp_path, name):
    left(tmp_path / "left", root, 1, 8)
    path = root / ".running" / name
    whole = path.read_bytes()
    if name == "front.mp4":  # a packet that a power cut turned into zeros, in the middle
        middle = list(records(root / ".running/front.journal"))[4]
        offset = int.from_bytes(middle[8:16], "little")
        path.write_bytes(whole[:offset] + bytes(8) + whole[offset + 8 :])
    else:
        path.write_bytes(whole[: len(whole) * 2 // 3])
    done = repair(root)
    assert done.saved and 0 < done.saved[0][1] < 8
    assert done.lost == (0 if name == "rows.journal" else 8 - done.saved[0][1])  # of steps, only whole ones are known
    dataset = Dataset.open(root, cache=False)
    assert dataset.observation["proprio"][6:].tolist() == [[1, t] for t in range(done.saved[0][1])]
    assert dataset.images("front")[:].shape[0] == dataset.frames


@pytest.mark.long
@pytest.mark.parametrize("kept", [0, 6])
def test_a_journal_that_a_power_cut_filled_with_zeros(root, tmp_path, kept):
    """The length of the file reached the disk, its end (or nothing of it) did not."""
    left(tmp_path / "left", root, 1, 6)
    for name in ("rows.journal", "front.journal"):
        path = root / ".running" / name
        path.write_bytes(path.read_bytes()[: kept * 10**6] + bytes(4096))
    assert [f.what for f in validate(root)] == (
        [f"an episode of {kept} steps was being recorded; robolearn dataset repair can save it"] if kept else []
    )
    if not kept:
        with EpisodeWriter(root, INTERFACE, resume=True, stamps=("clock",)) as w:
            assert w.episodes == 1
    assert repair(root) == Repaired(1 + bool(kept), 6 + kept, [(1, kept)] if kept else [], 0)


def test_frames_that_the_encoder_held_are_lost(root, tmp_path):
    left(tmp_path / "left", root, 1, 3, flushed=False)
    done = repair(root)
    assert done.lost + sum(frames for _, frames in done.saved) == 3
    assert not (root / ".unfinished").exists() and not (root / ".running").exists()


@pytest.mark.long
def test_a_committed_episode_is_not_saved_twice(root, tmp_path):
    """Kills after the commit point: of the recording before it removed .running/, of a repair before its folder."""
    left(tmp_path / "left", root, 1, 5)
    shutil.copytree(root / ".running", tmp_path / "again")
    assert len(repair(root).saved) == 1
    shutil.copytree(tmp_path / "again", root / ".running")
    assert repair(root).saved == [] and Dataset.open(root).episodes == 2
    (root / ".unfinished").mkdir()
    shutil.copytree(tmp_path / "again", root / ".unfinished/000")
    (root / ".unfinished/000/episode").write_text("1")
    assert repair(root).saved == [] and Dataset.open(root).episodes == 2


@pytest.mark.long
def test_an_episode_of_another_interface_does_not_stop_a_repair(root, tmp_path):
    """As where a folder was copied into the set; it is kept, and named as what can be cleared."""
    other = replace(INTERFACE, control_hz=10.0)
    with EpisodeWriter(tmp_path / "other", other, stamps=("clock",)) as w:
        add(w, 0, 4)
        shutil.copytree(tmp_path / "other/.running", root / ".unfinished/000")
        w.discard()
    left(tmp_path / "left", root, 1, 5)
    assert repair(root) == Repaired(2, 11, [(1, 5)], 0)
    assert list(validate(root)) == [] and repair(root) == Repaired(2, 11, [], 0)
    (aside,) = leftovers(tmp_path)
    assert aside.path == root / ".unfinished/beyond-000" and (aside.path / "rows.journal").exists()


@pytest.mark.long
def test_a_repair_that_is_killed_has_noted_whole_where_it_saves(root, tmp_path, monkeypatch):
    left(tmp_path / "left", root, 1, 5)
    notes = []

    def killed(self, checked):
        notes.append((root / ".unfinished/000/episode").read_text())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LockedDataset, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            repair(root)
    assert notes == ["1"]
    (root / ".unfinished/000/episode").write_text("")  # as a kill left it in an older version
    assert repair(root) == Repaired(2, 11, [(1, 5)], 0)


def behind(root: Path, episodes: int, frames: int) -> None:
    """Let info.json be one of earlier, as a backup or a tool that syncs folders brings it back."""
    info = json.loads((root / "meta/info.json").read_text())
    info |= {"total_episodes": episodes, "total_frames": frames, "splits": {"train": f"0:{episodes}"}}
    (root / "meta/info.json").write_text(json.dumps(info))


def content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def three(root) -> Path:
    """Episodes of 6, 3 and 4 steps, the last with a task of its own."""
    with EpisodeWriter(root, INTERFACE, resume=True, stamps=("clock",)) as w:
        for e, steps in ((1, 3), (2, 4)):
            add(w, e, steps)
            w.end(success=True, terminated=True, task="press" if e < 2 else "turn")
    return root


@pytest.mark.long
@pytest.mark.parametrize("counted", [0, 1, 2])
def test_episodes_that_info_has_lost_sight_of_are_counted_again(three, counted):
    before = content(three)
    behind(three, counted, [0, 6, 9][counted])
    then = content(three)
    with pytest.raises(BadInput, match=rf"got 3 episodes in its files, expected {counted}.*dataset repair"):
        EpisodeWriter(three, INTERFACE, resume=True, stamps=("clock",))
    assert content(three) == then
    adopted = [(0, 6), (1, 3), (2, 4)][counted:]
    assert repair(three) == Repaired(3, 13, [], 0, adopted)
    assert list(validate(three)) == [] and Dataset.open(three).tasks == ["press", "turn"]
    assert {name for name in before if "tmp" not in name} == set(content(three))
    for name in before:
        assert name.endswith(".json") or content(three)[name] == before[name], name
    assert repair(three) == Repaired(3, 13, [], 0)


@pytest.mark.long
def test_a_running_episode_is_saved_behind_those_that_are_counted_again(three, tmp_path):
    left(tmp_path / "left", three, 3, 5)
    behind(three, 1, 6)
    assert repair(three) == Repaired(4, 18, [(3, 5)], 0, [(1, 3), (2, 4)])
    assert (
        Dataset.open(three, cache=False).observation["proprio"][:, 0].tolist() == [0] * 6 + [1] * 3 + [2] * 4 + [3] * 5
    )


@pytest.mark.long
@pytest.mark.parametrize("lacking", ["video", "frames", "row", "task"])
def test_what_is_no_whole_episode_is_set_aside(three, lacking):
    """Episode 1 is whole, of episode 2 something is not there."""
    video = "videos/observation.images.front/chunk-000/file-00{}.mp4"
    kept = video.format(2)
    if lacking == "video":
        os.truncate(three / kept, (three / kept).stat().st_size // 2)
    else:
        name = {"row": "meta/episodes/chunk-000/file-000.parquet", "task": "meta/tasks.parquet"}.get(
            lacking, "data/chunk-000/file-000.parquet"
        )
        table = pq.read_table(three / name)
        pq.write_table(table.slice(0, table.num_rows - 1), three / name)
    behind(three, 1, 6)
    before = content(three)
    assert repair(three) == Repaired(2, 9, [], 0, [(1, 3)])
    assert Dataset.open(three).episodes == 2 and not (three / kept).exists()
    assert (three / ".unfinished/beyond-000" / kept).read_bytes() == before[kept]
    for name in ("data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"):
        copy = three / ".unfinished/beyond-000" / name
        assert lacking == "row" if not copy.exists() else copy.read_bytes() == before[name]
    assert [f.check for f in validate(three)] == []
    assert repair(three) == Repaired(2, 9, [], 0) and (three / ".unfinished/beyond-000").exists()


@pytest.mark.long
@pytest.mark.parametrize("damage", ["truncated", "gone", "one of two"])
def test_lost_rows_are_one_finding_and_made_again(tmp_path, monkeypatch, damage):
    """Of twelve episodes, data and videos of which are whole."""
    monkeypatch.setattr(locked_dataset, "META_ROWS", 7 if damage == "one of two" else 64)
    root = tmp_path / "set"
    with EpisodeWriter(root, INTERFACE, stamps=("clock",)) as w:
        for e in range(12):
            add(w, e % 4, 2 + e % 3)
            w.end(success=e % 2 == 0, terminated=e % 2 == 0, task=("press", "turn")[e % 2])
    rows = {path: path.read_bytes() for path in sorted(root.glob("meta/episodes/*/*.parquet"))}
    before, content_before = (
        pq.read_table(root / "meta/episodes").to_pylist(),
        Dataset.open(root, cache=False).content(),
    )
    assert len(rows) == (2 if damage == "one of two" else 1)
    hit = next(iter(rows))
    hit.unlink() if damage == "gone" else hit.write_bytes(rows[hit][: len(rows[hit]) // 2])
    told = [(f.check, f.file or f.what) for f in validate(root)]
    if damage == "gone":
        assert len(told) == 1 and told[0][0] == "episodes"
    else:
        assert told == [("corrupt file", "meta/episodes/chunk-000/file-000.parquet")]
    assert repair(root) == Repaired(12, 36, [], 0, rebuilt=list(range(7 if damage == "one of two" else 12)))
    after = pq.read_table(root / "meta/episodes").to_pylist()
    assert len(after) == 12 and list(validate(root)) == []
    for old, new in zip(before, after, strict=True):
        assert old.keys() == new.keys()
        for key, value in old.items():
            if "observation.images" in key and key.startswith("stats/"):  # of what was encoded, and of what is decoded
                np.testing.assert_allclose(np.ravel(new[key]), np.ravel(value), atol=0.02)
            else:
                np.testing.assert_array_equal(new[key], value, key)
    dataset = Dataset.open(root, cache=False)
    assert dataset.content() == content_before and dataset.tasks == ["press", "turn"]
    with EpisodeWriter(root, INTERFACE, stamps=("clock",), resume=True) as w:
        add(w, 3, 5)
        assert w.end(success=True, task="press") == 12
    assert repair(root) == Repaired(13, 41, [], 0) and list(validate(root)) == []


def test_a_row_of_an_episode_that_is_not_whole_is_not_made(three):
    (three / "meta/episodes/chunk-000/file-000.parquet").unlink()
    video = three / "videos/observation.images.front/chunk-000/file-001.mp4"
    os.truncate(video, video.stat().st_size // 2)
    before = content(three)
    with pytest.raises(BadInput, match=r"file-001\.mp4"):
        repair(three)
    assert content(three) == before


def cut_short(monkeypatch, renames: int):
    """As if killed before another file is renamed after so many."""
    replace, left = os.replace, iter(range(renames))

    def interrupted(source, target):
        if next(left, None) is None:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    return pytest.raises(KeyboardInterrupt)


@pytest.mark.long
def test_a_kill_while_they_are_counted_again_loses_none(three):
    behind(three, 1, 6)
    for renames in range(5):
        with pytest.MonkeyPatch.context() as patch, cut_short(patch, renames):
            repair(three)
        assert Dataset.open(three).episodes == 1
    assert repair(three) == Repaired(3, 13, [], 0, [(1, 3), (2, 4)])


@pytest.mark.long
@pytest.mark.parametrize("renames", [2, 4])
def test_a_kill_while_the_rest_of_a_killed_commit_is_removed_brings_none_of_it_back(three, renames):
    """First a commit is killed before it renames info.json, then those who clean up after it, again and again."""
    writer = EpisodeWriter(three, INTERFACE, resume=True, stamps=("clock",))
    add(writer, 3, 5)
    with pytest.MonkeyPatch.context() as patch, cut_short(patch, renames):
        writer.end(success=True, task="press")
    writer.locked.lock.release()
    assert (three / "videos/observation.images.front/chunk-000/file-003.mp4").exists()
    rows = pq.read_table(three / "meta/episodes/chunk-000/file-000.parquet").num_rows
    assert rows == (4 if renames == 4 else 3)  # all of it is there but the count
    assert {f.check for f in validate(three)} - {"stats"} == {"unfinished episode"}
    for again in range(5):
        with pytest.MonkeyPatch.context() as patch, cut_short(patch, again):
            repair(three)
    assert repair(three) == Repaired(4, 18, [(3, 5)], 0) and not list(three.rglob("*.tmp"))
    assert not Dataset.open(three).success[3] and not (three / ".unfinished").exists()


def test_what_cannot_be_repaired(root, tmp_path):
    writer = EpisodeWriter(root, INTERFACE, resume=True, stamps=("clock",))
    with writer, pytest.raises(BadInput, match="another writer"):
        repair(root)
    with pytest.raises(BadInput, match=r"no meta/info\.json"):
        repair(tmp_path / "nothing")
    info = json.loads((root / "meta/info.json").read_text())
    del info["robolearn_interface"]
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(BadInput, match="robolearn did not write"):
        repair(root)


@pytest.mark.long
def test_journals(tmp_path):
    journal = Journal(tmp_path / "j")
    for record in (b"one", b"2", b"three" * 100):
        journal.append(record)
    journal.close()
    whole = (tmp_path / "j").read_bytes()
    assert list(records(tmp_path / "j")) == [b"one", b"2", b"three" * 100]
    for cut in range(len(whole)):
        for zeros in (0, 3, 100):  # which a power cut leaves where content has not reached the disk
            (tmp_path / "j").write_bytes(whole[:cut] + bytes(zeros))
            assert len(list(records(tmp_path / "j"))) == (cut >= 11) + (cut >= 20)
    (tmp_path / "j").write_bytes(whole[:9] + b"x" + whole[10:])
    assert list(records(tmp_path / "j")) == [] == list(records(tmp_path / "none"))


@pytest.mark.long
def test_kills_at_random_moments():
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).parents[1] / "programs" / "crash.py"), "--kills", "8"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] == 8
