"""Videos: there, as long as their tables, decodable to the last frame, and not frozen while the arm moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.error import FFmpegError
from numpy.typing import NDArray

from robolearn.core.errors import first_line
from robolearn.data.lerobot import layout
from robolearn.data.validate.opened import Defect, Opened, Rows, Tolerances
from robolearn.data.video.container import misplaced, nearest, video_stream
from robolearn.data.video.packing import grey

BLOCK = 8  # pixels at least; pictures are compared by the means of their blocks, which encoders hardly change
GRID = 32  # blocks at most, each way: a frame of a long video costs a kilobyte
SAME = 2  # of 255; two encodings of one picture differ by no more
MOVES = 0.05  # of a component's range in the set, at least, is a motion
RESTS = 0.01  # of the widest range: less is an arm at rest, whose least joint drifts


def videos(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """All of it, file by file; each is decoded once."""
    ranges = _ranges(data)
    for feature in data.videos:
        files: dict[str, list[dict[str, Any]]] = {}
        for row in data.rows:
            where = [row.get(f"videos/{feature}/{key}") for key in ("chunk_index", "file_index", "from_timestamp")]
            if None in where:
                yield Defect("video", f"{feature}: no place in meta/episodes", row["file"], row["episode_index"])
                continue
            files.setdefault(layout.file_of(data.info, row, feature), []).append(row)
        for name, rows in files.items():
            yield from _file(data, feature, name, rows, ranges, limits)
            data.seen(name)


def _file(
    data: Opened, feature: str, name: str, rows: list[dict[str, Any]], ranges: NDArray | None, limits: Tolerances
) -> Iterator[Defect]:
    first = rows[0]["episode_index"]
    if not (data.root / name).is_file():
        for row in rows:
            yield Defect("missing video", "the file is not there", name, row["episode_index"])
        return
    try:
        times, signatures, size, broken = _read(data.root / name, limits.decode)
    except (FFmpegError, OSError, IndexError, ValueError) as error:
        yield Defect("video", f"it does not open ({first_line(error)})", name, first)
        return
    shape = [int(extent) for extent in data.info["features"][feature]["shape"]]
    if sorted(shape) != sorted([*size, 3]):
        yield Defect("video", f"{size[1]} × {size[0]} pixels, info.json says {shape}", name, first)
    rows = sorted(rows, key=lambda row: layout.begin_of(row, feature))
    fps = data.fps
    for position, row in enumerate(rows):
        start, length, index = layout.begin_of(row, feature), row["length"], row["episode_index"]
        if not len(times):
            yield Defect("video", f"it does not decode from here on ({broken or 'no picture in it'})", name, index, 0)
            continue
        mine, late = nearest(times, start, fps, np.arange(length))
        end = start + (length - 0.5) / fps
        lacking = misplaced(late, limits.grid_s)
        there = int(((times >= start - 0.5 / fps) & (times < end)).sum())
        if len(lacking):
            at = int(lacking[0])
            if broken and times[-1] < start + (at - 0.5) / fps:
                yield Defect("video", f"it does not decode from here on ({broken})", name, index, at)
            elif times[-1] < start + (at - 0.5) / fps:
                what = f"{at} frames, shorter than its table of {length}"
                yield Defect("video length", what, name, index, at)
            else:
                what = f"shown at {times[mine[at]] - start:.4f} s, expected {at / fps:.4f} s"
                yield Defect("video time", what, name, index, at)
        elif there > length:
            yield Defect("video length", f"{there} frames, longer than its table of {length}", name, index)
        last = position == len(rows) - 1
        if last and not broken and (beyond := int((times >= end).sum())):
            what = f"{length + beyond} frames, longer than its table of {length}"
            yield Defect("video length", what, name, index, length)
        episode = data.episodes.get(index)
        if limits.decode and episode is not None and ranges is not None:
            own = _of_its_arm(data, feature, len(ranges))
            yield from _frozen(feature, name, episode, signatures[mine], ranges, own, fps, limits)


def _read(path: Path, decode: bool) -> tuple[NDArray[np.float64], NDArray[np.uint8], tuple[int, int], str]:
    """(when each frame is shown [s], its block means (F, blocks), (height, width), why decoding ended early)."""
    times: list[float] = []
    signatures: list[NDArray[np.uint8]] = []
    broken = ""
    with av.open(str(path)) as container:
        stream = video_stream(container)
        size = (stream.height, stream.width)
        if not decode:
            base = stream.time_base or 0
            times = sorted(float(packet.pts * base) for packet in container.demux(stream) if packet.pts is not None)
            return np.array(times), np.zeros((len(times), 0), np.uint8), size, ""
        try:
            for frame in container.decode(stream):
                if frame.is_corrupt:  # the decoder hides the hole with what lies around it
                    broken = "damaged data"
                    break
                times.append(float(frame.time or 0.0))
                signatures.append(_blocks(grey(frame)))
        except (FFmpegError, OSError, ValueError) as error:
            broken = first_line(error)
    return np.array(times), np.stack(signatures) if signatures else np.zeros((0, 0), np.uint8), size, broken


def _blocks(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The means of the blocks of a picture (H, W), flat."""
    import cv2

    height, width = grey.shape
    small = (min(GRID, max(1, width // BLOCK)), min(GRID, max(1, height // BLOCK)))
    return np.asarray(cv2.resize(grey, small, interpolation=cv2.INTER_AREA), np.uint8).reshape(-1)


def _frozen(
    feature: str, name: str, rows: Rows, signatures: NDArray[np.uint8], ranges: NDArray, own: NDArray[np.bool_],
    fps: float, limits: Tolerances,
) -> Iterator[Defect]:  # fmt: skip
    """Stretches in which all pictures are like the first while the arm moves, by its `own` components (D,)."""
    state = _state(rows)
    if state is None or len(state) < len(signatures):
        return
    first = 0
    while first < len(signatures):
        alike = np.abs(signatures[first:].astype(np.int16) - signatures[first]).max(axis=1) <= SAME
        length = int(alike.argmin()) if not alike.all() else len(alike)
        last = first + length - 1
        if (length - 1) / fps > limits.frozen_s:
            moved = np.ptp(state[first : last + 1], axis=0)
            if (moved > np.maximum(MOVES * ranges, max(RESTS * ranges.max(), 1e-4)))[own].any():
                seconds = (length - 1) / fps
                what = f"{feature} shows one picture for {seconds:.1f} s (until frame {last}) while the arm moves"
                yield Defect("frozen camera", what, name, rows.index, first)
        first += max(1, length)


def _of_its_arm(data: Opened, feature: str, count: int) -> NDArray[np.bool_]:
    """(D,) true for the `count` components of the state by which a camera is judged: of two arms ``left_wrist`` is
    moved by the left one alone; any other by all."""
    names = data.info["features"].get("observation.state", {}).get("names")
    if not isinstance(names, list) or len(names) != count:
        return np.ones(count, np.bool_)
    arm = feature.rpartition(".")[2].partition("_")[0]
    own = np.array([str(name).startswith(f"{arm}_") for name in names])
    return own if own.any() else ~own


def _state(rows: Rows) -> NDArray | None:
    values = rows.columns.get("observation.state")
    if values is None or not len(values) or not np.isfinite(values).all():
        return None
    return values.reshape(len(values), -1).astype(np.float64)


def _ranges(data: Opened) -> NDArray | None:
    """(D,) how far each component of the robot's state goes in the set."""
    states = [state for rows in data.episodes.values() if (state := _state(rows)) is not None]
    if not states or len({state.shape[1] for state in states}) > 1:
        return None
    return np.ptp(np.concatenate(states), axis=0)
