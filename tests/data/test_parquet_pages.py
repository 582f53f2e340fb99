"""Pages of pictures, against Arrow's own reading of the same files, and against what is damaged."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.data.video.parquet_pages import column_pages, unpacked, unsnap
from robolearn.data.video.readers import PictureCells

COLUMN = "observation.images.top"


def pictures(count: int, size: int, absent: bool, again: bool) -> list[bytes | None]:
    """Half noise and half a pattern, so that compression copies from near and far."""
    rng = np.random.default_rng(0)
    made: list[bytes | None] = [
        rng.bytes(size // 2) + bytes(rng.integers(0, 3, size - size // 2, dtype=np.uint8)) for _ in range(count)
    ]
    if again:
        made = [made[int(n)] for n in rng.integers(0, count // 2, count)]
    return [None if absent and n % 3 == 1 else one for n, one in enumerate(made)]


def written(path: Path, shown: list[bytes | None], plain: bool = False, **options: Any) -> Path:
    cells = shown if plain else [{"bytes": one, "path": f"{n}.png"} for n, one in enumerate(shown)]
    kind = pa.binary() if plain else pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"action": np.arange(len(shown), dtype=np.float32), COLUMN: pa.array(cells, kind)})
    pq.write_table(table, path, **{"write_page_checksum": True, **options})
    return path


def read(path: Path) -> list[bytes]:
    """All pictures by the pages."""
    found = []
    with pq.ParquetFile(path) as table, path.open("rb") as source:
        for group in range(table.num_row_groups):
            pages, out = column_pages(table, group, COLUMN)[1], io.BytesIO()
            assert pages is not None
            places = unpacked(source, pages, out)
            assert len(places) == table.metadata.row_group(group).num_rows
            found += [out.getvalue()[begin:end] for begin, end in places.tolist()]
    return found


@pytest.mark.parametrize("codec", ["snappy", "none", "gzip", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize(
    ("absent", "again", "plain", "page"),
    [
        (False, False, False, 1 << 30),
        (True, True, False, 1 << 12),
        (True, False, True, 1 << 14),
        (False, True, True, 1 << 30),
    ],
)
def test_every_layout_is_read_as_arrow_reads_it(
    tmp_path: Path, codec: str, version: str, dictionary: bool, absent: bool, again: bool, plain: bool, page: int
) -> None:
    shown = pictures(90, 3000, absent, again)
    options = {"compression": codec, "data_page_version": version, "use_dictionary": dictionary, "row_group_size": 50}
    path = written(tmp_path / "a.parquet", shown, plain, data_page_size=page, write_batch_size=16, **options)
    cells = pq.read_table(path)[COLUMN].to_pylist()
    judged = [(cell if plain else cell["bytes"]) or b"" for cell in cells]
    assert judged == [one or b"" for one in shown]
    assert read(path) == judged


def test_a_dictionary_that_is_full_goes_on_with_plain_pages(tmp_path: Path) -> None:
    """As Arrow writes any episode of pictures of more than a megabyte."""
    shown = pictures(2100, 2000, False, False)
    path = written(tmp_path / "a.parquet", shown)
    encodings = pq.ParquetFile(path).metadata.row_group(0).column(1).encodings
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(encodings)
    assert read(path) == shown


@pytest.mark.parametrize("shown", [[b"one"] * 40, [None] * 40, [], [b""] * 3, [b"x" * 3_000_000] * 2])
def test_sets_at_the_edges(tmp_path: Path, shown: list[bytes | None]) -> None:
    assert read(written(tmp_path / "a.parquet", shown)) == [one or b"" for one in shown]


@pytest.mark.parametrize("options", [{"compression": "lz4"}, {"compression": "brotli"}])
def test_what_is_not_known_is_left_to_arrow(tmp_path: Path, options: dict[str, Any]) -> None:
    path = written(tmp_path / "a.parquet", pictures(5, 100, False, False), **options)
    assert column_pages(pq.ParquetFile(path), 0, COLUMN)[1] is None
    lists = pa.table({COLUMN: pa.array([[b"a", b"b"], [b"c"]])})
    pq.write_table(lists, path)
    assert column_pages(pq.ParquetFile(path), 0, COLUMN) == (0, None)


def test_large_row_groups_come_by_their_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = pictures(60, 2000, True, False)
    written(tmp_path / "a.parquet", shown, row_group_size=25)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)  # nobody asks Arrow
    monkeypatch.setattr("robolearn.data.video.readers.LARGE", 0)
    cells = PictureCells(tmp_path, "a.parquet", COLUMN)
    rows = [7, 59, 0, 30, 31, 7]
    assert list(cells.at(rows)) == [shown[row] or b"" for row in rows]


def test_a_flipped_bit_anywhere_in_the_pages_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", pictures(30, 500, True, False), data_page_size=4096, write_batch_size=4)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    with pq.ParquetFile(path) as table:
        pages = column_pages(table, 0, COLUMN)[1]
    assert pages is not None
    made = io.BytesIO()
    right = unpacked(io.BytesIO(whole), pages, made)
    for at in rng.integers(pages.begin, pages.end, 400).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        out = io.BytesIO()
        try:
            places = unpacked(io.BytesIO(bytes(damaged)), pages, out)
        except ValueError:
            continue
        assert (
            np.array_equal(places, right) and out.getvalue() == made.getvalue()
        )  # in a part of a header that says nothing of the pictures


@pytest.mark.parametrize("codec", ["snappy", "none", "gzip", "zstd"])
def test_without_checksums_whatever_is_damaged_is_one_error(tmp_path: Path, codec: str) -> None:
    shown = pictures(30, 500, True, True)
    path = written(tmp_path / "a.parquet", shown, compression=codec, data_page_size=4096, write_page_checksum=False)
    whole, rng, refused = path.read_bytes(), np.random.default_rng(1), 0
    with pq.ParquetFile(path) as table:
        pages = column_pages(table, 0, COLUMN)[1]
    assert pages is not None
    for _ in range(400):
        damaged, at = bytearray(whole), int(rng.integers(pages.begin, pages.end))
        damaged[at : at + int(rng.integers(1, 9))] = rng.bytes(4)
        out = io.BytesIO()
        try:
            unpacked(io.BytesIO(bytes(damaged)), pages, out)
        except (ValueError, OSError):  # as Arrow's, one line of which file and why
            refused += 1
        assert len(out.getvalue()) < 10 * len(whole)
    assert refused > 40


def stream(rng: np.random.Generator, size: int) -> bytes:
    """Raw snappy of `size` bytes with elements of all kinds, copies that reach far back and that overlap."""
    body, done = bytearray(), 0
    while done < size:
        kind = int(rng.integers(4)) if done else 0
        if kind == 0:
            length = int(
                min(rng.choice([1, 60, 61, 300, 70_000, 2_000_000], p=[0.3, 0.2, 0.2, 0.2, 0.09, 0.01]), size - done)
            )
            extra = (length - 1).to_bytes(4, "little").rstrip(b"\0") if length > 60 else b""
            body += bytes([(59 + len(extra) if extra else length - 1) << 2]) + extra + rng.bytes(length)
        else:
            length = int(min(rng.integers(4, 12) if kind == 1 else rng.integers(1, 65), size - done))
            if kind == 1 and length < 4:
                continue
            reach = int(min(done, (1 << 11, 1 << 16, 1 << 32)[kind - 1] - 1))
            offset = 1 + int(rng.integers(min(reach, 8) if rng.random() < 0.3 else reach))
            offset = min(offset, (1 << 11) - 1) if kind == 1 else offset
            low = length - 4 << 2 | offset >> 8 << 5 if kind == 1 else length - 1 << 2
            body += bytes([low | kind]) + offset.to_bytes(4, "little")[: (1, 2, 4)[kind - 1]]
        done += length
    said, left = bytearray(), size
    while left > 127:
        said.append(left & 127 | 128)
        left >>= 7
    return bytes(said) + bytes([left]) + bytes(body)


def test_a_copy_from_before_the_page_is_refused() -> None:
    """Eight bytes back where four have been made: what lies there is of another page."""
    out = io.BytesIO()
    out.write(b"another page")
    with pytest.raises(ValueError, match="beyond its ends"):
        unsnap(io.BytesIO(bytes([8, 3 << 2]) + b"abcd" + bytes([3 << 2 | 2, 8, 0])), 8, out)


@pytest.mark.parametrize("size", [1, 100, 70_000, 5_000_000])
def test_snappy_of_any_writer_is_what_arrow_makes_of_it(size: int) -> None:
    for seed in range(6):
        packed, out = stream(np.random.default_rng(seed), size), io.BytesIO()
        unsnap(io.BytesIO(packed), size, out)
        assert out.getvalue() == pa.Codec("snappy").decompress(packed, size, asbytes=True)


GROWN = """
import re, sys
from pathlib import Path
from robolearn.data.video.readers import PictureCells

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def read(name):
    assert sum(len(one) for one in PictureCells(Path(sys.argv[1]), name, sys.argv[2]).at(range(700))) > 10_000_000

read("small.parquet")
before = peak()
read("large.parquet")
print(peak() - before)
"""


@pytest.mark.long
@pytest.mark.parametrize("codec", ["snappy", "gzip"])
def test_a_page_of_any_size_takes_a_few_megabytes(tmp_path: Path, codec: str) -> None:
    """Arrow's reading grew by two to three times the page of 154 MB."""
    for name, size in (("small", 20_000), ("large", 220_000)):
        noise = np.random.default_rng(0).bytes(2 * size)
        written(tmp_path / f"{name}.parquet", [noise[n : n + size] for n in range(700)], compression=codec)
    words = [sys.executable, "-c", GROWN, str(tmp_path), COLUMN]
    child = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(child.stdout) < 30_000
