"""A packed picture is the picture, to the bit, and one that has changed is found out."""

from __future__ import annotations

import av
import numpy as np
import pytest

from robolearn.data.video.packing import Damaged, pack, rgb, unpack


def picture(height: int, width: int, kind: str) -> av.VideoFrame:
    pixels = np.random.default_rng(height).integers(0, 255, (height, width, 3), np.uint8)
    return av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=kind)


KINDS = ["yuv420p", "yuvj420p", "yuv444p", "yuvj444p", "yuv422p", "yuv420p10le", "rgb24", "gray"]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("height", "width"), [(64, 64), (128, 96), (66, 50), (33, 47), (2, 2), (480, 640)])
@pytest.mark.parametrize(("space", "scope"), [(2, 0), (1, 1), (5, 2)])
def test_nothing_is_lost(height: int, width: int, kind: str, space: int, scope: int) -> None:
    frame = picture(height, width, kind)
    if kind.startswith("yuv"):
        frame.colorspace, frame.color_range = space, scope
    pixels = frame.to_ndarray(format="rgb24")
    np.testing.assert_array_equal(rgb(frame), pixels)
    np.testing.assert_array_equal(unpack(pack(frame), (height, width, 3)), pixels)


def test_what_has_changed_is_found_out() -> None:
    packed = pack(picture(64, 64, "yuv420p"))
    for at in range(0, len(packed), len(packed) // 40):
        changed = bytearray(packed)
        changed[at] ^= 1
        with pytest.raises(Damaged):
            unpack(bytes(changed), (64, 64, 3))
    for end in (0, 3, 7, 8, len(packed) - 1):
        with pytest.raises(Damaged):
            unpack(packed[:end], (64, 64, 3))
