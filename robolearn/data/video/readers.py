"""Where a camera's frames lie in a data set, and how they are decoded: videos, or pictures inside the tables.

An mp4 may hold one episode, as ours do, or many, as LeRobot's do; `placement` says which picture is which frame.
Pictures of dtype "image" are PNG files in a column of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import av
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.remote import RemotePath
from robolearn.data.video.fingerprints import fingerprint
from robolearn.data.video.packing import pack, rgb
from robolearn.data.video.placement import TOLERANCE_S
from robolearn.data.video.segments import VideoSegment, pictures
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

    def packed(self, episode: int) -> Iterator[bytes]:
        """All frames of `episode` in order, as `packing` packs them; raises as `decode` does."""
        ...

    def identity(self, episode: int) -> str:
        """What the frames of `episode` are decoded from: the same content has the same identity, wherever it lies."""
        ...


@dataclass(frozen=True)
class VideoReader:
    """Frames in mp4 files.

    `paths` and `begins` (E,) [s] are the files and where in them the episodes begin, `memo` the folder of digests.
    """

    root: Path | RemotePath
    key: str
    shape: tuple[int, int, int]
    lengths: NDArray[np.int64]
    paths: list[str]
    begins: NDArray[np.float64]
    hz: float
    memo: Path | None = None

    def segment(self, episode: int) -> VideoSegment:
        """Where the frames of `episode` are."""
        name = f"episode {episode}, {self.key}"
        begin, length = float(self.begins[episode]), int(self.lengths[episode])
        return VideoSegment(self.root / self.paths[episode], length, self.hz, begin, name=name)

    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]:
        """See `FrameReader`."""
        count = int(self.lengths[episode]) - first if count is None else count
        decoded = np.empty((count, *self.shape), np.uint8)
        for t, picture in enumerate(self._pictures(self.segment(episode)[first : first + count])):
            decoded[t] = rgb(picture)
        return decoded

    def packed(self, episode: int) -> Iterator[bytes]:
        """See `FrameReader`."""
        return map(pack, self._pictures(self.segment(episode)))

    def _pictures(self, segment: VideoSegment) -> Iterator[av.VideoFrame]:
        for picture in pictures(segment, threads=1):  # episodes are decoded side by side
            if (picture.height, picture.width) != self.shape[:2]:
                got = f"an unreadable video ({picture.width}x{picture.height} pixels)"
                raise segment.refused(got, expected=f"{self.shape[1]}x{self.shape[0]}")
            yield picture

    def identity(self, episode: int) -> str:
        """See `FrameReader`."""
        try:
            content = fingerprint(self.root / self.paths[episode], self.memo)
        except OSError as error:
            raise BadInput(f"data set {self.root}: {self.paths[episode]}", got=error.strerror, expected="it") from None
        placed = [repr(float(number)) for number in (self.begins[episode], self.hz, TOLERANCE_S)]
        return _identity(content, *placed, str(self.lengths[episode]), str(self.shape))


@dataclass(frozen=True)
class PictureReader:
    """PNG files in column `column` of the tables `paths` (E,), from row `rows` (E,) on."""

    root: Path | RemotePath
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

    def packed(self, episode: int) -> Iterator[bytes]:
        """See `FrameReader`."""
        for t in range(int(self.lengths[episode])):
            yield pack(av.VideoFrame.from_ndarray(self.decode(episode, t, 1)[0], format="rgb24"))

    def identity(self, episode: int) -> str:
        """See `FrameReader`."""
        content = fingerprint(self.root / self.paths[episode], self.memo)
        return _identity(content, self.column, str(self.rows[episode]), str(self.lengths[episode]), str(self.shape))


def _identity(*parts: str) -> str:
    return sha256("\n".join(parts))
