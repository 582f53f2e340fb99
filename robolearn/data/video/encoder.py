"""Encode the images of one camera while they are recorded: a thread, a short queue, one mp4 per episode.

LeRobot's settings: AV1 (libsvtav1), yuv420p, a key frame every second frame, crf 30; H.264 where this build of
FFmpeg has no AV1 encoder. The preset trades processor time for bytes only.

The mp4 grows packet by packet, each one on the disk's side of the process as soon as the encoder lets go of it, and
an index of the packets beside it, because an mp4 whose process was killed has no index of its own. `remux` makes a
whole mp4 of what the two hold.
"""

from __future__ import annotations

import logging
import os
import queue
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, RobolearnError
from robolearn.core.machine import ordinary_priority
from robolearn.data.lerobot.statistics import PixelStatistics, Stats
from robolearn.data.video.container import described
from robolearn.data.video.packing import in_format, of_pixels
from robolearn.io.append_only import Journal, records

log = logging.getLogger(__name__)

PATIENCE_S = 60.0  # SVT-AV1's threads can wait for each other for ever on a very busy machine
SYNC_BYTES = 8 << 20  # a growing video is synced this often, so that the end of a long episode need not
_PACKET = struct.Struct("<qQII")  # frame, offset in the file, size, crc32 of the data


@dataclass(frozen=True)
class VideoConfig:
    """Encoding of images.

    Attributes:
      codec: FFmpeg's name of the encoder, or ``"auto"``: libsvtav1 where there is one, else libx264.
      pix_fmt: pixel format.
      g: a key frame every `g` frames: small, so that any frame is quick to reach.
      crf: quality, 0 (best) to 63.
      preset: of the encoder, 0 to 13 for libsvtav1 and e.g. ``"veryfast"`` for libx264; None for a quick one.
      queue: frames that may wait for each camera's encoder. The end of an episode waits for them.
      threads: of each encoder; 0 leaves their number to it.
    """

    codec: str = "auto"
    pix_fmt: str = "yuv420p"
    g: int = 2
    crf: int = 30
    preset: int | str | None = None
    queue: int = 32
    threads: int = 0

    def encoder(self) -> str:
        """The encoder that this machine will use."""
        import av

        if self.codec != "auto":
            return self.codec
        return "libsvtav1" if "libsvtav1" in av.codecs_available else "libx264"

    def pixel_format(self, height: int, width: int) -> str:
        """`pix_fmt`, but where libx264 would refuse the size: a colour of 4:2:0 is that of 2 × 2 pixels."""
        odd = bool(height % 2 or width % 2)
        return "yuv444p" if odd and self.encoder() == "libx264" and self.pix_fmt == "yuv420p" else self.pix_fmt

    def options(self) -> dict[str, str]:
        """FFmpeg's options for `encoder`."""
        quick = {"libsvtav1": "12", "libx264": "veryfast"}
        preset = self.preset if self.preset is not None else quick.get(self.encoder())
        options = {"g": str(self.g), "crf": str(self.crf)}
        # Frames in the order in which they are shown: packet t is frame t, so a video cut short is whole up to there.
        options |= {"bf": "0"} if self.encoder() == "libx264" else {}
        options |= {"threads": str(self.threads)} if self.threads else {}
        return options | ({"preset": str(preset)} if preset is not None else {})


@dataclass(frozen=True)
class EpisodeVideo:
    """A finished mp4 of one camera and episode.

    Attributes:
      path: where it lies now.
      frames: how many.
      stats: of its pixels in [0, 1], statistic → (channels,).
    """

    path: Path
    frames: int
    stats: Stats


def open_stream(container: Any, spec: ArraySpec, hz: float, config: VideoConfig) -> Any:
    """A video stream for images of `spec` in an output container."""
    stream = container.add_stream(config.encoder(), rate=frame_rate(hz), options=config.options())
    stream.height, stream.width = spec.shape[:2]
    stream.pix_fmt = config.pixel_format(*spec.shape[:2])
    with ordinary_priority():
        stream.codec_context.open(strict=False)
    return stream


def frame_rate(hz: float) -> Fraction:
    """`hz` as the ratio that a container stores: a small one where that is the rate, as 30000/1001 is.

    Otherwise one that drifts by less than a microsecond an hour; with a small one, frame 301 of 1/0.033333 Hz would be
    further from its time than a reader takes.
    """
    small = Fraction(hz).limit_denominator(1001)
    return small if abs(small - Fraction(hz)) <= 1e-9 * hz else Fraction(hz).limit_denominator(100_000)


def check_encodable(key: str, spec: ArraySpec, hz: float, config: VideoConfig) -> dict[str, Any]:
    """Try the encoder on images of `spec`; returns the feature's ``info``. Raises `BadInput`: FFmpeg has no such
    encoder, or refuses the size or an option."""
    import av
    from av.error import FFmpegError

    quiet()
    height, width, _ = spec.shape
    pixels = config.pixel_format(height, width)
    try:
        context: Any = av.CodecContext.create(config.encoder(), "w")
        context.width, context.height, context.pix_fmt = width, height, pixels
        context.framerate, context.options = frame_rate(hz), config.options()
        context.time_base = 1 / frame_rate(hz)
        with ordinary_priority():
            context.open()
        return described(context, height, width, int(hz) if float(hz).is_integer() else hz)
    except (FFmpegError, ValueError) as error:
        got = f"{width}x{height}, {config.encoder()}, {pixels}, {config.options()} ({error})"
        raise BadInput(f"video of {key!r}", got=got, expected="images and settings that the encoder takes") from None


def quiet() -> None:
    """SVT-AV1 prints its settings for every video, past all loggers, unless its variable forbids it."""
    os.environ.setdefault("SVT_LOG", "1")


class VideoEncoder:
    """One mp4 at `path`, and with `index` the means to salvage it.

    Frames are encoded in a thread. What goes wrong there, a full disk above all, is raised by the next `put` or by
    `finish`, as one `RobolearnError`; `stop` and `abort` are always possible. So is an encoder that takes no frame and
    gives no packet for `PATIENCE_S`: it is no longer waited for, and its thread ends with the process.
    """

    def __init__(
        self, path: Path, key: str, spec: ArraySpec, hz: float, config: VideoConfig, *, index: Path | None = None
    ) -> None:
        quiet()
        self.path, self._key, self._spec, self._hz, self._config = path, key, spec, hz, config
        self._index = index
        self._queue: queue.Queue[NDArray[np.uint8] | None] = queue.Queue(config.queue)
        self._statistics = PixelStatistics()
        self._frames = 0
        self._error: BaseException | None = None
        self._stopped = self._ended = self._warned = self._hung = False
        self._moves = 0  # frames that went in and packets that came out
        self._thread = threading.Thread(target=self._run, name=f"encode {key}", daemon=True)
        self._thread.start()

    def put(self, frame: NDArray[np.uint8]) -> None:
        """Take one image (H, W, 3), which must not be written to any more. Waits only where the queue is full."""
        self._check()
        try:
            self._queue.put_nowait(frame)
        except queue.Full:
            if not self._warned:
                log.debug("%s: the encoder of %s does not keep up, add() waits for it", self.path, self._key)
                self._warned = True
            self._wait(lambda seconds: self._offer(frame, seconds))
            self._check()

    def finish(self) -> EpisodeVideo:
        """Encode what still waits and close the file."""
        self.stop()
        self._check()
        return EpisodeVideo(self.path, self._frames, self._statistics.stats())

    def abort(self) -> None:
        """Stop, and remove the files."""
        self._error = self._error or RobolearnError("aborted")
        self.stop()
        self.path.unlink(missing_ok=True)
        if self._index is not None:
            self._index.unlink(missing_ok=True)

    def stop(self) -> None:
        """Encode what still waits, as far as that goes, and leave the files as they are then."""
        if not self._stopped:
            self._stopped = True
            self._wait(lambda seconds: self._offer(None, seconds))
        self._wait(self._joined)

    def _offer(self, frame: NDArray[np.uint8] | None, seconds: float) -> bool:
        try:
            self._queue.put(frame, timeout=seconds)
        except queue.Full:
            return False
        return True

    def _joined(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _wait(self, done: Callable[[float], bool]) -> None:
        """Until `done(seconds)` is true, or the encoder has not moved for `PATIENCE_S`: then it counts as hung.

        Counted in waits, not by the clock: who stops the program with Ctrl-Z and goes on has not hung.
        """
        waits, moves = 0, self._moves
        while not self._hung and not done(PATIENCE_S / 60):
            waits, moves = (waits + 1, moves) if moves == self._moves else (0, self._moves)
            if waits == 60:
                self._hung = True
                text = f"{self._config.encoder()} has not moved for {PATIENCE_S:g} s after {self._frames} frames"
                self._error = self._error or RobolearnError(text)

    def _check(self) -> None:
        if self._error is not None:
            text = getattr(self._error, "strerror", None) or str(self._error)
            raise RobolearnError(f"video {self.path} cannot be written ({text})") from self._error

    def _run(self) -> None:
        try:
            self._encode(self._waiting())
        except BaseException as error:
            self._error = self._error or error
            while not self._ended:  # a waiting `put` must not wait for ever
                self._ended = self._queue.get() is None

    def _waiting(self) -> Iterator[NDArray[np.uint8]]:
        while (frame := self._queue.get()) is not None:
            yield frame
        self._ended = True

    def _encode(self, frames: Iterator[NDArray[np.uint8]]) -> None:
        import av

        self.path.parent.mkdir(parents=True, exist_ok=True)
        index = Journal(self._index) if self._index is not None else None
        output = _Output(self.path)
        try:
            # What nobody could make whole again need not reach the disk packet by packet.
            flush = {"flush_packets": "0" if index is None else "1"}
            with av.open(output, "w", format="mp4", options=flush) as container:
                stream = open_stream(container, self._spec, self._hz, self._config)
                rate, pixels = frame_rate(self._hz), stream.pix_fmt

                def mux(packets: Any) -> None:
                    for packet in packets:
                        self._moves += 1
                        if index is None:
                            container.mux_one(packet)
                            continue
                        frame = round(packet.pts * packet.time_base * rate)
                        container.mux_one(packet)
                        index.append(_PACKET.pack(frame, *output.written()))

                container.start_encoding()
                output.written()
                for frame in frames:
                    if self._error is not None:  # aborted
                        continue
                    self._statistics.add(frame)
                    picture = in_format(of_pixels(frame), pixels)
                    # The first one starts more of its threads.
                    with nullcontext() if self._frames else ordinary_priority():
                        mux(stream.encode(picture))
                    self._frames += 1
                    self._moves += 1
                mux(stream.encode())
        except Exception as error:
            raise output.error or error from None  # FFmpeg's error on a full disk is vaguer than the system's
        finally:
            output.close()
            if index is not None:
                index.close()


def remux(
    path: Path, index: Path, target: Path, spec: ArraySpec, hz: float, config: VideoConfig, most: int | None = None
) -> int:
    """Write the mp4 `target` from a video that was never closed and its index; returns the number of frames.

    What lies beyond a damaged packet, or beyond `most` frames, is left out; without frames nothing is written.
    """
    import av

    packets: list[bytes] = []
    with open(path, "rb") as file:
        for record in records(index):
            frame, offset, size, checksum = _PACKET.unpack(record)
            file.seek(offset)
            data = file.read(size)
            if frame != len(packets) or zlib.crc32(data) != checksum or len(packets) == most:
                break
            packets.append(data)
    if not packets:
        return 0
    quiet()
    with av.open(str(target), "w", format="mp4") as container:
        stream = open_stream(container, spec, hz, config)
        container.start_encoding()
        prefixed = stream.codec_context.codec.canonical_name in ("h264", "hevc")
        for frame, data in enumerate(packets):
            packet = av.Packet(_annex_b(data) if prefixed else data)
            packet.stream, packet.time_base = stream, 1 / frame_rate(hz)
            packet.pts = packet.dts = frame
            packet.duration = 1
            packet.is_keyframe = frame % config.g == 0
            container.mux_one(packet)
    return len(packets)


def _annex_b(data: bytes) -> bytes:
    """The units of an H.264 or HEVC packet as the encoder gave them; in an mp4 lengths stand for the start codes."""
    units, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        units += [b"\0\0\0\1", data[at + 4 : end]]
        at = end
    return b"".join(units)


class _Output:
    """The file behind a container: unbuffered, its errors Python's own; it keeps what the last packet became."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._position = self._synced = self._begun = 0
        self._crc = 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(self._descriptor, view, self._position)
                self._position += done
                view = view[done:]
        except OSError as error:
            self.error = error
            raise
        self._crc = zlib.crc32(data, self._crc)
        if self._position - self._synced > SYNC_BYTES:
            os.fdatasync(self._descriptor)
            self._synced = self._position
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._position, 2: os.fstat(self._descriptor).st_size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def written(self) -> tuple[int, int, int]:
        """(offset, size, crc32) of what was written since the last call."""
        span = self._begun, self._position - self._begun, self._crc
        self._begun, self._crc = self._position, 0
        return span

    def close(self) -> None:
        os.close(self._descriptor)
