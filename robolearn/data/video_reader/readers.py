"""Where a camera's frames lie in a data set, and how they are decoded: videos, or pictures inside the tables.

An mp4 may hold one episode, as ours do, or many, as LeRobot's do: frame t of an episode is the one that is shown at
``from_timestamp + t / fps``. Pictures of dtype "image" are PNG files in a column of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data import layout
from robolearn.data.fingerprints import fingerprint
from robolearn.data.video_reader.container import first_line, video_stream
from robolearn.io.hashes import sha256


class FrameReader(Protocol):
    """The frames of one camera, episode by episode.

    Attributes:
      key: the observation feature, e.g. ``images.front``.
      shape: (H, W, 3).
      lengths: (E,) frames per episode.
    """

    @property
    def key(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def lengths(self) -> NDArray[np.int64]: ...

    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]:
        """Frames `first` … of `episode` (count, H, W, 3).

        Raises:
          BadInput: a file is missing, damaged or short; the message names it, the episode and the frame.
        """
        ...

    def blocks(self, episode: int, size: int) -> Iterator[NDArray[np.uint8]]:
        """All frames of `episode` in order, `size` at a time (the last ones may be fewer); raises as `decode` does.

        An array is valid until the next one is yielded.
        """
        ...

    def identity(self, episode: int) -> str:
        """What the frames of `episode` are decoded from: the same content has the same identity, wherever it lies."""
        ...


@dataclass(frozen=True)
class VideoReader:
    """Frames in mp4 files.

    `paths` and `begins` (E,) [s] are the files and where in them the episodes begin, `memo` the folder of digests.
    """

    root: Path
    key: str
    shape: tuple[int, int, int]
    lengths: NDArray[np.int64]
    paths: list[str]
    begins: NDArray[np.float64]
    hz: float
    memo: Path | None = None

    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]:
        """See `FrameReader`."""
        count = int(self.lengths[episode]) - first if count is None else count
        for frames in self._decoded(episode, first, count, count):
            return frames
        return np.empty((0, *self.shape), np.uint8)

    def blocks(self, episode: int, size: int) -> Iterator[NDArray[np.uint8]]:
        """See `FrameReader`."""
        return self._decoded(episode, 0, int(self.lengths[episode]), size)

    def _decoded(self, episode: int, first: int, count: int, size: int) -> Iterator[NDArray[np.uint8]]:
        """Frames `first` … in one pass through the file, `size` at a time."""
        what = f"{self.root}: {self.paths[episode]} (episode {episode})"
        begin = float(self.begins[episode]) + first / self.hz
        done = 0
        try:
            for frames, got in _shown(self.root / self.paths[episode], begin, self.hz, count, size, self.shape):
                if not got.all():
                    lacking = first + done + int(np.flatnonzero(~got)[0])
                    raise BadInput(what, got=f"no frame {lacking}", expected=f"{self.lengths[episode]} frames")
                yield frames
                done += len(frames)
        except (OSError, ValueError, StopIteration) as error:  # PyAV's errors are all of these
            raise BadInput(what, got=f"an unreadable video ({first_line(error)})", expected="frames") from None

    def identity(self, episode: int) -> str:
        """See `FrameReader`."""
        try:
            content = fingerprint(self.root / self.paths[episode], self.memo)
        except OSError as error:
            raise BadInput(f"data set {self.root}: {self.paths[episode]}", got=error.strerror, expected="it") from None
        return _identity(content, repr(float(self.begins[episode])), str(self.lengths[episode]), str(self.shape))


@dataclass(frozen=True)
class PictureReader:
    """PNG files in column `column` of the tables `paths` (E,), from row `rows` (E,) on."""

    root: Path
    key: str
    shape: tuple[int, int, int]
    lengths: NDArray[np.int64]
    paths: list[str]
    rows: NDArray[np.int64]
    column: str
    memo: Path | None = None
    _newest: dict[str, pa.ChunkedArray] = field(default_factory=dict, repr=False, compare=False)

    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]:
        """See `FrameReader`."""
        import cv2

        path = self.paths[episode]
        column = self._newest.get(path)
        if column is None:
            column = layout.read_parquet(self.root, path, [self.column])[self.column]
            self._newest.clear()  # the newest file only: neighbours are read one after the other
            self._newest[path] = column
        count = int(self.lengths[episode]) - first if count is None else count
        frames = np.empty((count, *self.shape), np.uint8)
        for t, cell in enumerate(column.slice(int(self.rows[episode]) + first, count)):
            what = f"{self.root}: {path} (episode {episode}, frame {first + t}), {self.column}"
            content = (cell.as_py() or {}).get("bytes")
            picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) if content else None
            if picture is None or picture.shape != self.shape:
                got = "no readable picture" if picture is None else f"shape {picture.shape}"
                raise BadInput(what, got=got, expected=f"a picture of {self.shape}")
            frames[t] = picture[..., ::-1]  # OpenCV's order is blue, green, red
        return frames

    def blocks(self, episode: int, size: int) -> Iterator[NDArray[np.uint8]]:
        """See `FrameReader`."""
        length = int(self.lengths[episode])
        for first in range(0, length, size):
            yield self.decode(episode, first, min(size, length - first))

    def identity(self, episode: int) -> str:
        """See `FrameReader`."""
        content = fingerprint(self.root / self.paths[episode], self.memo)
        return _identity(content, self.column, str(self.rows[episode]), str(self.lengths[episode]), str(self.shape))


def _shown(
    path: Path, begin: float, hz: float, count: int, size: int, shape: tuple[int, int, int]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.bool_]]]:
    """What is shown at ``begin + t / hz`` for the `count` first t, `size` at a time, and which of these were found."""
    import av

    first, length = 0, min(size, count)
    frames, got = np.empty((length, *shape), np.uint8), np.zeros(length, bool)
    # With the format given, FFmpeg does not take damaged files for one of its hundreds of other formats.
    with av.open(str(path), format="mp4" if path.suffix == ".mp4" else None) as container:
        stream = video_stream(container)
        if (stream.height, stream.width) != shape[:2]:
            raise ValueError(f"{stream.width}x{stream.height} pixels")
        stream.codec_context.thread_count = 1  # episodes are decoded side by side
        base = float(stream.time_base)
        if begin > 0:
            container.seek(max(0, int((begin - 0.5 / hz) / base)), stream=stream, backward=True)
        for picture in container.decode(stream):
            t = round((picture.pts * base - begin) * hz)
            while t >= first + size and first + length < count:
                yield frames[:length], got[:length]
                first, length = first + length, min(size, count - first - length)
                got[:] = False
            if first <= t < first + length:
                if picture.is_corrupt:  # the decoder hides the hole with what lies around it
                    raise ValueError(f"damaged at {picture.pts * base:.3f} s")
                frames[t - first] = picture.to_ndarray(format="rgb24")
                got[t - first] = True
            if t >= count - 1:
                break
    if count:
        yield frames[:length], got[:length]


def _identity(*parts: str) -> str:
    return sha256("\n".join(parts))
