"""Files that only grow, and digests."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from robolearn.io.append_only import AppendOnlyFile, Journal, cut_torn, records
from robolearn.io.hashes import sha256, sha256_file

WRITER = """
import sys
from pathlib import Path
from robolearn.io.append_only import AppendOnlyFile
with AppendOnlyFile(Path(sys.argv[1])) as file:
    for _ in range(500):
        file.append(sys.argv[2].encode() * 200 + b"\\n")
"""


def test_lines_of_several_processes_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter]) for letter in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    lines = path.read_text().splitlines()
    assert sorted(lines) == [letter * 200 for letter in "abc" for _ in range(500)]


def test_a_file_goes_on_unless_it_is_to_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for text in (b"1\n", b"2\n"):
        with AppendOnlyFile(path) as file:
            file.append(text)
    assert path.read_bytes() == b"1\n2\n"
    file = AppendOnlyFile(path, truncate=True)
    file.close()
    file.close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("cut", range(1, 14))
def test_records_are_read_up_to_where_the_file_was_cut(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path / "new" / "journal")
    journal.append(b"first")
    journal.append(b"second")
    journal.close()
    path = tmp_path / "new" / "journal"
    whole = path.read_bytes()
    assert len(whole) == 8 + 5 + 8 + 6 and list(records(path)) == [b"first", b"second"]
    path.write_bytes(whole[:-cut])
    assert list(records(path)) == [b"first"]
    path.write_bytes(whole + bytes(cut))  # a power cut
    assert list(records(path)) == [b"first", b"second"]


@pytest.mark.parametrize("length", [2**32 - 1, 300_001], ids=["nonsense", "one byte too long"])
def test_records_are_read_one_by_one_and_a_length_beyond_the_file_is_not_asked_for(tmp_path: Path, length: int) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    for number in range(100):
        journal.append(bytes([number]) * 100_000)
    journal.close()
    with path.open("ab") as file:
        file.write(struct.pack("<II", length, 0) + bytes(300_000))
    tracemalloc.start()
    try:
        count = sum(record == bytes([number]) * 100_000 for number, record in enumerate(records(path)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 100 and peak < 1_000_000, peak  # of a file of 10 MB


def test_digests_are_those_of_the_bytes(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    parts = (array, array[:, ::2], np.float64(2.5), np.empty((0, 3)), b"x", "τ", np.array([True]))
    expected = array.tobytes() + np.ascontiguousarray(array[:, ::2]).tobytes() + np.float64(2.5).tobytes()
    expected += b"x" + "τ".encode() + b"\x01"
    assert sha256(*parts) == hashlib.sha256(expected).hexdigest()
    assert sha256() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # FIPS 180-4, of nothing
    (tmp_path / "file").write_bytes(expected)
    done = subprocess.run(["sha256sum", tmp_path / "file"], capture_output=True, text=True, check=True)
    assert sha256_file(tmp_path / "file") == done.stdout.split()[0]


def test_records_behind_damage_are_kept_aside_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log"
    journal = Journal(path)
    for i in range(5):
        journal.append(bytes([i]) * 40)
    journal.close()
    whole = path.read_bytes()
    size = len(whole) // 5
    for flipped in (size + 20, size):  # a bit of the second record's content, and of its length
        path.write_bytes(whole[:flipped] + bytes([whole[flipped] ^ 64]) + whole[flipped + 1 :])
        cut_torn(path)
        assert list(records(path)) == [bytes([0]) * 40]
    kept = [(tmp_path / f"log.damaged-{i}").read_bytes() for i in range(2)]
    assert all(rest.endswith(whole[2 * size :]) for rest in kept)
    assert f"is damaged at byte {size}: {4 * size} bytes after that" in caplog.text

    path.write_bytes(whole[:-7])  # torn by a kill: nothing is lost but the record that was not whole
    cut_torn(path)
    assert path.read_bytes() == whole[: 4 * size] and not (tmp_path / "log.damaged-2").exists()
