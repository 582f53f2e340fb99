"""The pictures of a column in a parquet file, page by page: in memory is a piece of one, however large a page is.

Arrow holds a page compressed, decompressed and copied, and writers put 1024 pictures into one. Here each is
decompressed into a file, and its pictures stay where they lie there. What a page says, in order:

    header             thrift's compact protocol: kind, sizes, checksum, number of values, encoding
    levels             of a data page: which rows have a picture, in runs and packed bits
    values             PLAIN: (4 bytes of length | picture) …; else numbers of pictures in the column's dictionary page

Source: Apache Parquet's format specification 2.11 and snappy's format description. Columns that lie otherwise (lists,
DELTA encodings, LZ4, Brotli) are not known here, and Arrow reads them.
"""

from __future__ import annotations

import io
import os
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robolearn.io.varint import varint

PIECE = 1 << 20  # bytes that are handled at once
HEADER = 1 << 16  # bytes in which a header ends
WINDOW = 1 << 16  # bytes back to which snappy's own writer refers
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8  # encodings
INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 1, 2, 3  # kinds of pages; 0 is a data page
_ENCODINGS = {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_STREAMS = {"GZIP": "gzip", "ZSTD": "zstd"}
_CODECS = {"UNCOMPRESSED", "SNAPPY", *_STREAMS}


@dataclass(frozen=True)
class ColumnPages:
    """Where the pictures of a row group lie.

    Attributes:
      begin, end: the bytes of the file that are its pages.
      count: rows.
      codec: GZIP, SNAPPY, UNCOMPRESSED or ZSTD.
      full: the level of a row that has a picture.
    """

    begin: int
    end: int
    count: int
    codec: str
    full: int


def column_pages(table: pq.ParquetFile, group: int, column: str) -> tuple[int, ColumnPages | None]:
    """Bytes of `column`, or of its field ``bytes``, in row group `group`, and its pages; None where they are not of a
    kind that is known here."""
    facts = table.metadata.row_group(group)
    names = {column, f"{column}.bytes"}
    number = next((n for n in range(facts.num_columns) if facts.column(n).path_in_schema in names), None)
    if number is None:
        return 0, None
    chunk, schema = facts.column(number), table.schema.column(number)
    size = chunk.total_uncompressed_size
    plain = chunk.physical_type == "BYTE_ARRAY" and not schema.max_repetition_level
    if not plain or not set(chunk.encodings) <= _ENCODINGS or chunk.compression not in _CODECS:
        return size, None
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    begin = chunk.data_page_offset if first is None else min(first, chunk.data_page_offset)
    end = begin + chunk.total_compressed_size
    return size, ColumnPages(begin, end, chunk.num_values, chunk.compression, schema.max_definition_level)


def unpacked(source: BinaryIO, pages: ColumnPages, out: BinaryIO) -> NDArray[np.int64]:
    """Decompress `pages` of the file `source` to the end of the file `out`.

    Returns: (N, 2) where there the picture of each row begins and ends; it is empty where there is none.

    Raises `ValueError`: the pages are damaged.
    """
    known, found, left, at = np.zeros((0, 2), np.int64), [], pages.count, pages.begin
    try:
        while left > 0 and at < pages.end:
            source.seek(at)
            header, size = _header(source.read(HEADER))
            at += size
            begin, kept = out.seek(0, os.SEEK_END), header[3]
            page = _Page(source, at, min(kept, pages.end - at), header.get(4))
            at += kept
            if header[1] == INDEX_PAGE:
                continue
            facts = header[{DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(header[1], 5)]
            codec, plain = pages.codec, 0
            if header[1] == DATA_PAGE_V2:  # its levels are not compressed
                plain, codec = facts[5] + facts[6], codec if facts.get(7, True) else "UNCOMPRESSED"
            _decompress(page, plain, header[2], codec, out)
            page.check()
            if header[1] == DICTIONARY_PAGE:
                known = _plain(out, begin, begin + header[2], facts[1])
                continue
            count = min(facts[1], left)
            found.append(_rows(out, begin, begin + header[2], header[1], facts, count, pages.full, known))
            left -= count
    except (KeyError, IndexError, TypeError, OverflowError, zlib.error) as error:
        raise ValueError(f"a page that cannot be read: {error!r}") from None
    if left:
        raise ValueError(f"{left} of {pages.count} rows are not there")
    return np.concatenate(found) if found else known[:0]


def _rows(
    out: BinaryIO, begin: int, end: int, kind: int, facts: dict[int, Any], count: int, full: int, known: NDArray
) -> NDArray[np.int64]:
    """(count, 2) the places of the pictures of the data page that lies in ``out[begin:end]``."""
    out.seek(begin)
    encoding = facts[2] if kind != DATA_PAGE_V2 else facts[4]
    size = 0
    if kind == DATA_PAGE_V2:  # levels of repetition, of which there are none, come first
        size = facts[5]
    elif full:
        size = int.from_bytes(_exactly(out, 4), "little")
        begin += 4
    there = np.ones(count, bool)
    if full:
        there = _numbers(_exactly(out, min(size, end - begin)), full.bit_length(), count) == full
    begin, stored = begin + size, int(there.sum())
    places = np.full((count, 2), begin, np.int64)
    if encoding == PLAIN:
        places[there] = _plain(out, begin, end, stored)
    elif encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY):
        out.seek(begin)
        packed = _exactly(out, end - begin)
        if stored:
            places[there] = known[_numbers(packed[1:], packed[0], stored)]
    else:
        raise ValueError(f"a page of encoding {encoding}")
    return places


def _plain(out: BinaryIO, begin: int, end: int, count: int) -> NDArray[np.int64]:
    """(count, 2) the places of values that lie one after the other, each behind its length, in ``out[begin:end]``."""
    if not 0 <= 4 * count <= end - begin:
        raise ValueError(f"{count} values in {end - begin} bytes")
    places, at = np.zeros((count, 2), np.int64), begin
    for row in range(count):
        out.seek(at)
        size = int.from_bytes(_exactly(out, 4), "little")
        places[row] = at + 4, at + 4 + size
        at += 4 + size
        if at > end:
            raise ValueError("a value beyond the end of its page")
    return places


def _numbers(packed: bytes, width: int, count: int) -> NDArray[np.int64]:
    """`count` numbers of `width` bits, of runs of one number and of groups of eight that are packed."""
    numbers, done, at = np.zeros(count, np.int64), 0, 0
    if not 0 <= width <= 32:
        raise ValueError(f"numbers of {width} bits")
    while done < count and width:
        head, at = varint(packed, at)
        if head & 1:
            size = (head >> 1) * width
            bits = np.unpackbits(np.frombuffer(packed, np.uint8, size, at), bitorder="little").reshape(-1, width)
            run = bits.astype(np.int64) @ (1 << np.arange(width, dtype=np.int64))
        else:
            size = (width + 7) // 8
            run = np.full(min(head >> 1, count - done), int.from_bytes(packed[at : at + size], "little"))
        at += size
        run = run[: count - done]
        numbers[done : done + len(run)] = run
        done += len(run)
    return numbers


class _Page(io.RawIOBase):
    """The `size` bytes of `source` from `at` on; `checksum`: what their CRC-32 ought to be, if it is known."""

    def __init__(self, source: BinaryIO, at: int, size: int, checksum: int | None) -> None:
        self._source, self._at, self._left, self._wanted = source, at, size, checksum
        self._sum = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self._source.seek(self._at)
        content = self._source.read(self._left if size < 0 else min(size, self._left))
        self._at += len(content)
        self._left -= len(content)
        self._sum = zlib.crc32(content, self._sum)
        return content

    def readinto(self, buffer: Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def check(self) -> None:
        """Raise `ValueError` where the checksum of all bytes is another."""
        while self.read(PIECE):
            pass
        if self._wanted is not None and self._sum != self._wanted & 0xFFFFFFFF:
            raise ValueError("CRC checksum verification failed for a page")


def _decompress(page: _Page, plain: int, size: int, codec: str, out: BinaryIO) -> None:
    """Write the `size` bytes that `page` is decompressed to, of which the first `plain` are as they are."""
    begin = out.tell()
    out.write(_exactly(page, plain))
    rest = io.BufferedReader(page, PIECE)
    if codec == "SNAPPY" and size > plain:
        unsnap(rest, size - plain, out)
    else:
        stream = pa.CompressedInputStream(pa.PythonFile(rest, "r"), _STREAMS[codec]) if codec in _STREAMS else rest
        while (left := begin + size - out.tell()) > 0 and (content := stream.read(min(PIECE, left))):
            out.write(content)
    if out.tell() != begin + size:
        raise ValueError("a page of another size than it says")


def unsnap(source: BinaryIO, size: int, out: BinaryIO) -> None:
    """Write the `size` bytes that raw snappy is decompressed to; raises `ValueError` where it is damaged."""
    head = bytearray(_exactly(source, 1))
    while head[-1] > 127:
        head += _exactly(source, 1)
    if (said := varint(head)[0]) != size:
        raise ValueError(f"a page of {said} bytes that says {size}")
    recent, done = bytearray(), 0  # the last bytes, and how many went before them
    while done + len(recent) < size:
        length, offset = _element(source)
        if done + len(recent) + length > size or offset > done + len(recent):
            raise ValueError("a page that copies from beyond its ends")
        if not offset:
            while length:
                piece = _exactly(source, min(length, PIECE))
                recent += piece
                length -= len(piece)
                done += _shortened(recent, out)
            continue
        if offset > len(recent):  # no writer is known that refers so far back
            done += out.write(recent)
            end = out.tell()
            out.seek(end - offset)
            copied, recent = _exactly(out, min(offset, length)), bytearray()
            out.seek(end)
        else:
            copied = recent[len(recent) - offset : len(recent) - offset + length]
        recent += (copied * -(-length // len(copied)))[:length]  # beyond its own beginning it repeats
        done += _shortened(recent, out)
    out.write(recent)


def _element(source: BinaryIO) -> tuple[int, int]:
    """The number of bytes that come next in raw snappy, and how far back they are copied from; 0: they follow there."""
    tag = _exactly(source, 1)[0]
    kind, length = tag & 3, (tag >> 2) + 1
    if kind == 0:
        return (length if length <= 60 else 1 + int.from_bytes(_exactly(source, length - 60), "little")), 0
    if kind == 1:
        length, offset = 4 + (tag >> 2 & 7), (tag >> 5) << 8 | _exactly(source, 1)[0]
    else:
        offset = int.from_bytes(_exactly(source, 2 if kind == 2 else 4), "little")
    if not offset:
        raise ValueError("a page that copies what it has not made")
    return length, offset


def _shortened(recent: bytearray, out: BinaryIO) -> int:
    """Write all but a window of `recent` where it has grown, and take it off; how many bytes."""
    if len(recent) <= PIECE:
        return 0
    size = out.write(recent[:-WINDOW])
    del recent[:-WINDOW]
    return size


def _exactly(source: Any, size: int) -> bytes:
    content = source.read(size)
    if len(content) != size:
        raise ValueError("a page that ends early")
    return content


def _header(content: bytes) -> tuple[dict[int, Any], int]:
    """The header that begins `content`, field → value, and its size: 1 kind, 2 size, 3 compressed size, 4 checksum; 5,
    7 and 8 are the fields of a data page, of a dictionary page and of a data page of version 2."""
    header, at = _struct(content, 0, 0)
    if not (isinstance(header[2], int) and isinstance(header[3], int) and header[2] >= 0 and header[3] >= 0):
        raise ValueError("a header without sizes")
    return header, at


def _struct(content: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while (head := content[at]) != 0:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = varint(content, at)
            number = (number >> 1) ^ -(number & 1)
        fields[number], at = (kind == 1, at) if kind in (1, 2) else _value(content, at, kind, depth)
    return fields, at + 1


def _value(content: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if depth > 8:
        raise ValueError("a header of headers")
    if kind in (4, 5, 6):  # whole numbers: 0, -1, 1, -2, …
        number, at = varint(content, at)
        return (number >> 1) ^ -(number & 1), at
    if kind in (1, 2, 3, 7):  # a byte, or eight
        return None, at + (8 if kind == 7 else 1)
    if kind == 8:
        size, at = varint(content, at)
        return None, at + size
    if kind == 12:
        return _struct(content, at, depth + 1)
    raise ValueError(f"a header with a value of kind {kind}")
