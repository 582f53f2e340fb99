"""The pictures of a video file: when each is shown, without decoding, and those of given times, decoded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.error import FFmpegError
from numpy.typing import NDArray

from robolearn.data.lerobot.remote import RemotePath
from robolearn.data.video.container import readable, video_stream

UNREADABLE = (FFmpegError, OSError, IndexError, ValueError)
"""What is raised for files that cannot be read."""


@dataclass(frozen=True)
class Pictures:
    """What a video file holds.

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


def pictures_of(path: Path | RemotePath) -> Pictures:
    """What the video `path` holds, by its packets; kept for as long as the file stays as it is.

    Raises:
      OSError, ValueError, IndexError, FFmpegError: it cannot be read, or there is no picture in it.
    """
    if isinstance(path, RemotePath):
        return _pictures(path, path.identity())
    facts = os.stat(path)
    return _pictures(path, facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=1024)
def _pictures(path: Path | RemotePath, *_: int | str) -> Pictures:
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
        return Pictures(ticks, seconds, np.array(keys, np.int64).reshape(-1, 2), (stream.height, stream.width))


def decoded(path: Path | RemotePath, ticks: Sequence[int], threads: int = 0) -> Iterator[av.VideoFrame]:
    """The pictures that are shown at `ticks`, which ascend; 0 threads leaves their number to FFmpeg.

    Raises:
      OSError, ValueError, IndexError, FFmpegError: one of them does not decode, or not without damage.
    """
    if not len(ticks):
        return
    known = pictures_of(path)
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


@contextmanager
def opened(path: Path | RemotePath) -> Iterator[tuple[Any, Any]]:
    """The file `path` and the video in it."""
    # With the format given, FFmpeg does not take damaged files for one of its hundreds of other formats.
    with av.open(readable(path), format="mp4" if path.suffix == ".mp4" else None) as container:
        yield container, video_stream(container)
