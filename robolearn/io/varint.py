"""Whole numbers in groups of seven bits, as thrift, protobuf and snappy write them."""

from __future__ import annotations


def varint(content: bytes | bytearray, at: int = 0) -> tuple[int, int]:
    """The number that begins at byte `at` of `content`, the lowest bits first, and where it ends. Raises `ValueError`:
    `content` ends before."""
    number = shift = 0
    for end in range(at, len(content)):
        number |= (content[end] & 127) << shift
        shift += 7
        if content[end] < 128:
            return number, end + 1
    raise ValueError("a number that ends early")
