"""The pixels of image messages, from whatever library read them: rclpy or a bag.

Raw encodings are those of ROS's `sensor_msgs/image_encodings.hpp`. Samples of 16 bit keep their upper 8; YUV is
BT.601 with video range, as cameras send it and OpenCV reads it. A depth image becomes grey by the range that the
contract gives: near is white, far black, and so is what was not measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput, look_up
from robots.stations.mounting import Camera

# encoding → (type of a sample, samples a pixel, what they are)
ENCODINGS: dict[str, tuple[str, int, str]] = {
    **{
        f"{order}{alpha}{bits}": (f"u{bits // 8}", 3 + len(alpha), order)
        for order in ("rgb", "bgr")
        for alpha in ("", "a")
        for bits in (8, 16)
    },
    "mono8": ("u1", 1, "mono"),
    "8UC1": ("u1", 1, "mono"),
    "8UC3": ("u1", 3, "bgr"),
    "mono16": ("u2", 1, "mono"),
    "uyvy": ("u1", 2, "UYVY"),
    "yuv422": ("u1", 2, "UYVY"),  # its older name
    "yuyv": ("u1", 2, "YUY2"),
    "yuv422_yuy2": ("u1", 2, "YUY2"),
    "nv21": ("u1", 1, "NV21"),
    "16UC1": ("u2", 1, "depth"),  # [mm]
    "32FC1": ("f4", 1, "depth"),  # [m]
}
MILLIMETRE = 1e-3
MOST_PIXELS = 64_000_000  # of a compressed picture: a few bytes may unpack to gigabytes
PNG_HEAD, JPEG_HEAD = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"


def picture(message: Any, camera: Camera) -> NDArray[np.uint8]:
    """(H, W, 3) rgb of a sensor_msgs Image or CompressedImage, turned, cut and resized as `camera` has it. Raises
    `BadInput`: see `raw_picture`, or a crop beyond its edges."""
    import cv2

    rgb = turned(raw_picture(message, camera.depth), camera.rotate)
    top, left, height, width = crop_of(camera, (rgb.shape[0], rgb.shape[1]))
    rgb = rgb[top : top + height, left : left + width]
    if rgb.shape[:2] != tuple(camera.size):
        size = camera.size[1], camera.size[0]
        rgb = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
    return np.ascontiguousarray(rgb)


def turned(rgb: NDArray[np.uint8], degrees: int) -> NDArray[np.uint8]:
    """A picture (H, W, 3) turned clockwise by quarters of a turn; a view of it."""
    return np.rot90(rgb, -degrees // 90)


def raw_picture(message: Any, depth: tuple[float, float] | None = None) -> NDArray[np.uint8]:
    """(H, W, 3) rgb of a sensor_msgs Image or CompressedImage as it is; of a depth image, by the range `depth` [m].
    Raises `BadInput`: an encoding that is not read, data that is no picture, or a depth image without a range."""
    return _raw(message, depth) if hasattr(message, "encoding") else _compressed(message)


def crop_of(camera: Camera, raw: tuple[int, int]) -> tuple[int, int, int, int]:
    """(top, left, height, width) that `camera` cuts out of pictures of the size `raw` = (height, width) [px], turned
    already. Raises `BadInput`: it is beyond their edges."""
    height, width = raw
    if camera.crop is None:
        return 0, 0, height, width
    if isinstance(camera.crop, str):  # in the middle, in the shape of what it is resized to
        tall, wide = camera.size
        scale = min(height / tall, width / wide)
        cut_height, cut_width = round(scale * tall), round(scale * wide)
        return (height - cut_height) // 2, (width - cut_width) // 2, cut_height, cut_width
    top, left, cut_height, cut_width = camera.crop
    if top + cut_height > height or left + cut_width > width:
        expected = f"within {height}×{width}"
        raise BadInput("crop [top, left, height, width]", got=list(camera.crop), expected=expected)
    return camera.crop


def _compressed(message: Any) -> NDArray[np.uint8]:
    import cv2

    height, width = _size_of(memoryview(message.data))
    if height * width > MOST_PIXELS:
        raise BadInput("compressed image", got=f"{width}×{height} pixels", expected=f"at most {MOST_PIXELS:,} in all")
    # Other formats have no size that was looked at: OpenCV would unpack a TIFF or WebP of any.
    found = cv2.imdecode(np.frombuffer(message.data, np.uint8), cv2.IMREAD_COLOR) if height * width else None
    if found is None:
        raise BadInput("compressed image", got=f"{len(message.data)} bytes that are no picture", expected="JPEG or PNG")
    return found[..., ::-1].astype(np.uint8, copy=False)


def _size_of(data: memoryview) -> tuple[int, int]:
    """(height, width) by the header of a PNG (IHDR) or JPEG (its frame header), which is all that is read; (0, 0) of
    anything else."""
    if data[:8] == PNG_HEAD:
        return int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")
    at = 2 if data[:2] == JPEG_HEAD else len(data)
    while at + 9 <= len(data):
        marker = data[at + 1]
        if data[at] != 0xFF or marker == 0xFF:  # filled up
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # SOF0 to SOF15
            return int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        elif 0xD0 <= marker <= 0xD9 or marker == 0x01:  # without a length
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def _raw(message: Any, depth: tuple[float, float] | None) -> NDArray[np.uint8]:
    kind, channels, content = look_up("image encoding", message.encoding, ENCODINGS)
    if content == "NV21":
        return _nv21(message)
    samples = _samples(message, np.dtype(kind).newbyteorder(">" if message.is_bigendian else "<"), channels)
    if content == "depth":
        return _grey(_depth_picture(message.encoding, samples[..., 0], depth))
    if kind == "u2":
        samples = samples >> 8
    pixels = samples.astype(np.uint8, copy=False)
    if content in ("UYVY", "YUY2"):
        return _yuv(pixels, content)
    if content == "mono":
        return _grey(pixels[..., 0])
    return pixels[..., :3] if content == "rgb" else pixels[..., 2::-1]


def _samples(message: Any, kind: np.dtype, channels: int) -> NDArray[Any]:
    """(H, W, channels) samples. Rows may be padded: `step` bytes each, of which the first are pixels."""
    row = kind.itemsize * channels * message.width
    data = np.frombuffer(message.data, np.uint8)
    if message.step < row or len(data) != message.step * message.height or not len(data) or not row:
        raise BadInput("image", got=f"{len(data)} bytes", expected=f"{message.height} rows of {message.step} bytes")
    rows = np.ascontiguousarray(data.reshape(message.height, message.step)[:, :row])
    return rows.view(kind).reshape(message.height, message.width, channels)


def _grey(mono: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(mono[..., None], 3, axis=-1)


def _depth_picture(encoding: str, samples: NDArray[Any], depth: tuple[float, float] | None) -> NDArray[np.uint8]:
    if depth is None:
        got = f"{encoding}, a depth image"
        raise BadInput("image encoding", got=got, expected="depth: [near, far] in the contract")
    metres = samples.astype(np.float64)
    if encoding == "16UC1":
        metres = metres * MILLIMETRE
    near, far = depth
    measured = np.isfinite(metres) & (metres > 0)
    share = (far - np.where(measured, metres, far)) / (far - near)
    return np.rint(255.0 * np.clip(share, 0.0, 1.0)).astype(np.uint8)


def _yuv(pixels: NDArray[np.uint8], order: str) -> NDArray[np.uint8]:
    import cv2

    if pixels.shape[1] % 2:
        raise BadInput("YUV 4:2:2 image", got=f"{pixels.shape[1]} columns", expected="an even number")
    code = cv2.COLOR_YUV2RGB_UYVY if order == "UYVY" else cv2.COLOR_YUV2RGB_YUY2
    return cv2.cvtColor(pixels, code).astype(np.uint8, copy=False)


def _nv21(message: Any) -> NDArray[np.uint8]:
    """Rows of Y, then half as many of V and U in turn."""
    import cv2

    height, width = message.height, message.width
    data = np.frombuffer(message.data, np.uint8)
    even = height % 2 == 0 and width % 2 == 0 and height > 0
    if not even or message.step < width or len(data) != message.step * height * 3 // 2:
        expected = f"{height * 3 // 2} rows of {message.step} bytes, even sizes"
        raise BadInput("image", got=f"{len(data)} bytes, {height}×{width}", expected=expected)
    planes = np.ascontiguousarray(data.reshape(height * 3 // 2, message.step)[:, :width])
    return cv2.cvtColor(planes, cv2.COLOR_YUV2RGB_NV21).astype(np.uint8, copy=False)
