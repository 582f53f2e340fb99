"""Image messages to pixels: every encoding against arithmetic by hand or numpy, crops and sizes against OpenCV."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from robolearn.core import BadInput
from robots.stations import IMAGE, Camera, pictures
from robots.stations.pictures import crop_of, picture, raw_picture


@dataclass
class Image:
    """What is read of a sensor_msgs/Image."""

    height: int
    width: int
    encoding: str
    step: int
    data: bytes = field(repr=False)
    is_bigendian: int = 0


def image(samples: np.ndarray, encoding: str, padding: int = 0) -> Image:
    """Samples (H, W, …) as a message whose rows end with `padding` bytes that are no pixels."""
    height, width = samples.shape[:2]
    rows = np.ascontiguousarray(samples).view(np.uint8).reshape(height, -1)
    rows = np.concatenate([rows, np.full((height, padding), 77, np.uint8)], 1)
    big = samples.dtype.byteorder == ">"
    return Image(height, width, encoding, rows.shape[1], rows.tobytes(), int(big))


RNG = np.random.default_rng(3)
RGB = RNG.integers(0, 256, (6, 8, 3), np.uint8)


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(
    ("encoding", "samples"),
    [
        ("rgb8", RGB),
        ("bgr8", RGB[..., ::-1]),
        ("8UC3", RGB[..., ::-1]),
        ("rgba8", np.concatenate([RGB, RGB[..., :1]], -1)),
        ("bgra8", np.concatenate([RGB[..., ::-1], RGB[..., :1]], -1)),
        ("rgb16", RGB.astype("<u2") * 256 + 200),
        ("bgr16", (RGB[..., ::-1].astype(">u2") * 256 + 9).astype(">u2")),
        ("rgba16", np.concatenate([RGB, RGB[..., :1]], -1).astype("<u2") * 257),
        ("bgra16", np.concatenate([RGB[..., ::-1], RGB[..., :1]], -1).astype("<u2") * 257),
    ],
)
def test_colours(encoding: str, samples: np.ndarray, padding: int) -> None:
    np.testing.assert_array_equal(raw_picture(image(samples, encoding, padding)), RGB)


@pytest.mark.parametrize("kind", ["<u2", ">u2"])
def test_grey_of_16_bit_keeps_its_upper_half_in_either_byte_order(kind: str) -> None:
    values = np.array([[0, 255, 256], [0x1234, 0xFF00, 0xFFFF]]).astype(kind)
    found = raw_picture(image(values, "mono16"))
    np.testing.assert_array_equal(found[..., 0], [[0, 0, 1], [0x12, 0xFF, 0xFF]])
    assert found.shape == (2, 3, 3) and (found == found[..., :1]).all()


def by_hand(y: int, u: int, v: int) -> list[float]:
    """BT.601, video range."""
    c, d, e = 1.164383 * (y - 16), u - 128, v - 128
    return [c + 1.596027 * e, c - 0.391762 * d - 0.812968 * e, c + 2.017232 * d]


YUV = [(60, 100, 150), (200, 128, 128), (120, 90, 128), (90, 128, 170), (16, 128, 128), (235, 128, 128)]


@pytest.mark.parametrize("encoding", ["uyvy", "yuv422", "yuyv", "yuv422_yuy2", "nv21"])
@pytest.mark.parametrize("padding", [0, 4])
def test_yuv_by_hand(encoding: str, padding: int) -> None:
    """Two columns of two rows a colour, so that the colour is the same however it is shared between pixels."""
    wanted = np.clip(np.repeat([[by_hand(*yuv) for yuv in YUV]] * 2, 2, 1), 0, 255)
    if encoding == "nv21":
        luma = np.repeat([[y for y, _, _ in YUV]] * 2, 2, 1).astype(np.uint8)
        chroma = np.array([[part for _, u, v in YUV for part in (v, u)]], np.uint8)
        message = image(np.concatenate([luma, chroma])[..., None], encoding, padding)
        message.height = 2
    else:
        blue_first = encoding in ("uyvy", "yuv422")
        pairs = [[(u, y), (v, y)] if blue_first else [(y, u), (y, v)] for y, u, v in YUV]
        message = image(np.array([np.concatenate(pairs)] * 2, np.uint8), encoding, padding)
    np.testing.assert_allclose(raw_picture(message), wanted, atol=2)


def test_depth_becomes_grey_by_the_range_of_the_contract() -> None:
    # near 0.2 m white, far 1.2 m black: 0.7 m is half way. What was not measured is far away.
    metres = np.array([[0.2, 0.7, 1.2, 0.1, 5.0, 0.0]])
    wanted = [[255, 128, 0, 255, 0, 0]]
    millimetres = (1000 * metres).round().astype("<u2")
    np.testing.assert_allclose(raw_picture(image(millimetres, "16UC1"), (0.2, 1.2))[..., 0], wanted, atol=1)
    floats = metres.astype("<f4")
    floats[0, 5] = np.nan
    np.testing.assert_allclose(raw_picture(image(floats, "32FC1"), (0.2, 1.2))[..., 1], wanted, atol=1)
    with pytest.raises(BadInput, match=r"16UC1, a depth image, expected depth: \[near, far\]"):
        raw_picture(image(millimetres, "16UC1"))


def test_a_part_is_cut_out_before_it_is_resized() -> None:
    raw = RNG.integers(0, 256, (48, 64, 3), np.uint8)
    message = image(raw, "rgb8")
    camera = Camera("/c", IMAGE, size=(12, 16), crop=(8, 4, 24, 32))
    wanted = cv2.resize(raw[8:32, 4:36], (16, 12), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(picture(message, camera), wanted)
    blocks = raw[8:32, 4:36].reshape(12, 2, 16, 2, 3).mean((1, 3))  # the mean of each 2×2
    np.testing.assert_allclose(picture(message, camera), blocks, atol=1)
    whole = Camera("/c", IMAGE, size=(48, 64), crop=(0, 0, 48, 64))
    np.testing.assert_array_equal(picture(message, whole), raw)


@pytest.mark.parametrize(
    ("degrees", "turn"),
    [(90, cv2.ROTATE_90_CLOCKWISE), (180, cv2.ROTATE_180), (270, cv2.ROTATE_90_COUNTERCLOCKWISE)],
)
def test_a_picture_is_turned_clockwise_before_it_is_cut(degrees: int, turn: int) -> None:
    raw = RNG.integers(0, 256, (48, 64, 3), np.uint8)
    camera = Camera("/c", IMAGE, size=(24, 32), crop=(8, 4, 24, 32), rotate=degrees)
    np.testing.assert_array_equal(picture(image(raw, "rgb8"), camera), cv2.rotate(raw, turn)[8:32, 4:36])


@pytest.mark.parametrize(
    ("size", "raw", "wanted"),
    [
        ((96, 96), (480, 640), (0, 80, 480, 480)),
        ((96, 96), (640, 480), (80, 0, 480, 480)),
        ((90, 160), (480, 640), (60, 0, 360, 640)),
        ((48, 64), (48, 64), (0, 0, 48, 64)),
    ],
)
def test_the_middle_in_the_shape_of_the_size(size, raw, wanted) -> None:
    assert crop_of(Camera("/c", IMAGE, size=size, crop="center"), raw) == wanted


@pytest.mark.parametrize(
    ("message", "camera", "words"),
    [
        (image(RGB, "rgb8"), Camera("/c", IMAGE, crop=(0, 2, 6, 8)), "within 6×8"),
        (image(RGB, "bayer_rggb8"), Camera("/c", IMAGE), "got bayer_rggb8; available"),
        (Image(6, 8, "rgb8", 24, RGB.tobytes()[:-1]), Camera("/c", IMAGE), "got 143 bytes"),
        (Image(6, 8, "rgb16", 24, RGB.tobytes()), Camera("/c", IMAGE), "6 rows of 24 bytes"),
        (image(RGB[:, :7, :2], "yuyv"), Camera("/c", IMAGE), "got 7 columns"),
        (Image(6, 8, "nv21", 8, bytes(48)), Camera("/c", IMAGE), "9 rows of 8 bytes"),
        (Image(0, 0, "rgb8", 0, b""), Camera("/c", IMAGE), "0 bytes"),
        (Image(0, 0, "mono16", 0, b""), Camera("/c", IMAGE), "0 bytes"),
    ],
)
def test_what_is_no_picture_is_refused(message: Image, camera: Camera, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        picture(message, camera)


def compressed(data: bytes) -> SimpleNamespace:
    return SimpleNamespace(data=data, format="png")


def bomb(width: int, height: int) -> bytes:
    """A PNG of one value: a few kilobytes that unpack to gigabytes."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"")  # never looked at
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", rows) + part(b"IEND", b"")


def test_a_picture_that_unpacks_to_gigabytes_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(BadInput, match=r"compressed image: got 20000×10000 pixels, expected at most 64,000,000 in all"):
        raw_picture(compressed(bomb(20_000, 10_000)))
    jpeg = cv2.imencode(".jpg", RGB)[1].tobytes()
    at = next(i for i in range(len(jpeg)) if jpeg[i : i + 2] == b"\xff\xc0") + 5
    huge = jpeg[:at] + struct.pack(">HH", 60_000, 50_000) + jpeg[at + 4 :]
    with pytest.raises(BadInput, match="got 50000×60000 pixels"):
        raw_picture(compressed(huge))


@pytest.mark.parametrize("kind", [".tiff", ".webp", ".bmp", ".ppm"])
def test_what_is_neither_png_nor_jpeg_is_not_unpacked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV would, whatever size it has: 500 bytes of them are 81 million pixels."""
    data = cv2.imencode(kind, RGB)[1].tobytes()
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(BadInput, match="bytes that are no picture, expected JPEG or PNG"):
        raw_picture(compressed(data))


@pytest.mark.parametrize("options", [(".png", []), (".jpg", []), (".jpg", [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])])
def test_the_size_in_a_header_is_that_of_the_picture(options: tuple[str, list[int]]) -> None:
    data = cv2.imencode(options[0], RGB, options[1])[1].tobytes()
    assert pictures._size_of(memoryview(data)) == RGB.shape[:2]
    assert raw_picture(compressed(data)).shape == RGB.shape
    for end in range(0, len(data), 3):
        pictures._size_of(memoryview(data[:end]))  # cut off, it ends


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"no picture", b"\xff\xd8" + 40 * b"\xff"])
def test_what_is_no_picture_is_said_as_before(data: bytes) -> None:
    with pytest.raises(BadInput, match="bytes that are no picture, expected JPEG or PNG"):
        raw_picture(compressed(data))
