"""One picture as bytes, without loss: the planes that the decoder made, the differences of their rows, Zstandard.

Video holds a colour for every four pixels, so its planes are half as large as the pixels that are made of them. Each
picture stands for itself and can be unpacked alone.
"""

from __future__ import annotations

import struct
import threading
import zlib

import av
import numpy as np
import pyarrow as pa
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

LEVEL = 1  # of Zstandard
_HEAD = struct.Struct("<IBBBB")  # crc32 of what follows, format, colour space, colour range, nothing
# Format → its bytes per pixel. PyAV hands out others, and pictures of odd sizes, as pixels only.
_FORMATS = {"rgb24": 3.0, "yuv420p": 1.5, "yuvj420p": 1.5, "yuv444p": 3.0, "yuvj444p": 3.0}
_NAMES = tuple(_FORMATS)
# One thread for colours, where PyAV lets us say so (18): starting more takes longer than the work.
_ONE_THREAD = {"threads": 1} if int(av.__version__.split(".")[0]) >= 18 else {}

# libswscale reads whole registers: of a picture whose width is no multiple of 16, up to 48 bytes behind its last pixel
# (FFmpeg 8, AVX2). Where a page ends there, the process would crash.
READ_BEHIND = 64


class _Tools(threading.local):
    """Tools of one thread."""

    def __init__(self) -> None:
        self.codec = pa.Codec("zstd", LEVEL)
        self.colours = VideoReformatter()


_tools = _Tools()


class Damaged(ValueError):
    """Bytes that are no packed picture any more."""


def of_pixels(pixels: NDArray[np.uint8]) -> av.VideoFrame:
    """A picture of the (H, W, 3) `pixels`, copied, with memory behind them that libswscale may read.

    PyAV's `from_ndarray` leaves as much, and takes 1.5 ms for 640 x 480 pixels in place of 0.1.
    """
    room = np.empty(pixels.size + READ_BEHIND, np.uint8)
    own = room[: pixels.size].reshape(pixels.shape)
    own[:] = pixels
    return av.VideoFrame.from_numpy_buffer(own, format="rgb24")


def rgb(picture: av.VideoFrame) -> NDArray[np.uint8]:
    """(H, W, 3) the pixels of `picture`."""
    return in_format(picture, "rgb24").to_ndarray().astype(np.uint8, copy=False)


def grey(picture: av.VideoFrame) -> NDArray[np.uint8]:
    """(H, W) the brightness of the pixels of `picture`."""
    return in_format(picture, "gray").to_ndarray().astype(np.uint8, copy=False)


def in_format(picture: av.VideoFrame, name: str) -> av.VideoFrame:
    """`picture` with its pixels in the format `name`, by the tools that this thread has: to make others takes longer
    than a small picture."""
    return _tools.colours.reformat(picture, format=name, **_ONE_THREAD)


def pack(picture: av.VideoFrame) -> bytes:
    """`picture` as bytes."""
    name = picture.format.name
    if name not in _FORMATS or picture.width % 2 or picture.height % 4:
        picture, name = av.VideoFrame.from_ndarray(rgb(picture), format="rgb24"), "rgb24"
    rows = picture.to_ndarray().astype(np.uint8, copy=False).reshape(-1, picture.width * (3 if name == "rgb24" else 1))
    differences = rows.copy()
    differences[1:] -= rows[:-1]
    kind = struct.pack("<BBBB", _NAMES.index(name), int(picture.colorspace), int(picture.color_range), 0)
    content = kind + bytes(_tools.codec.compress(differences.tobytes()))
    return struct.pack("<I", zlib.crc32(content)) + content


def unpack(packed: bytes | memoryview, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The pixels of `shape` (H, W, 3) that `pack` was given; raises `Damaged`."""
    height, width, _ = shape
    try:
        checksum, number, space, scope, _ = _HEAD.unpack_from(packed)
        if zlib.crc32(packed[4:]) != checksum:
            raise Damaged("another checksum")
        name = _NAMES[number]
        size = int(height * width * _FORMATS[name])
        content = _tools.codec.decompress(pa.py_buffer(packed[_HEAD.size :]), size)
        rows = np.frombuffer(content, np.uint8).reshape(-1, width * (3 if name == "rgb24" else 1))
    except (struct.error, IndexError, pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(f"no packed picture ({error})") from None
    rows = np.add.accumulate(rows, axis=0, dtype=np.uint8)
    if name == "rgb24":
        return rows.reshape(shape)
    if name in ("yuv444p", "yuvj444p"):
        rows = rows.reshape(3, height, width)
    picture = av.VideoFrame.from_ndarray(rows, format=name)
    picture.colorspace, picture.color_range = space, scope
    return rgb(picture)
