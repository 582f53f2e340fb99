"""Video files: whether there is a video in them, and of what kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robolearn.core import BadInput
from robolearn.data.lerobot.remote import RemotePath


def facts(path: Path | RemotePath) -> dict[str, Any]:
    """Codec, pixel format, size and frame rate of a video, as LeRobot's features name them.

    Raises:
      BadInput: it is missing, or does not open.
    """
    import av
    from av.error import FFmpegError

    try:
        with av.open(readable(path)) as container:
            stream = video_stream(container)
            context = stream.codec_context
            return {
                "video.height": stream.height,
                "video.width": stream.width,
                "video.codec": context.codec.canonical_name,
                "video.pix_fmt": context.pix_fmt,
                "video.is_depth_map": False,
                "video.fps": float(stream.average_rate or 0),
                "video.channels": 3,
                "has_audio": bool(container.streams.audio),
            }
    except (FFmpegError, OSError, IndexError, ValueError) as error:
        raise BadInput(f"video {path}", got=f"one that does not open ({first_line(error)})") from None


def size_of(path: Path | RemotePath) -> tuple[int, int]:
    """(height, width) of the video [pixels]; raises as `facts` does."""
    known = facts(path)
    return known["video.height"], known["video.width"]


def readable(path: Path | RemotePath) -> Any:
    """What PyAV opens to read the file `path`."""
    return path.open() if isinstance(path, RemotePath) else str(path)


def video_stream(container: Any) -> Any:
    """The video of a file that was opened; `ValueError` where it has none that can be decoded."""
    if not container.streams.video or container.streams.video[0].codec_context is None:
        raise ValueError("no video that can be decoded")
    return container.streams.video[0]


def first_line(error: Exception) -> str:
    """The first line of a library's message."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0]
