"""A stretch of a video as the images of one episode: decoded frame by frame, or copied without decoding.

LeRobot's v3.0 puts the episodes of a camera one after the other into a file, v2.1 gives each a file of its own.
Frame i of an episode is the one shown at ``start + i / fps`` seconds of its file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import av
import numpy as np
from av.error import FFmpegError
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.statistics import Stats
from robolearn.data.video_reader.container import first_line, video_stream

REORDERED = 32  # frames that a packet may lie before its place in time
GRID_S = 1e-4  # [s] frames are where they belong within this, as LeRobot requires of a video


@dataclass(frozen=True)
class Segment:
    """The images of one camera in one episode.

    Attributes:
      path: the video file.
      length: frames of the episode in it.
      fps: frames per second.
      start: where the episode begins in the file [s].
      rows: which of the frames are wanted, in steps of at least 1.
      stats: of the pixels of all frames in [0, 1], statistic → (3,), where they are stored.
    """

    path: Path
    length: int
    fps: float
    start: float = 0.0
    rows: range | None = None
    stats: Stats | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return self.length if self.rows is None else len(self.rows)

    @property
    def whole(self) -> bool:
        """Whether all frames of the episode are wanted."""
        return self.rows is None or self.rows == range(self.length)

    def __getitem__(self, chosen: slice) -> Segment:
        rows = range(self.length) if self.rows is None else self.rows
        return replace(self, rows=rows[chosen])


Images = Segment | NDArray[np.uint8]
"""The images of one camera in one episode: a segment, or (T, H, W, 3) in memory."""


def frames(images: Images) -> Iterator[NDArray[np.uint8]]:
    """The wanted frames (H, W, 3), RGB, in order.

    Raises:
      BadInput: the video is missing, cannot be decoded or ends before the last frame, which is named.
    """
    if isinstance(images, Segment):
        yield from _decoded(images)
    else:
        yield from images


def _decoded(segment: Segment) -> Iterator[NDArray[np.uint8]]:
    rows = range(segment.length) if segment.rows is None else segment.rows
    wanted, last = set(rows), rows[-1] if len(rows) else -1
    row = -1
    try:
        with av.open(str(segment.path)) as container:
            stream = video_stream(container)
            if segment.start > 0 and stream.time_base:
                container.seek(int(segment.start / stream.time_base), stream=stream)  # to the key frame before it
            for frame in container.decode(stream):
                if (frame.time or 0.0) < segment.start - 0.5 / segment.fps:
                    continue
                row += 1
                if row in wanted:
                    if frame.is_corrupt:  # the decoder hides the hole with what lies around it
                        raise ValueError("damaged data")
                    yield frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
                if row >= last:
                    return
    except (FFmpegError, OSError, IndexError, ValueError) as error:
        at = f" after frame {row}" if row >= 0 else ""
        raise BadInput(f"video {segment.path}", got=f"one that does not decode{at} ({first_line(error)})") from None
    if last >= 0:
        raise BadInput(f"video {segment.path}", got=f"{row + 1} frames", expected=f"{segment.length}")


def array(images: Images) -> NDArray[np.uint8]:
    """(T, H, W, 3) all wanted frames in memory; raises as `frames` does."""
    return np.stack(list(frames(images))) if isinstance(images, Segment) else images


def copy_stream(segment: Segment, out: Path, fps: float) -> bool:
    """Write all frames of `segment` to `out` without encoding them again; False where that cannot be done.

    It cannot where frames are wanted at another rate, where they are not on its grid, or where an episode is one of
    several in its file and does not begin with a key frame or has frames stored out of their order.
    """
    if not segment.whole or abs(segment.fps - fps) > 1e-9:
        return False
    try:
        return _copied(segment, out, fps)
    except (FFmpegError, OSError, IndexError, ValueError):
        return False  # decoding comes next, and raises with the place


def _copied(segment: Segment, out: Path, fps: float) -> bool:
    with av.open(str(segment.path)) as source:
        stream = video_stream(source)
        base = stream.time_base
        if base is None:
            return False
        if segment.start > 0:
            source.seek(int(segment.start / base), stream=stream)
        first, end = segment.start - 0.5 / fps, segment.start + (segment.length - 0.5) / fps
        chosen = []
        for packet in source.demux(stream):
            if packet.pts is None or not packet.size:
                continue
            if first <= packet.pts * base < end:
                chosen.append(packet)
            elif packet.pts * base > end + REORDERED / fps:
                break
        times = np.sort([float((packet.pts or 0) * base) for packet in chosen])
        grid = segment.start + np.arange(segment.length) / fps
        if len(times) != segment.length or (np.abs(times - grid) > GRID_S).any():
            return False
        if segment.start == 0 and stream.frames == segment.length:
            shutil.copyfile(segment.path, out)
            return True
        if not chosen[0].is_keyframe or any(packet.pts != packet.dts for packet in chosen):
            return False
        with av.open(str(out), "w", format="mp4") as target:
            copy = target.add_stream_from_template(stream)
            first = chosen[0].pts or 0
            for packet in chosen:
                packet.pts = packet.dts = (packet.pts or 0) - first
                packet.stream = copy
                target.mux(packet)
    return True
