"""A folder of a stated size."""

from __future__ import annotations

import os
from pathlib import Path

from robolearn.io.bounded_folder import BoundedFolder


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    folder = BoundedFolder(tmp_path, 1000)
    for i in range(9):
        folder.put(f"name-{i}", bytes([i]) * 100)
        os.utime(tmp_path / "na" / f"name-{i}", (i, i))
    assert folder.get("name-0") == bytes(100)  # now it is the one that was used last
    folder.put("name-9", b"9" * 100)
    assert size(tmp_path) <= 800 and folder.get("name-1") is None
    assert folder.get("name-0") == bytes(100) and folder.get("name-9") == b"9" * 100


def test_the_limit_counts_what_was_there_before(tmp_path: Path) -> None:
    for i in range(30):
        BoundedFolder(tmp_path, 1000).put(f"name-{i}", b"x" * 100)
        assert size(tmp_path) <= 1000
    BoundedFolder(tmp_path, 1000).put("large", b"x" * 1000)
    assert BoundedFolder(tmp_path, 1000).get("large") is None


def test_a_file_that_was_damaged_is_not_there(tmp_path: Path) -> None:
    folder = BoundedFolder(tmp_path, 1000)
    folder.put("name", b"content")
    path = tmp_path / "na" / "name"
    path.write_bytes(path.read_bytes()[:-1])
    assert folder.get("name") is None
    path.write_bytes(b"")
    assert folder.get("name") is None


def test_a_place_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = BoundedFolder(tmp_path / "file" / "below", 1000)
    folder.put("name", b"content")
    assert folder.get("name") is None
