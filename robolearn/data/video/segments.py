"""A stretch of a video as the images of one episode: decoded frame by frame, or copied without decoding.

LeRobot's v3.0 puts the episodes of a camera one after the other into a file, v2.1 gives each a file of its own.
Which picture is which frame, `container` says.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.lerobot.remote import RemotePath
from robolearn.data.lerobot.statistics import Stats
from robolearn.data.video.container import (
    TOLERANCE_S,
    UNREADABLE,
    decoded,
    first_line,
    misplaced,
    nearest,
    opened,
    pictures_of,
    state_of,
)
from robolearn.data.video.packing import rgb

HINT = (
    "`robolearn dataset import` leaves such episodes out with --skip-bad, --tolerance-s SECONDS takes pictures from "
    "further away"
)


@dataclass(frozen=True)
class VideoSegment:
    """The images of one camera in one episode.

    Attributes:
      path: the video file.
      length: frames of the episode in it.
      fps: frames per second.
      start: where the episode begins in the file [s].
      rows: which of the frames are wanted, in steps of at least 1.
      stats: of the pixels of all frames in [0, 1], statistic → (3,), where they are stored.
      name: episode and camera in words, for messages.
      tolerance_s: how far from its frame a picture may be shown [s].
      size: (height, width) that the pictures must have [pixels], where that is known.
    """

    path: Path | RemotePath
    length: int
    fps: float
    start: float = 0.0
    rows: range | None = None
    stats: Stats | None = field(default=None, compare=False)
    name: str = ""
    tolerance_s: float = TOLERANCE_S
    size: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self.length if self.rows is None else len(self.rows)

    @property
    def whole(self) -> bool:
        """True where all frames of the episode are wanted."""
        return self.rows is None or self.rows == range(self.length)

    def __getitem__(self, chosen: slice) -> VideoSegment:
        rows = range(self.length) if self.rows is None else self.rows
        return replace(self, rows=rows[chosen])

    def ticks(self) -> NDArray[np.int64]:
        """(T,) when the pictures of the wanted frames are shown [ticks of the file]. Raises `BadInput`: the video
        cannot be read, or has no picture for a frame, which is named."""
        rows = np.asarray(range(self.length) if self.rows is None else self.rows, np.int64)
        try:
            known = pictures_of(self.path, *state_of(self.path))
        except UNREADABLE as error:
            raise self.refused(f"an unreadable video ({first_line(error)})") from None
        chosen, late = nearest(known.seconds, self.start, self.fps, rows)
        if len(lacking := misplaced(late, self.tolerance_s)):
            at = int(lacking[0])
            where = "later" if late[at] > 0 else "earlier"
            at_s = self.start + rows[at] / self.fps
            got = f"no picture at {at_s:.4f} s (the nearest one: {abs(late[at]):.4f} s {where})"
            raise self.refused(got, at, f"one within {1e3 * self.tolerance_s:g} ms", HINT)
        return known.ticks[chosen]

    def refused(self, got: str, at: int | None = None, expected: str | None = None, hint: str = "") -> BadInput:
        """The error of the wanted frame number `at`, or of all of them."""
        rows = range(self.length) if self.rows is None else self.rows
        where = ", ".join(part for part in (self.name, "" if at is None else f"frame {rows[at]}") if part)
        what = f"video {self.path}" + (f" ({where})" if where else "")
        return BadInput(what, got=got, expected=expected, hint=hint)


@dataclass(frozen=True)
class PictureStream:
    """The images of one camera in one episode, decoded one after the other whenever they are gone through."""

    length: int
    make: Callable[[], Iterator[NDArray[np.uint8]]]

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return self.make()

    def __getitem__(self, chosen: slice) -> PictureStream:
        rows = range(self.length)[chosen]
        return PictureStream(len(rows), lambda: islice(self.make(), rows.start, rows.stop, rows.step))


Images = VideoSegment | PictureStream | NDArray[np.uint8]
"""The images of one camera in one episode: a segment, a stream, or (T, H, W, 3) in memory."""


def frames(images: Images, threads: int = 0) -> Iterator[NDArray[np.uint8]]:
    """The wanted frames (H, W, 3), RGB, in order, decoded by this many threads; 0 leaves their number to FFmpeg. Raises
    `BadInput`: the video is missing, cannot be decoded or has no picture for a frame, which is named."""
    if isinstance(images, VideoSegment):
        yield from map(rgb, pictures(images, threads))
    else:
        yield from images


def pictures(segment: VideoSegment, threads: int = 0) -> Iterator[av.VideoFrame]:
    """The wanted frames of `segment` as the decoder makes them; raises as `frames` does."""
    ticks = segment.ticks()
    distinct, shown = np.unique(ticks, return_counts=True)
    done = 0
    try:
        for picture, times in zip(decoded(segment.path, distinct.tolist(), threads), shown, strict=True):
            if segment.size is not None and segment.size != (picture.height, picture.width):
                got = f"an unreadable video ({picture.width}x{picture.height} pixels)"
                raise segment.refused(got, expected=f"{segment.size[1]}x{segment.size[0]}")
            for _ in range(times):
                yield picture
            done += int(times)
    except UNREADABLE as error:
        raise segment.refused(f"one that does not decode ({first_line(error)})", done) from None


def array(images: Images) -> NDArray[np.uint8]:
    """(T, H, W, 3) all wanted frames in memory; raises as `frames` does."""
    return images if isinstance(images, np.ndarray) else np.stack(list(frames(images)))


def copy_stream(segment: VideoSegment, out: Path, fps: float) -> bool:
    """Write all frames of `segment` to `out` without encoding them again; False where that cannot be done.

    It cannot where frames are wanted at another rate, where the file shows others between them, or where an episode is
    one of several in its file and does not begin with a key frame or has frames stored out of their order. Nor where a
    picture is further from its frame than LeRobot takes.
    """
    if not segment.whole or abs(segment.fps - fps) > 1e-9:
        return False
    try:
        return _copied(segment, replace(segment, tolerance_s=TOLERANCE_S).ticks(), out)
    except (BadInput, *UNREADABLE):
        return False  # decoding comes next, and raises with the place


def _copied(segment: VideoSegment, ticks: NDArray[np.int64], out: Path) -> bool:
    known = pictures_of(segment.path, *state_of(segment.path))
    first = int(np.searchsorted(known.ticks, ticks[0]))
    if not np.array_equal(known.ticks[first : first + len(ticks)], ticks):
        return False
    file = segment.path if segment.start == 0 and len(known.ticks) == len(ticks) else None
    alone = isinstance(file, Path)
    if alone and (known.keys[:, 0] == known.keys[:, 1]).all():
        shutil.copyfile(file, out)
        return True
    with opened(segment.path) as (source, stream):
        if first:
            source.seek(int(known.keys[known.keys[:, 0] <= ticks[0]][-1, 1]), stream=stream)
        chosen = []
        for packet in source.demux(stream):
            if packet.pts is None or packet.is_discard:
                continue
            if ticks[0] <= packet.pts <= ticks[-1]:
                chosen.append(packet)
            if len(chosen) == len(ticks):
                break
        # In the order in which they are shown, and none is lacking: the first one needs none before it.
        if [packet.pts for packet in chosen] != ticks.tolist() or not chosen[0].is_keyframe:
            if alone:
                shutil.copyfile(file, out)
            return alone
        # An encoder that might have stored them out of order lets each be decoded a frame or two early. It did not, and
        # then it is not needed: LeRobot cannot put a film with it behind one without.
        with av.open(str(out), "w", format="mp4") as target:
            copy = target.add_stream_from_template(stream)
            for packet in chosen:
                packet.pts = packet.dts = (packet.pts or 0) - int(ticks[0])
                packet.stream = copy
                target.mux(packet)
    return True
