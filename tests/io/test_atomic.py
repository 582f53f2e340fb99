"""Files and folders that are whole or absent, whatever happens on the way."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import BadInput, RobolearnError
from robolearn.io import atomic
from robolearn.io.atomic import Commit
from robolearn.io.json_files import plain, read_json, write_json
from robolearn.io.paths import check_folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic.write_bytes(path, b"old")
    atomic.write_text(path, "τ\n")
    assert path.read_bytes() == b"\xcf\x84\n" and names(tmp_path) == ["file"]


def test_after_an_error_the_file_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic.replacing(path) as beside:
        beside.write_text("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and names(tmp_path) == ["file"]


def test_content_is_on_the_disk_before_the_rename_and_the_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        seen.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def replaced(source: Path, place: Path) -> None:
        seen.append(f"rename to {Path(place).name}")
        replace(source, place)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    atomic.write_bytes(tmp_path / "file", b"content")
    assert seen == [f"sync .file.{os.getpid()}.tmp", "rename to file", f"sync {tmp_path.name}"]
    seen.clear()
    commit = Commit(tmp_path, "data set x")
    commit.stage("inner/a", b"1")
    commit.stage("point", b"2")
    commit.publish()
    assert sorted(seen[:2]) == ["sync a.tmp", "sync point.tmp"]
    assert seen[2:] == [
        "rename to a",
        "sync inner",
        f"sync {tmp_path.name}",
        "rename to point",
        f"sync {tmp_path.name}",
    ]


WRITER = """
import sys
from pathlib import Path
from robolearn.io.atomic import write_bytes
print("begun", flush=True)
while True:
    for letter in b"ab":
        write_bytes(Path(sys.argv[1]), bytes([letter]) * 300_000)
"""


@pytest.mark.long
def test_a_reader_and_a_kill_find_the_old_content_or_the_new(tmp_path: Path) -> None:
    path, whole = tmp_path / "file", {b"a" * 300_000, b"b" * 300_000}
    for _ in range(3):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
            for _ in range(2)  # two who write one file do not mix
        ]
        try:
            for writer in writers:
                assert writer.stdout is not None and writer.stdout.readline() == "begun\n"
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                assert not path.exists() or path.read_bytes() in whole
        finally:
            for writer in writers:
                writer.kill()
                writer.wait(10)
                assert writer.stdout is not None
                writer.stdout.close()
        assert path.read_bytes() in whole
    assert all(atomic.is_leftover(other, "file") for other in tmp_path.iterdir() if other != path)


def test_what_a_kill_leaves_is_known_by_its_name() -> None:
    assert atomic.is_leftover(Path("x/.config.json.tmp"), "config.json")
    assert atomic.is_leftover(Path(".config.json.123.tmp"), "config.json")
    assert not atomic.is_leftover(Path("config.json"), "config.json")
    assert not atomic.is_leftover(Path(".other.json.1.tmp"), "config.json")


def test_a_folder_takes_a_free_place_only(tmp_path: Path) -> None:
    new, place = tmp_path / "new", tmp_path / "place"
    (new / "inner").mkdir(parents=True)
    (new / "inner" / "file").write_text("1")
    place.mkdir()
    (place / "mine").write_text("keep")
    with pytest.raises(OSError):
        atomic.place_folder(new, place)
    assert (new / "inner" / "file").exists() and (place / "mine").exists()
    (place / "mine").unlink()
    atomic.place_folder(new, place)
    assert names(tmp_path) == ["place", "place/inner", "place/inner/file"]


def test_a_folder_replaces_another(tmp_path: Path) -> None:
    for content in ("1", "2"):
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / content).write_text(content)
        (tmp_path / ".place.old").mkdir(exist_ok=True)  # as a kill before its removal leaves it
        atomic.replace_folder(tmp_path / "new", tmp_path / "place")
        assert names(tmp_path) == ["place", f"place/{content}"]


def _fill(root: Path, queue: multiprocessing.SimpleQueue, limit: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    commit = Commit(root, "data set x")
    try:
        commit.stage("small", b"1")
        commit.stage("large", bytes(10 * limit))
    except RobolearnError as error:
        queue.put(str(error))


def test_a_disk_that_takes_no_more_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """The limit on the size of files fails a write halfway, as a full disk does."""
    (tmp_path / "small").write_bytes(b"0")
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    worker = context.Process(target=_fill, args=(tmp_path, queue, 100_000))
    worker.start()
    worker.join(30)
    assert queue.get() == "data set x: large cannot be written (File too large)"
    assert names(tmp_path) == ["small"] and (tmp_path / "small").read_bytes() == b"0"


def test_json_there_and_back(tmp_path: Path) -> None:
    value = {"a": (1, np.float32(0.5)), "b": tmp_path, "c": float("nan"), "d": np.arange(2)}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json", what="x") == plain(value)
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [1, 0.5], "b": str(tmp_path), "c": None, "d": [0, 1]}
    for content, says in (("{", "unreadable"), ("[]", "got list")):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(BadInput, match=says):
            read_json(tmp_path / "x.json", what="x")
    with pytest.raises(BadInput, match=r"no y\.json"):
        read_json(tmp_path / "y.json", what="y")


def test_a_folder_may_be_made_anywhere_but_below_a_file(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b", "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="which is a file"):
        check_folder(tmp_path / "file" / "b", "run")
