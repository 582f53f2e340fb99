"""Video files: their facts, when each picture is shown, which of them is frame t of an episode, and decoding.

Frame t is the picture shown nearest to ``start + t / fps``. PictureIndex are never counted: a video may lack some, have
some twice, or be of another rate than its set. A picture further away than the tolerance is refused, as by LeRobot.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
from av.error import FFmpegError
from numpy.typing import ArrayLike, NDArray

from robolearn.core import BadInput
from robolearn.core.errors import first_line
from robolearn.data.lerobot.remote import RemotePath


def facts(path: Path | RemotePath) -> dict[str, Any]:
    """Codec, pixel format, size and frame rate of a video, as LeRobot's features name them. Raises `BadInput`: it is
    missing, or does not open."""
    try:
        with opened(path) as (container, stream):
            fps = float(stream.average_rate or 0)
            return described(stream.codec_context, stream.height, stream.width, fps, bool(container.streams.audio))
    except UNREADABLE as error:
        raise BadInput(f"video {path}", got=f"one that does not open ({first_line(error)})") from None


def described(context: Any, height: int, width: int, fps: float, audio: bool = False) -> dict[str, Any]:
    """The ``info`` of a feature that is a video, of a codec's context."""
    return {
        "video.height": height,
        "video.width": width,
        "video.codec": context.codec.canonical_name,
        "video.pix_fmt": context.pix_fmt,
        "video.is_depth_map": False,
        "video.fps": fps,
        "video.channels": 3,
        "has_audio": audio,
    }


def size_of(path: Path | RemotePath) -> tuple[int, int]:
    """(height, width) of the video [pixels]; raises as `facts` does."""
    known = facts(path)
    return known["video.height"], known["video.width"]


def video_stream(container: Any) -> Any:
    """The video of a file that was opened; `ValueError` where it has none that can be decoded."""
    if not container.streams.video or container.streams.video[0].codec_context is None:
        raise ValueError("no video that can be decoded")
    return container.streams.video[0]


TOLERANCE_S = 1e-4  # LeRobot's tolerance_s
ROUNDING_S = 1e-9  # pictures whose distances differ by no more are equally near


def nearest(
    shown: NDArray[np.float64], start: float, fps: float, rows: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The pictures of the frames `rows` (T,) of an episode that begins at `start` [s].

    Args:
      shown: (F,) when the pictures of the video are shown [s], ascending, at least one.

    Returns:
      (T,) which of them are nearest, the earlier of two that are equally near, and (T,) how much later than the frame
      they are shown [s], negative where they are earlier.
    """
    wanted = start + np.asarray(rows, np.float64) / fps
    after = np.minimum(np.searchsorted(shown, wanted), len(shown) - 1)
    before = np.maximum(after - 1, 0)
    chosen = np.where(np.abs(wanted - shown[before]) <= np.abs(shown[after] - wanted) + ROUNDING_S, before, after)
    return chosen, shown[chosen] - wanted


def misplaced(late: NDArray[np.float64], tolerance_s: float = TOLERANCE_S) -> NDArray[np.int64]:
    """The frames of `nearest` that have no picture, given how late the nearest ones are [s]."""
    return np.flatnonzero(~(np.abs(late) < tolerance_s))


UNREADABLE = (FFmpegError, OSError, IndexError, ValueError)
"""Errors of files that cannot be read."""


@dataclass(frozen=True)
class PictureIndex:
    """Pictures of a video file.

    Attributes:
      ticks: (F,) when each picture is shown, ascending [ticks of the file].
      seconds: (F,) the same [s].
      keys: (K, 2) key frames, in the order in which they are stored: when they are shown and when decoded [ticks].
      size: (height, width) [pixels].
    """

    ticks: NDArray[np.int64]
    seconds: NDArray[np.float64]
    keys: NDArray[np.int64]
    size: tuple[int, int]


def state_of(path: Path | RemotePath) -> tuple[int | str, ...]:
    """A value that stays the same as long as the file `path` does; raises `OSError`."""
    if isinstance(path, RemotePath):
        return (path.identity(),)
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ino


@lru_cache(maxsize=1024)
def pictures_of(path: Path | RemotePath, *state: int | str) -> PictureIndex:
    """The pictures of the video `path`, by its packets; kept for its `state_of`.

    Raises:
      OSError, ValueError, IndexError, FFmpegError: it cannot be read, or there is no picture in it.
    """
    shown: list[int] = []
    keys: list[tuple[int, int]] = []
    with opened(path) as (container, stream):
        for packet in container.demux(stream):
            if packet.pts is None or packet.is_discard:  # the end, or what an edit list hides
                continue
            shown.append(packet.pts)
            if packet.is_keyframe:
                keys.append((packet.pts, packet.pts if packet.dts is None else packet.dts))
        if not shown:
            raise ValueError("no picture in it")
        ticks = np.array(sorted(shown), np.int64)
        base = stream.time_base
        seconds = ticks * base.numerator / base.denominator
        return PictureIndex(ticks, seconds, np.array(keys, np.int64).reshape(-1, 2), (stream.height, stream.width))


def decoded(path: Path | RemotePath, ticks: Sequence[int], threads: int = 0) -> Iterator[av.VideoFrame]:
    """The pictures that are shown at `ticks`, which ascend; 0 threads leaves their number to FFmpeg.

    Raises:
      OSError, ValueError, IndexError, FFmpegError: one of them does not decode, or not without damage.
    """
    if not len(ticks):
        return
    known = pictures_of(path, *state_of(path))
    before = known.keys[known.keys[:, 0] <= ticks[0]]
    # Some files have their key frames elsewhere than they say: then all of it is decoded.
    for seek in (True, False) if len(before) and before[-1, 0] > known.ticks[0] else (False,):
        with opened(path) as (container, stream):
            stream.codec_context.thread_count = threads
            if seek:
                container.seek(int(before[-1, 1]), stream=stream)
            found = container.decode(stream)
            first = next(found, None)
            if seek and (first is None or first.pts is None or first.pts > ticks[0]):
                continue
            yield from _chosen(itertools.chain([first] if first is not None else [], found), ticks)
            return


def _chosen(found: Iterator[av.VideoFrame], ticks: Sequence[int]) -> Iterator[av.VideoFrame]:
    wanted = iter(ticks)
    tick = next(wanted)
    for picture in found:
        if picture.pts is None or picture.pts < tick:
            continue
        if picture.pts > tick:
            break
        if picture.is_corrupt:  # the decoder hides the hole with what lies around it
            raise ValueError(f"damaged at {picture.time or 0.0:.3f} s")
        yield picture
        following = next(wanted, None)
        if following is None:
            return
        tick = following
    raise ValueError("a picture that does not decode")


class _ReadOnce:
    """A file on a server as FFmpeg reads it, which asks again after a failure: each time would cost all the attempts,
    and PyAV raises the first error and prints the others. After the first the file is at its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._failed = file, False
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if self._failed:
            return b""
        try:
            return self._file.read(size)
        except Exception:
            self._failed = True
            raise


@contextmanager
def opened(path: Path | RemotePath) -> Iterator[tuple[Any, Any]]:
    """The file `path` and the video in it."""
    # With the format given, FFmpeg does not take damaged files for one of its hundreds of other formats.
    source = _ReadOnce(path.open()) if isinstance(path, RemotePath) else str(path)
    with av.open(source, format="mp4" if path.suffix == ".mp4" else None) as container:
        yield container, video_stream(container)
