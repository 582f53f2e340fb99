"""The pixels of image messages, from whatever library read them: rclpy or a bag."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput

ENCODINGS = {"rgb8": (3, "rgb"), "bgr8": (3, "bgr"), "rgba8": (4, "rgb"), "bgra8": (4, "bgr"), "mono8": (1, "mono")}


def picture(message: Any, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """(H, W, 3) rgb of a sensor_msgs Image or CompressedImage, at `size` = (height, width); None: as it is.

    Raises:
      BadInput: an encoding that is not read, or data that is no picture.
    """
    import cv2

    rgb: NDArray[np.uint8] = _raw(message) if hasattr(message, "encoding") else _compressed(message)
    if size is not None and rgb.shape[:2] != tuple(size):
        rgb = cv2.resize(rgb, (size[1], size[0]), interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
    return np.ascontiguousarray(rgb)


def _compressed(message: Any) -> NDArray[np.uint8]:
    import cv2

    found = cv2.imdecode(np.frombuffer(message.data, np.uint8), cv2.IMREAD_COLOR) if len(message.data) else None
    if found is None:
        raise BadInput("compressed image", got=f"{len(message.data)} bytes that are no picture", expected="JPEG or PNG")
    return found[..., ::-1].astype(np.uint8, copy=False)


def _raw(message: Any) -> NDArray[np.uint8]:
    if message.encoding not in ENCODINGS:
        raise BadInput("image encoding", got=message.encoding, available=ENCODINGS)
    channels, order = ENCODINGS[message.encoding]
    data = np.frombuffer(message.data, np.uint8)
    # Rows may be padded: `step` bytes each, of which the first `channels · width` are pixels.
    if message.step < channels * message.width or len(data) != message.step * message.height or not len(data):
        raise BadInput("image", got=f"{len(data)} bytes", expected=f"{message.height} rows of {message.step} bytes")
    rows = data.reshape(message.height, message.step)[:, : channels * message.width]
    pixels = rows.reshape(message.height, message.width, channels)
    if order == "mono":
        return np.repeat(pixels, 3, axis=-1)
    return pixels[..., :3] if order == "rgb" else pixels[..., 2::-1]
