"""Pixels that end where memory ends: libswscale reads on behind them, and the process must live.

The judge is the machine: the page behind the pixels may not be read, in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.video.packing import READ_BEHIND, of_pixels

AT_THE_END = """
import ctypes, mmap, sys
from pathlib import Path
import numpy as np
from robolearn.core import ArraySpec
from robolearn.data import VideoConfig
from robolearn.data.video.encoder import VideoEncoder
from robolearn.eval.video import write_video

shape = (84, 84, 3)
count, page = int(np.prod(shape)), mmap.PAGESIZE
size = -(-count // page) * page
memory = mmap.mmap(-1, size + page)
every = np.frombuffer(memory, np.uint8)
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(every.ctypes.data + size), page, 0) == 0
frame = every[size - count : size].reshape(shape)
frame[:] = np.arange(count).reshape(shape) % 251
folder = Path(sys.argv[2])
if sys.argv[1] == "recording":
    video = VideoEncoder(folder / "a.mp4", "front", ArraySpec(shape, "uint8"), 20.0, VideoConfig())
    for _ in range(3):
        video.put(frame)
    video.finish()
else:
    write_video(folder / "a.mp4", [frame] * 3, fps=20.0)
print("lives")
"""


@pytest.mark.long
@pytest.mark.parametrize("where", ["recording", "report"])
def test_a_video_is_made_of_them(tmp_path: Path, where: str) -> None:
    made = subprocess.run([sys.executable, "-c", AT_THE_END, where, str(tmp_path)], capture_output=True, text=True)
    assert made.returncode == 0 and "lives" in made.stdout, made.stderr


def test_a_picture_has_room_behind_its_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (84, 84, 3), np.uint8)
    picture = of_pixels(pixels[:, ::-1])
    assert np.array_equal(picture.to_ndarray(), pixels[:, ::-1])
    # The widest step that was seen: 16 pixels of 3 bytes from the last whole one on.
    assert READ_BEHIND >= 48 and picture.planes[0].line_size == 84 * 3
